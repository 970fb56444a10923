// context::result() and set_result() for every class of result, at exit, at entry together with skip(), and after unwinding.
#include <gtest/gtest.h>

#include <stdexcept>

#include "integration/hpp/victims.h"

namespace results {

using namespace victims;

int object = 0, other_object = 0;
VICTIM int& reference_victim() {
  return opaque(object);
}
VICTIM int left_victim(int how) {
  if (how != 0) throw std::runtime_error("on purpose");
  return opaque(how) + 5;
}
VICTIM std::string left_text_victim(int how) {
  if (how != 0) throw std::runtime_error("on purpose");
  return "text";
}
VICTIM signed char narrow_victim() {
  int value = 1;
  return static_cast<signed char>(opaque(value));
}
VICTIM long double long_double_victim() {
  long double value = 1;
  return opaque(value);
}

VICTIM Short narrow_enumeration_victim() {
  Short value = Short(1);
  return opaque(value);
}

// Knows how many of its kind there are.
struct Counted {
  static inline int alive = 0;
  int value;
  explicit Counted(int number) : value(number) { ++alive; }
  Counted(const Counted& other) : value(other.value) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
};
VICTIM Counted counted_victim(int value) {
  return Counted(opaque(value));
}

}  // namespace results

namespace {

using namespace results;
using libfprobe::context;
using libfprobe::probe;

using All = std::tuple<bool, char, short, unsigned, long, Short, Plain, std::byte, std::nullptr_t, const char*, Int128,
                       float, double, Method, Member, I, CSF, FI, F, FF, FFF, DD, DL, LF, FFI, LL, Bytes, Empty, Wide,
                       Big, BigAligned, Odd, Copied, Destroyed, std::string, Pair, View, Span, Milliseconds, TimePoint,
                       Complex, MaybeInt, Array, ErrorCode>;

template <class Check>
void for_each_type(const Check& check) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (check.template operator()<std::tuple_element_t<I, All>>(), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<All>>{});
}

TEST(Result, OfEveryTypeIsReadAtExit) {
  for_each_type([]<class R>() {
    std::optional<R> read;
    const probe probe(&Giver<R>::body, nullptr, [&](context& call) { read.emplace(call.result<R>()); });
    for (long n = 0; n < 4; ++n) {
      read.reset();
      const R returned = Giver<R>::body(n);
      ASSERT_TRUE(read.has_value());
      EXPECT_TRUE(is_same<R>(*read, returned)) << __PRETTY_FUNCTION__ << n;
    }
  });
}

TEST(Result, OfEveryTypeIsReplacedAtExit) {
  for_each_type([]<class R>() {
    const probe probe(&Giver<R>::body, nullptr, [](context& call) { call.set_result<R>(value_of<R>(3)); });
    EXPECT_TRUE(is_same<R>(Giver<R>::body(2), value_of<R>(3))) << __PRETTY_FUNCTION__;
  });
}

TEST(Result, OfEveryTypeIsWhatTheCallerOfASkippedFunctionGets) {
  for_each_type([]<class R>() {
    const probe probe(
        &Giver<R>::body,
        [](context& call) {
          call.skip();
          call.set_result<R>(value_of<R>(5));
        },
        nullptr);
    Giver<R>::calls = 0;
    EXPECT_TRUE(is_same<R>(Giver<R>::body(2), value_of<R>(5))) << __PRETTY_FUNCTION__;
    EXPECT_EQ(Giver<R>::calls, 0) << __PRETTY_FUNCTION__;
  });
}

TEST(Result, IsThatOfTheLastSetterWhereTwoProbesSkipAFunctionAndIsMadeOnce) {
  const auto skip_with = [](int value) {
    return [value](context& call) {
      call.set_result<Counted>(Counted(value));
      call.skip();
    };
  };
  const probe older(&counted_victim, skip_with(6), nullptr), newer(&counted_victim, skip_with(7), nullptr);
  EXPECT_EQ(counted_victim(1).value, 6);
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Result, ThatIsAReferenceLeadsToTheObject) {
  int* read = nullptr;
  const probe probe(&reference_victim, nullptr, [&](context& call) {
    read = &call.result<int&>();
    call.set_result<int&>(other_object);
  });
  EXPECT_EQ(&reference_victim(), &other_object);
  EXPECT_EQ(read, &object);
}

TEST(Result, InMemoryIsTheCallersObjectWhenAskedForByReference) {
  const probe probe(&Giver<std::string>::body, nullptr,
                    [](context& call) { call.result<std::string&>() += ", changed"; });
  EXPECT_EQ(Giver<std::string>::body(1), value_of<std::string>(1) + ", changed");
}

TEST(Result, OfAFunctionWithoutOneIsVoid) {
  int calls = 0;
  const probe probe(&Taker<void, int>::body, nullptr, [&](context& call) {
    call.result<void>();
    ++calls;
  });
  Taker<void, int>::body(1);
  EXPECT_EQ(calls, 1);
}

TEST(Result, NarrowerThanARegisterIsExtendedLikeACompilers) {
  const probe integer(&narrow_victim, nullptr, [](context& call) { call.set_result<signed char>(-5); });
  const auto wide = reinterpret_cast<int (*)()>(reinterpret_cast<void*>(&narrow_victim));
  EXPECT_EQ((*static_cast<int (*const volatile*)()>(&wide))(), -5);

  const probe enumeration(&narrow_enumeration_victim, nullptr,
                          [](context& call) { call.set_result<Short>(Short(-6)); });
  const auto wide_enumeration = reinterpret_cast<int (*)()>(reinterpret_cast<void*>(&narrow_enumeration_victim));
  EXPECT_EQ((*static_cast<int (*const volatile*)()>(&wide_enumeration))(), -6);
}

TEST(Unwound, IsToldAndTheResultIsZeroOrDefaultMade) {
  int unwound = 0, returned = 0;
  std::optional<int> number;
  std::optional<std::string> text;
  const auto note = [&](context& call) { ++(call.unwound() ? unwound : returned); };
  const probe numbers(&left_victim, nullptr, [&](context& call) {
    note(call);
    number = call.result<int>();
    call.set_result<int>(9);
  });
  const probe texts(&left_text_victim, nullptr, [&](context& call) {
    note(call);
    text = call.result<std::string>();
    call.set_result<std::string>("nobody gets it");
  });
  EXPECT_THROW(left_victim(1), std::runtime_error);
  EXPECT_THROW(left_text_victim(1), std::runtime_error);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(text, "");
  EXPECT_EQ(unwound, 2);
  EXPECT_EQ(left_victim(0), 9);
  EXPECT_EQ(left_text_victim(0), "nobody gets it");
  EXPECT_EQ(returned, 2);
}

TEST(Unwound, IsFalseAtEntry) {
  bool unwound = true;
  const probe probe(
      &left_victim, [&](context& call) { unwound = call.unwound(); }, nullptr);
  left_victim(0);
  EXPECT_FALSE(unwound);
}

// A function whose result cannot be carried over can be probed all the same.
TEST(Probe, OfAFunctionThatReturnsLongDouble) {
  int calls = 0;
  const probe probe(
      &long_double_victim, [&](context&) { ++calls; }, [&](context&) { ++calls; });
  EXPECT_EQ(long_double_victim(), 1);
  EXPECT_EQ(calls, 2);
}

}  // namespace
