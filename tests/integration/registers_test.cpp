// struct ftrace_regs: what handlers read, and what their changes do.
#include <cerrno>
#include <vector>

#include "integration/support.h"

namespace contract {
namespace {

TEST(Arguments, ZeroToEightAreReadFromRegistersAndStack) {
  Probe probe(kEntry);
  std::vector<unsigned long> seen;
  probe.on_entry = [&](const Hit& hit) {
    for (unsigned n = 0; n < 9; ++n) {
      EXPECT_TRUE(ftrace_regs_has_argument(hit.regs, n));
      seen.push_back(ftrace_regs_get_argument(hit.regs, n));
    }
    return 0;
  };
  ATTACH(probe, "nine");
  EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690);
  EXPECT_EQ(seen, (std::vector<unsigned long>{10, 11, 12, 13, 14, 15, 16, 17, 18}));
}

TEST(Arguments, ChangesOfEachTakeEffectOnTheBody) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    for (unsigned n = 0; n < 9; ++n) ftrace_regs_set_argument(hit.regs, n, ftrace_regs_get_argument(hit.regs, n) + 100);
    return 0;
  };
  ATTACH(probe, "nine");
  EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690 + 45 * 100);
}

TEST(Arguments, AChangeIsSeenByTheNextHandler) {
  Probe older(kEntry), newer(kEntry);
  unsigned long seen = 0;
  newer.on_entry = [](const Hit& hit) {
    ftrace_regs_set_argument(hit.regs, 0, 30);
    return 0;
  };
  older.on_entry = [&](const Hit& hit) {
    seen = ftrace_regs_get_argument(hit.regs, 0);
    return 0;
  };
  ATTACH(older, "twice");
  ATTACH(newer, "twice");
  EXPECT_EQ(twice(4), 60);
  EXPECT_EQ(seen, 30u);
}

TEST(Arguments, AreGoneAtExit) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    for (unsigned n = 0; n < 9; ++n) {
      EXPECT_FALSE(ftrace_regs_has_argument(hit.regs, n));
      EXPECT_EQ(ftrace_regs_get_argument(hit.regs, n), 0u);
      ftrace_regs_set_argument(hit.regs, n, 1234567);  // ignored
    }
    EXPECT_EQ(ftrace_regs_get_fp_argument(hit.regs, 0), 0.0);
  };
  ATTACH(probe, "nine");
  EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(FloatingPointArguments, AreReadAndChangedAsDoubles) {
  Probe probe(kEntry);
  std::vector<double> seen;
  probe.on_entry = [&](const Hit& hit) {
    for (unsigned n = 0; n < 8; ++n) {
      seen.push_back(ftrace_regs_get_fp_argument(hit.regs, n));
      ftrace_regs_set_fp_argument(hit.regs, n, seen.back() + 1);
    }
    return 0;
  };
  ATTACH(probe, "eight_doubles");
  EXPECT_EQ(eight_doubles(.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5), 186.0 + 36.0);
  EXPECT_EQ(seen, (std::vector<double>{.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5}));
}

TEST(FloatingPointArguments, AreReadAndChangedAsFloats) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_fp_argument_float(hit.regs, 0), 1.25f);
    EXPECT_EQ(ftrace_regs_get_fp_argument_float(hit.regs, 1), 2.5f);
    ftrace_regs_set_fp_argument_float(hit.regs, 1, 10.0f);
    return 0;
  };
  ATTACH(probe, "sum_floats");
  EXPECT_EQ(sum_floats(1.25f, 2.5f), 11.25f);
}

TEST(FloatingPointArguments, AreCountedApartFromIntegers) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_argument(hit.regs, 0), 1u);
    EXPECT_EQ(static_cast<int>(ftrace_regs_get_argument(hit.regs, 1)), -3);
    EXPECT_EQ(*reinterpret_cast<const char*>(ftrace_regs_get_argument(hit.regs, 2)), 'A');
    EXPECT_EQ(ftrace_regs_get_fp_argument(hit.regs, 0), 2.5);
    EXPECT_EQ(ftrace_regs_get_fp_argument_float(hit.regs, 1), 4.5f);
    return 0;
  };
  ATTACH(probe, "mixed");
  EXPECT_EQ(mixed(1, 2.5, -3, 4.5f, "A"), 70.0);
}

TEST(ReturnValues, IntegersAreReadAndChangedAtExit) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_return_value(hit.regs), 42u);
    ftrace_regs_set_return_value(hit.regs, 43);
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 43);
}

TEST(ReturnValues, TheSecondIntegerIsReadAndChangedAtExit) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_return_value(hit.regs), 7u);
    EXPECT_EQ(ftrace_regs_get_return_value2(hit.regs), 8u);
    ftrace_regs_set_return_value2(hit.regs, 80);
  };
  ATTACH(probe, "make_two_longs");
  const two_longs two = make_two_longs(7);
  EXPECT_EQ(two.a, 7);
  EXPECT_EQ(two.b, 80);
}

TEST(ReturnValues, BothDoublesAreReadAndChangedAtExit) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_fp_return_value(hit.regs), 1.5);
    EXPECT_EQ(ftrace_regs_get_fp_return_value2(hit.regs), 2.5);
    ftrace_regs_set_fp_return_value(hit.regs, 10.5);
    ftrace_regs_set_fp_return_value2(hit.regs, 20.5);
  };
  ATTACH(probe, "make_two_doubles");
  const two_doubles two = make_two_doubles(1.5);
  EXPECT_EQ(two.a, 10.5);
  EXPECT_EQ(two.b, 20.5);
}

