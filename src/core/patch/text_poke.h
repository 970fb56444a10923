// The batch protocol: changes bytes of running code so that every thread sees the old instruction, the new one, or a
// short jump over the rest (DESIGN "Patching live text"; the bytes are drawn in arch/<cpu>/patch.cpp).
//
// One batch: verify every `before`; make runs of pages writable (W added, X never dropped); write step 1 of every edit,
// barrier, step 2, barrier, ...; give the pages exactly the protection found.  All of it under the loader's lock, so
// that no module can be unmapped meanwhile.  All or nothing: if a page cannot be made writable or a byte differs, no
// text changes.
#ifndef FPROBE_SRC_CORE_PATCH_TEXT_POKE_H_
#define FPROBE_SRC_CORE_PATCH_TEXT_POKE_H_

#include <cstdint>
#include <span>

#include "base/arch.h"
#include "base/result.h"
#include "image/image_list.h"

namespace libfprobe::detail {

struct TextEdit {
  std::uintptr_t ip = 0;
  arch::SiteShape shape;
  // What we wrote last, or the file's bytes: verified first, from the patch place on.  A prefix in front of it is never
  // ours to write: a debugger's breakpoint on it is no obstacle.
  std::uint8_t before[arch::kMaxSiteLength]{};
  std::uint8_t after[arch::kMaxSiteLength]{};
  bool unentered = false;              // no thread can have run this text yet: changed as if there were one thread only
  const LoadedImage* image = nullptr;  // whose text it is; an edit of an unloaded image is left out; null: not checked
  bool done = false;                   // out: written
  bool foreign = false;                // out: bytes differ from `before` (a debugger or uprobe sits there), left alone
};

enum class PokeMode {
  kAllOrNothing,  // register: any foreign byte or refused page fails the batch before the first store (EACCES, EPERM,
                  // EBUSY; ENOMEM)
  kBestEffort,    // unregister: edits that cannot be made are left as they are (done stays false), the rest is done
};

// Sorts `edits` by address.  `module_name`s for sentences come from edit.image.
[[nodiscard]] Result<void> poke_text(std::span<TextEdit> edits, PokeMode mode);

// Registers the process for the barriers; at load and in a fork child.
void prepare_barriers() noexcept;

// Whether the barriers below can be had, with no barrier where that is known.  When they cannot, a registration must
// fail: neither live text could be changed nor unregister keep its promise.
[[nodiscard]] bool barriers_work() noexcept;

// Makes every running thread pass a full memory barrier, resp. resynchronise its instruction stream.  Falls back to
// moving this thread over every CPU when membarrier is refused.  False: refused too, nothing happened. [GRACE] [POKE]
bool barrier_memory() noexcept;
bool barrier_sync_core() noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_TEXT_POKE_H_
