// Pages of text made writable for a moment.
#include "patch/text_writer.h"

#include <errno.h>

#include "base/syscalls.h"
#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
using namespace libfprobe::detail;

constexpr std::size_t kPage = 4096;
constexpr int kText = PROT_READ | PROT_EXEC;

class InjectedFault {
 public:
  explicit InjectedFault(int error, long after) {
    sys::fault(sys::Call::kMprotect).fail_after = after;
    sys::fault(sys::Call::kMprotect).error = error;
  }
  ~InjectedFault() { sys::fault(sys::Call::kMprotect).error = 0; }
};

class Writer : public ::testing::Test {
 protected:
  static constexpr std::size_t kPages = 16;
  Writer() {
    // Text, with an island that is writable already and one that cannot be executed.
    protect(0, kPages, kText);
    protect(6, 7, PROT_READ | PROT_WRITE | PROT_EXEC);
    protect(9, 10, PROT_READ);
    before_ = rights();
  }
  ~Writer() override { ::munmap(memory_, kPages * kPage); }

  void protect(std::size_t first, std::size_t end, int protection) {
    ASSERT_EQ(::mprotect(memory_ + first * kPage, (end - first) * kPage, protection), 0);
  }
  [[nodiscard]] std::uintptr_t page(std::size_t index) const {
    return reinterpret_cast<std::uintptr_t>(memory_) + index * kPage;
  }
  [[nodiscard]] PageRun run(std::size_t first, std::size_t end, int protection = kText) const {
    return {page(first), page(end), protection, page(0), page(kPages), "libvictim.so", false};
  }
  [[nodiscard]] std::vector<std::string> rights() const { return page_rights(page(0), page(kPages)); }
  static unsigned long calls() { return sys::fault(sys::Call::kMprotect).calls; }

  char* memory_ =
      static_cast<char*>(::mmap(nullptr, kPages* kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<std::string> before_;
};

TEST_F(Writer, AddsWAndKeepsXThenGivesBackExactlyWhatWasFound) {
  std::vector<PageRun> runs = {run(1, 3), run(6, 7, PROT_READ | PROT_WRITE | PROT_EXEC), run(9, 10, PROT_READ)};
  {
    auto writable = WritableText::open(runs, OnRefusal::kFail);
    ASSERT_TRUE(writable.ok());
    const std::vector<std::string> now = rights();
    EXPECT_EQ(now[0], "r-xp");
    EXPECT_EQ(now[1], "rwxp");
    EXPECT_EQ(now[2], "rwxp");
    EXPECT_EQ(now[3], "r-xp");
    EXPECT_EQ(now[6], "rwxp");
    EXPECT_EQ(now[9], "rw-p");
    memory_[kPage] = 1;
    memory_[9 * kPage] = 1;
  }
  EXPECT_EQ(rights(), before_);
}

TEST_F(Writer, CallsTheKernelTwiceForARunAndNeverForWhatIsWritable) {
  std::vector<PageRun> runs = {run(1, 5), run(6, 7, PROT_READ | PROT_WRITE | PROT_EXEC)};
  const unsigned long before = calls();
  { auto writable = WritableText::open(runs, OnRefusal::kFail); }
  EXPECT_EQ(calls() - before, 2U);
}

TEST_F(Writer, RefusalOfAnyRunLeavesNothingChanged) {
  for (const int code : {EACCES, EPERM, ENOMEM}) {
    for (long nth = 0; nth < 3; ++nth) {
      std::vector<PageRun> runs = {run(1, 2), run(3, 4), run(9, 10, PROT_READ)};
      const InjectedFault fault(code, nth);
      auto writable = WritableText::open(runs, OnRefusal::kFail);
      ASSERT_FALSE(writable.ok());
      EXPECT_EQ(writable.error().code, code);
      EXPECT_NE(std::string(writable.error().sentence).find("libvictim.so"), std::string::npos);
      EXPECT_EQ(rights(), before_);
    }
  }
}

TEST_F(Writer, AnErrorThatIsNoPolicysBecomesEacces) {
  std::vector<PageRun> runs = {run(1, 2)};
  const InjectedFault fault(ENOSYS, 0);
  EXPECT_EQ(WritableText::open(runs, OnRefusal::kFail).error().code, EACCES);
}

TEST_F(Writer, FailureToCloseIsTriedAgain) {
  std::vector<PageRun> runs = {run(1, 2), run(3, 4)};
  for (long nth = 2; nth < 4; ++nth) {
    const InjectedFault fault(ENOMEM, nth);
    {
      auto writable = WritableText::open(runs, OnRefusal::kFail);
      ASSERT_TRUE(writable.ok());
    }
    EXPECT_EQ(rights(), before_);
  }
}

TEST_F(Writer, ForgivingOpensWhatItCanAndTellsWhatItCovers) {
  std::vector<PageRun> runs = {run(1, 2), run(2, 3), run(4, 5)};
  {
    const InjectedFault fault(EACCES, 2);
    auto writable = WritableText::open(runs, OnRefusal::kSkip);
    ASSERT_TRUE(writable.ok());
    EXPECT_TRUE(writable->covers(page(1), page(1) + 5));
    EXPECT_TRUE(writable->covers(page(2) - 2, page(2) + 3)) << "over the border of two runs";
    EXPECT_FALSE(writable->covers(page(3) - 2, page(3) + 3));
    EXPECT_FALSE(writable->covers(page(4), page(4) + 5));
    EXPECT_FALSE(writable->covers(page(0), page(0) + 5));
    EXPECT_FALSE(writable->covers(page(8), page(8) + 5));
  }
  EXPECT_EQ(rights(), before_);
}

TEST_F(Writer, ManyRunsBecomeTheirMappings) {
  std::vector<PageRun> few = {run(1, 2), run(3, 4)};
  widen_to_mappings(few);
  EXPECT_EQ(few.size(), 2U);

  std::vector<PageRun> many;
  for (std::size_t i = 0; i <= kMaxPageRuns; ++i) {
    const std::uintptr_t start = 0x10000000 + i * 2 * kPage;
    // Two mappings, the border at the 300th run; one run spans both.
    const std::uintptr_t border = 0x10000000 + 600 * kPage;
    const bool is_first = start < border;
    many.push_back(
        {start, start + kPage, kText, is_first ? 0x10000000 : border, is_first ? border : 0x20000000, "m", false});
  }
  many[299].end = many[300].end;
  many[299].mapping_end = 0x20000000;
  many.erase(many.begin() + 300);
  many.push_back(many.back());
  widen_to_mappings(many);
  ASSERT_EQ(many.size(), 2U);
  EXPECT_EQ(many[0].start, 0x10000000U);
  EXPECT_EQ(many[0].end, many[1].start);
  EXPECT_EQ(many[1].end, 0x20000000U);
}

}  // namespace
