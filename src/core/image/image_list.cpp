// See image_list.h.
#include "image/image_list.h"

#include <errno.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>

#include "base/syscalls.h"
#include "base/tsan.h"
#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

std::string_view last_component(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// --- One module, from what the loader says.

void read_segments(const dl_phdr_info& info, LoadedImage& image) {
  image.low = UINTPTR_MAX;
  for (std::size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const std::uintptr_t start = info.dlpi_addr + header.p_vaddr;
    switch (header.p_type) {
      case PT_LOAD:
        if (header.p_memsz == 0) break;
        image.segments.push_back({start, start + header.p_memsz, header.p_flags});
        image.low = std::min(image.low, start);
        image.high = std::max(image.high, start + header.p_memsz);
        break;
      case PT_DYNAMIC:
        image.dynamic = start;
        break;
      case PT_GNU_EH_FRAME:
        image.eh_frame_hdr = start;
        image.eh_frame_hdr_size = header.p_memsz;
        break;
      default:
        break;
    }
  }
  if (image.segments.empty()) image.low = 0;
}

LoadedImage read_image(const dl_phdr_info& info) {
  const TsanLoaderReads under_its_lock;
  LoadedImage image;
  image.path = info.dlpi_name == nullptr ? "" : info.dlpi_name;
  image.bias = info.dlpi_addr;
  image.program_headers = reinterpret_cast<std::uintptr_t>(info.dlpi_phdr);
  image.program_header_count = info.dlpi_phnum;
  read_segments(info, image);
  if (image.dynamic != 0) image.soname = DynamicTables(image).soname();
  return image;
}

ImageGeneration read_generation(const dl_phdr_info& info) noexcept {
  return {info.dlpi_adds, info.dlpi_subs};
}

// --- Paths that the loader does not tell.

// The file mapped at `address` as the kernel names it, "" if none: needed for a path relative to a working directory
// that may have changed, and for a program that was started by naming the loader.
class MappedPaths {
 public:
  [[nodiscard]] std::string at(std::uintptr_t address) {
    if (!is_read_) read_maps();
    for (std::string_view rest = text_; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (covers(line, address)) return std::string(path_of(line));
    }
    return {};
  }

 private:
  // "7f0000000000-7f0000001000 r-xp 00000000 08:01 1234    /usr/lib/libfoo.so"
  [[nodiscard]] static bool covers(std::string_view line, std::uintptr_t address) noexcept {
    std::uintptr_t start = 0, end = 0;
    const auto first = std::from_chars(line.data(), line.data() + line.size(), start, 16);
    if (first.ec != std::errc() || first.ptr == line.data() + line.size()) return false;
    const auto second = std::from_chars(first.ptr + 1, line.data() + line.size(), end, 16);
    return second.ec == std::errc() && address >= start && address < end;
  }
  [[nodiscard]] static std::string_view path_of(std::string_view line) noexcept {
    const std::size_t slash = line.find('/');
    return slash == std::string_view::npos ? std::string_view() : line.substr(slash);
  }

  void read_maps() {
    is_read_ = true;
    const int fd = sys::open_readonly("/proc/self/maps");
    if (fd < 0) return;
    char buffer[4096];
    for (ssize_t size = 0; (size = sys::read(fd, buffer, sizeof buffer)) > 0;)
      text_.append(buffer, static_cast<std::size_t>(size));
    sys::close(fd);
  }

  bool is_read_ = false;
  std::string text_;
};

std::string executable_path() {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return path;
}

// Whether another module has the file name of /proc/self/exe: then that is the loader ("ld.so ./program").
bool is_loader(std::string_view path, const std::vector<LoadedImage>& images) {
  return std::any_of(images.begin() + 1, images.end(),
                     [&](const LoadedImage& image) { return last_component(image.path) == last_component(path); });
}

void complete_paths(std::vector<LoadedImage>& images) {
  MappedPaths mapped;
  images.front().is_main = true;
  images.front().path = executable_path();
  if (images.front().path.empty() || is_loader(images.front().path, images))
    images.front().path = mapped.at(images.front().program_headers);

  const std::uintptr_t vdso = ::getauxval(AT_SYSINFO_EHDR);
  for (LoadedImage& image : images) {
    if (vdso != 0 && image.contains(vdso)) image.path = "[vdso]";
    if (!image.path.starts_with('/') && image.path != "[vdso]")
      if (std::string path = mapped.at(image.low); !path.empty()) image.path = std::move(path);
    image.name = last_component(image.path);
    if (constexpr std::string_view kDeleted = " (deleted)"; image.name.ends_with(kDeleted))  // the kernel's addition
      image.name.resize(image.name.size() - kDeleted.size());
  }
}

// --- dl_iterate_phdr.

struct Collector {
  ImageSnapshot snapshot;
  bool is_out_of_memory = false;
};

// No exception may cross the loader.
int collect(dl_phdr_info* info, std::size_t, void* argument) noexcept {
  auto& collector = *static_cast<Collector*>(argument);
  try {
    collector.snapshot.generation = read_generation(*info);
    collector.snapshot.images.push_back(read_image(*info));
    return 0;
  } catch (const std::bad_alloc&) {
    collector.is_out_of_memory = true;
    return 1;
  }
}

bool has_segments_of(const dl_phdr_info& info, const LoadedImage& image) noexcept {
  std::size_t segment = 0;
  for (std::size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || header.p_memsz == 0) continue;
    if (segment == image.segments.size()) return false;
    const Segment& known = image.segments[segment++];
    const std::uintptr_t start = info.dlpi_addr + header.p_vaddr;
    if (known.start != start || known.end != start + header.p_memsz || known.flags != header.p_flags) return false;
  }
  return segment == image.segments.size();
}

}  // namespace

