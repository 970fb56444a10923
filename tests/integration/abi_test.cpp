// Whatever the psABI lets a caller rely on survives a hit, while handlers do all they can to change it.
#include <cerrno>
#include <cfenv>
#include <cstdio>
#include <cstring>

#include "integration/support.h"

namespace contract {
namespace {

// Handlers that print floating-point numbers, fill memory, overwrite every caller-saved register and errno, and change
// nothing of the call.
void disturb() {
  char text[512];
  std::snprintf(text, sizeof text, "%f %Lf %d", 12345.678, 9.5L, 7);
  std::memset(text, 0x5a, sizeof text);
  asm volatile("" : : "r"(text) : "memory");
  asm volatile(
      "movq $-1, %%rax\n\tmovq %%rax, %%rcx\n\tmovq %%rax, %%rdx\n\tmovq %%rax, %%rsi\n\tmovq %%rax, %%rdi\n\t"
      "movq %%rax, %%r8\n\tmovq %%rax, %%r9\n\tmovq %%rax, %%r10\n\tmovq %%rax, %%r11\n\t"
      "pcmpeqd %%xmm0, %%xmm0\n\tmovdqa %%xmm0, %%xmm1\n\tmovdqa %%xmm0, %%xmm2\n\tmovdqa %%xmm0, %%xmm3\n\t"
      "movdqa %%xmm0, %%xmm4\n\tmovdqa %%xmm0, %%xmm5\n\tmovdqa %%xmm0, %%xmm6\n\tmovdqa %%xmm0, %%xmm7\n\t"
      "movdqa %%xmm0, %%xmm8\n\tmovdqa %%xmm0, %%xmm15"
      :
      :
      : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
        "xmm6", "xmm7", "xmm8", "xmm15", "cc");
  errno = 4711;
}

struct Disturbed {
  Probe probe;
  Disturbed() {
    probe.on_entry = [](const Hit&) {
      disturb();
      return 0;
    };
    probe.on_exit = [](const Hit&) { disturb(); };
  }
  // Only entry handlers, then both: the two ways leave the entry code differently.
  template <class Check>
  void check(const char* name, const Check& expect) {
    probe.exit_handler = nullptr;
    ATTACH(probe, name);
    expect();
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    EXPECT_GE(probe.entries, 1u);
    probe.exit_handler = Probe(kExit).exit_handler;
    ATTACH(probe, name);
    expect();
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    EXPECT_GE(probe.exits, 1u);
  }
};

TEST(Preserved, NineIntegerArguments) {
  Disturbed().check("nine", [] { EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690); });
}
TEST(Preserved, EightDoubleArguments) {
  Disturbed().check("eight_doubles", [] { EXPECT_EQ(eight_doubles(.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5), 186.0); });
}
TEST(Preserved, MixedArguments) {
  Disturbed().check("mixed", [] { EXPECT_EQ(mixed(1, 2.5, -3, 4.5f, "A"), 70.0); });
}
TEST(Preserved, FloatArgumentsAndResult) {
  Disturbed().check("sum_floats", [] { EXPECT_EQ(sum_floats(1.25f, 2.5f), 3.75f); });
}
TEST(Preserved, VariableArgumentsWithoutVectorRegisters) {
  Disturbed().check("count_varargs", [] { EXPECT_EQ(count_varargs(8, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L), 36); });
}
TEST(Preserved, VariableArgumentsInVectorRegistersAndOnTheStack) {
  Disturbed().check("sum_varargs", [] {
    EXPECT_EQ(sum_varargs(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.), 55.);
    EXPECT_EQ(sum_varargs(1, 1.5), 1.5);
    EXPECT_EQ(sum_varargs(0), 0.);
  });
}
TEST(Preserved, FormattedOutput) {
  Disturbed().check("format", [] {
    char text[64];
    EXPECT_EQ(format(text, sizeof text, "%s %d %.2f %c", "a", 2, 3.25, 'd'), 10);
    EXPECT_STREQ(text, "a 2 3.25 d");
  });
}
TEST(Preserved, StructByHiddenPointer) {
  Disturbed().check("make_six", [] {
    const six_longs six = make_six(5);
    for (long i = 0; i < 6; ++i) EXPECT_EQ(six.v[i], 5 + i);
  });
}
TEST(Preserved, TwoLongsInRegisters) {
  Disturbed().check("make_two_longs", [] {
    const two_longs two = make_two_longs(5);
    EXPECT_EQ(two.a, 5);
    EXPECT_EQ(two.b, 6);
  });
}
TEST(Preserved, TwoDoublesInRegisters) {
  Disturbed().check("make_two_doubles", [] {
    const two_doubles two = make_two_doubles(5.5);
    EXPECT_EQ(two.a, 5.5);
    EXPECT_EQ(two.b, 6.5);
  });
}
TEST(Preserved, LongAndDoubleInRegisters) {
  Disturbed().check("make_long_and_double", [] {
    const long_and_double both = make_long_and_double(5, 6.5);
    EXPECT_EQ(both.a, 5);
    EXPECT_EQ(both.b, 6.5);
  });
}
TEST(Preserved, LongDoubleArgumentAndResult) {
  Disturbed().check("halve", [] { EXPECT_EQ(halve(7.0L), 3.5L); });
}
TEST(Preserved, Int128Result) {
  Disturbed().check("multiply", [] {
    const int128 expected = static_cast<int128>(0x7000000000000000) * 0x123456789;
    EXPECT_TRUE(multiply(0x7000000000000000, 0x123456789) == expected);
  });
}
TEST(Preserved, VectorArgumentsAndResult) {
  Disturbed().check("add_vectors", [] {
    const vector4 sum = add_vectors(vector4{1, 2, 3, 4}, vector4{.5f, .5f, .5f, .5f});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(sum[i], static_cast<float>(i) + 1.5f);
  });
}

TEST(Preserved, ErrnoAtBothEnds) {
  Disturbed().check("set_errno", [] {
    errno = 11;
    EXPECT_EQ(set_errno(22), 11);  // what the body found: the caller's, not the entry handler's
    EXPECT_EQ(errno, 22);          // what the caller finds: the body's, not the exit handler's
  });
}

TEST(Preserved, ErrnoOverAThreadsFirstHit) {
  Probe probe;
  ATTACH(probe, "set_errno");
  std::thread([] {
    errno = 11;
    EXPECT_EQ(set_errno(22), 11);
    EXPECT_EQ(errno, 22);
  }).join();
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Preserved, ErrnoWhenTheBodyIsSkipped) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    ftrace_override_function_with_return(hit.regs);
    errno = 4711;
    return 0;
  };
  probe.on_exit = [](const Hit&) { errno = 4712; };
  ATTACH(probe, "set_errno");
  errno = 11;
  set_errno(22);
  EXPECT_EQ(errno, 11);
}

