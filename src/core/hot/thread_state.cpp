// Thread states: made, handed out, taken back.
//
//   at(index) ──► ThreadState {.., shadow.header, ..}   fprobe_thread_table[index] ──► shadow.header   (both for ever)
//   prepared states lie on a lock-free list; a thread's first hit takes one, else takes back one whose thread is gone,
//   else maps a new one.
#include "hot/thread_state.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "base/arch.h"
#include "base/attributes.h"
#include "base/syscalls.h"
#include "base/tsan.h"
#include "hot/hit.h"
#include "hot/native_stack.h"
#include "hot/signal_context.h"
#include "patch/bystanders.h"

// Read by the return stubs' unwind expression.
extern "C" {
__attribute__((visibility("hidden")))
libfprobe::detail::ShadowHeader* fprobe_thread_table[libfprobe::detail::arch::kMaxThreads];
}

namespace libfprobe::detail {

__attribute__((tls_model("initial-exec"))) constinit thread_local int tls_kprobe_depth = 0;

namespace threads {
namespace {

constexpr pid_t kPrepared = 0;  // on the free list
constexpr pid_t kClaimed = -1;  // being handed out or taken back
constexpr pid_t kGone = -2;     // its thread did not survive a fork

// As deep as a stack of 8 MiB can be with frames of 16 bytes; blocks for entry data beyond a record's own words.
constexpr std::size_t kDefaultFrames = std::size_t{1} << 19;
constexpr std::size_t kMostFrames = std::size_t{1} << 24;  // what FPROBE_SHADOW_STACK_FRAMES may ask for
constexpr std::size_t kBlockBytes = std::size_t{128} << 20;
constexpr std::size_t kSmallestRegion = std::size_t{1} << 20;

constinit std::atomic<ThreadState*> g_states[arch::kMaxThreads];
constinit std::atomic<unsigned> g_count{0};
constinit std::atomic<std::uint64_t> g_prepared{0};  // list head: index + 1 in the low half, a tag against ABA above
constinit std::atomic<unsigned> g_prepared_next[arch::kMaxThreads];
constinit std::atomic<unsigned> g_prepared_count{0};
constinit std::size_t g_max_frames = kDefaultFrames;  // written at load
constinit bool g_tid_in_block = false;                // written at load
constinit bool g_has_exit_key = false;                // written at load
constinit pthread_key_t g_exit_key = 0;

FPROBE_UNPROBED FPROBE_UNSANITIZED void push_prepared(ThreadState& state) noexcept {
  state.tid.store(kPrepared, std::memory_order_relaxed);
  std::uint64_t head = g_prepared.load(std::memory_order_relaxed);
  std::uint64_t next;
  do {
    g_prepared_next[state.index].store(static_cast<unsigned>(head), std::memory_order_relaxed);
    next = ((head >> 32) + 1) << 32 | (state.index + 1);
  } while (
      !g_prepared.compare_exchange_weak(head, next, std::memory_order_release, std::memory_order_relaxed));  // [SPARE]
  g_prepared_count.fetch_add(1, std::memory_order_relaxed);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED ThreadState* pop_prepared() noexcept {
  std::uint64_t head = g_prepared.load(std::memory_order_acquire);  // [SPARE]
  for (;;) {
    const unsigned index = static_cast<unsigned>(head);
    if (index == 0) return nullptr;
    const std::uint64_t next = ((head >> 32) + 1) << 32 | g_prepared_next[index - 1].load(std::memory_order_relaxed);
    if (g_prepared.compare_exchange_weak(head, next, std::memory_order_acquire,
                                         std::memory_order_acquire)) {  // [SPARE]
      g_prepared_count.fetch_sub(1, std::memory_order_relaxed);
      return g_states[index - 1].load(std::memory_order_relaxed);
    }
  }
}

// Maps memory for a state: the state itself, records, blocks.  Smaller where address space is limited.
FPROBE_UNPROBED FPROBE_UNSANITIZED ThreadState* map_state() noexcept {
  constexpr std::size_t kHead = (sizeof(ThreadState) + arch::kPageSize - 1) / arch::kPageSize * arch::kPageSize;
  std::size_t records = (g_max_frames * sizeof(FrameRecord) + arch::kPageSize - 1) / arch::kPageSize * arch::kPageSize;
  std::size_t blocks = kBlockBytes;
  for (;;) {
    const std::size_t size = kHead + records + blocks;
    const std::uintptr_t memory = sys::mmap(0, size, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (!sys::is_error(memory)) {
      sys::madvise(memory, size, MADV_NOHUGEPAGE);
      auto* state = new (reinterpret_cast<void*>(memory)) ThreadState;
      const std::size_t frames = std::min(g_max_frames, records / sizeof(FrameRecord));
      state->shadow.prepare(memory + kHead, frames, memory + kHead + records, memory + size);
      return state;
    }
    if (blocks <= kSmallestRegion) return nullptr;
    blocks /= 2;
    if (records > kSmallestRegion) records /= 2;
  }
}

// A new state, not handed out; null when there are no more stubs or no memory.
FPROBE_UNPROBED FPROBE_UNSANITIZED ThreadState* make_state() noexcept {
  unsigned index = g_count.load(std::memory_order_relaxed);
  do {
    if (index == arch::kMaxThreads) return nullptr;
  } while (!g_count.compare_exchange_weak(index, index + 1, std::memory_order_relaxed));
  ThreadState* state = map_state();
  if (state == nullptr) {
    // The stub stays without a state unless nobody took a later one meanwhile.
    unsigned taken = index + 1;
    g_count.compare_exchange_strong(taken, index, std::memory_order_relaxed);
    return nullptr;
  }
  state->index = index;
  state->stub = arch::stub_address(index);
  state->stub_return = arch::stub_return_address(index);
  state->tid.store(kClaimed, std::memory_order_relaxed);
  fprobe_thread_table[index] = &state->shadow.header;
  g_states[index].store(state, std::memory_order_release);  // [STATE] pairs with at()
  grace::enlist(*state);
  return state;
}

// Takes back the state of a thread that is gone, if nothing of it can still be needed.
FPROBE_UNPROBED FPROBE_UNSANITIZED bool take_back(ThreadState& state, pid_t pid) noexcept {
  pid_t tid = state.tid.load(std::memory_order_relaxed);
  if (tid == kPrepared || tid == kClaimed) return false;
  if (tid != kGone && sys::tgkill(pid, tid, 0) != -ESRCH) return false;
  // acquire: pairs with the releases of `tid` here and in hand_out(), the state is as its last holder left it [OWNER].
  if (!state.tid.compare_exchange_strong(tid, kClaimed, std::memory_order_acquire)) return false;
  for (GuardEntry& guard : state.guards) guard.is_busy = false;  // was counted in the gone thread's own depth
  while (state.inside_handler()) rare::abandon_context(state);
  rare::drop_all(state);
  if (!state.shadow.is_empty()) {  // frames on fibers' stacks may still return through its stub: parked
    state.tid.store(kGone, std::memory_order_release);  // [OWNER]
    return false;
  }
  return true;
}

// States whose threads said that they exit are looked at first; all of them only when the table would have to double.
FPROBE_UNPROBED FPROBE_UNSANITIZED ThreadState* take_back_any() noexcept {
  const pid_t pid = sys::getpid();
  const unsigned made = g_count.load(std::memory_order_relaxed);
  const bool look_at_all = (made & (made - 1)) == 0 || made == arch::kMaxThreads;
  for (unsigned index = 0; index < made; ++index) {
    ThreadState* state = at(index);
    if (state == nullptr || !(state->exiting || look_at_all)) continue;
    if (take_back(*state, pid)) return state;
  }
  return nullptr;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED pid_t current_tid() noexcept {
  if (g_tid_in_block) return *reinterpret_cast<const pid_t*>(arch::thread_pointer() + arch::kTcbTidOffset);
  return sys::gettid();
}

// Runs at a thread's exit, after its probed functions have returned or been unwound (but for other destructors).
FPROBE_UNPROBED void on_thread_exit(void* argument) {
  auto& state = *static_cast<ThreadState*>(argument);
  // Open still: an asynchronous cancellation cut a hit short.  No handler of this thread will go on.
  while (state.inside_handler()) rare::abandon_context(state);
  rare::drop_all(state);
  state.exiting = true;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED void hand_out(ThreadState& state) noexcept {
  for (const GuardEntry& guard : state.guards) tsan_acquire(&guard);  // the hits of the thread that had it are over
  state.exiting = false;
  state.sweeps_to_skip = 0;
  state.context = &state.guards[0];
  state.errno_location = &errno;
  state.stack = native_stack::find();
  state.tid.store(current_tid(), std::memory_order_release);  // [OWNER] pairs with take_back()
  if (g_has_exit_key) pthread_setspecific(g_exit_key, &state);
}

}  // namespace

void initialise(unsigned long max_frames) noexcept {
  if (max_frames != 0) g_max_frames = std::min<unsigned long>(max_frames, kMostFrames);
  const auto in_block = *reinterpret_cast<const pid_t*>(arch::thread_pointer() + arch::kTcbTidOffset);
  g_tid_in_block = in_block == sys::gettid();
  native_stack::initialise();
  signal_context::initialise();
  // Values of the first 32 keys lie in the thread's own block: setting one allocates nothing.
  constexpr pthread_key_t kKeysInBlock = 32;
  g_has_exit_key = pthread_key_create(&g_exit_key, on_thread_exit) == 0 && g_exit_key < kKeysInBlock;
}

ThreadState* attach_current() noexcept {
  ThreadState* state = pop_prepared();
  if (state == nullptr) state = take_back_any();
  if (state == nullptr) state = make_state();
  if (state == nullptr) return nullptr;
  hand_out(*state);
  Participant* expected = nullptr;
  // A signal's first hit may have come between: the thread then has a state already.
  if (__atomic_compare_exchange_n(&tls_participant, &expected, static_cast<Participant*>(state), false,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    return state;
  }
  if (g_has_exit_key) pthread_setspecific(g_exit_key, expected);
  push_prepared(*state);
  return current_state();
}

bool prepare_all() noexcept {
  if (current_state() == nullptr && attach_current() == nullptr) return false;
  constexpr unsigned kSpares = 2;
  const unsigned others = count_threads() - 1;
  const unsigned wanted = others + kSpares;
  if (others != 0) native_stack::publish_map();
  while (g_prepared_count.load(std::memory_order_relaxed) < wanted) {
    ThreadState* state = take_back_any();
    if (state == nullptr) state = make_state();
    if (state == nullptr) break;  // first hits of the rest will try again, or count as missed
    push_prepared(*state);
  }
  return true;
}

void reset_after_fork() noexcept {
  const ThreadState* self = current_state();
  for (unsigned index = 0; index < g_count.load(std::memory_order_relaxed); ++index) {
    ThreadState* state = at(index);
    if (state == nullptr) continue;
    if (state == self) {
      state->tid.store(sys::gettid(), std::memory_order_relaxed);
    } else if (state->tid.load(std::memory_order_relaxed) != kPrepared) {
      state->tid.store(kGone, std::memory_order_relaxed);
      state->exiting = true;
    }
  }
}

ThreadState* at(unsigned index) noexcept {
  if (index >= arch::kMaxThreads) return nullptr;
  return g_states[index].load(std::memory_order_acquire);  // [STATE] pairs with make_state()
}

unsigned count() noexcept {
  return g_count.load(std::memory_order_relaxed);
}

}  // namespace threads
}  // namespace libfprobe::detail