const Segment* LoadedImage::segment_at(std::uintptr_t address) const noexcept {
  for (const Segment& segment : segments)
    if (address >= segment.start && address < segment.end) return &segment;
  return nullptr;
}

Result<ImageSnapshot> snapshot_images() {
  const Error no_memory = make_error(ENOMEM, "no memory to list the loaded modules");
  if (!sys::allocation_allowed()) return no_memory;
  try {
    Collector collector;
    ::dl_iterate_phdr(collect, &collector);
    if (collector.is_out_of_memory) return no_memory;
    if (!collector.snapshot.images.empty()) complete_paths(collector.snapshot.images);
    return std::move(collector.snapshot);
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

ImageGeneration image_generation() noexcept {
  ImageGeneration generation;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<ImageGeneration*>(out) = read_generation(*info);
        return 1;
      },
      &generation);
  return generation;
}

bool LoaderLock::still_loaded(const LoadedImage& image) const noexcept {
  // The loader's lock is recursive.
  return ::dl_iterate_phdr(
             [](dl_phdr_info* info, std::size_t, void* argument) -> int {
               const auto& wanted = *static_cast<const LoadedImage*>(argument);
               return reinterpret_cast<std::uintptr_t>(info->dlpi_phdr) == wanted.program_headers &&
                      info->dlpi_addr == wanted.bias && info->dlpi_phnum == wanted.program_header_count &&
                      has_segments_of(*info, wanted);
             },
             const_cast<LoadedImage*>(&image)) != 0;
}

void LoaderLock::run_erased(void (*body)(const LoaderLock&, void*), void* argument) {
  struct Call {
    void (*body)(const LoaderLock&, void*);
    void* argument;
    LoaderLock lock;
  } call{body, argument, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void* erased) {
        const auto& wanted = *static_cast<const Call*>(erased);
        wanted.body(wanted.lock, wanted.argument);
        return 1;  // the first module is enough: the lock is what was wanted
      },
      &call);
}

}  // namespace libfprobe::detail
