// SPDX-License-Identifier: MIT
//
// detail/members.hpp - what fprobe.hpp finds out about a type: whether objects of it travel by address, and which scalars
// lie where in it. No word here depends on the processor.
//
// C++20 has no reflection. An aggregate's members are counted by how many initializers it takes, named by a structured
// binding, and laid out anew; a layout that differs from the compiler's (bit-fields, packed members, alignas,
// no_unique_address) is given up as unknown, never guessed.
#ifndef FPROBE_DETAIL_MEMBERS_HPP
#define FPROBE_DETAIL_MEMBERS_HPP

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace libfprobe {

// How a class of 16 bytes or less that is no plain aggregate is passed by value; documented in fprobe.hpp.
template <class T>
struct passed_as {};

template <class T, std::size_t N>
requires(N > 0) struct passed_as<std::array<T, N>> {
  using type = T[N];
};
template <class First, class Second>
struct passed_as<std::pair<First, Second>> {
  struct type {
    First first;
    Second second;
  };
};
template <class Char, class Traits>
struct passed_as<std::basic_string_view<Char, Traits>> {
  struct type {
    std::size_t size;
    const Char* text;
  };
};
template <class T, std::size_t Extent>
struct passed_as<std::span<T, Extent>> {
  using type = T*;
};
template <class T>
struct passed_as<std::span<T, std::dynamic_extent>> {
  struct type {
    T* data;
    std::size_t size;
  };
};
template <>
struct passed_as<std::error_code> {
  struct type {
    int value;
    const void* category;
  };
};
// std::chrono::duration and time_point, without including <chrono>.
template <class T>
requires(std::is_class_v<T>&& requires {
  typename T::rep;
  typename T::period;
}) struct passed_as<T> {
  using type = typename T::rep;
};

namespace detail::typed {

template <class T>
concept HasStandIn = requires {
  typename passed_as<T>::type;
};

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UnsignedInt128;

enum class Scalar : unsigned char { kNone, kInteger, kFloating, kLongDouble };

// Pointers, references and enumerations are integers to every psABI; so are pointers to members.
template <class T>
constexpr Scalar scalar_of() noexcept {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, float> || std::is_same_v<Plain, double>) {
    return Scalar::kFloating;
  } else if constexpr (std::is_same_v<Plain, long double>) {
    return Scalar::kLongDouble;
  } else if constexpr (std::is_same_v<Plain, Int128> || std::is_same_v<Plain, UnsignedInt128>) {
    return Scalar::kInteger;
  } else if constexpr (std::is_integral_v<Plain>) {
    return sizeof(Plain) <= sizeof(long) ? Scalar::kInteger : Scalar::kNone;
  } else if constexpr (std::is_enum_v<Plain> || std::is_pointer_v<Plain> || std::is_null_pointer_v<Plain> ||
                       std::is_member_pointer_v<Plain> || std::is_reference_v<Plain>) {
    return Scalar::kInteger;
  } else {
    return Scalar::kNone;
  }
}

// "Non-trivial for the purposes of calls" (Itanium C++ ABI 1.1): such objects are passed and returned by address. It
// looks at the destructor and the copy and move constructors only, so std::is_trivially_copyable would be wrong for
// std::pair. (clang's [[trivial_abi]] cannot be seen from here.)
template <class T>
constexpr bool is_trivial_for_calls() noexcept {
  constexpr bool kCopies = std::is_copy_constructible_v<T>, kMoves = std::is_move_constructible_v<T>;
  return std::is_trivially_destructible_v<T> && (kCopies || kMoves) &&
         (!kCopies || std::is_trivially_copy_constructible_v<T>)&&(!kMoves ||
                                                                   std::is_trivially_move_constructible_v<T>);
}

// True for what is passed and returned by the address of an object elsewhere.
template <class T>
constexpr bool is_passed_by_address() noexcept {
  if constexpr (std::is_class_v<T> || std::is_union_v<T>) return !is_trivial_for_calls<T>();
  return false;
}

// ---- the members of an aggregate -----------------------------------------------------------------------------------

template <class... T>
struct Types {};

// Initializes any member of T, but no T.
template <class T>
struct AnyMember {
  template <class U>
  requires(!std::is_same_v<std::remove_cv_t<U>, T>) operator U() const noexcept;  // never defined
};
template <class T, std::size_t>
using AnyMemberAt = AnyMember<T>;

// Initializes a base class of T only.
template <class T>
struct AnyBase {
  template <class U>
  requires(std::is_base_of_v<U, T> && !std::is_same_v<std::remove_cv_t<U>, T>) operator U()
      const noexcept;  // never defined
};

template <class T, std::size_t... I>
constexpr bool accepts(std::index_sequence<I...>) noexcept {
  return requires {
    T{AnyMemberAt<T, I>{}...};
  };
}

// ... with the member after those of `I` in braces of its own.
template <class T, std::size_t... I, std::size_t... J>
constexpr bool accepts_braced(std::index_sequence<I...>, std::index_sequence<J...>) noexcept {
  return requires {
    T{AnyMemberAt<T, I>{}..., {}, AnyMemberAt<T, J>{}...};
  }
  || requires {
    T{AnyMemberAt<T, I>{}..., {AnyMember<T>{}}, AnyMemberAt<T, J>{}...};
  };
}

inline constexpr std::size_t kUnknown = ~std::size_t{0};

// The most initializers T takes, up to N. Braces around arrays may be left out: each element counts.
template <class T, std::size_t N>
constexpr std::size_t flat_count() noexcept {
  if constexpr (N == 0 || accepts<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return flat_count<T, N - 1>();
  }
}

// The most initializers that T takes behind the braced member at position At.
template <class T, std::size_t At, std::size_t N>
constexpr std::size_t count_behind() noexcept {
  if constexpr (accepts_braced<T>(std::make_index_sequence<At>{}, std::make_index_sequence<N>{})) {
    return N;
  } else if constexpr (N == 0) {
    return kUnknown;
  } else {
    return count_behind<T, At, N - 1>();
  }
}

template <class T, std::size_t Flat, std::size_t At = 0>
constexpr std::size_t count_members() noexcept {
  if constexpr (At == Flat) {
    return 0;
  } else {
    constexpr std::size_t kBehind = count_behind<T, At, Flat - At - 1>();
    if constexpr (kBehind == kUnknown) {
      return kUnknown;
    } else {
      constexpr std::size_t kRest = count_members<T, Flat, Flat - kBehind>();
      return kRest == kUnknown ? kUnknown : 1 + kRest;
    }
  }
}

// How many members the aggregate T has, kUnknown if it has base classes, too many of them, or none that can be named.
template <class T>
constexpr std::size_t member_count() noexcept {
  // A type with a std::tuple_size is bound by its elements, not by its members.
  constexpr bool kIsTuple = requires {
    std::tuple_size<T>::value;
  };
  if constexpr (!std::is_aggregate_v<T> || kIsTuple || requires { T{AnyBase<T>{}}; }) {
    return kUnknown;
  } else {
    // More initializers than bytes: bit-fields or empty members.
    constexpr std::size_t kFlat = flat_count<T, sizeof(T) + 1>();
    if constexpr (kFlat == 0 || kFlat > sizeof(T)) {
      return kUnknown;
    } else {
      return count_members<T, kFlat>();
    }
  }
}

inline constexpr std::size_t kMostMembers = 8;

// clang-format off
template <std::size_t N, class T>
auto bind_members(T& o) noexcept {
  if constexpr (N == 1) { auto& [a] = o; return Types<decltype(a)>{}; }
  else if constexpr (N == 2) { auto& [a, b] = o; return Types<decltype(a), decltype(b)>{}; }
  else if constexpr (N == 3) { auto& [a, b, c] = o; return Types<decltype(a), decltype(b), decltype(c)>{}; }
  else if constexpr (N == 4) { auto& [a, b, c, d] = o; return Types<decltype(a), decltype(b), decltype(c), decltype(d)>{}; }
  else if constexpr (N == 5) { auto& [a, b, c, d, e] = o;
    return Types<decltype(a), decltype(b), decltype(c), decltype(d), decltype(e)>{}; }
  else if constexpr (N == 6) { auto& [a, b, c, d, e, f] = o;
    return Types<decltype(a), decltype(b), decltype(c), decltype(d), decltype(e), decltype(f)>{}; }
  else if constexpr (N == 7) { auto& [a, b, c, d, e, f, g] = o;
    return Types<decltype(a), decltype(b), decltype(c), decltype(d), decltype(e), decltype(f), decltype(g)>{}; }
  else { auto& [a, b, c, d, e, f, g, h] = o;
    return Types<decltype(a), decltype(b), decltype(c), decltype(d), decltype(e), decltype(f), decltype(g), decltype(h)>{}; }
}
// clang-format on

// ---- the scalars of a type -----------------------------------------------------------------------------------------

constexpr std::size_t round_up(std::size_t value, std::size_t alignment) noexcept {
  return (value + alignment - 1) / alignment * alignment;
}

// Calls visit(scalar, offset, size) for every scalar of a T that lies at `offset`. False: T's members are not known.
template <class T, class Visit>
constexpr bool visit_scalars(const Visit& visit, std::size_t offset = 0);

// The members M of an object at `offset`. False also if T is not laid out like them.
template <class T, class Visit, class... M>
constexpr bool visit_members(const Visit& visit, std::size_t offset, Types<M...>) {
  if constexpr ((std::is_reference_v<M> || ...)) {
    return false;
  } else {
    std::size_t end = 0, alignment = 1;
    bool known = true;
    ((end = round_up(end, alignof(M)), known = known && visit_scalars<M>(visit, offset + end), end += sizeof(M),
      alignment = alignof(M) > alignment ? alignof(M) : alignment),
     ...);
    return known && alignment == alignof(T) && round_up(end, alignment) == sizeof(T);
  }
}

template <class T, class Visit>
constexpr bool visit_scalars(const Visit& visit, std::size_t offset) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (scalar_of<T>() != Scalar::kNone) {
    visit(scalar_of<T>(), offset, sizeof(T));
    return true;
  } else if constexpr (std::is_bounded_array_v<T>) {
    using Element = std::remove_extent_t<T>;
    bool known = true;
    for (std::size_t i = 0; i < std::extent_v<T>; ++i)
      known = known && visit_scalars<Element>(visit, offset + i * sizeof(Element));
    return known;
  } else if constexpr (HasStandIn<Plain>) {
    using StandIn = typename passed_as<Plain>::type;
    static_assert(sizeof(StandIn) == sizeof(T) && alignof(StandIn) == alignof(T),
                  "libfprobe: passed_as<T>::type must have the size and the alignment of T");
    return visit_scalars<StandIn>(visit, offset);
  } else if constexpr (std::is_empty_v<T>) {
    return true;
  } else if constexpr (std::is_class_v<T>) {
    constexpr std::size_t kCount = member_count<Plain>();
    if constexpr (kCount <= kMostMembers) {
      return visit_members<T>(visit, offset, decltype(bind_members<kCount>(std::declval<Plain&>())){});
    } else {
      return false;
    }
  } else {
    return false;
  }
}

}  // namespace detail::typed
}  // namespace libfprobe

#endif  // FPROBE_DETAIL_MEMBERS_HPP
