// What one thread needs on a hit: its guard, its shadow stack, its return stub.
//
// States are type-stable: mapped once, enlisted once (grace), reused by later threads.  State t owns return stub t for
// ever; thread_table[t] leads the stub's unwind expression to the shadow stack.  A state belongs to a kernel tid; it is
// taken lock-free on a thread's first hit, without malloc and without lazy TLS.
#ifndef FPROBE_SRC_CORE_HOT_THREAD_STATE_H_
#define FPROBE_SRC_CORE_HOT_THREAD_STATE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/arch.h"
#include "hot/native_stack.h"
#include "hot/shadow_stack.h"
#include "registry/grace.h"

namespace libfprobe::detail {

struct ThreadState : Participant {
  ShadowStack shadow;  // thread_table[index] points to shadow.header
  int* errno_location = nullptr;
  std::uintptr_t stub_return = 0;  // what a planted slot of this thread holds
  std::uintptr_t stub = 0;
  StackWindow stack;  // the thread's own native stack
  unsigned index = 0;
  unsigned sweeps_to_skip = 0;       // see rare::sweep
  std::size_t sweep_at_records = 0;  // skips none once so many records were made
  bool exiting = false;              // hint of the thread's exit; the kernel's word counts
  std::atomic<pid_t> tid{0};         // 0: free
};

// The calling thread's state or null.
[[nodiscard]] inline ThreadState* current_state() noexcept {
  return static_cast<ThreadState*>(tls_participant);
}

namespace threads {

// At load, once: the limit of frames (0: as deep as the real stack), the exit hint.
void initialise(unsigned long max_frames) noexcept;
// Takes a state for the calling thread; null when more than arch::kMaxThreads threads live or memory is refused.
// Async-signal-safe; makes system calls.
ThreadState* attach_current() noexcept;
// Before sites are armed: a state for the calling thread, and prepared ones for every other thread of the process and
// some spares, so that their first hits make no system call.  False: no memory for the calling thread's own state.
[[nodiscard]] bool prepare_all() noexcept;
// In a fork child: the states of the other threads belong to nobody.
void reset_after_fork() noexcept;
// The state that owns stub `index`, null if there never was one.
[[nodiscard]] ThreadState* at(unsigned index) noexcept;
// States ever made.
[[nodiscard]] unsigned count() noexcept;

}  // namespace threads
}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_HOT_THREAD_STATE_H_
