// Memory within reach of a module: slabs for thunks (executable) and for the data they address (Sites).
//
// Private anonymous memory (never shared: fork), filled while RW, then R-X; later additions widen the slab by W for a
// moment and never take X away.  Avoids the gibibyte above the break and the stack's growth room.  A slab lives until
// its module is unmapped.
//
//   slab   0x00 entry jump │ heads, each where its low bits must be, from the front ... free ... tails from the back
//
// A 256-byte row holds sixteen heads when their sites are aligned to 16.
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

// Maps `size` bytes (whole pages) RW within reach of the module's range, and of `also` unless that is empty; ENOSPC
// when there is no room, ENOMEM when memory is refused.
[[nodiscard]] Result<std::uintptr_t> map_near(const NearRange& module, std::size_t size, const NearRange& also = {});

// One module's thunks and Sites.  Callers need no lock of their own.
class ThunkArena {
 public:
  // `push_scratch`: see emit_thunk_head().
  ThunkArena(const NearRange& module, std::uintptr_t entry_code, bool push_scratch = false) noexcept;
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
  // Makes everything added so far executable (R-X).  One call per batch.  After a failure it may be called again.
  [[nodiscard]] Result<void> seal();

 private:
  class Slab;
  struct Data {
    std::uintptr_t start = 0, used = 0, size = 0;
  };
  struct Place {
    std::uintptr_t address = 0;
    std::uintptr_t entry_jump = 0;  // where a head there goes to
    Slab* slab = nullptr;           // until the next place is taken
  };
  template <class Find>
  [[nodiscard]] Result<Place> reserve(std::size_t size, Find find);
  [[nodiscard]] Result<void> add_slab();
  [[nodiscard]] bool is_near(const Slab& slab) const noexcept;
  [[nodiscard]] Result<std::uintptr_t> map_reachable(std::size_t size);

  RankedMutex mutex_{LockRank::kNearAlloc};  // protects everything below; nothing nests in it
  NearRange module_;
  NearRange mapped_;  // spans everything mapped for it so far, empty at first: new memory must reach it too
  std::uintptr_t entry_code_;
  bool push_scratch_;
  std::vector<Slab> slabs_;
  std::vector<Data> data_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_NEAR_ALLOC_H_
