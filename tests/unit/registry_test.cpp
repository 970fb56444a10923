// Probe lists, slots and the limbo: what is shared, what is freed, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "registry/grace.h"
#include "registry/limbo.h"
#include "registry/probe_lists.h"

namespace libfprobe::detail {
namespace {

// Slots are never deleted; the leak checker must find them.
PooledSlot* take(SlotPool& pool) {
  static auto& taken = *new std::vector<PooledSlot*>;
  taken.push_back(pool.take());
  return taken.back();
}

class ProbeLists : public ::testing::Test {
 protected:
  // A live slot and an entry of it.
  ListEntry live_entry(std::uint32_t data_size = 0, bool has_exit = false) {
    PooledSlot* const slot = take(pool_);
    ListEntry entry;
    entry.slot = slot;
    entry.generation = slot->generation.fetch_add(1) + 1;
    entry.data_size = data_size;
    entry.has_exit = has_exit;
    return entry;
  }
  static void kill(const ListEntry& entry) { entry.slot->generation.fetch_add(1); }

  // Publishes the entry, or without one takes dead entries out, on all `sites`.
  void change(std::vector<Site*> sites, const ListEntry* added) {
    ListChanges changes;
    for (Site* const site : sites) changes.plan(*site, added);
    retired_.reserve(retired_.size() + changes.retired_count());
    const std::size_t expected = retired_.size() + changes.retired_count();
    changes.publish(retired_);
    EXPECT_EQ(retired_.size(), expected);
  }
  static const ProbeList* list_of(const Site& site) { return site.probes.load(); }

  void TearDown() override {
    for (Site* const site : {&first_, &second_}) release_list(list_of(*site));
    release_lists(retired_);
  }

  SlotPool pool_;
  Site first_, second_;
  std::vector<const ProbeList*> retired_;
};

TEST_F(ProbeLists, AreSharedByAllSitesThatChangeAlike) {
  const ListEntry entry = live_entry();
  change({&first_, &second_}, &entry);
  ASSERT_NE(list_of(first_), nullptr);
  EXPECT_EQ(list_of(first_), list_of(second_));
  EXPECT_TRUE(retired_.empty());
}

TEST_F(ProbeLists, HoldTheNewestRegistrationFirstAndTheSumsOfTheirEntries) {
  const ListEntry older = live_entry(16, true), newer = live_entry(24, true), newest = live_entry();
  change({&first_}, &older);
  change({&first_, &second_}, &newer);
  change({&first_}, &newest);
  const ProbeList* const list = list_of(first_);
  ASSERT_EQ(list->count, 3u);
  EXPECT_EQ(list->entries[0].slot, newest.slot);
  EXPECT_EQ(list->entries[1].slot, newer.slot);
  EXPECT_EQ(list->entries[2].slot, older.slot);
  EXPECT_EQ(list->exit_count, 2u);
  EXPECT_EQ(list->data_bytes, 40u);
  EXPECT_EQ(list_of(second_)->count, 1u);
}

TEST_F(ProbeLists, LoseDeadEntriesAtTheNextChange) {
  const ListEntry dying = live_entry(8, true), staying = live_entry();
  change({&first_}, &dying);
  change({&first_}, &staying);
  EXPECT_TRUE(all_live(list_of(first_)));
  kill(dying);
  EXPECT_FALSE(all_live(list_of(first_)));
  change({&first_}, nullptr);
  ASSERT_EQ(list_of(first_)->count, 1u);
  EXPECT_EQ(list_of(first_)->entries[0].slot, staying.slot);
  EXPECT_EQ(list_of(first_)->exit_count, 0u);
  EXPECT_EQ(list_of(first_)->data_bytes, 0u);
  kill(staying);
  change({&first_}, nullptr);
  EXPECT_EQ(list_of(first_), nullptr);
}

TEST_F(ProbeLists, WithoutADeadEntryStayAsTheyAre) {
  const ListEntry entry = live_entry();
  change({&first_}, &entry);
  const ProbeList* const before = list_of(first_);
  change({&first_}, nullptr);
  EXPECT_EQ(list_of(first_), before);
  EXPECT_TRUE(retired_.empty());
}

TEST_F(ProbeLists, NeverPublishedAreFreedAndChangeNothing) {
  const ListEntry entry = live_entry();
  {
    ListChanges changes;
    changes.plan(first_, &entry);
  }  // a leak is LeakSanitizer's to tell
  EXPECT_EQ(list_of(first_), nullptr);
}

TEST_F(ProbeLists, SharedAndRetiredAtDifferentTimesOutliveBothReaders) {
  const ListEntry entry = live_entry();
  change({&first_, &second_}, &entry);
  const ProbeList* const shared = list_of(first_);
  kill(entry);
  change({&first_}, nullptr);
  std::vector<const ProbeList*> from_first;
  from_first.swap(retired_);
  release_lists(from_first);
  EXPECT_EQ(list_of(second_), shared) << "the other site shows it still";
  EXPECT_EQ(shared->count, 1u);  // AddressSanitizer tells if it was freed
  change({&second_}, nullptr);
  EXPECT_EQ(retired_, std::vector<const ProbeList*>{shared});
}

TEST(SlotPool, GivesASlotOutAgainUnderItsOldGenerationCount) {
  SlotPool pool;
  PooledSlot* const slot = take(pool);
  slot->generation.fetch_add(2);
  pool.give_back(slot);
  PooledSlot* const again = take(pool);
  EXPECT_EQ(again, slot);
  EXPECT_EQ(again->generation.load(), 2u) << "stale frames must see a later generation";
  EXPECT_NE(take(pool), slot);
}

TEST(SlotPool, FindsEverySlotByItsNumberAndNothingByAnyOther) {
  SlotPool pool;
  EXPECT_EQ(pool.numbered(1), nullptr);
  std::vector<std::uintptr_t> numbers;
  for (int i = 0; i < 16 + 32 + 64; ++i) {  // three blocks
    PooledSlot* const slot = take(pool);
    EXPECT_EQ(pool.numbered(slot->number), slot) << slot->number;
    numbers.push_back(slot->number);
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::unique(numbers.begin(), numbers.end()), numbers.end());
  EXPECT_EQ(numbers.front(), 1u);
  EXPECT_EQ(numbers.back(), numbers.size());
  const std::uintptr_t past_all = numbers.back() + 1;
  for (const std::uintptr_t number :
       {std::uintptr_t{0}, past_all, std::uintptr_t{1} << 43, (std::uintptr_t{1} << 44) - 16,
        std::uintptr_t{0x5a5a5a5a5a5a5a5a}, ~std::uintptr_t{0}})
    EXPECT_EQ(pool.numbered(number), nullptr) << number;
}

// --- limbo

class LimboTest : public ProbeLists {
 protected:
  LimboTest() { grace::enlist(participant_); }

