// See native_stack.h.
//
// glibc puts a thread's control block at the top of its stack, user-provided ones included: the native stack is the
// mapping that holds the block, cut off there.  The main thread's block lies elsewhere: its stack is the line [stack].
// Between the block and the stack's low end nothing but the stack (or memory of the same mapping) can lie, and all of
// it is readable.
#include "hot/native_stack.h"

#include <cstddef>

#include <atomic>

#include "base/arch.h"
#include "base/attributes.h"
#include "base/syscalls.h"

namespace libfprobe::detail::native_stack {
namespace {

struct Mapping {
  std::uintptr_t low = 0, high = 0;
  bool is_writable = false, is_main_stack = false;
};

// Reads /proc/self/maps line by line with a buffer on the stack: runs inside malloc and in signal handlers.
class MapsReader {
 public:
  FPROBE_UNSANITIZED MapsReader() noexcept : fd_(sys::open_readonly("/proc/self/maps")) {}
  FPROBE_UNSANITIZED ~MapsReader() {
    if (fd_ >= 0) sys::close(fd_);
  }
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  // "low-high rwxp offset dev inode   name\n"
  FPROBE_UNSANITIZED bool next(Mapping& mapping) noexcept {
    mapping = {};
    mapping.low = hexadecimal();
    mapping.high = hexadecimal();
    character();
    mapping.is_writable = character() == 'w';
    int c = character();
    while (c >= 0 && c != '\n' && c != '[') c = character();
    static constexpr char kStack[] = "stack]";
    mapping.is_main_stack = c == '[';
    for (unsigned i = 0; c >= 0 && c != '\n'; ++i) {
      c = character();
      if (c != '\n' && (i >= sizeof kStack - 1 || c != kStack[i])) mapping.is_main_stack = false;
    }
    return mapping.high != 0;
  }

 private:
  FPROBE_UNSANITIZED int character() noexcept {
    if (next_ == end_) {
      const ssize_t size = fd_ >= 0 ? sys::read(fd_, buffer_, sizeof buffer_) : 0;
      if (size <= 0) return -1;
      next_ = 0;
      end_ = static_cast<std::size_t>(size);
    }
    return static_cast<unsigned char>(buffer_[next_++]);
  }
  // Up to and with the character after the number.
  FPROBE_UNSANITIZED std::uintptr_t hexadecimal() noexcept {
    std::uintptr_t value = 0;
    for (;;) {
      const int c = character();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<unsigned>(c - 'a' + 10);
      } else {
        return value;
      }
    }
  }

  int fd_;
  std::size_t next_ = 0, end_ = 0;
  char buffer_[1024];
};

// The published map: writable mappings only.  A reader that sees the sequence odd or changed does without it.
constexpr unsigned kMaxPublished = 4096;
struct PublishedMap {
  std::atomic<unsigned> sequence{0};
  std::atomic<unsigned> count{0};
  std::atomic<std::uintptr_t> bounds[kMaxPublished][2]{};
};
constinit PublishedMap g_map;

constinit std::uintptr_t g_main_block = 0;  // written at load; 0: another thread loaded the library
constinit std::atomic<std::uintptr_t> g_main_low{0}, g_main_high{0};

// The main thread's stack grows down towards the mapping below it: the room between belongs to the stack already.  What
// is not mapped yet holds no frame, and where a frame was stays mapped.
FPROBE_UNPROBED FPROBE_UNSANITIZED StackWindow main_window(const Mapping& stack,
                                                           std::uintptr_t end_of_previous) noexcept {
  g_main_low.store(end_of_previous, std::memory_order_relaxed);  // both words are the same at every call but for growth
  g_main_high.store(stack.high, std::memory_order_relaxed);
  return {end_of_previous, stack.high};
}

FPROBE_UNPROBED FPROBE_UNSANITIZED bool is_main_thread(std::uintptr_t block) noexcept {
  return g_main_block != 0 ? block == g_main_block : sys::gettid() == sys::getpid();
}

FPROBE_UNPROBED FPROBE_UNSANITIZED bool choose(const Mapping& mapping, std::uintptr_t block,
                                               StackWindow& window) noexcept {
  if (!mapping.is_writable || block - mapping.low >= mapping.high - mapping.low) return false;
  window = {mapping.low, block};
  return true;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED bool find_published(std::uintptr_t block, StackWindow& window) noexcept {
  const unsigned before =
      g_map.sequence.load(std::memory_order_acquire);  // [MAP] pairs with the release in publish_map
  if ((before & 1) != 0) return false;
  bool found = false;
  const unsigned count = g_map.count.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < count && !found; ++i) {
    const Mapping mapping{g_map.bounds[i][0].load(std::memory_order_relaxed),
                          g_map.bounds[i][1].load(std::memory_order_relaxed), true, false};
    found = choose(mapping, block, window);
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // [MAP] the loads above stay before the second look
  return found && g_map.sequence.load(std::memory_order_relaxed) == before;
}

}  // namespace

void initialise() noexcept {
  if (sys::gettid() == sys::getpid()) g_main_block = arch::thread_pointer();
}

void publish_map() noexcept {
  const unsigned sequence = g_map.sequence.load(std::memory_order_relaxed);
  g_map.sequence.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // [MAP]
  unsigned count = 0;
  std::uintptr_t previous_high = 0;
  MapsReader maps;
  for (Mapping mapping; count < kMaxPublished && maps.next(mapping); previous_high = mapping.high) {
    if (mapping.is_main_stack) {
      main_window(mapping, previous_high);
    } else if (mapping.is_writable) {
      g_map.bounds[count][0].store(mapping.low, std::memory_order_relaxed);
      g_map.bounds[count][1].store(mapping.high, std::memory_order_relaxed);
      ++count;
    }
  }
  g_map.count.store(count, std::memory_order_relaxed);
  g_map.sequence.store(sequence + 2, std::memory_order_release);  // [MAP]
}

StackWindow find() noexcept {
  const std::uintptr_t block = arch::thread_pointer();
  const bool is_main = is_main_thread(block);
  StackWindow window{g_main_low.load(std::memory_order_relaxed), g_main_high.load(std::memory_order_relaxed)};
  if (is_main && window.high != 0) return window;
  if (!is_main && find_published(block, window)) return window;
  std::uintptr_t previous_high = 0;
  MapsReader maps;
  for (Mapping mapping; maps.next(mapping); previous_high = mapping.high) {
    if (is_main && mapping.is_main_stack) return main_window(mapping, previous_high);
    if (!is_main && choose(mapping, block, window)) return window;
  }
  return {};
}

}  // namespace libfprobe::detail::native_stack
