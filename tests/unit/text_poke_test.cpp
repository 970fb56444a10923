// Batches of changes to live text: what is written, and what the kernel is asked for.
#include "patch/text_poke.h"

#include "patch/text_writer.h"
#include "unit/poke_fixture.h"

namespace {

using namespace fprobe_test;

TEST_F(Poke, ChangesEveryFormThereAndBackAlone) {
  add_all();
  Form from = Form::kOriginal;
  for (const Form to : {Form::kIdle, Form::kArmed, Form::kIdle, Form::kOriginal, Form::kArmed, Form::kOriginal}) {
    const auto result = poke(from, to);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    for (const TextEdit& edit : edits_) EXPECT_TRUE(edit.done && !edit.foreign);
    expect_all(to);
    EXPECT_EQ(rights(), before_);
    from = to;
  }
}

TEST_F(Poke, ChangesBetweenIdleAndArmedInCompany) {
  add_all();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  for (int round = 0; round < 3; ++round) {
    auto result = poke(Form::kIdle, Form::kArmed);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    expect_all(Form::kArmed);
    result = poke(Form::kArmed, Form::kIdle);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    expect_all(Form::kIdle);
    EXPECT_EQ(rights(), before_);
  }
}

TEST_F(Poke, LeavesEveryOtherByteAlone) {
  add_all();
  const std::string before = text();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  std::string now = text();
  for (const SiteInfo& site : sites_) {
    now.replace(site.offset - kFunctions, site.flavour->shape.length, before, site.offset - kFunctions,
                site.flavour->shape.length);
  }
  EXPECT_TRUE(now == before);
}

TEST_F(Poke, NoBatchIsNoWork) {
  const unsigned long before = calls(sys::Call::kMprotect);
  EXPECT_TRUE(poke_text({}, PokeMode::kAllOrNothing).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect), before);
}

// --- What the kernel is asked for.

TEST_F(Poke, NeedsAtMostThreeBarriersAndTwoProtectionsForARunOfPages) {
  add_all();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  prepare_barriers();
  const Company company;
  const unsigned long barriers = calls(sys::Call::kMembarrier), protections = calls(sys::Call::kMprotect);
  const unsigned long opened = calls(sys::Call::kOpen);
  ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
  EXPECT_EQ(calls(sys::Call::kMembarrier) - barriers, 3U);
  EXPECT_EQ(calls(sys::Call::kMprotect) - protections, 2U);  // neighbouring pages are one run
  EXPECT_EQ(calls(sys::Call::kOpen) - opened, 2U);           // /proc/self/task, /proc/self/maps
}

TEST_F(Poke, NeedsNoBarrierAlone) {
  add(0, kFunctions);
  const unsigned long barriers = calls(sys::Call::kMembarrier);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  EXPECT_EQ(calls(sys::Call::kMembarrier), barriers);
}

TEST_F(Poke, PagesApartAreRunsOfTheirOwn) {
  for (std::size_t i = 0; i < 5; ++i) add(0, kFunctions + i * 3 * kPage);
  const unsigned long protections = calls(sys::Call::kMprotect);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect) - protections, 10U);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, BeyondAThousandRunsTheWholeMappingIsOpenedAtOnce) {
  constexpr std::size_t kCount = kMaxPageRuns + 50;
  CodeArea large((2 * kCount + 2) * kPage);
  std::vector<TextEdit> batch;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t offset = kFunctions + i * 2 * kPage;
    large.put_function(flavours()[4], offset);
    TextEdit edit;
    edit.ip = large.address(offset);
    edit.shape = flavours()[4].shape;
    std::memcpy(edit.before, flavours()[4].bytes.data(), 5);
    arch::armed_bytes(edit.ip, edit.shape, large.address(offset + 0x100), edit.before, edit.after);
    batch.push_back(edit);
  }
  large.protect_functions(kText);
  const auto before = page_rights(large.address(0), large.address(large.size()));
  const unsigned long count = calls(sys::Call::kMprotect);
  ASSERT_TRUE(poke_text(batch, PokeMode::kAllOrNothing).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect) - count, 2U);
  EXPECT_TRUE(page_rights(large.address(0), large.address(large.size())) == before);
  for (const TextEdit& edit : batch) ASSERT_TRUE(edit.done && *reinterpret_cast<std::uint8_t*>(edit.ip) == 0xe9);
}

TEST_F(Poke, SiteAcrossTwoMappingsOfDifferentRightsIsWritten) {
  add(0, kFunctions + kPage - 2);
  ASSERT_EQ(::mprotect(area_.at(kFunctions + kPage), kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  const auto before = rights();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  expect_all(Form::kArmed);
  EXPECT_EQ(rights(), before);
}

TEST_F(Poke, AllSitesOnTheLastPageOfAMappingAreWrittenWhateverLiesBehind) {
  add(0, kFunctions);
  add(4, kFunctions + 64);
  add(0, kFunctions + kPage - 64);
  ASSERT_EQ(::mprotect(area_.at(kFunctions + kPage), kPage, PROT_NONE), 0);
  const Result<void> armed = poke(Form::kOriginal, Form::kArmed);
  ASSERT_TRUE(armed.ok()) << armed.error().sentence;
  expect_all(Form::kArmed);
  ASSERT_EQ(::munmap(area_.at(kFunctions + kPage), kPage), 0);
  ASSERT_TRUE(poke(Form::kArmed, Form::kIdle).ok());
  expect_all(Form::kIdle);
}

// --- X is never dropped.

TEST_F(Poke, HotLoopOnThePageBeingPatchedNeverFaults) {
  add(0, kFunctions);
  add(4, kFunctions + 64);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  std::atomic<bool> stop{false}, is_right{true};
  std::atomic<unsigned long> rounds{0};
  std::thread runner([&] {
    while (!stop.load()) {
      if (!area_.runs(kFunctions) || !area_.runs(kFunctions + 64)) is_right = false;
      rounds.fetch_add(1);
    }
  });
  for (int i = 0; i < 500; ++i) {
    const unsigned long seen = rounds.load();
    ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
    ASSERT_TRUE(poke(Form::kArmed, Form::kIdle).ok());
    while (i % 50 == 0 && rounds.load() == seen) std::this_thread::yield();
  }
  stop = true;
  runner.join();
  EXPECT_TRUE(is_right);
}

}  // namespace
