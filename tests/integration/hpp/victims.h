// Types of every class that the psABI tells apart, values of them, and functions to be probed that keep what they got.
//
// Nothing here has internal linkage: a compiler may pass the arguments of such functions as it likes.
#ifndef FPROBE_TESTS_INTEGRATION_HPP_VICTIMS_H_
#define FPROBE_TESTS_INTEGRATION_HPP_VICTIMS_H_

#include <fprobe/fprobe.hpp>

#include <array>
#include <chrono>
#include <complex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#if defined(__clang__)
#define VICTIM [[gnu::noinline]]
#else
#define VICTIM [[gnu::noipa]]
#endif

namespace victims {

enum class Short : short {};
enum Plain { kPlainZero, kPlainMost = 1 << 20 };
__extension__ typedef __int128 Int128;

// In registers. The names tell the members: c char, s short, i int, l long, f float, d double.
struct I {
  int a;
  bool operator==(const I&) const = default;
};
struct CSF {  // one INTEGER eightbyte
  char a;
  short b;
  float c;
  bool operator==(const CSF&) const = default;
};
struct FI {  // INTEGER, though it begins with a float
  float a;
  int b;
  bool operator==(const FI&) const = default;
};
struct F {
  float a;
  bool operator==(const F&) const = default;
};
struct FF {
  float a, b;
  bool operator==(const FF&) const = default;
};
struct FFF {
  float a[3];
  bool operator==(const FFF&) const = default;
};
struct DD {
  double a, b;
  bool operator==(const DD&) const = default;
};
struct DL {
  double a;
  long b;
  bool operator==(const DL&) const = default;
};
struct LF {
  long a;
  float b;
  bool operator==(const LF&) const = default;
};
struct FFI {  // SSE, INTEGER
  FF a;
  int b;
  bool operator==(const FFI&) const = default;
};
struct LL {
  long a, b;
  bool operator==(const LL&) const = default;
};
struct Bytes {  // INTEGER, INTEGER, a size that is no power of two
  unsigned char a[11];
  bool operator==(const Bytes&) const = default;
};
struct Empty {
  bool operator==(const Empty&) const = default;
};
struct Wide {  // INTEGER, INTEGER, 16 bytes aligned
  Int128 a;
  bool operator==(const Wide&) const = default;
};
// In memory.
struct Big {
  long a[3];
  bool operator==(const Big&) const = default;
};
struct BigAligned {
  Int128 a;
  double b;
  bool operator==(const BigAligned&) const = default;
};
struct Odd {
  char a[17];
  bool operator==(const Odd&) const = default;
};
// By address.
struct Copied {
  long a = -1;
  Copied() = default;
  explicit Copied(long value) : a(value) {}
  Copied(const Copied& other) : a(other.a) {}
  Copied& operator=(const Copied&) = default;
  bool operator==(const Copied&) const = default;
};
struct Destroyed {
  int a = -1;
  explicit Destroyed(int value) : a(value) {}  // and no default constructor
  Destroyed(const Destroyed&) = default;
  Destroyed& operator=(const Destroyed&) = default;
  ~Destroyed() { a = -2; }
  bool operator==(const Destroyed&) const = default;
};

struct Class {
  int method(int) { return 0; }
};
using Method = int (Class::*)(int);
using Member = long LL::*;
using Pair = std::pair<int, float>;
using View = std::string_view;
using Span = std::span<const int>;
using Milliseconds = std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;
using Complex = std::complex<double>;
using MaybeInt = std::optional<int>;
using Array = std::array<int, 4>;
using ErrorCode = std::error_code;

// ---- values --------------------------------------------------------------------------------------------------------

inline const int kInts[64] = {};

// The `n`-th value of a T: different for each n below 64, and different in every byte that could be mixed up.
template <class T>
T value_of(long n) {
  const long number = n % 2 == 0 ? 0x0102030405060708 * (n + 1) : -0x0304050607080903 * (n + 1);
  if constexpr (std::is_same_v<T, bool>) {
    return n % 3 == 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(n) * T(1.25) - T(7);
  } else if constexpr (std::is_same_v<T, Plain>) {
    return static_cast<Plain>(n);
  } else if constexpr (std::is_null_pointer_v<T>) {
    return nullptr;
  } else if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(number);
  } else if constexpr (std::is_same_v<T, Int128>) {
    return (static_cast<Int128>(number) << 64) + n;
  } else if constexpr (std::is_same_v<T, CSF>) {
    return {static_cast<char>(n), static_cast<short>(number), static_cast<float>(n)};
  } else if constexpr (std::is_same_v<T, FFF>) {
    return {{static_cast<float>(n), static_cast<float>(n) + 0.25F, static_cast<float>(n) + 0.5F}};
  } else if constexpr (std::is_same_v<T, F>) {
    return {value_of<float>(n)};
  } else if constexpr (std::is_same_v<T, FF> || std::is_same_v<T, DD> || std::is_same_v<T, Complex>) {
    return {static_cast<float>(n), static_cast<float>(n) + 0.5F};
  } else if constexpr (std::is_same_v<T, DL>) {
    return {static_cast<double>(n), number};
  } else if constexpr (std::is_same_v<T, FI>) {
    return {static_cast<float>(n), static_cast<int>(number)};
  } else if constexpr (std::is_same_v<T, LF>) {
    return {number, static_cast<float>(n)};
  } else if constexpr (std::is_same_v<T, FFI>) {
    return {value_of<FF>(n), static_cast<int>(number)};
  } else if constexpr (std::is_same_v<T, LL>) {
    return {number, ~number};
  } else if constexpr (std::is_same_v<T, Wide>) {
    return {value_of<Int128>(n)};
  } else if constexpr (std::is_same_v<T, Big>) {
    return {{number, n, ~number}};
  } else if constexpr (std::is_same_v<T, BigAligned>) {
    return {value_of<Int128>(n), static_cast<double>(n)};
  } else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, Odd>) {
    T result{};
    for (unsigned i = 0; i < sizeof result.a; ++i) result.a[i] = static_cast<char>(n + 3 * i);
    return result;
  } else if constexpr (std::is_same_v<T, Empty>) {
    return {};
  } else if constexpr (std::is_same_v<T, Method>) {
    return n % 4 == 0 ? nullptr : &Class::method;
  } else if constexpr (std::is_same_v<T, Member>) {
    return n % 2 == 0 ? &LL::a : &LL::b;
  } else if constexpr (std::is_same_v<T, Pair>) {
    return {static_cast<int>(number), static_cast<float>(n)};
  } else if constexpr (std::is_same_v<T, View>) {
    return View("a string that is sixty-four characters long, so that every n fits")
        .substr(static_cast<std::size_t>(n));
  } else if constexpr (std::is_same_v<T, Span>) {
    return Span(kInts).subspan(static_cast<std::size_t>(n));
  } else if constexpr (std::is_same_v<T, TimePoint>) {
    return TimePoint(std::chrono::nanoseconds(number));
  } else if constexpr (std::is_same_v<T, MaybeInt>) {
    return n % 3 == 0 ? MaybeInt() : MaybeInt(static_cast<int>(number));
  } else if constexpr (std::is_same_v<T, Array>) {
    return {static_cast<int>(n), static_cast<int>(number), 3, -4};
  } else if constexpr (std::is_same_v<T, ErrorCode>) {
    return {static_cast<int>(n), std::generic_category()};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "the string number " + std::to_string(n);
  } else if constexpr (std::is_same_v<T, I> || std::is_same_v<T, Copied> || std::is_same_v<T, Destroyed>) {
    return T(static_cast<int>(number));
  } else {
    return static_cast<T>(number);
  }
}

