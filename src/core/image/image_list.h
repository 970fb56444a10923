// What is loaded: a snapshot of the process's modules as the dynamic loader tells it (dl_iterate_phdr).
//
// Also serves -static programs (one module, no dynamic section).  Nothing here touches a module's file.
#ifndef FPROBE_SRC_CORE_IMAGE_IMAGE_LIST_H_
#define FPROBE_SRC_CORE_IMAGE_IMAGE_LIST_H_

#include <elf.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace libfprobe::detail {

struct Segment {
  std::uintptr_t start = 0, end = 0;  // run-time addresses of the PT_LOAD's memory
  std::uint32_t flags = 0;            // PF_R | PF_W | PF_X
};

struct LoadedImage {
  std::string path;         // absolute; the main program's from /proc/self/exe; "[vdso]" for the vdso
  std::string name;         // last component of path
  std::string soname;       // DT_SONAME or ""
  std::uintptr_t bias = 0;  // run-time address = file address + bias
  std::uintptr_t low = 0, high = 0;
  std::vector<Segment> segments;
  std::uintptr_t program_headers = 0;  // identity across snapshots together with bias
  std::uint16_t program_header_count = 0;
  std::uintptr_t dynamic = 0;       // run-time address of the dynamic section, 0 if none
  std::uintptr_t eh_frame_hdr = 0;  // run-time address, 0 if none
  std::size_t eh_frame_hdr_size = 0;
  bool is_main = false;

  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept { return address >= low && address < high; }
  [[nodiscard]] const Segment* segment_at(std::uintptr_t address) const noexcept;
};

struct ImageGeneration {
  unsigned long long added = 0, removed = 0;  // dlpi_adds, dlpi_subs
  friend bool operator==(const ImageGeneration&, const ImageGeneration&) = default;
};

struct ImageSnapshot {
  ImageGeneration generation;
  std::vector<LoadedImage> images;  // in load order, the main program first
};

[[nodiscard]] Result<ImageSnapshot> snapshot_images();
[[nodiscard]] ImageGeneration image_generation() noexcept;

// Runs `work` while the loader can unload nothing (inside dl_iterate_phdr).  `work` gets whether the image of each
// handed key (program_headers, bias) is still loaded through `still_loaded`.
class LoaderLock {
 public:
  // Calls body(*this) under the loader's lock.
  template <class Body>
  static void run(Body&& body) {
    run_erased([](const LoaderLock& lock, void* b) { (*static_cast<std::remove_reference_t<Body>*>(b))(lock); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }
  [[nodiscard]] bool still_loaded(const LoadedImage& image) const noexcept;

 private:
  LoaderLock() = default;
  static void run_erased(void (*body)(const LoaderLock&, void*), void* argument);
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_IMAGE_LIST_H_
