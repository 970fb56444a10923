// SPDX-License-Identifier: MIT
//
// detail/values.hpp - C++ values of arguments and results, made from and put into the words that the processor's psabi
// file finds for them. Types that cannot be carried over are refused here, at compile time, with a sentence.
#ifndef FPROBE_DETAIL_VALUES_HPP
#define FPROBE_DETAIL_VALUES_HPP

#include <fprobe/fprobe.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#ifndef FPROBE_PSABI_HEADER
#error "fprobe.hpp: how this processor's psABI passes arguments is not known"
#endif
#include FPROBE_PSABI_HEADER

namespace libfprobe::detail::typed {

// Ends the process: async-signal-safe, since handlers run anywhere.
[[noreturn]] FPROBE_NOTRACE inline void die(const char* sentence) noexcept {
  for (const char* text : {"libfprobe: ", sentence, "\n"})
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  std::abort();
}

// What travels for a T: the address of a reference's object and of one that is not trivial for calls.
template <class T>
struct TravelsAs {
  using type = std::remove_cv_t<T>;
};
template <class T>
requires(std::is_reference_v<T> || is_passed_by_address<T>()) struct TravelsAs<T> {
  using type = std::remove_reference_t<T>*;
};
template <class T>
using Travels = typename TravelsAs<T>::type;

template <class T>
inline constexpr bool kTravelsByAddress = !std::is_same_v<Travels<T>, std::remove_cv_t<T>>;

template <class T>
inline constexpr psabi::Passing kPassing = psabi::passing_of<Travels<T>>();

template <class T>
constexpr bool check_type() noexcept {
  static_assert(!std::is_array_v<T> && !std::is_function_v<T>,
                "libfprobe: arrays and functions are passed as pointers: name the pointer type");
  static_assert(
      std::is_array_v<T> || std::is_function_v<T> || requires { sizeof(T); },
      "libfprobe: the type of an argument or result is incomplete: include its definition");
  constexpr bool kIsClass = std::is_class_v<T> || std::is_union_v<T>;
  static_assert(kIsClass || std::is_reference_v<T> || scalar_of<T>() != Scalar::kNone,
                "libfprobe: vector, complex and extended arithmetic types (__m128, __m256, _Complex, __float128, "
                "_Float16) cannot be read from the saved registers: leave the argument or result to ftrace_regs.h");
  static_assert(
      !kIsClass || kPassing<T>.is_known,
      "libfprobe: cannot tell how objects of this class are passed by value (a union, a base class, private, "
      "packed, aligned or bit-field members, or more than 8 of them): specialize libfprobe::passed_as for it");
  return true;
}

template <class T>
constexpr std::size_t word_count() noexcept {
  return (sizeof(T) + sizeof(long) - 1) / sizeof(long);
}

// Room for a T that travels by value: its bytes come from words, no constructor runs.
template <class T>
union Storage {
  FPROBE_NOTRACE Storage() noexcept : bytes{} {}
  FPROBE_NOTRACE ~Storage() {}
  unsigned char bytes[sizeof(T)];
  T value;

  FPROBE_NOTRACE void put_word(std::size_t i, unsigned long word) noexcept {
    const std::size_t at = i * sizeof word;
    std::memcpy(bytes + at, &word, sizeof(T) - at < sizeof word ? sizeof(T) - at : sizeof word);
  }
  FPROBE_NOTRACE unsigned long word(std::size_t i) const noexcept {
    const std::size_t at = i * sizeof(long);
    unsigned long result = 0;
    std::memcpy(&result, bytes + at, sizeof(T) - at < sizeof result ? sizeof(T) - at : sizeof result);
    return result;
  }
};

template <class T>
FPROBE_NOTRACE T take(Storage<T>& storage) noexcept {
  if constexpr (std::is_move_constructible_v<T>) {
    return std::move(storage.value);
  } else {
    return std::as_const(storage.value);
  }
}

// The value of a T behind `address`, which is null where the library has none.
template <class T>
FPROBE_NOTRACE T value_behind(std::remove_reference_t<T>* address, const char* if_missing) {
  if constexpr (std::is_reference_v<T>) {
    if (address == nullptr) die(if_missing);
    return static_cast<T>(*address);
  } else {
    static_assert(std::is_copy_constructible_v<T>,
                  "libfprobe: objects of this class cannot be copied: ask for a reference to it");
    if (address != nullptr) return T(std::as_const(*address));
    if constexpr (std::is_default_constructible_v<T>) return T();
    die(if_missing);
  }
}

// The value of a T that travels by value; word(i) gives its words.
template <class T, class Word>
FPROBE_NOTRACE std::remove_cv_t<T> value_of_words(const Word& word) noexcept {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, bool>) {
    return (word(0) & 0xff) != 0;  // the other bits are undefined
  } else if constexpr (std::is_null_pointer_v<Plain>) {
    return nullptr;
  } else if constexpr (std::is_scalar_v<Plain> && sizeof(Plain) <= sizeof(long)) {
    const unsigned long bits = word(0);
    Plain value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  } else {
    Storage<Plain> storage;
    for (std::size_t i = 0; i < word_count<Plain>(); ++i) storage.put_word(i, word(i));
    return take(storage);
  }
}

// ---- arguments -----------------------------------------------------------------------------------------------------