// What can be kept of a parameter and compared: references as addresses, spans as what they are made of.
template <class T>
using Kept = std::conditional_t<
    std::is_reference_v<T>, const void*,
    std::conditional_t<std::is_same_v<T, Span>, std::pair<const int*, std::size_t>, std::remove_cv_t<T>>>;
template <class T, class From>
Kept<T> keep(From& from) {
  if constexpr (std::is_reference_v<T>) {
    return std::addressof(from);
  } else if constexpr (std::is_same_v<T, Span>) {
    return {from.data(), from.size()};
  } else {
    return from;
  }
}
template <class T>
bool is_same(const T& a, const T& b) {
  return keep<T>(a) == keep<T>(b);
}

// What the optimizer cannot know: neither its value nor that the call makes no difference.
template <class T>
T& opaque(T& value) {
  T* pointer = &value;
  asm volatile("" : "+r"(pointer) : : "memory");
  return *pointer;
}

// ---- functions -----------------------------------------------------------------------------------------------------

// Keeps the arguments.
template <class R, class... A>
struct Taker {
  static inline std::optional<std::tuple<Kept<A>...>> got;

  VICTIM static R body(A... argument) {
    got.emplace(keep<A>(argument)...);
    if constexpr (!std::is_void_v<R>) return value_of<R>(0);
  }
};

// Returns the `n`-th value, and counts.
template <class R>
struct Giver {
  static inline int calls = 0;

  VICTIM static R body(long n) {
    ++calls;
    return value_of<R>(n);
  }
};

}  // namespace victims

// By their documented example.
template <>
struct libfprobe::passed_as<std::optional<int>> {
  struct type {
    int value;
    bool engaged;
  };
};
template <>
struct libfprobe::passed_as<std::complex<double>> {
  struct type {
    double real, imag;
  };
};

#endif  // FPROBE_TESTS_INTEGRATION_HPP_VICTIMS_H_
