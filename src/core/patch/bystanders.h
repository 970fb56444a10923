// The other threads of the process, and whether each of them has moved on.
//
// A thread that was preempted between two instructions of a site would wake up in the middle of what is written there.
// It has left the site when it is seen blocked in a system call, or blocked elsewhere, or has used processor time since:
// nobody stands on a nop for a millisecond of it.  (A signal handler that interrupted the thread right there, and waits,
// cannot be told from others.)
#ifndef FPROBE_SRC_CORE_PATCH_BYSTANDERS_H_
#define FPROBE_SRC_CORE_PATCH_BYSTANDERS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace libfprobe::detail {

// Whether a thread at `pc` stands where nobody may any more.
using IsInside = bool (*)(std::uintptr_t pc, const void* argument);

class Bystanders {
 public:
  // Maps its memory itself: no allocator is entered under the locks of a batch.
  Bystanders() noexcept;
  ~Bystanders();
  Bystanders(const Bystanders&) = delete;
  Bystanders& operator=(const Bystanders&) = delete;

  // Called when the places can be entered no more, behind a barrier.  True: no thread is inside one of them.  Waits for
  // some seconds at most, then false: `suspect` cannot be told (0: the threads cannot be listed).
  [[nodiscard]] bool have_left(IsInside is_inside, const void* argument) noexcept;
  [[nodiscard]] pid_t suspect() const noexcept { return suspect_; }

 private:
  struct Thread;
  [[nodiscard]] bool list() noexcept;
  [[nodiscard]] bool add(pid_t tid) noexcept;

  Thread* threads_ = nullptr;
  std::size_t count_ = 0;
  pid_t suspect_ = 0;
};

// How many threads /proc/self/task lists, 2 for any number above; 2 when it cannot be read (the careful answer).
[[nodiscard]] unsigned count_threads() noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_BYSTANDERS_H_
