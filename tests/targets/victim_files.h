// What objdump, which shares no code with the library, says of a file: where the profiling calls and the nops at
// function entries are.
#ifndef FPROBE_TESTS_TARGETS_VICTIM_FILES_H_
#define FPROBE_TESTS_TARGETS_VICTIM_FILES_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace libfprobe::tests {

struct Line {
  std::uintptr_t address = 0;
  int length = 0;
  std::string text;      // "call   1030 <__fentry__@plt>"
  std::string function;  // linkage name of the symbol before it
  bool starts_function = false;
};

// The disassembly of `path`: one Line an instruction.
inline std::vector<Line> disassemble(const std::string& path) {
  const std::string command = std::string(FPROBE_OBJDUMP) + " -d -w '" + path + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<Line> lines;
  bool is_first = false;
  std::string function;
  char buffer[1024];
  while (pipe != nullptr && std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) {
    std::string line(buffer);
    if (!line.empty() && line.back() == '\n') line.pop_back();
    // "0000000000001000 <name>:", but not "<.Lname>:" which clang leaves for its own records
    if (line.ends_with(">:") && line.find("<.L") == std::string::npos) {
      is_first = true;
      const std::size_t name = line.find('<') + 1;
      function = line.substr(name, line.size() - 2 - name);
    }
    // "    1004:\t67 e8 00 00 00 00    \taddr32 call 100a <__fentry__>"
    const std::size_t bytes = line.find(":\t"), text = line.find('\t', bytes + 2);
    if (bytes == std::string::npos || text == std::string::npos) continue;
    Line& entry = lines.emplace_back();
    entry.address = std::stoull(line, nullptr, 16);
    for (std::size_t i = bytes + 2; i + 1 < text && line[i] != ' '; i += 3) ++entry.length;
    entry.text = line.substr(text + 1);
    entry.starts_function = is_first;
    entry.function = function;
    is_first = false;
  }
  return lines;
}

inline bool is_nop(const Line& line) {
  return line.text.find("nop") != std::string::npos || line.text.starts_with("xchg   %ax,%ax");
}

inline bool calls(const Line& line, const std::string& name) {
  return line.text.find("call ") != std::string::npos && (line.text.find("<" + name + ">") != std::string::npos ||
                                                          line.text.find("<" + name + "@") != std::string::npos);
}

// Whether a function starts with the instruction at `index`, apart from endbr64, `push %r10` and a single nop.
inline bool is_at_entry(const std::vector<Line>& lines, std::size_t index) {
  for (std::size_t i = index, steps = 0; steps < 4; --i, ++steps) {
    if (lines[i].starts_function) return true;
    if (i == 0) return false;
    const std::string& before = lines[i - 1].text;
    if (!before.starts_with("endbr64") && !before.starts_with("push   %r10") && before != "nop") return false;
  }
  return false;
}

// Addresses of calls at entries that have the one target most of them have: for files where nothing names that target,
// which are those with mold's PLT and unrelaxed calls through the GOT.
inline std::set<std::uintptr_t> find_common_entry_calls(const std::vector<Line>& lines) {
  std::map<std::string, std::set<std::uintptr_t>> by_target;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t call = lines[i].text.find("call "), comment = lines[i].text.find("# ");
    if (call == std::string::npos || !is_at_entry(lines, i)) continue;
    by_target[lines[i].text.substr(comment == std::string::npos ? call : comment)].insert(lines[i].address);
  }
  std::set<std::uintptr_t> found;
  for (const auto& [target, addresses] : by_target) {
    if (addresses.size() > found.size()) found = addresses;
  }
  return found;
}

// Addresses of the calls of `name`; of `nop; call` when the linker made that of a call through the GOT.
inline std::set<std::uintptr_t> find_calls(const std::vector<Line>& lines, const std::string& name, bool with_nop) {
  std::set<std::uintptr_t> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (calls(lines[i], name)) found.insert(with_nop ? lines[i - 1].address : lines[i].address);
  }
  return found;
}

// Addresses of nops, `minimum` to `maximum` bytes of them, that a function starts with, behind endbr64 and `push %r10`
// or not.  The first one is of a form that `is_wanted` knows.
inline std::set<std::uintptr_t> find_entry_nops(const std::vector<Line>& lines, bool (*is_wanted)(const Line&),
                                                int minimum, int maximum) {
  std::set<std::uintptr_t> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_function) continue;
    std::size_t at = i;
    if (lines[at].text.starts_with("push   %r10")) ++at;
    if (at < lines.size() && lines[at].text.starts_with("endbr64")) ++at;
    if (at >= lines.size() || !is_wanted(lines[at])) continue;
    int length = 0;
    for (std::size_t nop = at; nop < lines.size() && is_nop(lines[nop]); ++nop) length += lines[nop].length;
    if (length >= minimum && length <= maximum) found.insert(lines[at].address);
  }
  return found;
}

// Nops as gcc and clang emit them for -fpatchable-function-entry; alignment in the C library's code is none of them.
inline bool is_patchable_nop(const Line& line) {
  return is_nop(line) && (line.length <= 4 || line.text.find("0x8(%rax,%rax,1)") != std::string::npos ||
                          line.text.find("0x200(%rax") != std::string::npos);
}
// As gcc emits it for -mnop-mcount.
inline bool is_mcount_nop(const Line& line) {
  return line.length == 5 && line.text.starts_with("nopl   0x0(%rax,%rax,1)");
}

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_TARGETS_VICTIM_FILES_H_
