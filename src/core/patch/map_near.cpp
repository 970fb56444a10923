// Where memory near a module is taken from (map_near of near_alloc.h).
//
//   0 .. │ free │ program │ free │ break + 1 GiB: kept │ ... │ libraries │ free │ room for the stack: kept │ stack
//
// The free place closest to the module is tried first; when somebody else takes it meanwhile, the map is read anew.
// MAP_FIXED_NOREPLACE makes that race harmless.
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/syscalls.h"
#include "patch/memory_map.h"
#include "patch/near_alloc.h"

namespace libfprobe::detail {
namespace {

constexpr std::uintptr_t kMiB = std::uintptr_t{1} << 20;
constexpr std::uintptr_t kGiB = std::uintptr_t{1} << 30;
constexpr std::uintptr_t kLowest = 64 * 1024;                                     // vm.mmap_min_addr's usual value
constexpr std::uintptr_t kHighest = (std::uintptr_t{1} << 47) - arch::kPageSize;  // end of user addresses
constexpr std::uintptr_t kHeapRoom = kGiB;
constexpr std::uintptr_t kStackRoomLeast = 128 * kMiB;  // the kernel's own least distance of mappings from the stack
constexpr std::uintptr_t kStackRoomMost = 64 * kGiB;    // stands for "unlimited"
constexpr int kAttempts = 64;

struct Block {
  std::uintptr_t start = 0, end = 0;
};

std::uintptr_t round_down(std::uintptr_t address) noexcept {
  return address & ~(arch::kPageSize - 1);
}

std::uintptr_t round_up(std::uintptr_t address) noexcept {
  return round_down(address + arch::kPageSize - 1);
}

std::uintptr_t stack_room() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur > kStackRoomMost) return kStackRoomMost;
  return std::max<std::uintptr_t>(limit.rlim_cur, kStackRoomLeast);
}

// Looks at free blocks and keeps the best start address for the memory wanted.
class Search {
 public:
  Search(const NearRange& module, const NearRange& also, std::size_t size) noexcept : module_(module), size_(size) {
    const bool is_also = also.low < also.high;
    const std::uintptr_t low = is_also ? std::min(module.low, also.low) : module.low;
    const std::uintptr_t high = is_also ? std::max(module.high, also.high) : module.high;
    const std::uintptr_t lowest = high > arch::kThunkReach ? high - arch::kThunkReach : 0;
    window_ = {std::max(round_up(lowest), kLowest), std::min(round_down(low + arch::kThunkReach), kHighest)};
    kept_[0] = {round_down(module.low), round_up(module.high)};  // its holes are unmapped together with it
    const std::uintptr_t heap = round_down(sys::program_break());
    kept_[1] = {heap, heap + kHeapRoom};
  }

  // Free space, less what is kept.
  void offer(Block block) noexcept {
    block.start = std::max(block.start, window_.start);
    block.end = std::min(block.end, window_.end);
    offer_rest(block, 0);
  }
  // Never again an address below this one.
  void refuse_below(std::uintptr_t address) noexcept { window_.start = std::max(window_.start, address); }

  [[nodiscard]] std::uintptr_t take_best() noexcept {
    best_distance_ = UINTPTR_MAX;
    return std::exchange(best_, 0);
  }

 private:
  void offer_rest(Block block, unsigned kept) noexcept {
    if (block.end < block.start || block.end - block.start < size_) return;
    if (kept == std::size(kept_)) return consider(block);
    const Block& hole = kept_[kept];
    if (block.end <= hole.start || hole.end <= block.start) return offer_rest(block, kept + 1);
    offer_rest({block.start, hole.start}, kept + 1);
    offer_rest({hole.end, block.end}, kept + 1);
  }

  void consider(Block block) noexcept {
    const bool is_below = block.end <= module_.low;
    const std::uintptr_t start = is_below ? block.end - size_ : block.start;
    const std::uintptr_t distance = is_below ? module_.low - start : start + size_ - module_.high;
    if (distance >= best_distance_) return;
    best_ = start;
    best_distance_ = distance;
  }

  NearRange module_;
  std::size_t size_;
  Block window_;
  Block kept_[2];
  std::uintptr_t best_ = 0, best_distance_ = UINTPTR_MAX;
};

// Offers everything between the mappings up to the stack.  0 or the errno of reading the map.
int offer_gaps(Search& search) noexcept {
  MemoryMap map;
  Mapping mapping;
  std::uintptr_t end = 0;  // of the mapping before
  while (map.next(mapping)) {
    if (mapping.is_stack) {
      search.offer({end, std::min(mapping.start, mapping.end - std::min(mapping.end, stack_room()))});
      return 0;  // nothing above the stack
    }
    if (mapping.start > end) search.offer({end, mapping.start});
    end = mapping.end;
  }
  if (map.error() != 0) return map.error();
  search.offer({end, UINTPTR_MAX});
  return 0;
}

Error no_memory(std::size_t size, int code) noexcept {
  return make_error(ENOMEM,
                    "the kernel refuses %zu bytes of memory for thunks (errno %d): raise the limit of the process "
                    "(ulimit -v, cgroup) or vm.max_map_count",
                    size, code);
}

}  // namespace

Result<std::uintptr_t> map_near(const NearRange& module, std::size_t size, const NearRange& also) {
  Search search(module, also, size);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (const int code = offer_gaps(search)) {
      return make_error(ENOMEM,
                        "/proc/self/maps cannot be read (errno %d), so no place for thunks can be chosen: mount /proc, "
                        "and let the program read it",
                        code);
    }
    const std::uintptr_t place = search.take_best();
    if (place == 0) break;
    const std::uintptr_t start = sys::mmap(place, size, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
    if (start == place) return start;
    if (!sys::is_error(start)) {  // a kernel before 4.17 took the address as a hint only
      (void)sys::munmap(start, size);
      continue;
    }
    const int code = static_cast<int>(-static_cast<std::intptr_t>(start));
    if (code == EPERM) search.refuse_below(place + size);  // below vm.mmap_min_addr
    if (code != EPERM && code != EEXIST) return no_memory(size, code);
  }
  return make_error(ENOSPC,
                    "no room for %zu bytes within jump range of the code at 0x%lx-0x%lx: map less memory next to it, "
                    "or register before that is mapped",
                    size, static_cast<unsigned long>(module.low), static_cast<unsigned long>(module.high));
}

}  // namespace libfprobe::detail
