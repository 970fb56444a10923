// SPDX-License-Identifier: MIT
//
// fprobe.hpp - the C++ interface: probes that own themselves, handlers that are callables, arguments and results with their
// types. Header-only, C++20, on top of the C interface of fprobe.h, whose meanings hold here too.
//
//   libfprobe::probe slow(&parse, [](libfprobe::context& call) {
//     auto [text, limit] = call.args<const char*, int>();
//     return limit > 1000;                                  // false: no exit handler for this call
//   }, [](libfprobe::context& call) { note(call.result<long>()); });
//
// Compiles with and without RTTI. Without exceptions (-fno-exceptions) the constructors that throw end the process with the
// sentence they would have thrown: use those with std::error_code&.
//
// A handler may run on any thread at any time, several at once: a callable is shared by all of them. Functions of `context`
// are async-signal-safe, allocate nothing (but for copies of class objects that do) and are meant for the duration of the
// handler. A `probe` is like any object: different ones are independent; const use, enable() and disable() of one may run at
// once on several threads; making, moving, detaching and destroying it need it alone.
//
// What is instrumented may include the code of your callables. Write FPROBE_NOTRACE behind a lambda's parameters to leave
// it out: `[](libfprobe::context& call) FPROBE_NOTRACE { ... }`. (Otherwise a filter such as "*" probes it too, and each
// hit counts as a recursion miss.)
#ifndef FPROBE_FPROBE_HPP
#define FPROBE_FPROBE_HPP

#include <fprobe/fprobe.h>
#include <fprobe/detail/control.hpp>
#include <fprobe/detail/members.hpp>
#include <fprobe/detail/values.hpp>

#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace libfprobe {

// Target: every function that matches; the two strings are those of register_fprobe().
struct by_filter {
  const char* match;
  const char* exclude = nullptr;
};

// Types of arguments and results, as context::args, result and set_result take them:
//
//   integers, bool, enumerations, pointers, float, double         as they are
//   references; classes that are not trivial for calls            by the address that the psABI passes. Of a `std::string`
//                                                                 parameter you may ask for a copy (std::string) or for
//                                                                 the object itself (const std::string&)
//   other classes of more than 16 bytes, long double arguments    in memory
//   other classes of 16 bytes or less                             in registers, by their members: of aggregates without
//                                                                 base classes and unions these are found; std::pair,
//                                                                 array, string_view, span, error_code, chrono durations and
//                                                                 time points are known
//   refused when compiled, with a sentence                        __m128, __m256, _Complex, __float128, long double
//                                                                 results; classes whose members cannot be known
//
// This is the psABI, and what gcc and clang do, but for one place: with clang, integer arguments behind an __int128 that found
// exactly one of the six integer registers free lie elsewhere.
//
// For a class of the last kind, say which type is passed alike:
//
//   template <> struct libfprobe::passed_as<std::optional<int>> { struct type { int value; bool engaged; }; };
//   template <> struct libfprobe::passed_as<std::complex<double>> { struct type { double real, imag; }; };

// A call, as a handler sees it. Valid until the handler returns.
class context {
 public:
  context(const context&) = delete;
  context& operator=(const context&) = delete;

  // The patched location, and the true return address in the caller; the same at both ends.
  FPROBE_NOTRACE unsigned long entry_ip() const noexcept { return entry_ip_; }
  FPROBE_NOTRACE unsigned long ret_ip() const noexcept { return ret_ip_; }

  // The registers, for the accessors of ftrace_regs.h.
  FPROBE_NOTRACE ftrace_regs& regs() const noexcept { return regs_; }

  // In an exit handler: true if the function was left by an exception, pthread_exit() or pthread_cancel(). It has no result
  // then. In an entry handler: false.
  FPROBE_NOTRACE bool unwound() const noexcept { return fprobe_exit_reason(&regs_) == FPROBE_EXIT_UNWOUND; }

