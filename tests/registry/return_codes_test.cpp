// Return codes where several apply at once (the first row of the documented table wins), what makes a struct
// registered, and the sentence of the last failure.
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "registry/process_text.h"
#include "registry/victims.h"

namespace {

using fprobe_test::main_text;

int on_entry(fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*);

struct Probe : fprobe {
  Probe() : fprobe{} { entry_handler = &on_entry; }
  unsigned long entries = 0;
};

int on_entry(fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++static_cast<Probe*>(fp)->entries;
  return 0;
}

constexpr std::size_t kTooMuchData = MAX_FPROBE_DATA_SIZE + 1;
const char* g_names[] = {"first_victim"};
const char* g_unknown[] = {"no_such_function"};
unsigned long g_nowhere[] = {0};

// Every registering call with the same bad or good target.
struct Call {
  const char* name;
  int (*valid)(fprobe*);
  int (*no_target)(fprobe*);  // NULL for the filter, the array or the names
  int (*bad_target)(fprobe*);
  int bad_target_code;
};
const Call kCalls[] = {
    {"register_fprobe", [](fprobe* fp) { return register_fprobe(fp, "first_victim", nullptr); },
     [](fprobe* fp) { return register_fprobe(fp, nullptr, nullptr); },
     [](fprobe* fp) { return register_fprobe(fp, "[", nullptr); }, -EINVAL},
    {"register_fprobe_syms", [](fprobe* fp) { return register_fprobe_syms(fp, g_names, 1); },
     [](fprobe* fp) { return register_fprobe_syms(fp, nullptr, 1); },
     [](fprobe* fp) { return register_fprobe_syms(fp, g_unknown, 1); }, -ENOENT},
    {"register_fprobe_ips",
     [](fprobe* fp) {
       unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim)};
       return register_fprobe_ips(fp, addresses, 1);
     },
     [](fprobe* fp) { return register_fprobe_ips(fp, nullptr, 1); },
     [](fprobe* fp) { return register_fprobe_ips(fp, g_nowhere, 1); }, -ENOENT},
};

class RegisterCodes : public ::testing::TestWithParam<Call> {
 protected:
  Probe probe_;
};

TEST_P(RegisterCodes, ANullStructComesBeforeEverything) {
  EXPECT_EQ(GetParam().valid(nullptr), -EINVAL);
  EXPECT_EQ(GetParam().no_target(nullptr), -EINVAL);
  EXPECT_EQ(GetParam().bad_target(nullptr), -EINVAL);
}

TEST_P(RegisterCodes, ANullTargetComesBeforeRegisteredAlready) {
  ASSERT_EQ(GetParam().valid(&probe_), 0) << fprobe_last_error();
  EXPECT_EQ(GetParam().no_target(&probe_), -EINVAL);
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
}

TEST_P(RegisterCodes, RegisteredAlreadyComesBeforeTooMuchDataAndABadTarget) {
  ASSERT_EQ(GetParam().valid(&probe_), 0) << fprobe_last_error();
  probe_.entry_data_size = kTooMuchData;
  EXPECT_EQ(GetParam().valid(&probe_), -EEXIST);
  EXPECT_EQ(GetParam().bad_target(&probe_), -EEXIST);
  probe_.entry_data_size = 0;
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
}

