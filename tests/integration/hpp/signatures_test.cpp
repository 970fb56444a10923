// What context::args() knows of the function: hidden return pointers, member functions, bits that are not defined.
#include <gtest/gtest.h>

#include "integration/hpp/victims.h"

namespace signatures {

using namespace victims;

extern "C" VICTIM void narrow_victim(bool, char, short, int, float, unsigned char) {
  asm volatile("");
}
extern "C" VICTIM Big hidden_return_victim(int value, double other) {
  return {{opaque(value), static_cast<long>(other), 0}};
}

struct Base {
  long padding = 0;
  VICTIM int of_base(int value) { return opaque(value) + static_cast<int>(padding); }
};
struct Left {
  long left = 1;
};
struct Widget : Left, Base {
  long number = 7;
  VICTIM Big big(int value, float other) const { return {{number, opaque(value), static_cast<long>(other)}}; }
  VICTIM std::string text(std::string value) & { return opaque(value) + std::to_string(number); }
  VICTIM long quiet(long value) const volatile noexcept { return opaque(value) + number; }
  VICTIM long rvalue(double value) && { return static_cast<long>(opaque(value)) + number; }
  VICTIM static long of_class(long value) { return opaque(value); }
};

}  // namespace signatures

namespace {

using namespace signatures;
using libfprobe::by_filter;
using libfprobe::context;
using libfprobe::probe;

TEST(NarrowArguments, AreReadWithoutTheUndefinedBitsOfTheirRegisters) {
  std::optional<std::tuple<bool, char, short, int, float, unsigned char>> read;
  const probe probe(
      &narrow_victim, [&](context& call) { read = call.args<bool, char, short, int, float, unsigned char>(); },
      nullptr);
  const auto untyped =
      reinterpret_cast<void (*)(long, long, long, long, double, long)>(reinterpret_cast<void*>(&narrow_victim));
  const double bits = std::bit_cast<double>(0x7ff4'dead'0000'0000UL | std::bit_cast<unsigned>(1.5F));
  (*static_cast<decltype(untyped) volatile*>(&untyped))(0x5a5a00, 0x1234'5680, 0x7777'8001, 0x7654'3210'8000'0002, bits,
                                                        -2);
  EXPECT_TRUE(read == std::tuple(false, static_cast<char>(0x80), static_cast<short>(0x8001),
                                 static_cast<int>(0x8000'0002), 1.5F, static_cast<unsigned char>(0xfe)));
}

TEST(HiddenReturn, IsKnownOfAFunctionPointer) {
  std::optional<std::tuple<int, double>> read;
  const probe probe(
      &hidden_return_victim, [&](context& call) { read = call.args<int, double>(); }, nullptr);
  hidden_return_victim(41, 2.5);
  EXPECT_TRUE(read == std::tuple(41, 2.5));
}

TEST(HiddenReturn, IsToldByTheWholeTypeWhereTheTargetIsAName) {
  std::optional<std::tuple<int, double>> read;
  const probe probe(
      by_filter{"hidden_return_victim"}, [&](context& call) { read = call.args<Big(int, double)>(); }, nullptr);
  hidden_return_victim(42, 3.5);
  EXPECT_TRUE(read == std::tuple(42, 3.5));
}

TEST(HiddenReturn, IsTheFirstArgumentWhereNobodyToldOfIt) {
  std::optional<std::tuple<const Big*, int, double>> read;
  const Big* returned = nullptr;
  const char* const names[] = {"hidden_return_victim"};
  const probe probe(
      names, [&](context& call) { read = call.args<const Big*, int, double>(); },
      [&](context& call) { returned = &call.result<Big&>(); });
  hidden_return_victim(43, 4.5);
  EXPECT_TRUE(read == std::tuple(returned, 43, 4.5));
}

TEST(WholeType, IsTheSameAsTheTypesForAFunctionPointer) {
  std::optional<std::tuple<int, double>> read;
  const probe probe(
      &hidden_return_victim, [&](context& call) { read = call.args<Big(int, double)>(); }, nullptr);
  hidden_return_victim(44, 5.5);
  EXPECT_TRUE(read == std::tuple(44, 5.5));
}

TEST(Arguments, BehindTheLastOneWantedMayBeLeftOut) {
  int read = 0, calls = 0;
  const probe probe(
      &hidden_return_victim,
      [&](context& call) {
        EXPECT_EQ(call.args<>(), std::tuple<>());
        read = std::get<0>(call.args<int>());
        ++calls;
      },
      nullptr);
  hidden_return_victim(45, 0);
  EXPECT_EQ(read, 45);
  EXPECT_EQ(calls, 1);
}

TEST(MemberFunction, HasThisInFront) {
  const Widget* self = nullptr;
  std::tuple<int, float> read;
  const probe probe(
      &Widget::big,
      [&](context& call) {
        auto [object, value, other] = call.args<const Widget*, int, float>();
        self = object;
        read = {value, other};
      },
      nullptr);
  const Widget widget;
  widget.big(5, 2.5F);
  EXPECT_EQ(self, &widget);
  EXPECT_EQ(read, std::tuple(5, 2.5F));
}

TEST(MemberFunction, WithAHiddenReturnIsToldByItsWholeTypeWithThisInFront) {
  const Widget* self = nullptr;
  const probe probe(
      by_filter{"signatures::Widget::big"},
      [&](context& call) { self = std::get<0>(call.args<Big(const Widget*, int, float)>()); }, nullptr);
  const Widget widget;
  widget.big(5, 2.5F);
  EXPECT_EQ(self, &widget);
}

// Each way a pointer to member function can be qualified leads to its function.
TEST(MemberFunction, MayHaveAnyQualifiers) {
  Widget widget;
  int calls = 0;
  const auto count = [&](context&) { ++calls; };
  const probe text(&Widget::text, count, nullptr), quiet(&Widget::quiet, count, nullptr),
      rvalue(&Widget::rvalue, count, nullptr), of_class(&Widget::of_class, count, nullptr);
  widget.text("text");
  widget.quiet(1);
  std::move(widget).rvalue(2);
  Widget::of_class(3);
  EXPECT_EQ(calls, 4);
}

// A pointer to a base's member function as one of the derived class carries an adjustment of `this`.
TEST(MemberFunction, OfABaseIsProbedThroughAPointerThatAdjustsThis) {
  Widget widget;
  const Base* self = nullptr;
  int (Widget::*const pointer)(int) = &Widget::of_base;
  const probe probe(
      pointer, [&](context& call) { self = std::get<0>(call.args<Base*, int>()); }, nullptr);
  (widget.*pointer)(1);
  EXPECT_EQ(self, static_cast<Base*>(&widget));
}

TEST(Arguments, AreNotThereAtExit) {
  bool has_args = true;
  std::tuple<long, double, std::string> read{1, 1.0, "text"};
  const probe probe(&hidden_return_victim, nullptr, [&](context& call) {
    has_args = call.has_args();
    read = call.args<long, double, std::string>();
  });
  hidden_return_victim(1, 1);
  EXPECT_FALSE(has_args);
  EXPECT_EQ(read, std::tuple(0L, 0.0, std::string()));
}

}  // namespace
