// 10,000 functions at once: every one fires, and few system calls are made.
#include <algorithm>
#include <string>

#include "base/syscalls.h"
#include "integration/support.h"

extern "C" long (*const many_functions[10000])(long);

namespace contract {
namespace {

namespace sys = libfprobe::detail::sys;

constexpr unsigned long kFunctions = 10'000;
constexpr const char* kFilter = "many_*";

unsigned long calls(sys::Call call) {
  return sys::fault(call).calls.load();
}

// Runs of neighbouring pages that hold a byte of a site.
unsigned long count_page_runs() {
  std::vector<unsigned long> pages;
  for (const unsigned long ip : sites_of_victims()) {
    pages.push_back(ip / 4096);
    pages.push_back((ip + 4) / 4096);
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  unsigned long runs = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) runs += i == 0 || pages[i] != pages[i - 1] + 1;
  return runs;
}

void call_all() {
  for (unsigned long i = 0; i < kFunctions; ++i) ASSERT_EQ(many_functions[i](1), static_cast<long>(i + 1));
}

TEST(ManyFunctions, AllTenThousandFireAndAreQuietAgain) {
  Probe probe;
  ASSERT_EQ(register_fprobe(&probe, kFilter, nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(fprobe_count_ips_from_filter(kFilter, nullptr), static_cast<int>(kFunctions));
  call_all();
  EXPECT_EQ(probe.entries, kFunctions);
  EXPECT_EQ(probe.exits, kFunctions);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  call_all();
  EXPECT_EQ(probe.entries, kFunctions);
}

// With a second thread alive: the protocol for running programs.
TEST(ManyFunctions, AreRegisteredAndUnregisteredWithFewSystemCalls) {
  const unsigned long runs = count_page_runs();
  ASSERT_GE(runs, 10u);
  Gate end;
  std::thread second([&] { end.wait(); });
  Probe probe;
  // Thunks are made at the first registration and kept: their own pages are the second run's saving.
  for (int round = 0; round < 2; ++round) {
    unsigned long mprotects = calls(sys::Call::kMprotect), barriers = calls(sys::Call::kMembarrier);
    ASSERT_EQ(register_fprobe(&probe, kFilter, nullptr), 0) << fprobe_last_error();
    mprotects = calls(sys::Call::kMprotect) - mprotects;
    barriers = calls(sys::Call::kMembarrier) - barriers;
    std::printf("register, round %d: %lu runs of pages, %lu mprotect, %lu membarrier\n", round, runs, mprotects,
                barriers);
    EXPECT_GT(mprotects, 0u);
    EXPECT_LE(mprotects, 2 * runs);
    EXPECT_GT(barriers, 0u);
    EXPECT_LE(barriers, 3u + 2u);  // one batch, one module

    mprotects = calls(sys::Call::kMprotect), barriers = calls(sys::Call::kMembarrier);
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    mprotects = calls(sys::Call::kMprotect) - mprotects;
    barriers = calls(sys::Call::kMembarrier) - barriers;
    std::printf("unregister, round %d: %lu mprotect, %lu membarrier\n", round, mprotects, barriers);
    EXPECT_LE(mprotects, 2 * runs);
    EXPECT_GT(barriers, 0u);
    EXPECT_LE(barriers, 3u + 2u);
  }
  end.open();
  second.join();
}

TEST(ManyFunctions, AHitMakesNoSystemCallAfterTheThreadsFirst) {
  Probe probe;
  ASSERT_EQ(register_fprobe(&probe, kFilter, nullptr), 0) << fprobe_last_error();
  many_functions[0](1);
  unsigned long before = 0, after = 0;
  for (unsigned i = 0; i < static_cast<unsigned>(sys::Call::kCount); ++i) before += calls(static_cast<sys::Call>(i));
  call_all();
  for (unsigned i = 0; i < static_cast<unsigned>(sys::Call::kCount); ++i) after += calls(static_cast<sys::Call>(i));
  EXPECT_EQ(after, before);
  EXPECT_EQ(probe.exits, kFunctions + 1);
}

}  // namespace
}  // namespace contract
