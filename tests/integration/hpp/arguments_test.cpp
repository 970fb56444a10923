// context::args() reads what the function's body gets, for every class of argument in every position.
//
// Mixed signatures are drawn from a list of types by a generator that is evaluated when compiled, always the same ones.
// FPROBE_SEEDS: which of them this source is compiled for.
#include <gtest/gtest.h>

#include "integration/hpp/victims.h"

#ifndef FPROBE_SEEDS
#define FPROBE_SEEDS 0
#endif

namespace {

using namespace victims;
using libfprobe::context;
using libfprobe::probe;

// What the entry handler reads of a Taker's call. (A plain function: probes of all signatures share their code.)
template <class... A>
struct Reader {
  static inline std::optional<std::tuple<Kept<A>...>> read;

  static void on_entry(context& call) {
    if (!call.has_args()) return;
    std::apply([](auto&&... argument) { read.emplace(keep<A>(argument)...); }, call.args<A...>());
  }
};

void expect_same(bool is_same, const char* function) {
  EXPECT_TRUE(is_same) << function;
}

// Calls a function with values of A... and compares what the entry handler reads with what the body got.
template <class R, class... A>
void expect_same(long first_value = 1) {
  using Victim = Taker<R, A...>;
  using Entry = Reader<A...>;
  Victim::got.reset();
  Entry::read.reset();
  const probe probe(&Victim::body, &Entry::on_entry, nullptr);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    std::tuple<std::remove_cvref_t<A>...> values{
        value_of<std::remove_cvref_t<A>>(first_value + static_cast<long>(I))...};
    Victim::body(static_cast<A>(std::get<I>(values))...);
  }
  (std::index_sequence_for<A...>{});
  expect_same(Victim::got.has_value() && Entry::read.has_value() && *Entry::read == *Victim::got, __PRETTY_FUNCTION__);
}

// ---- each type by itself -------------------------------------------------------------------------------------------

using All =
    std::tuple<bool, char, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long,
               char8_t, wchar_t, Short, Plain, std::byte, std::nullptr_t, const char*, int (*)(int), Int128, float,
               double, long double, Method, Member, int&, const Big&, std::string&&, I, CSF, FI, F, FF, FFF, DD, DL, LF,
               FFI, LL, Bytes, Empty, Wide, Big, BigAligned, Odd, Copied, Destroyed, std::string, Pair, View, Span,
               Milliseconds, TimePoint, Complex, MaybeInt, Array, ErrorCode, const int, const Big>;

// Calls `check`.operator()<T>() for each T of a tuple.
template <class Tuple, class Check>
void for_each_type(const Check& check) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (check.template operator()<std::tuple_element_t<I, Tuple>>(), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<Tuple>>{});
}

// clang's __int128 is not that of the psABI where one register is left, which fprobe.hpp says.
#if defined(__clang__)
using MixedInt128 = Wide;
#else
using MixedInt128 = Int128;
#endif

// One of each way of being passed.
using Mixed =
    std::tuple<int, long, const char*, bool, Short, double, float, MixedInt128, long double, CSF, FI, FFF, DD, DL, LF,
               FFI, LL, Bytes, Empty, Wide, Big, BigAligned, Odd, Copied, const Big&, Pair, View, Method>;

#if FPROBE_SEEDS == 0

TEST(EachType, IsReadAsTheFirstArgument) {
  for_each_type<All>([]<class T>() {
    for (long n = 1; n < 5; ++n) expect_same<void, T>(n);
  });
}

#elif FPROBE_SEEDS == 1

TEST(EachType, IsReadBehindAHiddenReturnPointerWhereOneRegisterOfEitherKindIsLeft) {
  for_each_type<Mixed>([]<class T>() {
    expect_same<Big, int, int, int, int, float, float, float, float, float, float, float, T, long, double>();
  });
}

#elif FPROBE_SEEDS == 2

TEST(EachType, IsReadFromTheStackAtEitherAlignment) {
  for_each_type<Mixed>([]<class T>() {
    expect_same<void, LL, LL, LL, double, double, double, double, double, double, double, double, T, char, T, float>();
  });
}

#endif

// ---- mixed signatures ----------------------------------------------------------------------------------------------

// A linear congruential generator's `n`-th number.
constexpr unsigned long random_number(unsigned long seed, unsigned long n) {
  unsigned long state = seed * 0x9e3779b97f4a7c15 + 1;
  for (unsigned long i = 0; i <= n; ++i) state = state * 6364136223846793005 + 1442695040888963407;
  return state >> 33;
}

template <unsigned long kSeed, unsigned long kPosition>
using MixedType = std::tuple_element_t<random_number(kSeed, kPosition) % std::tuple_size_v<Mixed>, Mixed>;

template <unsigned long kSeed>
void expect_same_of_seed() {
  using R = std::conditional_t<kSeed % 3 == 0, Big, std::conditional_t<kSeed % 3 == 1, void, Copied>>;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    expect_same<R, MixedType<kSeed, I + 1>...>();
  }
  (std::make_index_sequence<2 + random_number(kSeed, 0) % 13>{});
}

constexpr unsigned long kSignatures = 40;

TEST(MixedSignatures, AreReadAsTheBodyGetsThem) {
  []<unsigned long... kSeed>(std::integer_sequence<unsigned long, kSeed...>) {
    (expect_same_of_seed<FPROBE_SEEDS * kSignatures + kSeed>(), ...);
  }
  (std::make_integer_sequence<unsigned long, kSignatures>{});
}

}  // namespace