TEST(Preserved, RoundingModeOfBothUnits) {
  Disturbed().check("convert", [] {
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      EXPECT_EQ(convert(2.5), mode == FE_UPWARD ? 3 : 2);
      EXPECT_EQ(convert(-2.5), mode == FE_DOWNWARD ? -3 : -2);
      EXPECT_EQ(std::fegetround(), mode);
      unsigned short control = 0;
      unsigned vector_control = 0;
      asm volatile("fnstcw %0\n\tstmxcsr %1" : "=m"(control), "=m"(vector_control));
      EXPECT_EQ(control & 0xc00, mode);
      EXPECT_EQ(vector_control >> 3 & 0xc00, static_cast<unsigned>(mode));
    }
    std::fesetround(FE_TONEAREST);
  });
}

// Flush to zero and denormals are zero; 53 bits of precision in the x87 unit.
TEST(Preserved, ControlBitsOfBothUnits) {
  Disturbed().check("convert", [] {
    unsigned vector_before = 0, vector_after = 0;
    unsigned short before = 0, after = 0;
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(vector_before), "=m"(before));
    const unsigned vector_control = vector_before | 0x8040;
    const auto control = static_cast<unsigned short>((before & ~0x300) | 0x200);
    asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(vector_control), "m"(control));
    EXPECT_EQ(convert(3.0), 3);
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(vector_after), "=m"(after));
    asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(vector_before), "m"(before));
    EXPECT_EQ(vector_after & ~0x3fu, vector_control & ~0x3fu);  // but for the sticky flags
    EXPECT_EQ(after, control);
  });
}

// The exceptions that are raised in each unit.
struct Raised {
  unsigned vector = 0;
  unsigned short x87 = 0;
};
Raised raised() {
  Raised now;
  asm volatile("stmxcsr %0\n\tfnstsw %1" : "=m"(now.vector), "=m"(now.x87));
  return {now.vector & FE_ALL_EXCEPT, static_cast<unsigned short>(now.x87 & FE_ALL_EXCEPT)};
}
void divide_by_zero_in_both_units() {
  volatile double zero = 0, result = 1 / zero;
  volatile long double long_zero = 0, long_result = 1 / long_zero;
  (void)result, (void)long_result;
}

TEST(StickyFlags, RaisedByAHandlerAtEitherEndStayRaised) {
  for (const Ends end : {kEntry, kExit}) {
    Probe probe(end);
    probe.on_entry = [](const Hit&) {
      divide_by_zero_in_both_units();
      return 0;
    };
    probe.on_exit = [](const Hit&) { divide_by_zero_in_both_units(); };
    ATTACH(probe, "twice");
    std::feclearexcept(FE_ALL_EXCEPT);
    ASSERT_EQ(raised().vector + raised().x87, 0u);
    EXPECT_EQ(twice(1), 2);
    EXPECT_NE(raised().vector & FE_DIVBYZERO, 0u);
    EXPECT_NE(raised().x87 & FE_DIVBYZERO, 0);
    std::feclearexcept(FE_ALL_EXCEPT);
  }
}

