// SPDX-License-Identifier: MIT
//
// detail/psabi_x86_64.hpp - the calling convention of x86-64 for fprobe.hpp (System V psABI, 3.2.3). Whatever of
// fprobe.hpp depends on the processor is here, under names that each processor's file has; <fprobe/ftrace_regs.h>
// chooses the file.
//
// A type has up to two eightbytes, each of class INTEGER (rdi rsi rdx rcx r8 r9; rax rdx) or SSE (xmm0-7; xmm0 xmm1), or
// it lies in memory. Registers of the two classes are counted apart. An argument whose eightbytes do not all find a
// register goes to the stack as a whole; later ones may still find registers. (clang departs from that in one place: behind
// an __int128 that finds one integer register left, the next integer argument does not get it.)
//
//     at entry      sp ──► return address
//                          stack argument words: slot 0, 1, ... in order; alignment of 16 means an even slot
#ifndef FPROBE_DETAIL_PSABI_X86_64_HPP
#define FPROBE_DETAIL_PSABI_X86_64_HPP

#include <fprobe/fprobe.h>
#include <fprobe/detail/members.hpp>

#include <bit>
#include <cstddef>
#include <type_traits>

namespace libfprobe::detail::typed::psabi {

inline constexpr unsigned kIntegerRegisters = 6;
inline constexpr unsigned kVectorRegisters = 8;

enum class Class : unsigned char { kNone, kInteger, kSse };

// How values of a type are passed and returned.
struct Passing {
  bool is_known = false;
  bool is_in_memory = false;  // on the stack; returned through a hidden pointer, unless is_x87
  bool is_x87 = false;        // returned in st(0)
  Class eightbytes[2] = {Class::kNone, Class::kNone};
};

constexpr Class merge(Class a, Class b) noexcept {
  if (a == Class::kInteger || b == Class::kInteger) return Class::kInteger;
  return a == Class::kNone ? b : a;
}

// For T as it travels: no reference, and trivial for calls.
template <class T>
constexpr Passing passing_of() noexcept {
  constexpr std::size_t kEightbyte = 8, kVectorAlignment = 32;
  Passing passing;
  const auto classify = [&](Scalar scalar, std::size_t offset, std::size_t size) {
    if (scalar == Scalar::kLongDouble) passing.is_x87 = passing.is_in_memory = true;
    const Class added = scalar == Scalar::kInteger ? Class::kInteger : Class::kSse;
    for (std::size_t at = offset / kEightbyte; at < 2 && at * kEightbyte < offset + size; ++at)
      passing.eightbytes[at] = merge(passing.eightbytes[at], added);
  };
  if constexpr (sizeof(T) <= 2 * kEightbyte) {
    passing.is_known = visit_scalars<T>(classify);
  } else if constexpr (std::is_class_v<T> || std::is_union_v<T>) {
    // In memory, unless it is a wrapped vector of 32 bytes or more: then its only scalar is unknown.
    passing.is_known = alignof(T) < kVectorAlignment || visit_scalars<T>([](Scalar, std::size_t, std::size_t) {});
    passing.is_in_memory = true;
  }
  return passing;
}

// For a class T that is trivial for calls: true if the function returns it through a hidden pointer. (A packed structure
// of 16 bytes or less with a misaligned member is too, but its members cannot be known here.)
template <class T>
constexpr bool is_returned_in_memory() noexcept {
  return sizeof(T) > 16;
}

// Where one argument lies.
struct Place {
  bool is_on_stack = false;
  Class classes[2] = {Class::kNone, Class::kNone};
  unsigned numbers[2] = {0, 0};  // of the registers that hold its eightbytes, each counted within its class
  unsigned slot = 0;             // of its first word on the stack
};

// Gives each argument its place, in the order of the parameters.
class Assigner {
 public:
  constexpr explicit Assigner(bool has_hidden_return) noexcept : integers_(has_hidden_return ? 1 : 0) {}

