// The jump in the loader's function for debuggers: when it is there, and that nothing of it stays.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/syscalls.h"
#include "registry/late_modules.h"
#include "registry/victims.h"

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;
using fprobe_test::loader_code;
using fprobe_test::loader_function;
using libfprobe::detail::sys::Call;
using libfprobe::detail::sys::fault;

void write_byte(unsigned long place, char byte) {
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(pwrite(memory, &byte, 1, static_cast<off_t>(place)), 1);
  close(memory);
}

// Protection of the mapping that holds `address`.
std::string protection_at(unsigned long address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long start = 0, end = 0;
    char dash = 0;
    std::string protection;
    std::istringstream(line) >> std::hex >> start >> dash >> end >> protection;
    if (address >= start && address < end) return protection;
  }
  return {};
}

int attach(CountingProbe& probe) {
  return register_fprobe(&probe, "late_function", nullptr);
}

TEST(LoaderHook, IsThereWhileARegistrationCoversNewModulesAndLeavesNothing) {
  ASSERT_NE(loader_function(), 0u);
  const std::string before = loader_code();
  for (int round = 0; round < 3; ++round) {
    CountingProbe first, second;
    ASSERT_EQ(attach(first), 0) << fprobe_last_error();
    const std::string armed = loader_code();
    EXPECT_NE(armed, before);
    ASSERT_EQ(attach(second), 0) << fprobe_last_error();
    EXPECT_EQ(loader_code(), armed);
    EXPECT_EQ(unregister_fprobe(&first), 0);
    EXPECT_EQ(loader_code(), armed);
    EXPECT_EQ(unregister_fprobe_async(&second), 0);
    EXPECT_EQ(loader_code(), before);
    EXPECT_EQ(protection_at(loader_function()), "r-xp");
  }
}

TEST(LoaderHook, IsNotThereForOtherRegistrations) {
  const std::string before = loader_code();
  CountingProbe probe(0);
  ASSERT_EQ(register_fprobe(&probe, "first_victim", nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(loader_code(), before);
}

TEST(LoaderHook, KeepsErrno) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const auto announce = reinterpret_cast<void (*)()>(loader_function());
  errno = 1234;
  announce();
  EXPECT_EQ(errno, 1234);
}

TEST(LoaderHook, ThatCannotBePlacedRefusesTheRegistrationAndChangesNothing) {
  const std::string before = loader_code();
  CountingProbe probe;
  for (long survivors = 0;; ++survivors) {
    fault(Call::kMprotect).fail_after = survivors;
    fault(Call::kMprotect).error = EACCES;
    fault(Call::kWriteAt).error = EACCES;
    const int result = register_fprobe(&probe, "late_function,first_victim", nullptr);
    fault(Call::kMprotect).error = 0;
    fault(Call::kWriteAt).error = 0;
    if (result == 0) break;
    ASSERT_LT(survivors, 100);
    EXPECT_EQ(result, -EACCES) << fprobe_last_error();
    EXPECT_EQ(fprobe_synchronize(), 0);  // taking it away again may have been refused, too
    EXPECT_EQ(loader_code(), before);
    EXPECT_EQ(first_victim(1), 2);
    EXPECT_EQ(probe.entries, 0u);
  }
  EXPECT_NE(loader_code(), before);
}

TEST(LoaderHook, RefusesADebuggersBreakpointWithTheRemedy) {
  const std::string before = loader_code();
  write_byte(loader_function(), '\xcc');
  CountingProbe probe;
  EXPECT_EQ(attach(probe), -EBUSY);
  EXPECT_NE(std::string(fprobe_last_error()).find("breakpoint"), std::string::npos) << fprobe_last_error();
  EXPECT_NE(std::string(fprobe_last_error()).find("FPROBE_FL_NEW_MODULES"), std::string::npos) << fprobe_last_error();
  write_byte(loader_function(), before[0]);
  EXPECT_EQ(attach(probe), 0) << fprobe_last_error();
}

TEST(LoaderHook, UnderABreakpointStaysUntilItIsGone) {
  const std::string before = loader_code();
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const char armed = loader_code()[0];
  write_byte(loader_function(), '\xcc');
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(loader_code()[0], '\xcc');
  write_byte(loader_function(), armed);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 0u);
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_EQ(loader_code(), before);
}

TEST(LoaderHook, LoadsAndUnloadsThatFindNothingGiveAllMemoryBack) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const auto mappings = [] {
    return static_cast<long>(fault(Call::kMmap).calls) - static_cast<long>(fault(Call::kMunmap).calls);
  };
  long warm = 0;
  for (int round = 0; round < 200; ++round) {
    { const LatePlugin plugin(round % 2 == 0 ? LATE_FENTRY : LATE_PATCHABLE); }
    if (round == 10) warm = mappings();
  }
  EXPECT_LE(mappings(), warm + 1);
}

}  // namespace
