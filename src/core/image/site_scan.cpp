// See site_scan.h: puts the parts together.
#include "image/site_scan.h"

#include <errno.h>

#include <functional>
#include <new>

#include "base/syscalls.h"
#include "image/breakpoints.h"
#include "image/scan_state.h"

namespace libfprobe::detail {
namespace {

// Most lists are in order already: a segment is searched from its front.
template <class Range, class Less>
void sort_if_needed(Range& range, Less less) {
  if (!std::is_sorted(range.begin(), range.end(), less)) std::sort(range.begin(), range.end(), less);
}

std::vector<std::uintptr_t> functions_with_site(const ScanResult& result) {
  std::vector<std::uintptr_t> functions;
  functions.reserve(result.sites.size());
  for (const FoundSite& site : result.sites) functions.push_back(site.function);
  sort_if_needed(functions, std::less<>());
  return functions;
}

// By ip, one site a place and a function, no refusal of a function that has one.
void finish(ScanResult& result) {
  const auto by_ip = [](const auto& a, const auto& b) { return a.ip != b.ip ? a.ip < b.ip : a.function < b.function; };
  sort_if_needed(result.sites, by_ip);
  const auto is_same = [](const FoundSite& a, const FoundSite& b) { return a.ip == b.ip || a.function == b.function; };
  result.sites.erase(std::unique(result.sites.begin(), result.sites.end(), is_same), result.sites.end());

  const std::vector<std::uintptr_t> functions = functions_with_site(result);
  std::erase_if(result.refused, [&](const RefusedSite& refused) {
    return std::binary_search(functions.begin(), functions.end(), refused.function);
  });
  sort_if_needed(result.refused, by_ip);
}

std::vector<ProfilingFunction> all_known(std::span<const ProfilingFunction> known) {
  std::vector<ProfilingFunction> all = global_profiling_functions();
  all.insert(all.end(), known.begin(), known.end());
  return all;
}

}  // namespace

Result<ScanResult> scan_sites(const LoadedImage& image, const ElfImage* file, std::span<const ProfilingFunction> known,
                              const ElfImage* debug) {
  const Error no_memory = make_error(ENOMEM, "no memory to look for probe sites in %s", image.path.c_str());
  if (!sys::allocation_allowed()) return no_memory;
  try {
    const std::vector<TextCopy> copies =
        file != nullptr ? copies_without_breakpoints(image, *file) : std::vector<TextCopy>{};
    const ImageMemory memory(image, copies);
    const ProfilingTargets targets = ProfilingTargets::collect(image, memory, file, all_known(known));
    const FunctionStarts starts = FunctionStarts::collect(image, memory, file, debug);
    ScanState state{image, file, memory, targets, starts, {}};
    scan_calls(state);
    scan_patchable(state, functions_with_site(state.result));
    finish(state.result);
    return std::move(state.result);
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

bool may_have_sites(const LoadedImage& image, std::span<const ProfilingFunction> known) {
  const ImageMemory memory(image);
  const ProfilingTargets targets = ProfilingTargets::collect(image, memory, nullptr, all_known(known));
  if (targets.has_imports()) return true;
  if (image.dynamic == 0 || image.eh_frame_hdr == 0) return true;  // memory alone does not tell its functions
  // A definition alone means nothing: libc has one.
  if (targets.has_definitions() && has_calls(image, memory, targets)) return true;
  return has_nops(memory, FunctionStarts::collect(image, memory, nullptr));
}

}  // namespace libfprobe::detail
