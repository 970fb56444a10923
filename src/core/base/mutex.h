// A mutex that knows its place in the lock order.
//
// Order: loader -> registry -> text_poke -> near_alloc (the whole of it: src/core/README.md).  Taking a mutex while
// holding one of the same or a later rank is a bug of ours; debug builds stop there.  A function that needs a lock held
// starts with assert_held(mutex).
#ifndef FPROBE_SRC_CORE_BASE_MUTEX_H_
#define FPROBE_SRC_CORE_BASE_MUTEX_H_

#include <atomic>
#include <cassert>
#include <mutex>

#include "base/syscalls.h"

namespace libfprobe::detail {

enum class LockRank { kRegistry = 1, kTextPoke = 2, kNearAlloc = 3 };

class RankedMutex {
 public:
  explicit constexpr RankedMutex(LockRank rank) noexcept : rank_(rank) {}
  RankedMutex(const RankedMutex&) = delete;
  RankedMutex& operator=(const RankedMutex&) = delete;

  void lock() noexcept {
    mutex_.lock();
    owner_.store(sys::gettid(),
                 std::memory_order_relaxed);  // read by the owner itself only, to compare with its own tid
  }
  void unlock() noexcept {
    owner_.store(0, std::memory_order_relaxed);
    mutex_.unlock();
  }
  [[nodiscard]] bool held_by_me() const noexcept { return owner_.load(std::memory_order_relaxed) == sys::gettid(); }
  [[nodiscard]] LockRank rank() const noexcept { return rank_; }

 private:
  std::mutex mutex_;
  std::atomic<pid_t> owner_{0};
  LockRank rank_;
};

using MutexLock = std::lock_guard<RankedMutex>;

inline void assert_held([[maybe_unused]] const RankedMutex& mutex) noexcept {
  assert(mutex.held_by_me());
}

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_BASE_MUTEX_H_
