// Calls of a profiling function go to its definition in the file, to a PLT slot, or through a word of the GOT; the
// relocations of the file, which objdump prints, tell whose word that is. So nothing here depends on a linker's names.
#include "matrix/site_count.h"

#include <cxxabi.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "targets/victim_files.h"

namespace libfprobe::tests {
namespace {

using Addresses = std::set<std::uintptr_t>;

// Words that are filled with the address of `symbol` at load: by its name, or as the address that its definition in this
// file has.
Addresses words_bound_to(const std::string& path, const std::string& symbol, const Addresses& definitions) {
  const std::string command = std::string(FPROBE_OBJDUMP) + " -R '" + path + "' 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  Addresses words;
  char buffer[1024];
  while (pipe != nullptr && std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) {
    // "0000000000003fd0 R_X86_64_GLOB_DAT  __fentry__@GLIBC_2.13", "... R_X86_64_RELATIVE  *ABS*+0x0000000000001140"
    unsigned long address = 0;
    char type[64], name[512];
    if (std::sscanf(buffer, "%lx %63s %511s", &address, type, name) != 3) continue;
    const std::string bound(name);
    const bool is_relative = bound.starts_with("*ABS*+0x");
    if (is_relative ? definitions.contains(std::stoull(bound.substr(8), nullptr, 16))
                    : bound.substr(0, bound.find('@')) == symbol)
      words.insert(address);
  }
  return words;
}

// The hexadecimal number behind `mark` in the text of an instruction, 0 if there is none.
std::uintptr_t number_behind(const std::string& text, const char* mark) {
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? 0
                                 : std::strtoull(text.c_str() + at + std::char_traits<char>::length(mark), nullptr, 16);
}

// Starts of the PLT slots that jump through one of the words: `[endbr64] [mov $index,%r11d] [bnd] jmp *word(%rip)`.
Addresses slots_that_use(const std::vector<Line>& lines, const Addresses& words) {
  Addresses slots;
  for (std::size_t i = 2; i < lines.size(); ++i) {
    if (lines[i].text.find("jmp ") == std::string::npos || !words.contains(number_behind(lines[i].text, "# ")))
      continue;
    std::size_t start = i;
    if (lines[start - 1].text.starts_with("mov    $") && lines[start - 1].text.ends_with(",%r11d")) --start;
    if (lines[start - 1].text.starts_with("endbr64")) --start;
    slots.insert(lines[start].address);
  }
  return slots;
}

Addresses calls_of(const std::string& path, const std::vector<Line>& lines, const std::string& symbol,
                   bool has_nop_before) {
  Addresses definitions;
  for (const Line& line : lines) {
    if (line.starts_function && line.function == symbol) definitions.insert(line.address);
  }
  const Addresses words = words_bound_to(path, symbol, definitions);
  const Addresses slots = slots_that_use(lines, words);
  Addresses found;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string& text = lines[i].text;
    if (text.find("call ") == std::string::npos) continue;
    const bool is_direct = text.find('*') == std::string::npos;
    if (is_direct && text.ends_with("<" + symbol + ">")) {
      found.insert(has_nop_before ? lines[i - 1].address : lines[i].address);
    } else if (is_direct ? slots.contains(number_behind(text, "call ")) : words.contains(number_behind(text, "# "))) {
      found.insert(lines[i].address);
    }
  }
  return found;
}

}  // namespace

CountedSites count_sites(const std::string& path, const Configuration& configuration) {
  const std::vector<Line> lines = disassemble(path);
  // mold makes `nop; call` of gcc's call through the GOT when it knows the target; the others make one instruction of it.
  const bool has_nop_before = configuration[kCompiler] == kGcc && configuration[kLinker] == kMold &&
                              (configuration[kForm] == kPie || configuration[kForm] == kStaticPie);
  Addresses sites;
  switch (configuration[kFlavour]) {
    case kFentry:
      sites = calls_of(path, lines, "__fentry__", has_nop_before);
      break;
    case kMcount:
      sites = calls_of(path, lines, "mcount", has_nop_before);
      break;
    case kNop:
      sites = find_entry_nops(lines, is_mcount_nop, 5, 5);
      break;
    default:
      sites = find_entry_nops(lines, is_patchable_nop, 5, 1 << 20);
      break;
  }
  CountedSites named;
  for (const Line& line : lines) {
    if (sites.contains(line.address)) named[line.address] = line.function;
  }
  return named;
}

std::string plain_name(const std::string& linkage_name) {
  const std::string name = linkage_name.substr(0, linkage_name.find('.'));
  const std::unique_ptr<char, void (*)(void*)> demangled(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr),
                                                         std::free);
  const std::string plain = demangled == nullptr ? name : demangled.get();
  return plain.starts_with("matrix::call_lambda(int)::") ? "lambda" : plain;
}

}  // namespace libfprobe::tests
