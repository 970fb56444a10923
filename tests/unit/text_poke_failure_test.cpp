// Batches of changes to live text that fail, in part or as a whole, and barriers that are refused.
#include <errno.h>
#include <sched.h>

#include "patch/bystanders.h"
#include "patch/text_poke.h"
#include "unit/poke_fixture.h"

namespace {

using namespace fprobe_test;

// --- What makes a batch fail, and that nothing has changed then.

TEST_F(Poke, ForeignByteFailsTheBatchBeforeTheFirstStore) {
  for (std::size_t i = 0; i < 8; ++i) add(0, kFunctions + i * kPage + 16);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(sites_[7].offset) = 0xcc;  // a breakpoint
  area_.protect_functions(kText);
  const std::string before = text();
  const unsigned long protections = calls(sys::Call::kMprotect);
  const auto result = poke(Form::kIdle, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EBUSY);
  EXPECT_EQ(calls(sys::Call::kMprotect), protections);
  EXPECT_TRUE(text() == before);
  for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
  EXPECT_TRUE(edits_[7].foreign);
}

TEST_F(Poke, ForeignByteBehindTheFirstOneIsSeenToo) {
  add(0, kFunctions);
  edits_ = edits(Form::kOriginal, Form::kIdle);
  edits_[0].before[4] ^= 1;
  EXPECT_EQ(poke_text(edits_, PokeMode::kAllOrNothing).error().code, EBUSY);
}

TEST_F(Poke, BestEffortLeavesForeignSitesAloneAndDoesTheRest) {
  for (std::size_t i = 0; i < 4; ++i) add(0, kFunctions + i * 64);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(sites_[2].offset) = 0xcc;
  area_.protect_functions(kText);
  const std::string foreign = hex(area_.at(sites_[2].offset), 5);
  ASSERT_TRUE(poke(Form::kArmed, Form::kIdle, PokeMode::kBestEffort).ok());
  EXPECT_EQ(hex(area_.at(sites_[2].offset), 5), foreign);
  EXPECT_TRUE(edits_[2].foreign && !edits_[2].done);
  sites_.erase(sites_.begin() + 2);
  expect_all(Form::kIdle);
}

TEST_F(Poke, BreakpointOnAKeptPrefixIsNoObstacle) {
  add(1, kFunctions);
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(kFunctions) = 0xcc;
  area_.protect_functions(kText);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  EXPECT_EQ(hex(area_.at(kFunctions), 6), "cc 0f 1f 44 00 00");
}

// Neither directly nor through the file.
TEST_F(Poke, EveryRefusedProtectionLeavesTextAndRightsUnchanged) {
  for (std::size_t i = 0; i < 4; ++i) add(i, kFunctions + i * 3 * kPage + 16);
  const std::string before = text();
  for (const int code : {EACCES, EPERM, ENOMEM}) {
    for (long nth = 0; nth < 4; ++nth) {
      const InjectedFault fault(sys::Call::kMprotect, code, nth), file(sys::Call::kWriteAt, code);
      const auto result = poke(Form::kOriginal, Form::kArmed);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, code);
      EXPECT_NE(std::string(result.error().sentence).find("/proc/self/mem"), std::string::npos);
      EXPECT_TRUE(text() == before);
      EXPECT_EQ(rights(), before_);
      for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
    }
  }
  for (long nth = 4; nth < 8; ++nth) {  // while closing: the text is written, the rights come back all the same
    const InjectedFault fault(sys::Call::kMprotect, ENOMEM, nth);
    ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
    EXPECT_EQ(rights(), before_);
    expect_all(Form::kArmed);
    ASSERT_TRUE(poke_text(edits_ = edits(Form::kArmed, Form::kOriginal), PokeMode::kBestEffort).ok());
  }
}

