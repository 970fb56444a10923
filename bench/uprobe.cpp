#include "uprobe.h"

#include <link.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace {

constexpr const char* kPmu = "/sys/bus/event_source/devices/uprobe/";

// Where an address of the program lies in its file; 0 when in no segment of it.
std::uint64_t file_offset_of(std::uintptr_t address) {
  struct Search {
    std::uintptr_t address;
    std::uint64_t offset;
  } search{address, 0};
  const auto look_at_program = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& wanted = *static_cast<Search*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info->dlpi_phdr[i];
      const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type != PT_LOAD || wanted.address < start || wanted.address >= start + segment.p_memsz) continue;
      wanted.offset = segment.p_offset + (wanted.address - start);
    }
    return 1;  // the first object is the program; no other is of interest
  };
  ::dl_iterate_phdr(look_at_program, &search);
  return search.offset;
}

// "config:0" → bit 0 of perf_event_attr.config.
bool read_return_bit(std::uint64_t& bit) {
  std::string format;
  if (!(std::ifstream(std::string(kPmu) + "format/retprobe") >> format)) return false;
  if (format.rfind("config:", 0) != 0) return false;
  bit = std::uint64_t{1} << std::stoul(format.substr(std::strlen("config:")));
  return true;
}

}  // namespace

Uprobe::Uprobe(const void* function, End end) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  std::uint64_t return_bit = 0;
  if (!(std::ifstream(std::string(kPmu) + "type") >> attributes.type) || !read_return_bit(return_bit)) {
    reason_ = std::string("this kernel offers no uprobes to perf_event_open (") + kPmu + " cannot be read)";
    return;
  }
  const std::uint64_t offset = file_offset_of(reinterpret_cast<std::uintptr_t>(function));
  attributes.config = end == End::kReturn ? return_bit : 0;
  attributes.config1 = reinterpret_cast<std::uintptr_t>("/proc/self/exe");
  attributes.config2 = offset;
  const long opened =
      ::syscall(SYS_perf_event_open, &attributes, /*pid=*/0, /*cpu=*/-1, /*group_fd=*/-1, PERF_FLAG_FD_CLOEXEC);
  if (opened < 0) {
    reason_ = std::string("perf_event_open refuses a uprobe: ") + std::strerror(errno);
    if (errno == EACCES || errno == EPERM) reason_ += " (it wants root, or CAP_PERFMON and CAP_SYS_ADMIN)";
  }
  descriptor_ = static_cast<int>(opened);
}

Uprobe::~Uprobe() {
  if (is_open()) ::close(descriptor_);
}

unsigned long Uprobe::hits() const {
  std::uint64_t count = 0;
  return ::read(descriptor_, &count, sizeof count) == sizeof count ? count : 0;
}