template <bool HasHiddenReturn, class... A>
constexpr std::array<psabi::Place, sizeof...(A)> assign_places() noexcept {
  psabi::Assigner assigner(HasHiddenReturn);
  return {assigner.next(kPassing<A>, sizeof(Travels<A>), alignof(Travels<A>))...};
}

template <class T>
FPROBE_NOTRACE T argument(const ftrace_regs& regs, const psabi::Place& place) {
  const auto word = [&](std::size_t i)
                        FPROBE_NOTRACE { return psabi::argument_word(regs, place, static_cast<unsigned>(i)); };
  if constexpr (kTravelsByAddress<T>) {
    return value_behind<T>(value_of_words<Travels<T>>(word),
                           "context::args() has no argument to refer to: at exit, and at sites that lost the arguments "
                           "(ask context::has_args() first)");
  } else {
    return value_of_words<T>(word);
  }
}

// `A` in a tuple, each read from its place.
template <bool HasHiddenReturn, class... A>
FPROBE_NOTRACE std::tuple<A...> arguments(const ftrace_regs& regs) {
  [[maybe_unused]] static constexpr auto kPlaces = assign_places<HasHiddenReturn, A...>();
  return [&]<std::size_t... I>(std::index_sequence<I...>) FPROBE_NOTRACE {
    return std::tuple<A...>(argument<A>(regs, kPlaces[I])...);
  }
  (std::index_sequence_for<A...>{});
}

// ---- results -------------------------------------------------------------------------------------------------------

// True for an R that the caller receives in memory of its own, whose address it hands in.
template <class R>
constexpr bool has_hidden_return() noexcept {
  if constexpr (std::is_class_v<R> || std::is_union_v<R>) {
    static_assert(
        requires { sizeof(R); }, "libfprobe: the probed function's return type is incomplete: include its definition");
    return is_passed_by_address<R>() || psabi::is_returned_in_memory<R>();
  }
  return false;
}

template <class R>
constexpr bool check_result() noexcept {
  check_type<R>();
  static_assert(!kPassing<R>.is_x87 || psabi::is_returned_in_memory<R>(),
                "libfprobe: results of type long double are in x87 registers, which are not saved");
  return true;
}

template <class R>
FPROBE_NOTRACE R result(const ftrace_regs& regs) {
  constexpr const char* kMissing =
      "context::result() has no result to refer to: at entry, and where the function was left by unwinding "
      "(ask context::unwound() first)";
  if constexpr (std::is_reference_v<R>) {
    return value_behind<R>(reinterpret_cast<Travels<R>>(ftrace_regs_get_return_value(&regs)), kMissing);
  } else if constexpr (has_hidden_return<R>()) {
    auto* const object = reinterpret_cast<R*>(psabi::hidden_return_at_exit(regs));
    if constexpr (is_passed_by_address<R>()) {
      return value_behind<R>(object, kMissing);
    } else {
      Storage<std::remove_cv_t<R>> storage;  // zero, unless there is an object
      if (object != nullptr) std::memcpy(storage.bytes, object, sizeof(R));
      return take(storage);
    }
  } else {
    return value_of_words<R>(
        [&](std::size_t i) FPROBE_NOTRACE { return psabi::result_word(regs, kPassing<R>, static_cast<unsigned>(i)); });
  }
}

// Replaces the object that a function returned through a hidden pointer, or (at entry) makes the one it would have.
template <class R>
FPROBE_NOTRACE void set_hidden_result(ftrace_regs& regs, R&& value, bool at_exit) {
  using Plain = std::remove_cv_t<R>;
  const unsigned long returned = psabi::hidden_return_at_exit(regs);
  const unsigned long address = at_exit ? returned : psabi::hidden_return_at_entry(regs);
  if (address == 0) return;  // left by unwinding, or a site that lost its arguments
  auto* const object = reinterpret_cast<Plain*>(address);
  if (address == returned) {  // at entry: made by an earlier handler
    if constexpr (std::is_move_assignable_v<Plain>) {
      *object = std::move(value);
    } else {
      std::destroy_at(object);
      std::construct_at(object, std::move(value));
    }
  } else {
    std::construct_at(object, std::move(value));
    ftrace_regs_set_return_value(&regs, address);
  }
}

template <class R>
FPROBE_NOTRACE void set_result(ftrace_regs& regs, R& value, bool at_exit) {
  if constexpr (std::is_reference_v<R>) {
    ftrace_regs_set_return_value(&regs, reinterpret_cast<unsigned long>(std::addressof(value)));
  } else if constexpr (has_hidden_return<R>()) {
    set_hidden_result(regs, std::move(value), at_exit);
  } else if constexpr (std::is_enum_v<R>) {
    auto number = static_cast<std::underlying_type_t<R>>(value);
    set_result<std::underlying_type_t<R>>(regs, number, at_exit);
  } else if constexpr (std::is_integral_v<R> && sizeof(R) <= sizeof(long)) {
    // Extended to the whole register, as clang expects it of functions that return narrow types.
    psabi::set_result_word(regs, kPassing<R>, 0, static_cast<unsigned long>(value));
  } else {
    Storage<std::remove_cv_t<R>> storage;
    std::memcpy(storage.bytes, std::addressof(value), sizeof(R));
    for (unsigned i = 0; i < word_count<R>(); ++i) psabi::set_result_word(regs, kPassing<R>, i, storage.word(i));
  }
}

}  // namespace libfprobe::detail::typed

#endif  // FPROBE_DETAIL_VALUES_HPP
