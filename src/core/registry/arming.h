// Brings the text of sites into one of its three forms, one poke batch a call, and keeps SiteRecord in step with it.
//
//   original ──load──► idle ◄──unregister── ──register──► armed          restore_text: back to original
#ifndef FPROBE_SRC_CORE_REGISTRY_ARMING_H_
#define FPROBE_SRC_CORE_REGISTRY_ARMING_H_

#include <span>

#include "base/result.h"
#include "patch/text_poke.h"
#include "registry/module.h"

namespace libfprobe::detail {

// kLive: profiling calls as in the file, for gmon; nops idle, which gmon does not need.
enum class TextForm { kOriginal, kLive, kIdle, kArmed };

// The value: every site has the form now (always with kAllOrNothing).  Sites that have it already cost nothing.
// Throws std::bad_alloc before anything is written.
// kNobody: the text of these sites was mapped a moment ago, and the loader has not let anybody enter it yet.
enum class Inside { kPerhapsThreads, kNobody };
[[nodiscard]] Result<bool> bring_into_form(std::span<SiteRecord* const> records, TextForm form, PokeMode mode,
                                           Inside inside = Inside::kPerhapsThreads);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_ARMING_H_