TEST_F(Poke, BestEffortSkipsPagesThatAreRefused) {
  for (std::size_t i = 0; i < 4; ++i) add(0, kFunctions + i * 3 * kPage + 16);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  {
    const InjectedFault fault(sys::Call::kMprotect, EACCES, 2);
    sys::fault(sys::Call::kOpen).fail_after = 2;  // the threads and the map are read, the file does not open
    sys::fault(sys::Call::kOpen).error = EACCES;
    const auto result = poke(Form::kArmed, Form::kIdle, PokeMode::kBestEffort);
    sys::fault(sys::Call::kOpen).error = 0;
    ASSERT_TRUE(result.ok());
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(edits_[i].done, i < 2);
  EXPECT_EQ(*area_.at(sites_[1].offset), 0x0f);
  EXPECT_EQ(*area_.at(sites_[2].offset), 0xe9);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, ExhaustedMemoryFailsTheBatchBeforeAnything) {
  add(0, kFunctions);
  const std::string before = text();
  const InjectedFault fault(sys::Call::kAllocate, ENOMEM);
  EXPECT_EQ(poke(Form::kOriginal, Form::kIdle).error().code, ENOMEM);
  EXPECT_TRUE(text() == before);
}

TEST_F(Poke, UnreadableMapFailsTheBatchBeforeAnything) {
  add(0, kFunctions);
  const std::string before = text();
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  EXPECT_EQ(poke(Form::kOriginal, Form::kIdle).error().code, EACCES);
  EXPECT_TRUE(text() == before);
}

TEST_F(Poke, UnmappedTextIsAnErrorAndNoCrash) {
  add(0, kFunctions);
  add(0, kFunctions + 2 * kPage);
  edits_ = edits(Form::kOriginal, Form::kIdle);
  ::munmap(area_.at(kFunctions + 2 * kPage), kPage);
  EXPECT_EQ(poke_text(edits_, PokeMode::kAllOrNothing).error().code, EACCES);
  EXPECT_EQ(*area_.at(kFunctions), 0xe8);
  EXPECT_TRUE(poke_text(edits_, PokeMode::kBestEffort).ok());
  EXPECT_EQ(*area_.at(kFunctions), 0x0f);
  EXPECT_TRUE(edits_[0].done && !edits_[1].done);
}

TEST_F(Poke, EditsOfAnUnloadedImageAreLeftOut) {
  add(0, kFunctions);
  add(0, kFunctions + 64);
  LoadedImage gone;
  gone.name = "libgone.so";
  gone.program_headers = 64;
  edits_ = edits(Form::kOriginal, Form::kIdle);
  edits_[0].image = &gone;
  ASSERT_TRUE(poke_text(edits_, PokeMode::kAllOrNothing).ok());
  EXPECT_FALSE(edits_[0].done);
  EXPECT_TRUE(edits_[1].done);
  EXPECT_EQ(*area_.at(kFunctions), 0xe8);
}

TEST_F(Poke, LongNopsThatStraddleAreTakenAloneAndRefusedInCompany) {
  add(9, kFunctions + 7);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  ASSERT_TRUE(poke(Form::kIdle, Form::kOriginal).ok());
  const Company company;
  const auto result = poke(Form::kOriginal, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EACCES);
  EXPECT_NE(std::string(result.error().sentence).find("-fpatchable-function-entry=5"), std::string::npos);
  expect_all(Form::kOriginal);
}

TEST_F(Poke, SortsItsEditsByAddress) {
  for (std::size_t i = 0; i < 5; ++i) add(0, kFunctions + (4 - i) * kPage);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  for (std::size_t i = 1; i < 5; ++i) EXPECT_LT(edits_[i - 1].ip, edits_[i].ip);
  expect_all(Form::kIdle);
}

// --- Barriers.

TEST_F(Poke, RefusedMembarrierIsReplacedByAVisitToEveryCpu) {
  add(0, kFunctions);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const InjectedFault fault(sys::Call::kMembarrier, EPERM);
  const unsigned long moves = calls(sys::Call::kAffinity);
  EXPECT_TRUE(barrier_memory());
  EXPECT_GE(calls(sys::Call::kAffinity) - moves, static_cast<unsigned long>(CPU_COUNT(&before)) + 2);
  EXPECT_TRUE(barrier_sync_core());
  EXPECT_TRUE(barriers_work());
  ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
  expect_all(Form::kArmed);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST_F(Poke, WithoutAnyBarrierNothingIsWrittenAndTheErrorSaysWhy) {
  add(0, kFunctions);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  const InjectedFault membarrier(sys::Call::kMembarrier, EPERM), affinity(sys::Call::kAffinity, EPERM);
  prepare_barriers();
  EXPECT_FALSE(barrier_memory());
  EXPECT_FALSE(barrier_sync_core());
  EXPECT_FALSE(barriers_work());
  const unsigned long protections = calls(sys::Call::kMprotect);
  const auto result = poke(Form::kIdle, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EPERM);
  EXPECT_EQ(calls(sys::Call::kMprotect), protections);
  EXPECT_NE(std::string(result.error().sentence).find("membarrier"), std::string::npos);
  expect_all(Form::kIdle);
}

TEST_F(Poke, BarriersLostAfterTheyWorkedUndoTheFirstStep) {
  add(0, kFunctions);
  add(0, kFunctions + 64 + 7);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  prepare_barriers();
  ASSERT_TRUE(barriers_work());
  const Company company;
  const InjectedFault membarrier(sys::Call::kMembarrier, ENOSYS), affinity(sys::Call::kAffinity, EPERM);
  EXPECT_EQ(poke(Form::kIdle, Form::kArmed).error().code, EPERM);
  expect_all(Form::kIdle);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, ProcessThatNeverRegisteredForBarriersIsRegisteredOnDemand) {
  EXPECT_TRUE(barrier_sync_core());
  EXPECT_TRUE(barrier_memory());
}

TEST(CountThreads, TellsOneFromMore) {
  EXPECT_EQ(count_threads(), 1U);
  {
    const Company company;
    EXPECT_EQ(count_threads(), 2U);
  }
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  EXPECT_EQ(count_threads(), 2U);
}

}  // namespace
