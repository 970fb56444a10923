// Where a thread's own stack lies: its word may be read there without a fault.
#ifndef FPROBE_SRC_CORE_HOT_NATIVE_STACK_H_
#define FPROBE_SRC_CORE_HOT_NATIVE_STACK_H_

#include <cstdint>

namespace libfprobe::detail {

struct StackWindow {
  std::uintptr_t low = 0, high = 0;
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept { return address - low < high - low; }
};

namespace native_stack {

// At load, once: remembers the main thread, if it is the one that loads.
void initialise() noexcept;
// Publishes the memory map for `find`, so that threads alive now need no system call for it.
void publish_map() noexcept;
// The calling thread's native stack, empty if it cannot be told.  From the published map if the stack is in it;
// otherwise reads /proc/self/maps (async-signal-safe, no allocation).
[[nodiscard]] StackWindow find() noexcept;

}  // namespace native_stack
}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_HOT_NATIVE_STACK_H_
