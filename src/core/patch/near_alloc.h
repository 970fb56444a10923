// Memory within reach of a module: slabs for thunks (executable) and for the data they address (Sites).
//
// Private anonymous memory (never shared: fork), filled while RW, then R-X; later additions go through text_poke's way
// of writing.  Avoids the gibibyte above the break and the stack's growth room.  A slab lives until its module is
// unmapped.
#ifndef FPROBE_SRC_CORE_PATCH_NEAR_ALLOC_H_
#define FPROBE_SRC_CORE_PATCH_NEAR_ALLOC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/arch.h"
#include "base/mutex.h"
#include "base/result.h"

namespace libfprobe::detail {

// Every address of [low, high) must reach the memory, and the memory every one of them.
struct NearRange {
  std::uintptr_t low = 0, high = 0;
};

// Maps `size` bytes (whole pages) RW within reach of the range; ENOSPC when there is no room, ENOMEM when memory is
// refused.
[[nodiscard]] Result<std::uintptr_t> map_near(const NearRange& range, std::size_t size);

// One module's thunks and Sites.
class ThunkArena {
 public:
  ThunkArena(const NearRange& range, std::uintptr_t entry_code) noexcept;
  ~ThunkArena();  // unmaps: only when the module is gone and no thread can be inside
  ThunkArena(const ThunkArena&) = delete;
  ThunkArena& operator=(const ThunkArena&) = delete;

  // Near zeroed data memory, 64-byte aligned, never freed before the arena.
  [[nodiscard]] Result<std::uintptr_t> allocate_data(std::size_t size);

  // Reserves head and tail for a site and writes them.  The thunk is not executable before `seal`.
  struct Thunk {
    std::uintptr_t head = 0, tail = 0;
  };
  [[nodiscard]] Result<Thunk> add_thunk(std::uintptr_t site_data, std::uintptr_t resume, bool nested,
                                        arch::ThunkPlace place);
  // Makes everything added so far executable (R-X).  One call per batch.
  [[nodiscard]] Result<void> seal();

 private:
  struct Slab;
  [[nodiscard]] Result<Slab*> writable_slab(arch::ThunkPlace place);
  NearRange range_;
  std::uintptr_t entry_code_;
  std::vector<Slab> slabs_;
  struct Data {
    std::uintptr_t start, used, size;
  };
  std::vector<Data> data_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_NEAR_ALLOC_H_
