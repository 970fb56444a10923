// The entry half of a hit that comes from a live call of a profiling function (arch/<cpu>/live_call.S): the return
// address names the Site.  For every function that calls there, probed or not, so the way out is short.
#include "base/arch.h"
#include "base/attributes.h"
#include "hot/hit.h"
#include "registry/registry.h"
#include "registry/site.h"
#include "regs.h"

namespace libfprobe::detail {
namespace {

// The Site whose function goes on at `resume` and that is dispatched from here, null if there is none.
FPROBE_HOT const Site* find_live(std::uintptr_t resume) noexcept {
  for (const std::uintptr_t length : arch::kLiveCallLengths) {
    const Site* const site = registry::find_site(resume - length);
    if (site != nullptr && site->resume == resume) return site->overwrites ? site : nullptr;
  }
  return nullptr;
}

}  // namespace
}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): a door from assembly

extern "C" {

// Called by live_call.S: regs, with sp the word above the call's return address; the word that says where the frame
// ends.  0: the call is returned from; else where the hit goes on as if the function had not called.
__attribute__((visibility("hidden"))) FPROBE_HOT std::uintptr_t fprobe_enter_live(ftrace_regs* regs,
                                                                                  std::uintptr_t* cfa) {
  const Site* const site = find_live(arch::live_return_address(*regs));
  // relaxed: compared only, the hit loads it again inside its guard [GRACE].
  if (site == nullptr || site->probes.load(std::memory_order_relaxed) == nullptr) return 0;
  if (site->shape.nested) arch::lift_chain(*regs, *cfa);
  const std::uintptr_t position = regs->sp;
  const std::uintptr_t resume = site->shape.is_behind_prologue() ? fprobe_enter_behind_prologue(site, regs, position)
                                                                 : fprobe_enter(site, regs, position).resume;
  // A site gets its first thunk, and so a tail, while nothing of it is live; a hit may have begun before.
  if (resume != 0 && resume != site->tail) return resume;
  if (site->shape.nested) arch::lower_chain(*regs);
  return 0;
}

}  // extern "C"
