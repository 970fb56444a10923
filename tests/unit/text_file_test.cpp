// Text that may not be made writable is changed through /proc/self/mem.
#include "patch/text_file.h"

#include <dirent.h>
#include <errno.h>

#include "patch/text_poke.h"
#include "unit/poke_fixture.h"

namespace {

using namespace fprobe_test;

int open_files() {
  DIR* const directory = opendir("/proc/self/fd");
  int count = 0;
  while (directory != nullptr && readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Every flavour but the long nops that no single bytes lead away from.
constexpr std::size_t kBytewise = 9;

class ThroughTheFile : public Poke {
 protected:
  void add_bytewise() {
    std::size_t offset = kFunctions;
    for (std::size_t place = 0; place < 64; ++place) {
      for (std::size_t i = 0; i < kBytewise; ++i, offset += 128) add(i, offset + place);
    }
  }
};

TEST_F(ThroughTheFile, EveryFormIsReachedThereAndBackAlone) {
  add_all();
  const int files = open_files();
  const InjectedFault fault(sys::Call::kMprotect, EACCES);
  Form from = Form::kOriginal;
  for (const Form to : {Form::kIdle, Form::kArmed, Form::kIdle, Form::kOriginal, Form::kArmed, Form::kOriginal}) {
    const auto result = poke(from, to);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    EXPECT_EQ(rights(), before_);
    EXPECT_EQ(open_files(), files);
    sys::fault(sys::Call::kMprotect).error = 0;
    expect_all(to);
    sys::fault(sys::Call::kMprotect).error = EACCES;
    from = to;
  }
}

TEST_F(ThroughTheFile, EveryFormIsReachedInCompany) {
  add_bytewise();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  for (int round = 0; round < 3; ++round) {
    {
      const InjectedFault fault(sys::Call::kMprotect, EPERM);
      const auto result = poke(Form::kIdle, Form::kArmed);
      ASSERT_TRUE(result.ok()) << result.error().sentence;
    }
    expect_all(Form::kArmed);
    {
      const InjectedFault fault(sys::Call::kMprotect, EPERM);
      ASSERT_TRUE(poke(Form::kArmed, Form::kIdle, PokeMode::kBestEffort).ok());
    }
    expect_all(Form::kIdle);
    EXPECT_EQ(rights(), before_);
  }
}

TEST_F(ThroughTheFile, OneRefusedRunOfManyIsServedToo) {
  for (std::size_t i = 0; i < 4; ++i) add(i, kFunctions + i * 3 * kPage + 16);
  for (long nth = 0; nth < 4; ++nth) {
    const InjectedFault fault(sys::Call::kMprotect, EACCES, nth);
    for (const PokeMode mode : {PokeMode::kAllOrNothing, PokeMode::kBestEffort}) {
      ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed, mode).ok());
      for (const TextEdit& edit : edits_) EXPECT_TRUE(edit.done);
      EXPECT_EQ(rights(), before_);
      ASSERT_TRUE(poke(Form::kArmed, Form::kOriginal, mode).ok());
    }
  }
}

TEST_F(ThroughTheFile, AWriteThatFailsAnywhereLeavesTextAsItWas) {
  for (std::size_t i = 0; i < kBytewise; ++i) add(i, kFunctions + i * 128 + 16);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const std::string before = text();
  for (const bool is_alone : {true, false}) {
    const std::unique_ptr<Company> company(is_alone ? nullptr : new Company);
    for (const int error : {EIO, sys::kSwallowed}) {
      bool was_refused = false;
      for (long nth = 0;; ++nth) {
        const InjectedFault fault(sys::Call::kMprotect, EPERM), file(sys::Call::kWriteAt, error, nth);
        const auto result = poke(Form::kIdle, Form::kArmed);
        if (result.ok()) break;
        was_refused = true;
        EXPECT_EQ(result.error().code, EPERM);
        ASSERT_TRUE(text() == before) << "write number " << nth;
        EXPECT_EQ(rights(), before_);
        for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
      }
      EXPECT_TRUE(was_refused);
      expect_all(Form::kArmed);
      ASSERT_TRUE(poke(Form::kArmed, Form::kIdle).ok());
    }
  }
}

TEST_F(ThroughTheFile, BarriersLostAfterTheyWorkedUndoTheFirstStep) {
  add(0, kFunctions);
  add(3, kFunctions + 64);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  prepare_barriers();
  ASSERT_TRUE(barriers_work());
  const Company company;
  const InjectedFault fault(sys::Call::kMprotect, EACCES);
  const InjectedFault membarrier(sys::Call::kMembarrier, ENOSYS), affinity(sys::Call::kAffinity, EPERM);
  EXPECT_EQ(poke(Form::kIdle, Form::kArmed).error().code, EPERM);
  expect_all(Form::kIdle);
}

TEST_F(ThroughTheFile, ALongNopIsRefusedInCompanyWithTheRemedy) {
  add(9, kFunctions);
  const std::string before = text();
  const Company company;
  const InjectedFault fault(sys::Call::kMprotect, EACCES);
  const auto result = poke(Form::kOriginal, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EACCES);
  EXPECT_NE(std::string(result.error().sentence).find("-fpatchable-function-entry=5"), std::string::npos);
  EXPECT_TRUE(text() == before);
}

// Threads run through the sites while the kernel writes them byte by byte.
TEST_F(ThroughTheFile, EveryCallReturnsRightWhileItsSiteChanges) {
  add_bytewise();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  std::atomic<bool> stop{false}, is_right{true};
  std::atomic<unsigned long> rounds{0};
  std::thread runner([&] {
    while (!stop.load()) {
      for (const SiteInfo& site : sites_) {
        if (!area_.runs(site.offset)) is_right = false;
      }
      rounds.fetch_add(1);
    }
  });
  for (int i = 0; i < 30; ++i) {
    const unsigned long seen = rounds.load();
    const InjectedFault fault(sys::Call::kMprotect, EACCES);
    const auto result = poke(Form::kIdle, Form::kArmed);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    ASSERT_TRUE(poke(Form::kArmed, Form::kIdle).ok());
    while (i % 10 == 0 && rounds.load() == seen) std::this_thread::yield();
  }
  stop = true;
  runner.join();
  EXPECT_TRUE(is_right);
}

}  // namespace