// Calls `function(argument)` with known values in the callee-saved registers; counts those that changed.
__attribute__((noinline)) int changed_callee_saved(long (*function)(long), long argument, long& result) {
  long changed = 0;
  asm volatile(
      "pushq %%rbp\n\tpushq %%rbx\n\tpushq %%r12\n\tpushq %%r13\n\tpushq %%r14\n\tpushq %%r15\n\t"
      "subq $256, %%rsp\n\tmovq %%rsp, %%rbx\n\tandq $-16, %%rsp\n\tpushq %%rbx\n\tpushq %%rbx\n\t"
      "movq $0x1111, %%rbp\n\tmovq $0x2222, %%rbx\n\tmovq $0x3333, %%r12\n\tmovq $0x4444, %%r13\n\t"
      "movq $0x5555, %%r14\n\tmovq $0x6666, %%r15\n\t"
      "call *%%rsi\n\t"
      "xorl %%ecx, %%ecx\n\t"
      "cmpq $0x1111, %%rbp\n\tje 1f\n\tincq %%rcx\n1:\n\tcmpq $0x2222, %%rbx\n\tje 2f\n\tincq %%rcx\n2:\n\t"
      "cmpq $0x3333, %%r12\n\tje 3f\n\tincq %%rcx\n3:\n\tcmpq $0x4444, %%r13\n\tje 4f\n\tincq %%rcx\n4:\n\t"
      "cmpq $0x5555, %%r14\n\tje 5f\n\tincq %%rcx\n5:\n\tcmpq $0x6666, %%r15\n\tje 6f\n\tincq %%rcx\n6:\n\t"
      "popq %%rbx\n\tpopq %%rbx\n\tleaq 256(%%rbx), %%rsp\n\t"
      "popq %%r15\n\tpopq %%r14\n\tpopq %%r13\n\tpopq %%r12\n\tpopq %%rbx\n\tpopq %%rbp"
      : "=a"(result), "=c"(changed), "+D"(argument), "+S"(function)
      :
      : "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  return static_cast<int>(changed);
}

TEST(Preserved, CalleeSavedRegistersOverAHit) {
  Disturbed().check("twice", [] {
    long result = 0;
    EXPECT_EQ(changed_callee_saved(&twice, 21, result), 0);
    EXPECT_EQ(result, 42);
  });
}

TEST(Preserved, CalleeSavedRegistersOverAnOverride) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    disturb();
    ftrace_regs_set_return_value(hit.regs, 5);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  probe.on_exit = [](const Hit&) { disturb(); };
  ATTACH(probe, "twice");
  long result = 0;
  EXPECT_EQ(changed_callee_saved(&twice, 21, result), 0);
  EXPECT_EQ(result, 5);
}

TEST(Preserved, CalleeSavedRegistersOverAChangedInstructionPointer) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    disturb();
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&without_site));
    return 0;
  };
  ATTACH(probe, "twice");
  long result = 0;
  EXPECT_EQ(changed_callee_saved(&twice, 21, result), 0);
  EXPECT_EQ(result, 26);
}

TEST(Preserved, ArgumentsOfAFunctionThatIsReplaced) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    disturb();
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&hypotenuse));
    return 0;
  };
  ATTACH(probe, "divide");
  EXPECT_EQ(divide(3, 4), 25);
}

TEST(ReturnAddress, IsTrueInAFrameWhoseCfaIsThatOfACopy) {
  Probe probe;
  unsigned long return_address = 0;
  probe.on_entry = [&](const Hit& hit) {
    return_address = hit.ret_ip;
    return 0;
  };
  ATTACH(probe, "own_return_address");
  EXPECT_EQ(own_return_address(3), return_address);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Handlers, RunOnAnAlignedStackWhateverTheCallers) {
  static bool is_aligned;
  Probe probe;
  is_aligned = true;
  probe.on_entry = [](const Hit&) {
    alignas(32) volatile char local[32];
    local[0] = 0;
    is_aligned = is_aligned && reinterpret_cast<unsigned long>(local) % 32 == 0;
    // A function's frame begins 16 bytes aligned when its caller kept to the psABI.
    is_aligned = is_aligned && address_of(__builtin_frame_address(0)) % 16 == 0;
    return 0;
  };
  probe.on_exit = [](const Hit&) { is_aligned = is_aligned && address_of(__builtin_frame_address(0)) % 16 == 0; };
  ATTACH(probe, "does_nothing");
  does_nothing();
  // From a stack that is off by 8, as hand-written code may leave it for a function that does not mind.
  asm volatile(
      "movq %%rsp, %%rbx\n\tsubq $256, %%rsp\n\tandq $-16, %%rsp\n\tsubq $8, %%rsp\n\tcall *%0\n\tmovq %%rbx, %%rsp"
      :
      : "r"(&does_nothing)
      : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
  EXPECT_EQ(probe.exits, 2u);
  EXPECT_TRUE(is_aligned);
}

}  // namespace
}  // namespace contract
