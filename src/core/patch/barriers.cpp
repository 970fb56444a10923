// How every running thread of the process is made to pass a barrier (declared in text_poke.h).
//
//   1. membarrier(PRIVATE_EXPEDITED[_SYNC_CORE]): microseconds.
//   2. Refused (a seccomp filter, a kernel before 4.16): this thread visits every CPU.  Where it arrives, whatever ran
//      there has been switched out, which is a full memory barrier, and it comes back by an interrupt return, which
//      serializes the instruction stream.  A CPU this thread may not visit is one that no thread of the same cpuset
//      runs on.
//   3. Refused too: nothing is left, the functions return false, and poke_text writes no text.
#include <errno.h>

#include <atomic>
#include <climits>
#include <cstring>

#include "base/syscalls.h"
#include "patch/text_poke.h"

namespace libfprobe::detail {
namespace {

using sys::Barrier;

// False until some barrier was seen to work.  Relaxed: a hint that saves trying again, every reader could find out
// itself.
constinit std::atomic<bool> g_barriers_work{false};

struct CpuMask {
  unsigned char bits[1024]{};  // 8192 CPUs, the most that x86-64 and aarch64 kernels are built for
};

// False when the kernel lets this thread visit no CPU by itself.
bool visit_every_cpu() noexcept {
  CpuMask home;
  const long size = sys::get_affinity(home.bits, sizeof home.bits);
  if (size <= 0) return false;

  bool visited_any = false, is_refused = false;
  for (long cpu = 0; cpu < size * CHAR_BIT && !is_refused; ++cpu) {
    CpuMask one;
    one.bits[cpu / CHAR_BIT] = static_cast<unsigned char>(1U << (cpu % CHAR_BIT));
    const int result = sys::set_affinity(one.bits, static_cast<std::size_t>(size));
    if (result == 0) visited_any = true;
    is_refused = result != 0 && result != -EINVAL;  // EINVAL: offline, absent, or outside the cpuset
  }
  if (visited_any) (void)sys::set_affinity(home.bits, static_cast<std::size_t>(size));
  return visited_any && !is_refused;
}

// True when membarrier did it.
bool expedited(Barrier kind, Barrier registration) noexcept {
  const int result = sys::membarrier(kind);
  if (result == 0) return true;
  // EPERM: this process is not registered, because prepare_barriers was never called or was refused at its time.
  return result == -EPERM && sys::membarrier(registration) == 0 && sys::membarrier(kind) == 0;
}

}  // namespace

void prepare_barriers() noexcept {
  const bool memory = sys::membarrier(Barrier::kRegisterMemory) == 0;
  const bool sync_core = sys::membarrier(Barrier::kRegisterSyncCore) == 0;
  g_barriers_work.store(memory && sync_core, std::memory_order_relaxed);
}

bool barriers_work() noexcept {
  if (g_barriers_work.load(std::memory_order_relaxed)) return true;
  prepare_barriers();
  if (g_barriers_work.load(std::memory_order_relaxed)) return true;
  return visit_every_cpu();
}

bool barrier_memory() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps our own accesses on their sides
  const bool done = expedited(Barrier::kMemory, Barrier::kRegisterMemory) || visit_every_cpu();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return done;
}

bool barrier_sync_core() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool done = expedited(Barrier::kSyncCore, Barrier::kRegisterSyncCore) || visit_every_cpu();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return done;
}

}  // namespace libfprobe::detail
