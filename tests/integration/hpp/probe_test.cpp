// libfprobe::probe: targets, callables, errors, data.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "integration/hpp/victims.h"

namespace probes {

using namespace victims;

VICTIM int first_victim(int value) {
  return opaque(value) + 1;
}
VICTIM int second_victim(int value) noexcept {
  return opaque(value) + 2;
}
VICTIM int printing_victim(const char* format, ...) {
  return opaque(format[0]);
}
VICTIM FPROBE_NOTRACE int untraced_victim(int value) {
  return opaque(value);
}

struct Virtual {
  virtual ~Virtual() = default;
  VICTIM virtual int method(int value) { return value; }
  VICTIM virtual int constant(int value) const { return value; }
};

}  // namespace probes

namespace {

using namespace probes;
using libfprobe::by_filter;
using libfprobe::context;
using libfprobe::probe;

int calls = 0;
void count_call(context&) {
  ++calls;
}

// Counts its calls; can be moved only.
struct Counter {
  int* count;
  std::unique_ptr<int> owned = std::make_unique<int>(1);
  void operator()(context&) { *count += *owned; }
};

// ---- what it is ----------------------------------------------------------------------------------------------------

static_assert(std::is_nothrow_default_constructible_v<probe> && std::is_nothrow_move_constructible_v<probe>);
static_assert(std::is_nothrow_move_assignable_v<probe> && !std::is_copy_constructible_v<probe>);
static_assert(!std::is_copy_assignable_v<probe> && !std::is_copy_constructible_v<context>);
static_assert(std::is_same_v<decltype(std::declval<context&>().args<int, char*>()), std::tuple<int, char*>>);
static_assert(std::is_same_v<decltype(std::declval<context&>().result<Big>()), Big>);
static_assert(noexcept(std::declval<context&>().args<int>()) && noexcept(std::declval<context&>().result<int>()));

// ---- targets -------------------------------------------------------------------------------------------------------

template <class Target>
void expect_calls(const Target& target, int expected) {
  calls = 0;
  {
    probe probe(target, count_call, nullptr);
    EXPECT_TRUE(probe.attached());
    first_victim(1);
    second_victim(1);
  }
  EXPECT_EQ(calls, expected);
  first_victim(1);
  EXPECT_EQ(calls, expected);
}

TEST(Target, MayBeAFilter) {
  expect_calls(by_filter{"probes::*_victim"}, 2);
  expect_calls(by_filter{"probes::*_victim", "probes::second_victim"}, 1);
}

TEST(Target, MayBeASpanOfNamesOrWhateverConvertsToOne) {
  const char* const one[] = {"probes::first_victim"};
  const char* two[] = {"probes::first_victim", "probes::second_victim"};
  expect_calls(one, 1);
  expect_calls(two, 2);
  expect_calls(std::span<const char* const>(two), 2);
  expect_calls(std::vector<const char*>{"probes::second_victim"}, 1);
  expect_calls(std::array<const char*, 2>{"probes::first_victim", "probes::second_victim"}, 2);
}

TEST(Target, MayBeASpanOfAddressesOrWhateverConvertsToOne) {
  const unsigned long first = reinterpret_cast<unsigned long>(&first_victim);
  const unsigned long second = reinterpret_cast<unsigned long>(&second_victim);
  const unsigned long both[] = {first, second};
  expect_calls(std::span<const unsigned long>(both), 2);
  expect_calls(std::vector{second}, 1);
  expect_calls(both, 2);
}

TEST(Target, MayBeAFunctionOrAPointerToOne) {
  int (*const pointer)(int) = &first_victim;
  int (*const quiet)(int) noexcept = &second_victim;
  expect_calls(first_victim, 1);
  expect_calls(pointer, 1);
  expect_calls(quiet, 1);
}

TEST(Target, MayBeAVariadicFunction) {
  int value = 0;
  const probe probe(
      &printing_victim, [&](context& call) { value = std::get<1>(call.args<const char*, int>()); }, nullptr);
  printing_victim("%d", 7);
  EXPECT_EQ(value, 7);
}

TEST(Target, ThatIsAVirtualMemberFunctionIsAnInvalidArgument) {
  std::error_code error;
  probe method(&Virtual::method, nullptr, nullptr, error);
  EXPECT_EQ(error, std::errc::invalid_argument);
  EXPECT_FALSE(method.attached());
  EXPECT_EQ(method.native_handle(), nullptr);
  probe constant(&Virtual::constant, nullptr, nullptr, error);
  EXPECT_EQ(error, std::errc::invalid_argument);
  try {
    probe thrown(&Virtual::method, nullptr, nullptr);
    FAIL() << "nothing thrown";
  } catch (const std::system_error& exception) {
    EXPECT_EQ(exception.code(), std::errc::invalid_argument);
    EXPECT_NE(std::string(exception.what()).find("virtual"), std::string::npos) << exception.what();
  }
}

// ---- errors --------------------------------------------------------------------------------------------------------

template <class Target>
void expect_refusal(const Target& target, std::errc expected) {
  std::error_code error;
  probe refused(target, count_call, count_call, error);
  EXPECT_EQ(error, expected);
  EXPECT_FALSE(refused.attached());
  EXPECT_EQ(refused.native_handle(), nullptr);
  try {
    probe thrown(target, count_call, count_call);
    FAIL() << "nothing thrown";
  } catch (const std::system_error& exception) {
    EXPECT_EQ(exception.code(), expected);
    EXPECT_NE(std::string(exception.what()).find(fprobe_last_error()), std::string::npos) << exception.what();
    EXPECT_STRNE(fprobe_last_error(), "");
  }
}

TEST(Refusal, HasTheCodeAndTheSentenceOfTheLibrary) {
  expect_refusal(by_filter{"no_such_function"}, std::errc::no_such_file_or_directory);
  expect_refusal(by_filter{""}, std::errc::no_such_file_or_directory);
  expect_refusal(by_filter{"victim["}, std::errc::invalid_argument);
  expect_refusal(by_filter{nullptr}, std::errc::invalid_argument);
  expect_refusal(by_filter{"*", "victim["}, std::errc::invalid_argument);
  expect_refusal(untraced_victim, std::errc::no_such_file_or_directory);
  expect_refusal(static_cast<int (*)(int)>(nullptr), std::errc::no_such_file_or_directory);
  expect_refusal(static_cast<int (Class::*)(int)>(nullptr), std::errc::no_such_file_or_directory);
  const char* const names[] = {"probes::first_victim", "no_such_function"};
  expect_refusal(names, std::errc::no_such_file_or_directory);
  const char* const null_name[] = {nullptr};
  expect_refusal(null_name, std::errc::invalid_argument);
  const unsigned long address[] = {reinterpret_cast<unsigned long>(&first_victim), 1};
  expect_refusal(address, std::errc::no_such_file_or_directory);
}

TEST(Refusal, OfAnEmptySpanIsForItsSize) {
  expect_refusal(std::span<const char* const>(), std::errc::invalid_argument);
  EXPECT_NE(std::string(fprobe_last_error()).find("num is 0"), std::string::npos) << fprobe_last_error();
  expect_refusal(std::span<const unsigned long>(), std::errc::invalid_argument);
  EXPECT_NE(std::string(fprobe_last_error()).find("num is 0"), std::string::npos) << fprobe_last_error();
}

TEST(Refusal, LeavesNothingOfTheCallables) {
  const auto shared = std::make_shared<int>(1);
  std::error_code error;
  {
    const probe refused(
        by_filter{"no_such_function"}, [shared](context&) {}, [shared](context&) {}, error);
    EXPECT_TRUE(error);
    EXPECT_EQ(shared.use_count(), 1);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(Success, ClearsTheErrorCode) {
  std::error_code error = std::make_error_code(std::errc::io_error);
  const probe probe(&first_victim, count_call, nullptr, error);
  EXPECT_FALSE(error);
  EXPECT_TRUE(probe.attached());
  error = std::make_error_code(std::errc::io_error);
  const auto with_data = probe::with_data<long>(&first_victim, count_call, nullptr, error);
  EXPECT_FALSE(error);
}

// ---- callables -----------------------------------------------------------------------------------------------------

TEST(Callables, MayBothBeAbsent) {
  probe neither(&first_victim, nullptr, nullptr);
  EXPECT_TRUE(neither.attached());
  EXPECT_EQ(neither.native_handle()->entry_handler, nullptr);
  EXPECT_EQ(neither.native_handle()->exit_handler, nullptr);
  EXPECT_EQ(first_victim(1), 2);
  void (*const null)(context&) = nullptr;
  probe null_pointers(&first_victim, null, null);
  EXPECT_EQ(null_pointers.native_handle()->entry_handler, nullptr);
  EXPECT_EQ(first_victim(1), 2);
}

TEST(Callables, AreMovedAndKeepTheirState) {
  int entries = 0, exits = 0;
  const probe probe(&first_victim, Counter{&entries}, Counter{&exits});
  first_victim(1);
  first_victim(1);
  EXPECT_EQ(entries, 2);
  EXPECT_EQ(exits, 2);
}

TEST(Callables, MayBeOfAnyKind) {
  calls = 0;
  const probe function(&first_victim, count_call, &count_call);
  const probe wrapped(&first_victim, std::function<void(context&)>(count_call), [count = 0](auto& call) mutable {
    static_cast<void>(call);
    calls += ++count;
  });
  first_victim(1);
  first_victim(1);
  EXPECT_EQ(calls, 6 + 1 + 2);
}

TEST(Entry, ThatReturnsFalseHasNoExitForThatCall) {
  int exits = 0;
  const probe probe(
      &first_victim, [](context& call) { return std::get<0>(call.args<int>()) != 2; }, [&](context&) { ++exits; });
  first_victim(1);
  EXPECT_EQ(exits, 1);
  first_victim(2);
  EXPECT_EQ(exits, 1);
  first_victim(3);
  EXPECT_EQ(exits, 2);
  EXPECT_EQ(probe.missed(), 0U);
}

TEST(Context, HasTheAddressesAtBothEnds) {
  unsigned long ip[2] = {}, ret_ip[2] = {};
  const probe probe(
      &first_victim,
      [&](context& call) {
        ip[0] = call.entry_ip(), ret_ip[0] = call.ret_ip();
        EXPECT_EQ(ftrace_regs_get_return_address(&call.regs()), call.ret_ip());
        EXPECT_EQ(ftrace_regs_get_instruction_pointer(&call.regs()), call.entry_ip());
      },
      [&](context& call) { ip[1] = call.entry_ip(), ret_ip[1] = call.ret_ip(); });
  first_victim(1);
  EXPECT_NE(ip[0], 0U);
  EXPECT_LE(ip[0] - reinterpret_cast<unsigned long>(&first_victim), 4U);
  EXPECT_EQ(ip[0], ip[1]);
  EXPECT_NE(ret_ip[0], 0U);
  EXPECT_EQ(ret_ip[0], ret_ip[1]);
}

// ---- data ----------------------------------------------------------------------------------------------------------

struct Data {
  long values[15];
};

TEST(Data, IsZeroAtEntryAndTheSameAtExit) {
  long sum = 0;
  const auto probe = probe::with_data<Data>(
      &first_victim,
      [](context& call) {
        auto& data = call.data<Data>();
        for (long& value : data.values) value += std::get<0>(call.args<int>());
      },
      [&](context& call) {
        for (const long value : call.data<Data>().values) sum += value;
      });
  first_victim(3);
  first_victim(4);
  EXPECT_EQ(sum, 15 * 7);
}

TEST(Data, WithoutAnExitLastsForTheEntry) {
  long first = -1, last = -1;
  const auto probe = probe::with_data<Data>(
      &first_victim,
      [&](context& call) {
        first = call.data<Data>().values[14];
        call.data<Data>().values[14] = 5;
        last = call.data<Data>().values[14];
      },
      nullptr);
  for (int i = 0; i < 2; ++i) {
    first_victim(1);
    EXPECT_EQ(first, 0);
    EXPECT_EQ(last, 5);
  }
}

TEST(Data, IsReservedInItsSizeOnly) {
  auto small = probe::with_data<char>(&first_victim, count_call, count_call);
  auto none = probe(&first_victim, count_call, count_call);
  EXPECT_EQ(small.native_handle()->entry_data_size, 1U);
  EXPECT_EQ(none.native_handle()->entry_data_size, 0U);
}

TEST(Data, ThrowsWhatTheConstructorThrows) {
  EXPECT_THROW(probe::with_data<Data>(by_filter{"no_such_function"}, count_call, nullptr), std::system_error);
  std::error_code error;
  auto refused = probe::with_data<Data>(by_filter{"no_such_function"}, count_call, nullptr, error);
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_FALSE(refused.attached());
}

}  // namespace
