// Brings the text of sites into one of its three forms, one poke batch a call, and keeps SiteRecord in step with it.
//
//   original ──load──► idle ◄──unregister── ──register──► armed          restore_text: back to original
//
// Where text cannot be written sites stay as the file has them, and their calls of our profiling functions are armed as
// they are: live.  A live site leaves that state when its last probe does.
#ifndef FPROBE_SRC_CORE_REGISTRY_ARMING_H_
#define FPROBE_SRC_CORE_REGISTRY_ARMING_H_

#include <span>

#include "base/result.h"
#include "patch/text_poke.h"
#include "registry/module.h"

namespace libfprobe::detail {

// kLive: profiling calls as in the file, for gmon; nops idle, which gmon does not need.
enum class TextForm { kOriginal, kLive, kIdle, kArmed };

// For a registration: every site's hits lead to its Site, whichever way; or nothing changed.  Makes the thunks that are
// needed.  Throws std::bad_alloc before anything is written.
[[nodiscard]] Result<void> arm(std::span<SiteRecord* const> records);
// A live site is not dispatched any more; others stay as they are.
void disarm_live(SiteRecord& record) noexcept;

// kNobody: the text of these sites was mapped a moment ago, and the loader has not let anybody enter it yet.
enum class Inside { kPerhapsThreads, kNobody };

// The value: every site has the form now (always with kAllOrNothing).  Sites that have it already cost nothing.
// Throws std::bad_alloc before anything is written.
[[nodiscard]] Result<bool> bring_into_form(std::span<SiteRecord* const> records, TextForm form, PokeMode mode,
                                           Inside inside = Inside::kPerhapsThreads);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_ARMING_H_