TEST_P(RegisterCodes, TooMuchDataComesBeforeABadTarget) {
  probe_.entry_data_size = kTooMuchData;
  EXPECT_EQ(GetParam().bad_target(&probe_), -E2BIG);
  EXPECT_EQ(GetParam().valid(&probe_), -E2BIG);
  probe_.entry_data_size = MAX_FPROBE_DATA_SIZE;
  EXPECT_EQ(GetParam().valid(&probe_), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
}

TEST_P(RegisterCodes, ABadTargetIsRefusedWithASentenceAndNothingIsPatched) {
  const std::string text = main_text();
  EXPECT_EQ(GetParam().bad_target(&probe_), GetParam().bad_target_code);
  EXPECT_STRNE(fprobe_last_error(), "");
  EXPECT_FALSE(fprobe_is_registered(&probe_));
  EXPECT_EQ(main_text(), text);
  EXPECT_EQ(GetParam().valid(&probe_), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
}

INSTANTIATE_TEST_SUITE_P(All, RegisterCodes, ::testing::ValuesIn(kCalls),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(RegisterCodes, AFilterThatMatchesNothingIsRefusedWithItsWords) {
  Probe probe;
  struct {
    const char *filter, *notfilter, *word;
  } const cases[] = {{"no_such_function", nullptr, "no_such_function"},
                     {"first_victim", "first*", "first*"},
                     {"first_victim", "*", "first_victim"},
                     {"first_victim,!first_victim", "", "first_victim"},
                     {"", nullptr, "filter"}};
  for (const auto& each : cases) {
    EXPECT_EQ(register_fprobe(&probe, each.filter, each.notfilter), -ENOENT) << each.filter;
    EXPECT_NE(std::strstr(fprobe_last_error(), each.word), nullptr) << fprobe_last_error();
    EXPECT_FALSE(fprobe_is_registered(&probe));
  }
}

TEST(RegisterCodes, AMalformedNotfilterIsInvalidEvenIfNothingMatches) {
  Probe probe;
  for (const char* const filter : {"first_victim", "no_such_function"})
    for (const char* const notfilter : {"first[", "first\\", "first,,second", ",first", "first,"})
      EXPECT_EQ(register_fprobe(&probe, filter, notfilter), -EINVAL) << filter << " without " << notfilter;
}

TEST(RegisterCodes, ANullOrEmptyNotfilterExcludesNothing) {
  for (const char* const notfilter : {static_cast<const char*>(nullptr), ""}) {
    Probe probe;
    ASSERT_EQ(register_fprobe(&probe, "first_victim,second_victim", notfilter), 0) << fprobe_last_error();
    EXPECT_EQ(first_victim(1) + second_victim(1), 5);
    EXPECT_EQ(probe.entries, 2u);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
  }
}

TEST_P(RegisterCodes, BothHandlersNullIsAccepted) {
  probe_.entry_handler = nullptr;
  ASSERT_EQ(GetParam().valid(&probe_), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
}

TEST(RegisterCodes, CountsThatAreNotPositiveAreInvalid) {
  Probe probe;
  unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim)};
  for (const int count : {0, -1}) {
    EXPECT_EQ(register_fprobe_syms(&probe, g_names, count), -EINVAL);
    EXPECT_EQ(register_fprobe_ips(&probe, addresses, count), -EINVAL);
  }
  const char* with_null[] = {"first_victim", nullptr};
  EXPECT_EQ(register_fprobe_syms(&probe, with_null, 2), -EINVAL);
}

TEST(CountCodes, AreThoseOfRegister) {
  struct {
    const char *filter, *notfilter;
    int code;
  } const cases[] = {{"first_victim", nullptr, 1},
                     {"first_victim,second_victim,first_victim", "third*", 2},
                     {"first_victim", "first*", -ENOENT},
                     {nullptr, nullptr, -EINVAL},
                     {"", nullptr, -ENOENT},
                     {"no_such_function", nullptr, -ENOENT},
                     {"first_victim\\", nullptr, -EINVAL},
                     {"first_victim", "[", -EINVAL}};
  for (const auto& each : cases) {
    Probe probe;
    EXPECT_EQ(fprobe_count_ips_from_filter(each.filter, each.notfilter), each.code);
    const int code = register_fprobe(&probe, each.filter, each.notfilter);
    EXPECT_EQ(code, each.code < 0 ? each.code : 0);
    if (code != 0) continue;
    first_victim(1), second_victim(1), third_victim(1);
    EXPECT_EQ(probe.entries, static_cast<unsigned long>(each.code));
    EXPECT_EQ(unregister_fprobe(&probe), 0);
  }
}

TEST(ListCodes, PassTheFirstNonZeroAnswerOn) {
  EXPECT_EQ(fprobe_for_each_site(nullptr, nullptr), -EINVAL);
  unsigned calls = 0;
  EXPECT_EQ(fprobe_for_each_site(
                [](const fprobe_site*, void* argument) { return ++*static_cast<unsigned*>(argument) == 2 ? -17 : 0; },
                &calls),
            -17);
  EXPECT_EQ(calls, 2u);
}

TEST(ListCodes, TheCallbackMayRegister) {
  Probe probe;
  EXPECT_EQ(fprobe_for_each_site(
                [](const fprobe_site* site, void* argument) {
                  if (std::strcmp(site->symbol, "first_victim") != 0) return 0;
                  unsigned long ip = site->ip;
                  return register_fprobe_ips(static_cast<Probe*>(argument), &ip, 1) == 0 ? 1 : -1;
                },
                &probe),
            1);
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(RestoreText, IsRefusedWhileAProbeIsRegisteredAndPutsTheCallsBack) {
  Probe probe;
  ASSERT_EQ(register_fprobe_syms(&probe, g_names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(fprobe_restore_text(), -EBUSY);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  const std::string idle = main_text();
  EXPECT_EQ(fprobe_restore_text(), 0) << fprobe_last_error();
  EXPECT_NE(main_text(), idle);
  EXPECT_EQ(first_victim(1), 2);
  ASSERT_EQ(register_fprobe_syms(&probe, g_names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(Registered, ACopyOfARegisteredStructIsNot) {
  Probe probe;
  ASSERT_EQ(register_fprobe_syms(&probe, g_names, 1), 0) << fprobe_last_error();
  Probe copy = probe;
  EXPECT_FALSE(fprobe_is_registered(&copy));
  EXPECT_EQ(unregister_fprobe(&copy), -EINVAL);
  EXPECT_EQ(register_fprobe_syms(&copy, g_names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(copy.entries, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_TRUE(fprobe_is_registered(&copy));
  EXPECT_EQ(unregister_fprobe(&copy), 0);
}

TEST(Registered, ACopyMadeBeforeUnregisterIsNotRegisteredByALaterUserOfTheSlot) {
  Probe probe;
  ASSERT_EQ(register_fprobe_syms(&probe, g_names, 1), 0) << fprobe_last_error();
  Probe copy = probe;
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  Probe other;
  ASSERT_EQ(register_fprobe_syms(&other, g_names, 1), 0) << fprobe_last_error();
  EXPECT_FALSE(fprobe_is_registered(&copy));
  EXPECT_FALSE(fprobe_is_registered(&probe));
  EXPECT_EQ(unregister_fprobe(&other), 0);
}

// A struct that nobody initialised.  The private word is taken through all that it may hold by chance.
class GarbageStruct : public ::testing::TestWithParam<std::uintptr_t> {
 protected:
  GarbageStruct() {
    std::memset(static_cast<fprobe*>(&probe_), 0x5a, sizeof(fprobe));
    probe_.handle = reinterpret_cast<void*>(GetParam());
  }
  Probe probe_;
};

TEST_P(GarbageStruct, IsNotRegistered) {
  EXPECT_FALSE(fprobe_is_registered(&probe_));
  EXPECT_EQ(unregister_fprobe(&probe_), -EINVAL);
  EXPECT_EQ(unregister_fprobe_async(&probe_), -EINVAL);
  EXPECT_NE(std::strstr(fprobe_last_error(), "not registered"), nullptr) << fprobe_last_error();
}

TEST_P(GarbageStruct, IsNotMistakenForTheProbeWhoseSlotItNames) {
  Probe registered[3];
  for (Probe& probe : registered) ASSERT_EQ(register_fprobe_syms(&probe, g_names, 1), 0) << fprobe_last_error();
  EXPECT_FALSE(fprobe_is_registered(&probe_));
  EXPECT_EQ(unregister_fprobe(&probe_), -EINVAL);
  for (Probe& probe : registered) EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST_P(GarbageStruct, IsRefusedForItsDataSizeByEveryRegister) {
  for (const Call& call : kCalls) EXPECT_EQ(call.valid(&probe_), -E2BIG) << call.name;
}

TEST_P(GarbageStruct, WithItsPublicFieldsFilledInWorks) {
  probe_.flags = 0;
  probe_.entry_data_size = 0;
  probe_.entry_handler = &on_entry;
  probe_.exit_handler = nullptr;
  probe_.ops.flags = 0;
  for (const Call& call : kCalls) {
    ASSERT_EQ(call.valid(&probe_), 0) << call.name << ": " << fprobe_last_error();
    EXPECT_EQ(first_victim(1), 2);
    EXPECT_EQ(probe_.nmissed, 0u);
    EXPECT_EQ(unregister_fprobe(&probe_), 0);
  }
  EXPECT_EQ(probe_.entries, 3u);
}

INSTANTIATE_TEST_SUITE_P(All, GarbageStruct,
                         ::testing::Values(0x5a5a5a5a5a5a5a5a, 1, 2, 3, 16, 17, 48, 49, 1000, 1UL << 32, ~0UL));

// 32 threads call `act` on one struct at the same moment; returns how often each code came.
template <class Act>
void expect_one_winner(const Act& act, int losers_code) {
  constexpr int kThreads = 32;
  std::barrier start(kThreads);
  std::atomic<int> winners{0}, losers{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      const int code = act();
      winners += code == 0 ? 1 : 0;
      losers += code == losers_code ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(losers, kThreads - 1);
}

// In each way to register.
TEST(Races, OfThirtyTwoThreadsThatRegisterOrUnregisterOneStructOneWins) {
  Probe probe;
  for (int round = 0; round < 21; ++round) {
    const Call& call = kCalls[round % 3];
    expect_one_winner([&] { return call.valid(&probe); }, -EEXIST);
    EXPECT_TRUE(fprobe_is_registered(&probe));
    const bool waits = round % 2 == 0;
    expect_one_winner([&] { return waits ? unregister_fprobe(&probe) : unregister_fprobe_async(&probe); }, -EINVAL);
    EXPECT_FALSE(fprobe_is_registered(&probe));
  }
  EXPECT_EQ(fprobe_synchronize(), 0);
}

TEST(LastError, IsEmptyAtFirstBelongsToTheThreadAndOutlivesSuccess) {
  const auto on_a_new_thread = [] {
    EXPECT_STREQ(fprobe_last_error(), "");
    Probe probe;
    EXPECT_EQ(register_fprobe_syms(&probe, g_unknown, 1), -ENOENT);
    EXPECT_NE(std::strstr(fprobe_last_error(), "no_such_function"), nullptr) << fprobe_last_error();
    EXPECT_EQ(register_fprobe_syms(&probe, g_names, 1), 0);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    EXPECT_NE(std::strstr(fprobe_last_error(), "no_such_function"), nullptr) << fprobe_last_error();
  };
  std::thread(on_a_new_thread).join();
  std::thread(on_a_new_thread).join();
}

TEST(LastError, OfVeryLongNamesIsCutNotTheCode) {
  Probe probe;
  const std::string long_name(10'000, 'x');
  const char* names[] = {long_name.c_str()};
  EXPECT_EQ(register_fprobe_syms(&probe, names, 1), -ENOENT);
  EXPECT_GT(std::strlen(fprobe_last_error()), 100u);
  EXPECT_EQ(register_fprobe(&probe, long_name.c_str(), long_name.c_str()), -ENOENT);
}

}  // namespace