  // Data that the entry handler leaves for the exit handler of the same call, all bytes zero at entry. For probes made by
  // probe::with_data<Data>(), with T = Data or a smaller type; any other use ends the process with a message. In a probe
  // without exit handler it lasts for the entry handler's call only.
  template <class T>
  FPROBE_NOTRACE T& data() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "libfprobe: entry data must be trivially copyable");
    static_assert(sizeof(T) <= MAX_FPROBE_DATA_SIZE, "libfprobe: entry data has MAX_FPROBE_DATA_SIZE bytes at most");
    static_assert(alignof(T) <= alignof(long), "libfprobe: entry data is aligned to long, no further");
    if (data_ == nullptr || sizeof(T) > block_.fp.entry_data_size)
      detail::typed::die("context::data<T>() in a probe that has no room for a T: make it with probe::with_data<T>()");
    return *static_cast<T*>(data_);
  }

  // True where args() can be read: in entry handlers, except at sites whose prologue has moved the arguments already.
  FPROBE_NOTRACE bool has_args() const noexcept { return ftrace_regs_has_argument(&regs_, 0); }

  // The arguments of the call, in an entry handler. A... are the types of the function's parameters from the first one on,
  // with `this` as a pointer in front of a member function's; those behind the last one wanted may be left out.
  //
  // A function that returns a class in memory has a hidden first argument. If the probe's target is a function or a member
  // function pointer that is known and taken into account. With a target given by name, filter or address the function's
  // type is not known: name it whole for such a function, args<Big(int, double)>() or args<Big(Widget*, int)>().
  //
  // Of a parameter that the function does not use, an optimizing caller may pass anything.
  //
  // Where has_args() is false all values are zero, class objects passed by address are default-made, and asking for a
  // reference (or for a class without default constructor) ends the process with a message.
  template <class... A>
  requires(!std::is_function_v<A> && ...) FPROBE_NOTRACE std::tuple<A...> args()
  const noexcept {
    static_assert((detail::typed::check_type<A>() && ...));
    return block_.has_hidden_return ? detail::typed::arguments<true, A...>(regs_)
                                    : detail::typed::arguments<false, A...>(regs_);
  }
  template <class Signature>
  requires std::is_function_v<Signature> FPROBE_NOTRACE auto args() const noexcept {
    return args_of(static_cast<Signature*>(nullptr));
  }

  // What the function returns, in an exit handler. Of an object returned in memory it is a copy; ask for R& to have the
  // object itself. unwound(): zero, a default-made object, or (for a reference, or a class without default constructor) the
  // end of the process with a message. At entry: what an earlier handler has set.
  template <class R>
  FPROBE_NOTRACE R result() const noexcept {
    if constexpr (!std::is_void_v<R>) {
      static_assert(detail::typed::check_result<R>());
      return detail::typed::result<R>(regs_);
    }
  }

  // At exit: replaces the result; R is the function's return type, and objects in memory are assigned to. At entry: the
  // result of a function that skip() skips (an object in memory only where has_args()). No effect after unwinding.
  template <class R>
  FPROBE_NOTRACE void set_result(R value) const noexcept {
    static_assert(detail::typed::check_result<R>());
    detail::typed::set_result<R>(regs_, value, is_at_exit_);
  }

  // In an entry handler: the function's body will not run; the caller gets what set_result() says, else zero. (Functions
  // that return an object in memory need a set_result(): their callers rely on the object.) No effect at exit.
  FPROBE_NOTRACE void skip() const noexcept { ftrace_override_function_with_return(&regs_); }

 private:
  template <class Context, class Entry, class Exit, class Data>
  friend class detail::typed::Block;

  FPROBE_NOTRACE context(const detail::typed::ControlBlock& block, unsigned long entry_ip, unsigned long ret_ip,
                         ftrace_regs& regs, void* data, bool is_at_exit) noexcept
      : block_(block), regs_(regs), entry_ip_(entry_ip), ret_ip_(ret_ip), data_(data), is_at_exit_(is_at_exit) {}

  template <class R, class... A>
  FPROBE_NOTRACE std::tuple<A...> args_of(R (*)(A...)) const noexcept {
    static_assert((detail::typed::check_type<A>() && ...));
    if constexpr (std::is_class_v<R> || std::is_union_v<R>) static_assert(detail::typed::check_type<R>());
    return detail::typed::arguments<detail::typed::has_hidden_return<R>(), A...>(regs_);
  }

  const detail::typed::ControlBlock& block_;
  ftrace_regs& regs_;
  unsigned long entry_ip_, ret_ip_;
  void* data_;
  bool is_at_exit_;
};

// A registered probe, or nothing. Move-only; a move leaves the registered struct fprobe where it is and the source empty.
//
// Targets:
//   by_filter                        register_fprobe()
//   what converts to std::span<const char* const>      names, register_fprobe_syms()
//   what converts to std::span<const unsigned long>    addresses, register_fprobe_ips()
//   R (*)(A...)                      a function: the code at this address, not its clones (.constprop, .isra), which a name
//                                    covers too. In a no-pie executable the address of another module's function is that
//                                    of a PLT slot, which register_fprobe_ips() refuses
//   R (C::*)(A...), any qualifiers   a member function, as above; virtual: std::errc::invalid_argument, since the pointer
//                                    names no single function
//
// Entry: nullptr or a callable for context&. It returns void, or bool: false means no exit handler for this call.
// Exit: nullptr or a callable for context&. Both are moved into the probe, which alone allocates; a hit does not. An
// exception that leaves a callable ends the process with the library's message.
class probe {
 public:
  // Nothing. Every function works on it: attached() is false, missed() 0, native_handle() null, the others do nothing.
  probe() noexcept = default;

