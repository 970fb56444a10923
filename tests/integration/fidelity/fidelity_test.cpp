// Every register that a caller may rely on, bit by bit, around hits whose handlers overwrite all that a function may.
//
// Victims by what the compiler of a real function with such a site may have assumed; the widths are the CPU's.
#include <dlfcn.h>
#include <fprobe/fprobe.h>
#include <fprobe/ftrace_regs.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "integration/fidelity/machine.h"

namespace fidelity {
namespace {

enum Register { kRax, kRbx, kRcx, kRdx, kRsi, kRdi, kRbp, kR8, kR9, kR10, kR11, kR12, kR13, kR14, kR15 };

// What a victim's callers rely on.
struct Promise {
  const char* file;
  bool caller_saved;  // every register that the function itself leaves alone, at both ends
  bool wide;          // vectors in the CPU's full width
};

#ifdef FIDELITY_LIVE
constexpr Promise kPromises[] = {{"libfidelity_call.so", false, false}, {"libfidelity_call_wide.so", false, true}};
constexpr Promise kAll = {"libfidelity_call.so", true, true};  // under FPROBE_SAVE_ALL
constexpr Promise kWidest = {"libfidelity_call_wide.so", false, true};
#else
constexpr Promise kPromises[] = {{"libfidelity_plain.so", false, false},
                                 {"libfidelity_wide.so", false, true},
                                 {"libfidelity_wide_arithmetic.so", false, true},
                                 {"libfidelity_nops.so", true, false},
                                 {"libfidelity_nops_wide.so", true, true}};
constexpr Promise kAll = {"libfidelity_plain.so", true, true};
constexpr Promise kWidest = {"libfidelity_nops_wide.so", true, true};
#endif

int enter(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  clobber_everything(widest_vector());
  return 0;
}
void leave(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  clobber_everything(widest_vector());
}

void fill(Machine& machine, std::mt19937_64& random) {
  for (auto& vector : machine.vector) {
    for (unsigned char& byte : vector) byte = static_cast<unsigned char>(random());
  }
  for (std::uint64_t& mask : machine.mask) mask = random() & 0xffff;
  for (std::uint64_t& word : machine.general) word = random();
}

class Fidelity : public testing::TestWithParam<Promise> {
 protected:
  void SetUp() override {
    module_ = dlopen((std::string(FIDELITY_VICTIMS "/") + GetParam().file).c_str(), RTLD_NOW);
    ASSERT_NE(module_, nullptr) << dlerror();
    machine_callee = reinterpret_cast<void (*)()>(dlsym(module_, "victim"));
    ASSERT_NE(machine_callee, nullptr);
    machine_width = static_cast<unsigned char>(widest_vector());
    fill(machine_before, random_);
    fill(machine_result, random_);
  }
  void TearDown() override {
    if (fprobe_is_registered(&probe_)) {
      ASSERT_EQ(unregister_fprobe(&probe_), 0);
    }
  }
  void attach(fprobe_entry_cb entry, fprobe_exit_cb exit, unsigned flags = 0) {
    probe_.entry_handler = entry;
    probe_.exit_handler = exit;
    probe_.flags = flags;
    const char* name = "victim";
    ASSERT_EQ(register_fprobe_syms(&probe_, &name, 1), 0) << fprobe_last_error();
  }
  [[nodiscard]] std::size_t width() const { return GetParam().wide ? machine_width : 16; }

  static void expect_vectors(const Machine& seen, const Machine& wanted, int first, int last, std::size_t bytes) {
    for (int n = first; n <= last; ++n)
      EXPECT_EQ(std::memcmp(seen.vector[n], wanted.vector[n], bytes), 0) << "vector register " << n;
  }
  static void expect_general(const Machine& seen, const Machine& wanted, std::initializer_list<Register> registers) {
    for (const Register r : registers) EXPECT_EQ(seen.general[r], wanted.general[r]) << "general register " << r;
  }
  void expect_all_vectors(const Machine& seen, const Machine& wanted) const {
    expect_vectors(seen, wanted, 0, 15, width());
    if (width() < 64) return;
    expect_vectors(seen, wanted, 16, 31, 64);
    for (int n = 0; n < 8; ++n) EXPECT_EQ(seen.mask[n] & 0xffff, wanted.mask[n]) << "mask register " << n;
  }

