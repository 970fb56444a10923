// SPDX-License-Identifier: MIT
//
// detail/control.hpp - what stands behind a libfprobe::probe: a control block on the heap, which holds the registered
// struct fprobe and the callables and never moves, the two C handlers that find it again from the struct, and the
// registration of each kind of target.
//
//     probe ──► ControlBlock { ::fprobe ◄── registered; handlers get its address back
//                              ...
//                              entry, exit }        (Block<...>)
#ifndef FPROBE_DETAIL_CONTROL_HPP
#define FPROBE_DETAIL_CONTROL_HPP

#include <fprobe/fprobe.h>
#include <fprobe/detail/values.hpp>

#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <type_traits>

namespace libfprobe {

namespace detail::typed {

struct ControlBlock {
  ::fprobe fp{};                   // first: a handler's struct fprobe is its ControlBlock
  bool has_hidden_return = false;  // the target's type says so; set before it is registered, then only read
  bool is_armed = false;           // registered, and not detached since
  void (*destroy)(ControlBlock*) noexcept = nullptr;

  FPROBE_NOTRACE static ControlBlock& of(::fprobe* fp) noexcept { return *reinterpret_cast<ControlBlock*>(fp); }
};
static_assert(std::is_standard_layout_v<ControlBlock> && offsetof(ControlBlock, fp) == 0);

struct NoData {};

template <class F>
concept Absent = std::is_null_pointer_v<F>;
template <class F, class Context>
concept EntryHandler = Absent<F> || requires(F& f, Context& c) {
  requires std::is_void_v<decltype(f(c))>;
} || requires(F& f, Context& c) {
  requires std::is_same_v<decltype(f(c)), bool>;
};
template <class F, class Context>
concept ExitHandler = Absent<F> || requires(F& f, Context& c) {
  f(c);
};

// A null function pointer means the same as nullptr.
template <class F>
bool is_present(const F& callable) noexcept {
  if constexpr (Absent<F>) {
    return false;
  } else if constexpr (std::is_pointer_v<F>) {
    return callable != nullptr;
  } else {
    return true;
  }
}

// The handlers are not noexcept: an exception that leaves a callable has to reach the library, which ends the process
// with its own message.
template <class Context, class Entry, class Exit, class Data>
class Block final : public ControlBlock {
 public:
  Block(Entry&& entry, Exit&& exit) : entry_(std::move(entry)), exit_(std::move(exit)) {
    destroy = [](ControlBlock* self) noexcept { delete static_cast<Block*>(self); };
    if constexpr (!Absent<Entry>)
      if (is_present(entry_)) fp.entry_handler = &Block::on_entry;
    if constexpr (!Absent<Exit>)
      if (is_present(exit_)) fp.exit_handler = &Block::on_exit;
    if constexpr (!std::is_same_v<Data, NoData>) fp.entry_data_size = sizeof(Data);
  }

 private:
  FPROBE_NOTRACE static int on_entry(::fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs,
                                     void* data) {
    auto& self = static_cast<Block&>(ControlBlock::of(fp));
    // Without an exit handler the library has no entry data: data() then lasts as long as this call.
    alignas(long) unsigned char scratch[sizeof(Data)];
    if constexpr (!std::is_same_v<Data, NoData>)
      if (data == nullptr) data = std::memset(scratch, 0, sizeof scratch);
    Context context(self, entry_ip, ret_ip, *regs, data, false);
    if constexpr (std::is_void_v<decltype(self.entry_(context))>) {
      self.entry_(context);
      return 0;
    } else {
      return self.entry_(context) ? 0 : 1;
    }
  }

  FPROBE_NOTRACE static void on_exit(::fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs,
                                     void* data) {
    auto& self = static_cast<Block&>(ControlBlock::of(fp));
    Context context(self, entry_ip, ret_ip, *regs, data, true);
    static_cast<void>(self.exit_(context));
  }

