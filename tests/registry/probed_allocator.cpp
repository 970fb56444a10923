// The program's own allocator, with sites: the library calls it too.
#include <atomic>
#include <cstdlib>
#include <new>

std::atomic<void (*)()> g_on_next_allocation{nullptr};

__attribute__((noinline)) void* operator new(std::size_t size) {
  if (void (*const call)() = g_on_next_allocation.exchange(nullptr)) call();
  void* const memory = std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
