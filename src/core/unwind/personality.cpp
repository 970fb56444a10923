// Exceptions and forced unwinding through hijacked frames and through handlers (Itanium C++ ABI: Exception Handling,
// level I).
//
// A stub's frame has no code and no cleanup of its own, but the unwinder asks its personality before it evaluates the
// frame's return-address expression:
//   search phase   find the record once (going on from the last one found) and leave it in header.hint: the expression
//                  then needs no walk, which keeps a throw through n frames linear
//   cleanup phase  run the exit handlers (UNWOUND), mark the record done; it stays linked, since expressions still need it
//   handler frame  the hijacked function's caller catches: a zero-size frame has its caller's identity, so the unwinder
//                  stops here: go on from the landing
// Contexts are touched only through the calling unwinder's own accessors (unwinder.h), and only those on which libgcc
// and LLVM's libunwind agree (never _Unwind_GetGR of rsp).
#include <fprobe/fprobe.h>
#include <unwind.h>

#include <cstdlib>

#include "base/arch.h"
#include "base/attributes.h"
#include "base/syscalls.h"
#include "hot/hit.h"
#include "hot/thread_state.h"
#include "unwind/unwinder.h"

namespace libfprobe::detail {
namespace {

// The records of a stub's frame in an unwinding.
struct StubFrame {
  ThreadState* owner;
  FrameRecord* record;  // the newest at the slot
  std::uintptr_t slot;
};

// Names one pass over the frames: the exception (aligned), and which phase.
FPROBE_UNPROBED std::uintptr_t pass_of(const _Unwind_Exception* exception, _Unwind_Action actions) noexcept {
  return reinterpret_cast<std::uintptr_t>(exception) | ((actions & _UA_CLEANUP_PHASE) != 0 ? 1 : 0);
}

// Finds the newest record at the frame's slot, and leaves it in header.hint.  (Older ones at the same slot were left by
// longjmp.)  The frames of one pass lie ever further out, so their records are ever older: the search goes on from the
// last one found, if that is still linked.  Any push in between has made the new record the hint.
// _Unwind_GetCFA of a zero-size frame is the stack pointer after the function's return.
FPROBE_UNPROBED StubFrame find_frame(const Unwinder& unwinder, _Unwind_Context* context, std::uintptr_t pass) noexcept {
  const std::uintptr_t slot = unwinder.get_cfa(context) - sizeof(std::uintptr_t);
  ThreadState* owner = threads::at(arch::stub_index(unwinder.get_ip(context)));
  if (owner == nullptr) return {nullptr, nullptr, slot};
  if (owner != current_state()) return {owner, owner->shadow.find_foreign(slot), slot};
  ShadowStack& shadow = owner->shadow;
  FrameRecord* from = shadow.top();
  const bool goes_on = shadow.unwinding == pass && !is_dead(shadow.header.hint->slot.load(std::memory_order_relaxed));
  if (goes_on) from = shadow.header.hint;
  while (from != shadow.bottom() && from->slot.load(std::memory_order_relaxed) != slot)
    from = from->prev;  // own records
  if (from == shadow.bottom()) from = goes_on ? shadow.find(slot) : nullptr;
  shadow.unwinding = pass;
  if (from != nullptr) shadow.header.hint = from;
  return {owner, from, slot};
}

// Runs the exits of every record at the slot, newest first, as UNWOUND.
FPROBE_UNPROBED void run_unwound_exits(ThreadState& self, StubFrame& frame) {
  ftrace_regs regs{};
  regs.flags = kRegsAtExit | kRegsUnwound;
  regs.sp = frame.slot + sizeof(std::uintptr_t);
  for (FrameRecord* record = frame.record; record != nullptr;) {
    regs.entry_ip = record->site->ip;
    regs.ip = regs.return_address = rare::true_return_address(self, *record, frame.slot);
    GuardEntry& guard = *self.context;
    if (!record->done && !guard.is_open()) {
      record->done = true;  // before: a cancellation inside a handler passes this frame again
      const int saved_errno = *self.errno_location;
      guard.open(*record->site, regs.sp);
      guard.hold_leaving(nullptr);
      run_exits(guard, *record, regs);
      guard.hold(nullptr);
      guard.close();
      *self.errno_location = saved_errno;
    }
    record->done = true;
    // The next one at the slot, if the function was tail-called.
    FrameRecord* next = record->chained ? record->prev : nullptr;
    while (next != nullptr && next->slot.load(std::memory_order_relaxed) != frame.slot) next = next->prev;
    record = next;
  }
}

// The caller of the hijacked function catches: its records are over, the landing goes on in its name.
FPROBE_UNPROBED _Unwind_Reason_Code land(const ThreadState* self, const StubFrame& frame, const Unwinder& unwinder,
                                         _Unwind_Exception* exception, _Unwind_Context* context) noexcept {
  const std::uintptr_t return_address = frame.record->return_address;
  for (FrameRecord* record = frame.record; record != nullptr;) {
    record = rare::finish(self, *frame.owner, record, frame.slot);
  }
  unwinder.set_gr(context, __builtin_eh_return_data_regno(0), reinterpret_cast<_Unwind_Word>(exception));
  unwinder.set_gr(context, __builtin_eh_return_data_regno(1), return_address);
  unwinder.set_ip(context, arch::landing_code());
  return _URC_INSTALL_CONTEXT;
}

void write_message(const char* text) noexcept {
  std::size_t size = 0;
  while (text[size] != '\0') ++size;
  sys::write(2, text, size);
}

void write_hexadecimal(std::uintptr_t value) noexcept {
  char text[19] = "0x";
  unsigned digits = 1;
  while (digits < 16 && (value >> (4 * digits)) != 0) ++digits;
  for (unsigned i = 0; i < digits; ++i) text[2 + i] = "0123456789abcdef"[(value >> (4 * (digits - 1 - i))) & 15];
  text[2 + digits] = '\0';
  write_message(text);
}

// A C++ exception would leave a handler.  Said in the search phase: the stack is still whole for a debugger.
[[noreturn]] void die_of_exception(const GuardEntry* guard) noexcept {
  write_message("libfprobe: an exception left a handler of the probe ");
  write_hexadecimal(guard != nullptr ? reinterpret_cast<std::uintptr_t>(guard->running) : 0);
  const Site* site = guard != nullptr ? guard->site.load(std::memory_order_relaxed) : nullptr;
  if (site != nullptr) {
    write_message(" on the function at ");
    write_hexadecimal(site->ip);
  }
  write_message("; catch exceptions inside the handler\n");
  std::abort();
}

// The entry code pushed the word where the function goes on below the hit's place on the stack.
FPROBE_UNPROBED void hide_function(const GuardEntry& guard) noexcept {
  const Site* site = guard.site.load(std::memory_order_relaxed);  // this thread's own guard
  arch::hide_function(site->shape, *reinterpret_cast<std::uintptr_t*>(guard.sp - sizeof(std::uintptr_t)));
}

}  // namespace
}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): two doors from assembly's frame information