  // `has_stub`: an exit is due, so the body starts behind a return stub.
  void expect_entered(bool has_stub) const {
    expect_general(machine_inside, machine_before,
                   {kRax, kRbx, kRcx, kRdx, kRsi, kRdi, kRbp, kR8, kR9, kR10, kR12, kR13, kR14, kR15});
    expect_vectors(machine_inside, machine_before, 0, 7, width());
    if (GetParam().caller_saved) expect_all_vectors(machine_inside, machine_before);
    if (GetParam().caller_saved && !has_stub) expect_general(machine_inside, machine_before, {kR11});
    expect_control(machine_inside);
  }
  void expect_returned() const {
    expect_general(machine_after, machine_before, {kRbx, kRbp, kR12, kR13, kR14, kR15});
    expect_general(machine_after, machine_result, {kRax, kRdx});
    expect_vectors(machine_after, machine_result, 0, 1, width());
    expect_control(machine_after);
    if (!GetParam().caller_saved) return;
    expect_general(machine_after, machine_result, {kRcx, kRsi, kRdi, kR8, kR9, kR10});
    expect_all_vectors(machine_after, machine_result);
  }
  static void expect_control(const Machine& seen) {
    constexpr std::uint64_t kDirection = 0x400;
    constexpr std::uint32_t kSticky = 0x3f;
    std::uint32_t mxcsr = 0;
    std::uint16_t x87 = 0;
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    EXPECT_EQ(seen.flags & kDirection, 0u);
    EXPECT_EQ(seen.mxcsr & ~kSticky, mxcsr & ~kSticky);
    EXPECT_EQ(seen.x87_control, x87);
  }

  void* module_ = nullptr;
  fprobe probe_{};
  std::mt19937_64 random_{20240229};
};

TEST_P(Fidelity, OfTheArgumentsWhenAnEntryHandlerOverwritesEverything) {
  attach(enter, nullptr);
  for (int round = 0; round < 20; ++round) {
    machine_call();
    expect_entered(false);
    expect_returned();
    if (GetParam().caller_saved) expect_general(machine_after, machine_result, {kR11});
    fill(machine_before, random_);
  }
}

TEST_P(Fidelity, OfTheResultsWhenBothHandlersOverwriteEverything) {
  attach(enter, leave);
  // A function whose callers rely on r11 leaves it alone: it returns with what it was entered with, or what the stub left.
  for (int round = 0; round < 20; ++round) {
    machine_call();
    expect_entered(true);
    expect_returned();
    if (GetParam().caller_saved) expect_general(machine_after, machine_before, {kR11});
    fill(machine_before, random_);
  }
}

TEST_P(Fidelity, OfTheResultsWhenOnlyTheExitHandlerOverwritesEverything) {
  attach(nullptr, leave);
  machine_call();
  expect_entered(true);
  expect_returned();
}

TEST_P(Fidelity, WhenTheEntryHandlerWantsNoExit) {
  attach(
      [](fprobe* fp, unsigned long ip, unsigned long ret, ftrace_regs* regs, void* data) {
        enter(fp, ip, ret, regs, data);
        return 1;
      },
      leave);
  machine_call();
  expect_entered(false);
  expect_returned();
}

TEST_P(Fidelity, OfTheCallThatFindsAnotherProbesHandlerRunning) {
  // The victim is called by a handler of a probe on itself: recursion, counted by code that asks an unwinder.
  attach(
      [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
        machine_call();
        clobber_everything(widest_vector());
        return 0;
      },
      nullptr);
  machine_call();
  EXPECT_EQ(fprobe_missed(&probe_, FPROBE_MISS_RECURSION), 1u);
  expect_entered(false);
  expect_returned();
}

TEST_P(Fidelity, WithHandlersThatUseGeneralRegistersOnly) {
  attach([](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) { return clobber_general(), 0; },
         [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) { clobber_general(); }, FPROBE_FL_GENERAL_REGS);
  machine_call();
  expect_entered(true);
  expect_returned();
  expect_all_vectors(machine_after, machine_result);
}

TEST_P(Fidelity, OfFloatingPointArgumentsAndResultsThatHandlersChange) {
  attach(
      [](fprobe* fp, unsigned long ip, unsigned long ret, ftrace_regs* regs, void* data) {
        for (unsigned n = 0; n < 8; ++n) ftrace_regs_set_fp_argument(regs, n, 0.5 + n);
        return enter(fp, ip, ret, regs, data);
      },
      [](fprobe* fp, unsigned long ip, unsigned long ret, ftrace_regs* regs, void* data) {
        ftrace_regs_set_fp_return_value(regs, 8.5);
        leave(fp, ip, ret, regs, data);
      });
  machine_call();
  for (unsigned n = 0; n < 8; ++n) {
    double seen = 0;
    std::memcpy(&seen, machine_inside.vector[n], sizeof seen);
    EXPECT_EQ(seen, 0.5 + n);
    EXPECT_EQ(std::memcmp(machine_inside.vector[n] + 8, machine_before.vector[n] + 8, width() - 8), 0) << n;
  }
  double result = 0;
  std::memcpy(&result, machine_after.vector[0], sizeof result);
  EXPECT_EQ(result, 8.5);
  EXPECT_EQ(std::memcmp(machine_after.vector[0] + 8, machine_result.vector[0] + 8, width() - 8), 0);
}

INSTANTIATE_TEST_SUITE_P(Registers, Fidelity, testing::ValuesIn(kPromises), [](const auto& promise) {
  const std::string file = promise.param.file;
  const std::size_t from = std::strlen("libfidelity_");
  return file.substr(from, file.size() - from - std::strlen(".so"));
});

// The environment is read at load: the test runs again in a process that has the variable.
class SaveAll : public Fidelity {};

TEST_P(SaveAll, KeepsEverythingForEverySite) {
  if (std::getenv("FPROBE_SAVE_ALL") == nullptr) {
    const std::string self = testing::internal::GetArgvs()[0];
    const std::string command =
        "FPROBE_SAVE_ALL=1 '" + self + "' --gtest_filter='*/SaveAll.*' | grep -q 'PASSED.* 1 test'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return;
  }
  attach(enter, leave);
  machine_call();
  expect_entered(true);
  expect_returned();
}

INSTANTIATE_TEST_SUITE_P(Environment, SaveAll, testing::Values(kAll));

// --- Sticky floating-point exception flags ---

int raise_at_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  raise_sticky_flags();
  return 0;
}
void raise_at_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  raise_sticky_flags();
}