  // Registers. Throws std::system_error: the code is the errno of the registration in std::generic_category (so it compares
  // with std::errc), what() contains fprobe_last_error(). Handlers may start before the constructor returns.
  template <class Target, class Entry, class Exit>
  probe(const Target& target, Entry entry, Exit exit) {
    raise(attach<detail::typed::NoData>(target, entry, exit));
  }

  // Registers, or is empty: `error` is the errno of the registration or clear. Throws only what moving the callables throws.
  template <class Target, class Entry, class Exit>
  probe(const Target& target, Entry entry, Exit exit, std::error_code& error) {
    error = code_of(attach<detail::typed::NoData>(target, entry, exit));
  }

  // As the constructors, with room for a Data: context::data<Data>().
  template <class Data, class Target, class Entry, class Exit>
  static probe with_data(const Target& target, Entry entry, Exit exit) {
    probe result;
    result.raise(result.attach<Data>(target, entry, exit));
    return result;
  }
  template <class Data, class Target, class Entry, class Exit>
  static probe with_data(const Target& target, Entry entry, Exit exit, std::error_code& error) {
    probe result;
    error = code_of(result.attach<Data>(target, entry, exit));
    return result;
  }

  probe(probe&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  // Detaches what it held. Moving a probe to itself does nothing.
  probe& operator=(probe&& other) noexcept {
    if (this != &other) {
      reset();
      block_ = std::exchange(other.block_, nullptr);
    }
    return *this;
  }
  // Detaches, and destroys the callables.
  ~probe() { reset(); }

  // unregister_fprobe(): when it returns no handler runs any more. Inside a handler, where that cannot be waited for, it
  // ends the process with a message, and so does destroying an attached probe there. missed() stays readable. On a probe
  // that is not attached: nothing.
  void detach() noexcept {
    if (block_ != nullptr) detail::typed::detach(*block_);
  }
  // fprobe_is_registered().
  bool attached() const noexcept { return block_ != nullptr && fprobe_is_registered(&block_->fp); }

  // enable_fprobe() and disable_fprobe(): allowed anywhere, also inside handlers.
  void enable() noexcept { enable_fprobe(native_handle()); }
  void disable() noexcept { disable_fprobe(native_handle()); }

  // nmissed: the sum of all misses since it was registered. fprobe_missed(native_handle(), reason) tells the reasons.
  unsigned long missed() const noexcept {
    return block_ != nullptr ? __atomic_load_n(&block_->fp.nmissed, __ATOMIC_RELAXED) : 0;  // a counter, orders nothing
  }

  // The registered struct; null for an empty probe. Its address is the same as long as the probe, however moved, lives.
  ::fprobe* native_handle() noexcept { return block_ != nullptr ? &block_->fp : nullptr; }

 private:
  template <class Data, class Target, class Entry, class Exit>
  detail::typed::Outcome attach(const Target& target, Entry& entry, Exit& exit) {
    static_assert(detail::typed::EntryHandler<Entry, context>,
                  "libfprobe: an entry handler is nullptr or a callable for (context&) that returns void or bool");
    static_assert(detail::typed::ExitHandler<Exit, context>,
                  "libfprobe: an exit handler is nullptr or a callable for (context&)");
    static_assert(std::is_trivially_copyable_v<Data>, "libfprobe: entry data must be trivially copyable");
    static_assert(sizeof(Data) <= MAX_FPROBE_DATA_SIZE, "libfprobe: entry data has MAX_FPROBE_DATA_SIZE bytes at most");
    static_assert(alignof(Data) <= alignof(long), "libfprobe: entry data is aligned to long, no further");

    using Block = detail::typed::Block<context, Entry, Exit, Data>;
    block_ = new (std::nothrow) Block(std::move(entry), std::move(exit));
    if (block_ == nullptr) return {ENOMEM, "no memory for a probe"};
    block_->is_armed = true;  // before its handlers can run
    const detail::typed::Outcome outcome = detail::typed::attach<by_filter>(*block_, target);
    if (outcome.error != 0) {
      block_->is_armed = false;
      reset();
    }
    return outcome;
  }

  static std::error_code code_of(const detail::typed::Outcome& outcome) noexcept {
    return {outcome.error, std::generic_category()};
  }

  void raise([[maybe_unused]] const detail::typed::Outcome& outcome) {
    if (outcome.error == 0) return;
#if defined(__cpp_exceptions)
    throw std::system_error(code_of(outcome), outcome.sentence);
#else
    detail::typed::die(outcome.sentence);
#endif
  }

  void reset() noexcept {
    detach();
    if (detail::typed::ControlBlock* const block = std::exchange(block_, nullptr)) block->destroy(block);
  }

  detail::typed::ControlBlock* block_ = nullptr;
};

}  // namespace libfprobe

#endif  // FPROBE_FPROBE_HPP
