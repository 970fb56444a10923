// Any bytes as a loaded module: code, unwind table, dynamic section and all.  The module ends where inaccessible memory
// begins; what a scan finds must lie in it, be ordered, and not surprise the cheap test.
//
//   u16 profiling function   u16 dynamic section   u16 unwind table header   u16 end of the text   the module's memory...
//   (offsets into the memory; 0 for the two tables: absent)
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fuzz/target.h"
#include "image/site_scan.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kPage = 4096, kMaxMemory = 16 * kPage;

// The end of writable memory; behind it lies a page that nobody may touch.
std::uint8_t* memory_end() {
  static std::uint8_t* const end = [] {
    void* const pages = mmap(nullptr, kMaxMemory + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    std::uint8_t* const guard = static_cast<std::uint8_t*>(pages) + kMaxMemory;
    if (mprotect(guard, kPage, PROT_NONE) != 0) std::abort();
    return guard;
  }();
  return end;
}

LoadedImage make_image(const std::uint16_t (&header)[4], std::uintptr_t start, std::uintptr_t end) {
  LoadedImage image;
  image.path = "fuzzed";
  image.bias = image.low = start;
  image.high = end;
  const std::uintptr_t text_end = std::min<std::uintptr_t>(end, start + header[3]);
  if (text_end > start) image.segments.push_back({start, text_end, PF_R | PF_X});
  if (end > text_end) image.segments.push_back({text_end, end, PF_R | PF_W});
  if (header[1] != 0) image.dynamic = start + header[1];
  if (header[2] != 0) {
    image.eh_frame_hdr = start + header[2];
    image.eh_frame_hdr_size = end - start;
  }
  return image;
}

void check_site(const LoadedImage& image, const FoundSite& site) {
  const Segment* segment = image.segment_at(site.ip);
  if (segment == nullptr || (segment->flags & PF_X) == 0 || site.ip + site.shape.length > segment->end) std::abort();
  if (site.function > site.ip || site.ip - site.function > 6) std::abort();
  if (site.shape.length < site.shape.patch_offset + 5) std::abort();
  if (std::memcmp(site.original, reinterpret_cast<const void*>(site.ip), site.shape.length) != 0) std::abort();
}

void check(const LoadedImage& image, std::span<const ProfilingFunction> known) {
  const bool may_have = may_have_sites(image, known);
  const Result<ScanResult> result = scan_sites(image, nullptr, known);
  if (!result.ok()) std::abort();
  const FoundSite* previous = nullptr;
  for (const FoundSite& site : result.value().sites) {
    check_site(image, site);
    if (previous != nullptr && site.ip <= previous->ip) std::abort();
    previous = &site;
  }
  if (previous != nullptr && !may_have) std::abort();
}

}  // namespace
}  // namespace libfprobe::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace libfprobe::detail;
  std::uint16_t header[4];
  if (size < sizeof header) return 0;
  std::memcpy(header, data, sizeof header);
  const std::size_t memory_size = std::min(size - sizeof header, kMaxMemory);
  std::uint8_t* const start = memory_end() - memory_size;
  std::memcpy(start, data + sizeof header, memory_size);

  const auto low = reinterpret_cast<std::uintptr_t>(start);
  const ProfilingFunction known[] = {{low + header[0], kFentryCall}};
  check(make_image(header, low, low + memory_size), known);
  return 0;
}
