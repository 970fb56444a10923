// From a loaded module to its probe sites: address → site, or a reason why there is none.
//
// Scans executable sections for calls of {mcount, _mcount, __fentry__} and function starts for patchable nops; section
// entries (__mcount_loc, __patchable_function_entries) are hints that are verified like everything else.  Every site is
// checked by decoding.  Reads memory only; writes nothing.
#ifndef FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_
#define FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_

#include <fprobe/fprobe.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/arch.h"
#include "base/result.h"
#include "image/elf_image.h"
#include "image/image_list.h"

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
  const char* reason = "";  // a static sentence part: "its call to mcount is of -mcmodel=large, compile without it"
};

struct ScanResult {
  std::vector<FoundSite> sites;  // sorted by ip, unique
  std::vector<RefusedSite> refused;
};

// `file` is the module's file (null: memory alone, then section hints and symbols are missing).
[[nodiscard]] Result<ScanResult> scan_sites(const LoadedImage& image, const ElfImage* file);

// Cheap test from memory alone: can this module hold any site?  (It imports or defines a profiling function, or has a
// patchable section or pattern.)  Used at load to leave libraries like libc unread.
[[nodiscard]] bool may_have_sites(const LoadedImage& image);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SITE_SCAN_H_