class StickyFlagsOfHandlers : public Fidelity {
 protected:
  StickyFlags after_a_hit(fprobe_entry_cb entry, fprobe_exit_cb exit, unsigned flags) {
    attach(entry, exit, flags);
    clear_sticky_flags();
    machine_call();
    return sticky_flags();
  }
};

TEST_P(StickyFlagsOfHandlers, StayRaised) {
  const StickyFlags flags = after_a_hit(raise_at_entry, nullptr, 0);
  EXPECT_NE(flags.vector, 0u);
  EXPECT_NE(flags.x87, 0u);
}
TEST_P(StickyFlagsOfHandlers, AreTakenBackAtEntryOnRequest) {
  const StickyFlags flags = after_a_hit(raise_at_entry, nullptr, FPROBE_FL_SAVE_FPENV);
  EXPECT_EQ(flags.vector, 0u);
  EXPECT_EQ(flags.x87, 0u);
  expect_entered(false);
  expect_returned();
}
TEST_P(StickyFlagsOfHandlers, AreTakenBackAtExitOnRequest) {
  const StickyFlags flags = after_a_hit(nullptr, raise_at_exit, FPROBE_FL_SAVE_FPENV);
  EXPECT_EQ(flags.vector, 0u);
  EXPECT_EQ(flags.x87, 0u);
  expect_returned();
}
TEST_P(StickyFlagsOfHandlers, LeaveAloneThoseThatTheProgramRaised) {
  attach(enter, leave, FPROBE_FL_SAVE_FPENV);
  raise_sticky_flags();
  machine_call();
  EXPECT_NE(sticky_flags().vector, 0u);
  EXPECT_NE(sticky_flags().x87, 0u);
}

INSTANTIATE_TEST_SUITE_P(WholeState, StickyFlagsOfHandlers, testing::Values(kWidest));
INSTANTIATE_TEST_SUITE_P(Environment, StickyFlagsOfHandlers, testing::Values(kPromises[0]));

TEST(WideVectors, AreToldOnceForWhatWasNotRun) {
  // Printed, not skipped: which widths this run has seen.
  const unsigned width = widest_vector();
  std::printf("vector registers of %u bytes tested%s\n", width,
              width < 64 ? "; zmm and mask registers not run: no AVX-512" : "");
  EXPECT_GE(width, 16u);
}

}  // namespace
}  // namespace fidelity
