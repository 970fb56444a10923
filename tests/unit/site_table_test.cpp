// The lock-free hash from entry addresses to Sites.
#include "registry/site_table.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/syscalls.h"
#include "base/tsan.h"

namespace libfprobe::detail {
namespace {

std::unique_ptr<Site> site_at(std::uintptr_t ip) {
  auto site = std::make_unique<Site>();
  site->ip = ip;
  return site;
}

// Tables keep their old cells for ever; the leak checker must find them.
SiteTable& new_table() {
  static auto& tables = *new std::vector<SiteTable*>;
  tables.push_back(new SiteTable);
  return *tables.back();
}

// Sites at 0x1000, 0x1010, ...
std::vector<std::unique_ptr<Site>> make_sites(std::size_t count) {
  std::vector<std::unique_ptr<Site>> sites;
  for (std::size_t i = 0; i < count; ++i) sites.push_back(site_at(0x1000 + i * 16));
  return sites;
}

TEST(SiteTable, FindsNothingWhenEmpty) {
  SiteTable& table = new_table();
  EXPECT_EQ(table.find(0x1000), nullptr);
  ASSERT_TRUE(table.reserve(1));
  EXPECT_EQ(table.find(0x1000), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
}

TEST(SiteTable, FindsEverySiteThroughSeveralGrowths) {
  SiteTable& table = new_table();
  const auto sites = make_sites(20'000);
  for (const auto& site : sites) {
    ASSERT_TRUE(table.reserve(1));
    table.insert(*site);
  }
  for (const auto& site : sites) ASSERT_EQ(table.find(site->ip), site.get());
  EXPECT_EQ(table.find(0x1008), nullptr);
}

TEST(SiteTable, ForgetsAnErasedSiteAloneAndTakesItBack) {
  SiteTable& table = new_table();
  const auto sites = make_sites(300);
  ASSERT_TRUE(table.reserve(sites.size()));
  for (const auto& site : sites) table.insert(*site);
  table.erase(sites[7]->ip);
  table.erase(0x5);  // never inserted
  EXPECT_EQ(table.find(sites[7]->ip), nullptr);
  for (std::size_t i = 8; i < sites.size(); ++i) ASSERT_EQ(table.find(sites[i]->ip), sites[i].get());
  table.insert(*sites[7]);
  EXPECT_EQ(table.find(sites[7]->ip), sites[7].get());
}

TEST(SiteTable, ShowsTheNewSiteAfterAReplacement) {
  SiteTable& table = new_table();
  const auto old_site = site_at(0x4000), new_site = site_at(0x4000);
  ASSERT_TRUE(table.reserve(2));
  table.insert(*old_site);
  table.insert(*new_site);
  EXPECT_EQ(table.find(0x4000), new_site.get());
  table.erase(0x4000);
  EXPECT_EQ(table.find(0x4000), nullptr) << "the replaced Site must not come to light again";
}

TEST(SiteTable, DoesNotGrowWhenSitesComeAndGoAtEverNewAddresses) {
  SiteTable& table = new_table();
  ASSERT_TRUE(table.reserve(1));
  const unsigned long before = sys::fault(sys::Call::kAllocate).calls;
  std::vector<std::unique_ptr<Site>> sites = make_sites(50'000);
  for (const auto& site : sites) {
    ASSERT_TRUE(table.reserve(1));
    table.insert(*site);
    ASSERT_EQ(table.find(site->ip), site.get());
    table.erase(site->ip);
  }
  EXPECT_LE(sys::fault(sys::Call::kAllocate).calls - before, 2u) << "erased cells are not used again";
}

TEST(SiteTable, KeepsItsContentsWhenItCannotGrow) {
  SiteTable& table = new_table();
  const auto sites = make_sites(2'000);
  ASSERT_TRUE(table.reserve(1));
  table.insert(*sites[0]);
  sys::fault(sys::Call::kAllocate).fail_after = 0;
  sys::fault(sys::Call::kAllocate).error = ENOMEM;
  EXPECT_FALSE(table.reserve(sites.size()));
  sys::fault(sys::Call::kAllocate).error = 0;
  EXPECT_EQ(table.find(sites[0]->ip), sites[0].get());
}

TEST(SiteTable, ReadersNeverMissAPermanentSiteWhileOthersComeAndGo) {
  SiteTable& table = new_table();
  const auto permanent = make_sites(64);
  ASSERT_TRUE(table.reserve(permanent.size()));
  for (const auto& site : permanent) table.insert(*site);

  std::atomic<bool> stop{false};
  std::atomic<unsigned long> lookups{0}, wrong{0};
  std::thread reader([&] {
    while (!stop) {
      for (const auto& site : permanent) wrong += table.find(site->ip) != site.get() ? 1 : 0;
      // Whatever else is found has the address asked for, however the cells change hands.
      for (std::uintptr_t ip = 0x100000; ip < 0x100000 + 64 * 16; ip += 16) {
        const Site* const found = table.find(ip);
        if (found != nullptr) tsan_acquire(found);  // pairs with tsan_release() in insert()
        wrong += found != nullptr && found->ip != ip ? 1 : 0;
      }
      ++lookups;
    }
  });
  std::vector<std::unique_ptr<Site>> passing;
  for (std::size_t round = 0; round < 20'000 || lookups < 10; ++round) {
    if (passing.size() < 4'096) passing.push_back(site_at(0x100000 + passing.size() * 16));
    const Site& site = *passing[round % passing.size()];
    ASSERT_TRUE(table.reserve(1));
    table.insert(site);
    if (round % 3 != 0) table.erase(site.ip);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(lookups, 0u);
}

}  // namespace
}  // namespace libfprobe::detail
