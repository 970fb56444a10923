// What 10,000 functions cost in system calls: a batch is a batch.
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/syscalls.h"
#include "registry/process_text.h"

extern "C" int many_0000(int x);
extern "C" int many_9999(int x);

namespace {

using fprobe_test::main_text;
using libfprobe::detail::sys::Call;
using libfprobe::detail::sys::fault;

constexpr int kFunctions = 10'000;

struct Counts {
  unsigned long membarriers = fault(Call::kMembarrier).calls, mprotects = fault(Call::kMprotect).calls,
                allocations = fault(Call::kAllocate).calls;
  Counts operator-(const Counts& before) const {
    Counts difference;
    difference.membarriers = membarriers - before.membarriers;
    difference.mprotects = mprotects - before.mprotects;
    difference.allocations = allocations - before.allocations;
    return difference;
  }
};

unsigned long g_entries;
int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

// A second thread: with one alone no barrier would be needed.
class SystemCalls : public ::testing::Test {
 protected:
  SystemCalls() : company_([this] { stop_.wait(false); }) { probe_.entry_handler = &on_entry; }
  ~SystemCalls() override {
    stop_ = true;
    stop_.notify_all();
    company_.join();
  }
  fprobe probe_{};
  std::atomic<bool> stop_{false};
  std::thread company_;
};

TEST_F(SystemCalls, OfTenThousandFunctionsAreThoseOfOneBatch) {
  ASSERT_EQ(fprobe_count_ips_from_filter("many_*", nullptr), kFunctions) << fprobe_last_error();
  const std::string text = main_text();

  Counts before;
  ASSERT_EQ(register_fprobe(&probe_, "many_*", nullptr), 0) << fprobe_last_error();
  const Counts registering = Counts() - before;
  EXPECT_EQ(many_0000(1) + many_9999(1), 10'000 + 1 + 19'999 + 1);
  EXPECT_EQ(g_entries, 2u);

  before = Counts();
  ASSERT_EQ(unregister_fprobe(&probe_), 0);
  const Counts unregistering = Counts() - before;
  EXPECT_EQ(main_text(), text);

  // One module, one run of pages; thunks are sealed slab by slab.
  std::printf("register:   %lu membarrier, %lu mprotect\nunregister: %lu membarrier, %lu mprotect\n",
              registering.membarriers, registering.mprotects, unregistering.membarriers, unregistering.mprotects);
  EXPECT_LE(registering.membarriers, 3u + 2u);
  EXPECT_LE(unregistering.membarriers, 3u + 2u);
  EXPECT_LE(unregistering.mprotects, 2u);

  // The thunks are there already: what is left is the text.
  before = Counts();
  ASSERT_EQ(register_fprobe(&probe_, "many_*", nullptr), 0) << fprobe_last_error();
  const Counts again = Counts() - before;
  EXPECT_LE(again.membarriers, 3u + 2u);
  EXPECT_LE(again.mprotects, 2u);
  EXPECT_LE(again.allocations, 100u) << "sites with the same probes share one list";
  ASSERT_EQ(unregister_fprobe(&probe_), 0);
}

}  // namespace