  Entry entry_;
  Exit exit_;
};

// ---- targets -------------------------------------------------------------------------------------------------------

// Outcome of a registration: 0, or an errno value and a sentence.
struct Outcome {
  int error;
  const char* sentence;
};

inline Outcome outcome_of(int code) noexcept {
  return code == 0 ? Outcome{0, ""} : Outcome{-code, fprobe_last_error()};
}

// The return type of a function's or member function's type, for every qualifier it can have. (noexcept converts away.)
template <class R, class... A>
std::type_identity<R> result_type(R (*)(A...));
template <class R, class... A>
std::type_identity<R> result_type(R (*)(A..., ...));
#define FPROBE_DETAIL_RESULT_TYPE(qualifiers)                   \
  template <class R, class C, class... A>                       \
  std::type_identity<R> result_type(R (C::*)(A...) qualifiers); \
  template <class R, class C, class... A>                       \
  std::type_identity<R> result_type(R (C::*)(A..., ...) qualifiers);
#define FPROBE_DETAIL_RESULT_TYPES(qualifiers)   \
  FPROBE_DETAIL_RESULT_TYPE(qualifiers)          \
  FPROBE_DETAIL_RESULT_TYPE(const qualifiers)    \
  FPROBE_DETAIL_RESULT_TYPE(volatile qualifiers) \
  FPROBE_DETAIL_RESULT_TYPE(const volatile qualifiers)
FPROBE_DETAIL_RESULT_TYPES()
FPROBE_DETAIL_RESULT_TYPES(&)
FPROBE_DETAIL_RESULT_TYPES(&&)
#undef FPROBE_DETAIL_RESULT_TYPES
#undef FPROBE_DETAIL_RESULT_TYPE

template <class Pointer>
using ResultType = typename decltype(result_type(std::declval<Pointer>()))::type;

inline Outcome attach_address(ControlBlock& block, unsigned long address) noexcept {
  return outcome_of(register_fprobe_ips(&block.fp, &address, 1));
}

inline Outcome attach_names(ControlBlock& block, std::span<const char* const> names) noexcept {
  const char* none = nullptr;  // an empty span may have no address, and is to be refused for its size
  auto** first = names.empty() ? &none : const_cast<const char**>(names.data());
  if (names.size() > INT_MAX) return {EINVAL, "a probe takes at most INT_MAX names"};
  return outcome_of(register_fprobe_syms(&block.fp, first, static_cast<int>(names.size())));
}

inline Outcome attach_addresses(ControlBlock& block, std::span<const unsigned long> addresses) noexcept {
  unsigned long none = 0;
  auto* first = addresses.empty() ? &none : const_cast<unsigned long*>(addresses.data());
  if (addresses.size() > INT_MAX) return {EINVAL, "a probe takes at most INT_MAX addresses"};
  return outcome_of(register_fprobe_ips(&block.fp, first, static_cast<int>(addresses.size())));
}

template <class Member>
Outcome attach_member(ControlBlock& block, Member member) noexcept {
  psabi::MemberFunctionBits bits;
  static_assert(sizeof member == sizeof bits);
  std::memcpy(&bits, &member, sizeof bits);
  if (psabi::is_virtual(bits))
    return {EINVAL,
            "a pointer to a virtual member function names no single function: name the implementation instead, "
            "as in by_filter{\"Class::function\"}"};
  return attach_address(block, bits.pointer);
}

template <class T>
concept Function = std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>;
template <class T>
concept Names = std::is_convertible_v<const T&, std::span<const char* const>>;
template <class T>
concept Addresses = std::is_convertible_v<const T&, std::span<const unsigned long>>;

template <class Filter, class Target>
Outcome attach(ControlBlock& block, const Target& target) noexcept {
  using T = std::decay_t<Target>;
  static_assert(std::is_same_v<T, Filter> || Function<T> || std::is_member_function_pointer_v<T> || Names<Target> ||
                    Addresses<Target>,
                "libfprobe: a probe's target is a by_filter, a span of names (const char*), a span of addresses "
                "(unsigned long), a function or a member function pointer");
  if constexpr (std::is_same_v<T, Filter>) {
    return outcome_of(register_fprobe(&block.fp, target.match, target.exclude));
  } else if constexpr (Function<T>) {
    block.has_hidden_return = has_hidden_return<ResultType<T>>();
    return attach_address(block, reinterpret_cast<unsigned long>(static_cast<T>(target)));
  } else if constexpr (std::is_member_function_pointer_v<T>) {
    block.has_hidden_return = has_hidden_return<ResultType<T>>();
    return attach_member(block, target);
  } else if constexpr (Names<Target>) {
    return attach_names(block, target);
  } else if constexpr (Addresses<Target>) {
    return attach_addresses(block, target);
  }
}

inline void detach(ControlBlock& block) noexcept {
  if (!block.is_armed) return;
  block.is_armed = false;
  int code = unregister_fprobe(&block.fp);
  // Taken off through native_handle() before, perhaps without waiting: handlers may still run.
  if (code == -EINVAL) code = fprobe_synchronize();
  if (code == -EDEADLK)
    die("a probe is detached or destroyed inside a handler, which would have to wait for itself: do it when the "
        "handler "
        "has returned (inside it disable() is allowed)");
  if (code != 0) die(fprobe_last_error());
}

}  // namespace detail::typed
}  // namespace libfprobe

#endif  // FPROBE_DETAIL_CONTROL_HPP
