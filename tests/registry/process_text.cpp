#include "registry/process_text.h"

#include <link.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <sstream>

namespace fprobe_test {
namespace {

int append_text(dl_phdr_info* info, std::size_t, void* argument) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    const auto* const start = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    static_cast<std::string*>(argument)->append(start, header.p_memsz);
  }
  return 1;  // the main program comes first
}

}  // namespace

std::string main_text() {
  std::string text;
  dl_iterate_phdr(&append_text, &text);
  return text;
}

std::string main_mappings() {
  char path[PATH_MAX] = "";
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  std::ifstream maps("/proc/self/maps");
  std::ostringstream out;
  for (std::string line; std::getline(maps, line);)
    if (line.find(program) != std::string::npos) out << line << '\n';
  return out.str();
}

}  // namespace fprobe_test
