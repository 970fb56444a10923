// How the registry learns that a module was loaded, without interposing dlopen: by the function that the dynamic loader
// calls for debuggers.
//
//   dlopen ── lock ─ maps modules, r_brk() with r_state RT_ADD ─ r_brk(), RT_CONSISTENT ─ relocates* ─ constructors ─ unlock
//   dlclose ─ lock ─ destructors ─ r_brk(), RT_DELETE ─ unmaps ─ r_brk(), RT_CONSISTENT ─ unlock       (* glibc 2.41: before)
//
// r_brk() is empty: a jump in place of its return (arch::match_empty_function) leads through a word of memory near the
// loader to arch::loader_hook_code(), which calls fprobe_loader_changed().  A thread that stands on the return while it
// is written sees the return or the jump, one byte tells them apart.  The memory stays for ever, since a thread may be
// inside at any time.  Guarded by the registry mutex.
#ifndef FPROBE_SRC_CORE_REGISTRY_LOADER_HOOK_H_
#define FPROBE_SRC_CORE_REGISTRY_LOADER_HOOK_H_

#include <cstdint>

#include "base/arch.h"
#include "base/result.h"
#include "patch/text_poke.h"
#include "registry/module.h"

struct r_debug;  // <link.h>

namespace libfprobe::detail {

class LoaderHook {
 public:
  constexpr LoaderHook() noexcept = default;

  // EOPNOTSUPP: the program has no dynamic loader, or none that is known; EBUSY: a debugger's breakpoint; else what
  // kept the jump from being written.
  [[nodiscard]] Result<void> arm(const ModuleSet& modules);
  // The loader's bytes are back, unless text cannot be written or somebody else's byte lies there: to be tried again.
  void disarm() noexcept;
  [[nodiscard]] bool is_armed() const noexcept { return is_armed_; }
  // Where it is, 0 while it is not armed.
  [[nodiscard]] std::uintptr_t place() const noexcept { return is_armed_ ? place_ : 0; }
  // The loader says that its list is whole.
  [[nodiscard]] bool is_consistent() const noexcept;

  // Every module that is not known yet is being loaded, and its code has not run: the hook has been there since all of
  // them were known, and none of its calls was missed.
  [[nodiscard]] bool tells_all() const noexcept { return is_armed_ && !has_missed_ && is_in_place(); }
  void miss() noexcept { has_missed_ = true; }
  // All modules are known now.
  void catch_up() noexcept { has_missed_ = false; }

 private:
  [[nodiscard]] bool is_in_place() const noexcept;  // nobody has written over it
  [[nodiscard]] Result<void> find(const ModuleSet& modules);
  [[nodiscard]] Result<void> make_jump(const LoadedImage& loader);
  [[nodiscard]] TextEdit edit() const noexcept;

  const r_debug* loader_ = nullptr;
  std::uintptr_t jump_ = 0;  // the memory near the loader, 0: not made yet
  std::uintptr_t place_ = 0;
  arch::SiteShape shape_;
  std::uint8_t original_[arch::kMaxSiteLength]{}, armed_[arch::kMaxSiteLength]{};
  bool is_armed_ = false, has_missed_ = false;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_LOADER_HOOK_H_
