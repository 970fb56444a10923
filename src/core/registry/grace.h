// Who is inside a handler, and waiting for them: the unregister promise.
//
//   hit:         guard.open(site)      (1) store the site     (2) compiler barrier     (3) load site.probes
//   unregister:  publish, unlock,      membarrier,            then wait for every guard that holds one of its sites
//
// membarrier makes (1)-(3) and the publication ordered without a fence on the hit path: a guard store that the waiter
// does not see is followed by a load that sees the new list [GRACE].  One guard entry per nested context of a thread (a
// signal handler that interrupts a handler is a context of its own); the sequence tells a handler that left and came
// back.
#ifndef FPROBE_SRC_CORE_REGISTRY_GRACE_H_
#define FPROBE_SRC_CORE_REGISTRY_GRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/attributes.h"
#include "base/tsan.h"
#include "registry/site.h"

namespace libfprobe::detail {

struct FrameRecord;  // hot/shadow_stack.h

struct GuardEntry {
  static constexpr std::uintptr_t kLeaving = 1;

  std::atomic<const Site*> site{nullptr};  // null: nobody inside
  std::atomic<std::uint64_t> sequence{0};  // raised at every open
  std::uintptr_t sp = 0;                   // the hit's stack position: tells a nested hit where this context began
  const fprobe* running = nullptr;         // whose handler runs: for messages
  std::uintptr_t held = 0;                 // see hold()
  bool is_busy = false;                    // kprobe_busy_begin() was called on behalf of `running`

  void open(const Site& entered, std::uintptr_t stack) noexcept {
    sp = stack;
    // relaxed: the waiter's membarrier orders this store before the loads that follow [GRACE].
    sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    site.store(&entered, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // release: whoever sees the guard empty [GRACE] sees all that the handlers did.
  void close() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    tsan_release(this);
    site.store(nullptr, std::memory_order_release);
  }
  // The same where a signal handler's hit may have come between another hit's store of `sp` and that of `site`: what was
  // there before goes back, or the interrupted hit would be open with this one's stack position.
  void close(std::uintptr_t outer_sp) noexcept {
    close();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    sp = outer_sp;
  }
  // The record being filled (entry half; null: none) or finished (exit half: it is linked): what becomes of it when the
  // handler is unwound.  Valid while the guard is open.
  void hold(FrameRecord* record) noexcept { held = reinterpret_cast<std::uintptr_t>(record); }
  void hold_leaving(FrameRecord* record) noexcept { held = reinterpret_cast<std::uintptr_t>(record) | kLeaving; }
  [[nodiscard]] FrameRecord* frame() const noexcept { return reinterpret_cast<FrameRecord*>(held & ~kLeaving); }
  [[nodiscard]] bool is_leaving() const noexcept { return (held & kLeaving) != 0; }

  [[nodiscard]] bool is_open() const noexcept { return site.load(std::memory_order_relaxed) != nullptr; }
};

// Nested contexts of one thread: a hit at base level, then signal handlers that interrupt handlers.
inline constexpr unsigned kMaxContexts = 6;

// One per thread state; linked once, for ever (thread states are type-stable).
// Entry i + kMaxContexts is the auxiliary of context i: held while context i looks at a site other than its own (to
// count a miss).
struct Participant {
  GuardEntry guards[2 * kMaxContexts];
  GuardEntry* context = &guards[0];  // the entry that a hit in the thread's present context uses
  std::atomic<Participant*> next{nullptr};

  [[nodiscard]] bool inside_handler() const noexcept { return context != &guards[0] || context->is_open(); }
};

// The calling thread's, null before its first hit or registration.  initial-exec: readable in any context.
extern constinit thread_local Participant* tls_participant __attribute__((tls_model("initial-exec")));

namespace grace {

// Adds a participant to the list that waiters walk (lock-free push).
void enlist(Participant& participant) noexcept;

// Hits of threads that have no state: they touch a list only inside this count.
class AnonymousReader {
 public:
  AnonymousReader() noexcept;
  ~AnonymousReader();
  AnonymousReader(const AnonymousReader&) = delete;
  AnonymousReader& operator=(const AnonymousReader&) = delete;
};

// Waits until every hit that was inside one of `sites` (sorted) when called has left; own thread's guards are not
// waited for.  Call barrier_memory() between the publication and this.  Holds no lock.
void wait_for(std::span<const Site* const> sites) noexcept;
// The same for every site.
void wait_for_all() noexcept;
// The sites that guards hold now (after barrier_memory()): what may not be freed yet.  False when anonymous readers are
// inside or memory is short: then nothing may be freed.
[[nodiscard]] bool busy_sites(std::vector<const Site*>& sites) noexcept;

// While the library itself works on this thread (locks held, allocator called), its calls of probed functions are
// recursion, as inside a handler.  Does nothing for a thread without state.  `frame` (the caller's own by default) is
// the guard's stack position: every call made inside the scope lies below it.
class LibraryScope {
 public:
  explicit LibraryScope(void* frame = __builtin_frame_address(0)) noexcept;
  ~LibraryScope();
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;

 private:
  GuardEntry* guard_ = nullptr;
};

// In a fork child: only the calling thread is left; guards of the others are emptied.
void reset_after_fork() noexcept;

}  // namespace grace
}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_GRACE_H_
