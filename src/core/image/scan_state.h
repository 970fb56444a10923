// What the two halves of a site scan share: the module, what is known of it, and what was found so far.
//
// Private to site_scan.cpp, call_scan.cpp and patchable_scan.cpp.
#ifndef FPROBE_SRC_CORE_IMAGE_SCAN_STATE_H_
#define FPROBE_SRC_CORE_IMAGE_SCAN_STATE_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "image/function_starts.h"
#include "image/image_memory.h"
#include "image/profiling_targets.h"
#include "image/site_scan.h"

namespace libfprobe::detail {

inline constexpr const char* kUnknownStart =
    "where it starts is unknown: its module has neither symbols nor an unwind table for it; do not strip the module, "
    "or "
    "install its debug file";

struct ScanState {
  const LoadedImage& image;
  const ElfImage* file;
  const ImageMemory& memory;
  const ProfilingTargets& targets;
  const FunctionStarts& starts;
  ScanResult result;

  void add(std::uintptr_t ip, std::uintptr_t function, fprobe_site_kind kind, const arch::SiteShape& shape) {
    if (result.sites.empty()) result.sites.reserve(starts.all().size());  // one site brings all the others
    FoundSite& site = result.sites.emplace_back();
    site.ip = ip;
    site.function = function;
    site.kind = kind;
    site.shape = shape;
    std::memcpy(site.original, memory.range(ip, shape.length).data(), shape.length);
  }
  void refuse(std::uintptr_t ip, std::uintptr_t function, const char* reason) {
    result.refused.push_back(RefusedSite{ip, function, reason});
  }
  void refuse_unknown_start(std::uintptr_t ip) {
    refuse(ip, ip, kUnknownStart);
    result.lacks_starts = true;
  }
};

// Adds the -mfentry sites of every executable segment, refuses other profiling calls.
void scan_calls(ScanState& state);
// Whether the module calls a profiling function at all; stops at the first call.
[[nodiscard]] bool has_calls(const LoadedImage& image, const ImageMemory& memory, const ProfilingTargets& targets);

// Adds sites made of nops at function starts that have no site yet (`with_site`: sorted), refuses what is too short.
void scan_patchable(ScanState& state, const std::vector<std::uintptr_t>& with_site);
// Whether any function starts with two nops or more.
[[nodiscard]] bool has_nops(const ImageMemory& memory, const FunctionStarts& starts);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SCAN_STATE_H_