  // A slot whose only list was retired from first_.
  Retirement* retire_from_first() {
    const ListEntry entry = live_entry();
    change({&first_}, &entry);
    kill(entry);
    change({&first_}, nullptr);
    auto* const retirement = new Retirement;
    retirement->sites = {&first_};
    retirement->lists.swap(retired_);
    retirement->slot = static_cast<PooledSlot*>(entry.slot);
    return retirement;
  }

  Participant& participant_ = *new Participant;  // enlisted for ever
  Limbo limbo_;
};

TEST_F(LimboTest, FreesWhatNobodyReads) {
  Retirement* const retirement = retire_from_first();
  PooledSlot* const slot = retirement->slot;
  limbo_.add(retirement);
  limbo_.reclaim(pool_);
  EXPECT_EQ(take(pool_), slot);
}

TEST_F(LimboTest, KeepsWhatAReaderOfItsSiteMayHold) {
  Retirement* const retirement = retire_from_first();
  PooledSlot* const slot = retirement->slot;
  limbo_.add(retirement);
  participant_.guards[0].open(first_, 0);
  limbo_.reclaim(pool_);
  PooledSlot* const other = take(pool_);
  EXPECT_NE(other, slot);
  participant_.guards[0].close();
  participant_.guards[0].open(second_, 0);
  limbo_.reclaim(pool_);
  EXPECT_EQ(take(pool_), slot);
  participant_.guards[0].close();
}

TEST_F(LimboTest, LeavesToAWaiterWhatItWaitsFor) {
  Retirement* const retirement = retire_from_first();
  PooledSlot* const slot = retirement->slot;
  retirement->has_waiter = true;
  limbo_.add(retirement);
  limbo_.reclaim(pool_);
  PooledSlot* const other = take(pool_);
  EXPECT_NE(other, slot);
  limbo_.finish(retirement, pool_);
  EXPECT_EQ(take(pool_), slot);
}

TEST_F(LimboTest, InAForkChildFreesWhatLostThreadsWaitedFor) {
  Retirement* const retirement = retire_from_first();
  PooledSlot* const slot = retirement->slot;
  retirement->has_waiter = true;
  limbo_.add(retirement);
  limbo_.forget_waiters();
  limbo_.reclaim(pool_);
  EXPECT_EQ(take(pool_), slot);
}

TEST_F(LimboTest, TellsTheSitesOfAllThatWaits) {
  Retirement* const retirement = retire_from_first();
  retirement->has_waiter = true;
  limbo_.add(retirement);
  std::vector<const Site*> sites;
  limbo_.collect_sites(sites);
  EXPECT_EQ(sites, std::vector<const Site*>{&first_});
  limbo_.finish(retirement, pool_);
}

}  // namespace
}  // namespace libfprobe::detail
