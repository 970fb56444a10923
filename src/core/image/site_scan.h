// From a loaded module to its probe sites: address → site, or a reason why there is none.
//
//   profiling_targets   which addresses lead to {__fentry__, mcount, _mcount}
//   function_starts     where functions start (unwind tables, symbols)
//   call_scan           executable segments searched for calls of the former at the latter
//   patchable_scan      nops at function starts; section entries (__mcount_loc, __patchable_function_entries) are hints
//                       that are verified like everything else
//
// Every site is checked by decoding.  Reads memory only, inside mapped segments; writes nothing.  A function has one
// site at most: the first.
#ifndef FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_
#define FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_

#include <fprobe/fprobe.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/arch.h"
#include "base/result.h"
#include "image/elf_image.h"
#include "image/image_list.h"
#include "image/profiling_targets.h"

namespace libfprobe::detail {

struct FoundSite {
  std::uintptr_t ip = 0;        // entry_ip: the site's first byte
  std::uintptr_t function = 0;  // the function's first byte
  fprobe_site_kind kind = FPROBE_SITE_FENTRY;
  arch::SiteShape shape;
  std::uint8_t original[arch::kMaxSiteLength]{};  // shape.length bytes as found
};

// A place that looks like a site and is none that we patch: the reason is told to whoever asks for it by name or
// address.
struct RefusedSite {
  std::uintptr_t ip = 0, function = 0;
  const char* reason = "";  // a static sentence part: "its profiling call is of -mcmodel=large; compile it without"
};

struct ScanResult {
  std::vector<FoundSite> sites;      // sorted by ip, unique
  std::vector<RefusedSite> refused;  // sorted by ip; none of a function that has a site
  bool lacks_starts = false;         // some are refused for want of symbols, which a debug file may have
};

// `file` is the module's file (null: memory alone, then section hints and symbols are missing).
// `known`: definitions of the profiling functions beside those that the module's tables name.  `debug`: the module's
// debug file, verified; may be null.  The caller keeps the module loaded meanwhile, and its text as the file has it.
[[nodiscard]] Result<ScanResult> scan_sites(const LoadedImage& image, const ElfImage* file,
                                            std::span<const ProfilingFunction> known = {},
                                            const ElfImage* debug = nullptr);

// Cheap test from memory alone: can this module hold any site or refused one?  (It imports or calls a profiling
// function, a function of it starts with nops, or its functions are unknown.)  Used at load to leave the files of
// libraries like libc unread.
[[nodiscard]] bool may_have_sites(const LoadedImage& image, std::span<const ProfilingFunction> known = {});

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_