TEST(ReturnValues, FloatsAreReadAndChangedAtExit) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_fp_return_value_float(hit.regs), 3.75f);
    ftrace_regs_set_fp_return_value_float(hit.regs, 8.5f);
  };
  ATTACH(probe, "sum_floats");
  EXPECT_EQ(sum_floats(1.25f, 2.5f), 8.5f);
}

TEST(ReturnValues, TheLastSetterWins) {
  Probe older(kExit), newer(kExit);
  newer.on_exit = [](const Hit& hit) { ftrace_regs_set_return_value(hit.regs, 1); };
  older.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_return_value(hit.regs), 1u);
    ftrace_regs_set_return_value(hit.regs, 2);
  };
  ATTACH(older, "twice");
  ATTACH(newer, "twice");
  EXPECT_EQ(twice(21), 2);
}

TEST(InstructionPointer, IsEntryIpAtEntryAndRetIpAtExit) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_instruction_pointer(hit.regs), hit.entry_ip);
    EXPECT_EQ(ftrace_regs_get_return_address(hit.regs), hit.ret_ip);
    return 0;
  };
  probe.on_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_instruction_pointer(hit.regs), hit.ret_ip);
    EXPECT_EQ(ftrace_regs_get_return_address(hit.regs), hit.ret_ip);
  };
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(probe.exits, 1u);
}

// Inside call_back's callback: where call_back's return slot must be, from the frame the compiler knows.
TEST(StackPointer, IsAsTheCallLeftItAtEntryAndAsAfterTheReturnAtExit) {
  Probe probe;
  unsigned long at_entry = 0, at_exit = 0, word = 0, ret_ip = 0;
  probe.on_entry = [&](const Hit& hit) {
    at_entry = ftrace_regs_get_stack_pointer(hit.regs);
    word = *reinterpret_cast<const unsigned long*>(at_entry);
    ret_ip = hit.ret_ip;
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { at_exit = ftrace_regs_get_stack_pointer(hit.regs); };
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(word, ret_ip);  // the return slot lies at the stack pointer
  EXPECT_EQ(at_exit, at_entry + 8);
  EXPECT_EQ(at_entry % 16, 8u);
}

TEST(FramePointer, IsTheCallersRegisterAtBothEnds) {
  Probe probe;
  unsigned long at_entry = 0, at_exit = 0;
  probe.on_entry = [&](const Hit& hit) {
    at_entry = ftrace_regs_get_frame_pointer(hit.regs);
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { at_exit = ftrace_regs_get_frame_pointer(hit.regs); };
  ATTACH(probe, "twice");
  // This function keeps a frame pointer when it asks for it.
  const auto frame = address_of(__builtin_frame_address(0));
  unsigned long rbp = 0;
  asm volatile("movq %%rbp, %0" : "=r"(rbp));
  EXPECT_EQ(rbp, frame);
  twice(1);
  EXPECT_EQ(at_entry, frame);
  EXPECT_EQ(at_exit, frame);
}

TEST(QueryRegisterOffset, FindsTheArgumentsByBothSpellings) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    const char* const names[][2] = {{"di", "rdi"}, {"si", "rsi"}, {"dx", "rdx"},
                                    {"cx", "rcx"}, {"r8", "r8"},  {"r9", "r9"}};
    for (unsigned n = 0; n < 6; ++n) {
      for (const char* const name : names[n]) {
        const int offset = ftrace_regs_query_register_offset(name);
        EXPECT_GE(offset, 0) << name;
        if (offset < 0) continue;
        const char* const base = reinterpret_cast<const char*>(hit.regs);
        EXPECT_EQ(*reinterpret_cast<const unsigned long*>(base + offset), 10 + n) << name;
      }
    }
    return 0;
  };
  ATTACH(probe, "nine");
  EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(QueryRegisterOffset, FindsStackAndInstructionPointer) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    const char* const base = reinterpret_cast<const char*>(hit.regs);
    const int sp = ftrace_regs_query_register_offset("sp"), ip = ftrace_regs_query_register_offset("rip");
    EXPECT_GE(sp, 0);
    EXPECT_GE(ip, 0);
    if (sp < 0 || ip < 0) return 0;
    EXPECT_EQ(*reinterpret_cast<const unsigned long*>(base + sp), ftrace_regs_get_stack_pointer(hit.regs));
    EXPECT_EQ(*reinterpret_cast<const unsigned long*>(base + ip), hit.entry_ip);
    return 0;
  };
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(QueryRegisterOffset, RefusesUnknownNames) {
  for (const char* const name : {"", "r", "rr8", "xx", "di ", "RDI", "rd"})
    EXPECT_EQ(ftrace_regs_query_register_offset(name), -EINVAL) << name;
  EXPECT_EQ(ftrace_regs_query_register_offset(nullptr), -EINVAL);
}

TEST(ExitReason, IsReturnedAtBothEndsOfAnOrdinaryCall) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(fprobe_exit_reason(hit.regs), FPROBE_EXIT_RETURNED);
    return 0;
  };
  probe.on_exit = [](const Hit& hit) { EXPECT_EQ(fprobe_exit_reason(hit.regs), FPROBE_EXIT_RETURNED); };
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(probe.exits, 1u);
}

}  // namespace
}  // namespace contract
