// Skipping a function's body, and going on elsewhere.
#include "integration/support.h"

namespace contract {
namespace {

TEST(Override, SkipsTheBodyAndRunsTheOtherEntriesAndAllExits) {
  Probe older, newer;
  bool body_ran = false;
  newer.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 77);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  older.on_entry = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_return_value(hit.regs), 77u);
    return 0;
  };
  const auto at_exit = [](const Hit& hit) {
    EXPECT_EQ(ftrace_regs_get_return_value(hit.regs), 77u);
    EXPECT_EQ(ftrace_regs_get_instruction_pointer(hit.regs), hit.ret_ip);
  };
  older.on_exit = newer.on_exit = at_exit;
  ATTACH(older, "call_back");
  ATTACH(newer, "call_back");
  const long result = call_back(
      [](void* ran) {
        *static_cast<bool*>(ran) = true;
        return 0L;
      },
      &body_ran);
  EXPECT_EQ(result, 77);
  EXPECT_FALSE(body_ran);
  EXPECT_EQ(older.entries, 1u);
  EXPECT_EQ(older.exits, 1u);
  EXPECT_EQ(newer.exits, 1u);
}

TEST(Override, TheLastSetterWins) {
  Probe older(kEntry), newer;
  newer.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 1);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  older.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 2);
    return 0;
  };
  ATTACH(older, "twice");
  ATTACH(newer, "twice");
  EXPECT_EQ(twice(21), 2);
  newer.on_exit = nullptr;
}

TEST(Override, AnExitHandlerMayChangeTheValue) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 1);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  probe.on_exit = [](const Hit& hit) { ftrace_regs_set_return_value(hit.regs, 3); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 3);
}

TEST(Override, WithoutAnExitHandlerSkipsTheBodyToo) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 5);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  ATTACH(probe, "twice");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(twice(21), 5);
}

TEST(Override, GivesDoublesAndSecondValues) {
  Probe doubles(kEntry), longs(kEntry);
  doubles.on_entry = [](const Hit& hit) {
    ftrace_regs_set_fp_return_value(hit.regs, 1.25);
    ftrace_regs_set_fp_return_value2(hit.regs, 2.25);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  longs.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 3);
    ftrace_regs_set_return_value2(hit.regs, 4);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  ATTACH(doubles, "make_two_doubles");
  ATTACH(longs, "make_two_longs");
  const two_doubles two = make_two_doubles(9);
  EXPECT_EQ(two.a, 1.25);
  EXPECT_EQ(two.b, 2.25);
  const two_longs both = make_two_longs(9);
  EXPECT_EQ(both.a, 3);
  EXPECT_EQ(both.b, 4);
}

TEST(Override, OfATailCalledFunctionRunsTheExitsOfBoth) {
  Probe first, second;
  second.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 50);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  unsigned long seen = 0;
  first.on_exit = [&](const Hit& hit) { seen = ftrace_regs_get_return_value(hit.regs); };
  ATTACH(first, "tail_first");
  ATTACH(second, "tail_second");
  EXPECT_EQ(tail_first(1), 50);
  EXPECT_EQ(seen, 50u);
  EXPECT_EQ(second.exits, 1u);
}

TEST(Override, AtExitHasNoEffect) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) { ftrace_override_function_with_return(hit.regs); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 42);
  EXPECT_EQ(twice(22), 44);
}

TEST(ReturnValues, SetAtEntryWithoutAnOverrideHaveNoEffect) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 1);
    ftrace_regs_set_return_value2(hit.regs, 1);
    return 0;
  };
  ATTACH(probe, "nine");
  EXPECT_EQ(nine(10, 11, 12, 13, 14, 15, 16, 17, 18), 690);
}

TEST(InstructionPointer, SetAtEntryContinuesThere) {
  Probe probe;
  unsigned long seen = 0;
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&without_site));
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { seen = ftrace_regs_get_return_value(hit.regs); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 26);
  EXPECT_EQ(seen, 26u);
}

TEST(InstructionPointer, SetAtEntryWithoutAnExitContinuesThere) {
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&without_site));
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 26);
}

TEST(InstructionPointer, SetAtExitHasNoEffect) {
  Probe probe(kExit);
  probe.on_exit = [](const Hit& hit) {
    const unsigned long before = ftrace_regs_get_instruction_pointer(hit.regs);
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&without_site));
    EXPECT_EQ(ftrace_regs_get_instruction_pointer(hit.regs), before);
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(21), 42);
}

}  // namespace
}  // namespace contract