  constexpr Place next(const Passing& passing, std::size_t size, std::size_t alignment) noexcept {
    unsigned integers = integers_, vectors = vectors_;
    Place place;
    for (unsigned i = 0; i < 2; ++i) {
      place.classes[i] = passing.eightbytes[i];
      if (place.classes[i] == Class::kInteger) place.numbers[i] = integers++;
      if (place.classes[i] == Class::kSse) place.numbers[i] = vectors++;
    }
    if (!passing.is_in_memory && integers <= kIntegerRegisters && vectors <= kVectorRegisters) {
      integers_ = integers;
      vectors_ = vectors;
      return place;
    }
    if (alignment > 8) slots_ = static_cast<unsigned>(round_up(slots_, alignment / 8));
    place.is_on_stack = true;
    place.slot = slots_;
    slots_ += static_cast<unsigned>(round_up(size, 8) / 8);
    return place;
  }

 private:
  unsigned integers_, vectors_ = 0, slots_ = 0;
};

// Word `i` of the argument at `place`; 0 where arguments are not available.
FPROBE_NOTRACE inline unsigned long argument_word(const ftrace_regs& regs, const Place& place, unsigned i) noexcept {
  if (place.is_on_stack) return ftrace_regs_get_argument(&regs, kIntegerRegisters + place.slot + i);
  if (place.classes[i] == Class::kInteger) return ftrace_regs_get_argument(&regs, place.numbers[i]);
  if (place.classes[i] == Class::kSse)
    return std::bit_cast<unsigned long>(ftrace_regs_get_fp_argument(&regs, place.numbers[i]));
  return 0;
}

// True if eightbyte `i` of a result is the second of its class: in rdx or xmm1.
constexpr bool is_second(const Passing& passing, unsigned i) noexcept {
  return i == 1 && passing.eightbytes[0] == passing.eightbytes[1];
}

FPROBE_NOTRACE inline unsigned long result_word(const ftrace_regs& regs, const Passing& passing, unsigned i) noexcept {
  const bool second = is_second(passing, i);
  if (passing.eightbytes[i] == Class::kInteger)
    return second ? ftrace_regs_get_return_value2(&regs) : ftrace_regs_get_return_value(&regs);
  if (passing.eightbytes[i] == Class::kSse)
    return std::bit_cast<unsigned long>(second ? ftrace_regs_get_fp_return_value2(&regs)
                                               : ftrace_regs_get_fp_return_value(&regs));
  return 0;
}

FPROBE_NOTRACE inline void set_result_word(ftrace_regs& regs, const Passing& passing, unsigned i,
                                           unsigned long word) noexcept {
  const bool second = is_second(passing, i);
  if (passing.eightbytes[i] == Class::kInteger)
    second ? ftrace_regs_set_return_value2(&regs, word) : ftrace_regs_set_return_value(&regs, word);
  if (passing.eightbytes[i] == Class::kSse)
    second ? ftrace_regs_set_fp_return_value2(&regs, std::bit_cast<double>(word))
           : ftrace_regs_set_fp_return_value(&regs, std::bit_cast<double>(word));
}

// A result in memory: the caller hands in its address in front of all arguments, the function returns it.
FPROBE_NOTRACE inline unsigned long hidden_return_at_entry(const ftrace_regs& regs) noexcept {
  return ftrace_regs_get_argument(&regs, 0);
}
FPROBE_NOTRACE inline unsigned long hidden_return_at_exit(const ftrace_regs& regs) noexcept {
  return ftrace_regs_get_return_value(&regs);
}

// A pointer to member function (Itanium C++ ABI 2.3): what `pointer` holds of a virtual one is 1 + its vtable offset,
// otherwise the function's address. `adjustment` is added to `this` by the caller and does not change the function.
struct MemberFunctionBits {
  unsigned long pointer;
  long adjustment;
};
constexpr bool is_virtual(const MemberFunctionBits& bits) noexcept {
  return (bits.pointer & 1) != 0;
}

}  // namespace libfprobe::detail::typed::psabi

#endif  // FPROBE_DETAIL_PSABI_X86_64_HPP