extern "C" {

// Personality of the return stubs.  (Not noexcept: a forced unwinding may act inside an exit handler.)
__attribute__((visibility("hidden"))) FPROBE_UNPROBED _Unwind_Reason_Code fprobe_stub_personality(
    int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception* exception, _Unwind_Context* context) {
  const Unwinder unwinder = unwinder_of(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
  StubFrame frame = find_frame(unwinder, context, pass_of(exception, actions));
  if (frame.record == nullptr) return _URC_CONTINUE_UNWIND;
  if ((actions & _UA_CLEANUP_PHASE) == 0) return _URC_CONTINUE_UNWIND;
  // The thread's first hit may be this one: a fiber that another thread entered is left here by an exception.
  ThreadState* self = current_state() != nullptr ? current_state() : threads::attach_current();
  if (self != nullptr) run_unwound_exits(*self, frame);
  if ((actions & _UA_HANDLER_FRAME) != 0) return land(self, frame, unwinder, exception, context);
  return _URC_CONTINUE_UNWIND;
}

// Personality of the frame below every handler.
__attribute__((visibility("hidden"))) FPROBE_UNPROBED _Unwind_Reason_Code
fprobe_handler_personality(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*, _Unwind_Context*) {
  ThreadState* self = current_state();
  if ((actions & _UA_FORCE_UNWIND) == 0) die_of_exception(self != nullptr ? self->context : nullptr);
  if (self != nullptr && self->context->is_open()) {
    GuardEntry& guard = *self->context;
    if (guard.is_leaving() && guard.frame() != nullptr)
      guard.frame()->done = true;  // its expression still leads to the caller
    if (!guard.is_leaving()) hide_function(guard);
    rare::abandon_context(*self);
  }
  return _URC_CONTINUE_UNWIND;
}

}  // extern "C"
