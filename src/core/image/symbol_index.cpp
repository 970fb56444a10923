// See symbol_index.h.  Collect (names still in the file), bind IFUNCs, sort, pack the names into one block.
#include "image/symbol_index.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "base/syscalls.h"
#include "image/ifunc_binding.h"
#include "image/image_file.h"
#include "image/image_memory.h"
#include "image/name_syntax.h"

namespace libfprobe::detail {
namespace {

// Which of several names of one address comes first.
enum class Rank : std::uint8_t { kGlobal, kWeak, kLocal, kBoundIfunc, kUntyped };

struct Candidate {
  std::uintptr_t address = 0;
  std::uint64_t size = 0;
  std::string_view name;  // in the file or in the module's memory
  Rank rank = Rank::kLocal;
};

struct Candidates {
  std::vector<Candidate> functions;
  std::vector<Ifunc> ifuncs;
};

Rank rank_of(const ElfSymbol& symbol) noexcept {
  if (symbol.type == STT_NOTYPE) return Rank::kUntyped;
  if (symbol.bind == STB_LOCAL) return Rank::kLocal;
  return symbol.bind == STB_WEAK ? Rank::kWeak : Rank::kGlobal;
}

// Hand-written assembly may leave the type out; labels inside a function are local, and ends of sections (_etext) are
// no code.
bool is_untyped_function(const ElfSymbol& symbol, std::span<const ElfSection> sections) noexcept {
  if (symbol.type != STT_NOTYPE || symbol.bind == STB_LOCAL || symbol.section >= sections.size()) return false;
  const ElfSection& section = sections[symbol.section];
  return (section.flags & SHF_EXECINSTR) != 0 && symbol.value >= section.address &&
         symbol.value - section.address < section.size;
}

class Collector {
 public:
  Collector(const LoadedImage& image, const ElfImage* layout) : image_(image), memory_(image), plt_(layout) {}

  // `sections`: of the file that the symbols come from.
  void add_all(std::span<const ElfSymbol> symbols, std::span<const ElfSection> sections) {
    for (const ElfSymbol& symbol : symbols) add(symbol, sections);
  }

  void add_from_memory() {
    const DynamicTables tables(image_);
    const std::size_t count = tables.symbol_count();
    for (std::size_t i = 1; i < count; ++i) {
      Elf64_Sym entry;
      ElfSymbol symbol;
      if (!tables.read_symbol(i, entry, symbol.name)) break;
      symbol.value = entry.st_value;
      symbol.size = entry.st_size;
      symbol.type = static_cast<std::uint8_t>(ELF64_ST_TYPE(entry.st_info));
      symbol.bind = static_cast<std::uint8_t>(ELF64_ST_BIND(entry.st_info));
      symbol.section = entry.st_shndx;
      add(symbol, {});
    }
  }

  [[nodiscard]] Candidates take() && { return std::move(found_); }

 private:
  void add(const ElfSymbol& symbol, std::span<const ElfSection> sections) {
    const bool is_ifunc = symbol.type == STT_GNU_IFUNC;
    if (symbol.type != STT_FUNC && !is_ifunc && !is_untyped_function(symbol, sections)) return;
    if (symbol.section == SHN_UNDEF || symbol.section == SHN_ABS || symbol.section == SHN_COMMON) return;
    const std::uintptr_t address = image_.bias + symbol.value;
    if (!memory_.is_code(address)) return;

    const std::string_view name = without_version(symbol.name);
    if (name.empty() || has_suffix_component(name, "cold") || has_suffix_component(name, "resolver")) return;
    if (is_ifunc) {
      found_.ifuncs.push_back({name, address, 0, 0});
      return;
    }
    if (plt_.contains(symbol.value)) {  // an IFUNC whose address is its PLT slot; "f$plt" are mold's names of slots
      if (symbol.type == STT_FUNC && name.find("$plt") == std::string_view::npos)
        found_.ifuncs.push_back({name, 0, address, 0});
      return;
    }
    found_.functions.push_back({address, symbol.size, name, rank_of(symbol)});
  }

  const LoadedImage& image_;
  ImageMemory memory_;
  PltSections plt_;
  Candidates found_;
};

// The names of one address: .dynsym repeats what .symtab has, so a name twice is one name, of the better rank and the
// larger size.  Returns the end of what is left.
std::vector<Candidate>::iterator unite_group(std::vector<Candidate>::iterator first,
                                             std::vector<Candidate>::iterator last) {
  if (last - first == 1) return last;
  std::sort(first, last,
            [](const Candidate& a, const Candidate& b) { return std::tie(a.name, a.rank) < std::tie(b.name, b.rank); });
  auto end = first + 1;
  for (auto at = end; at != last; ++at) {
    Candidate& kept = *(end - 1);
    if (at->name == kept.name) {
      kept.size = std::max(kept.size, at->size);
      continue;
    }
    *end++ = *at;
  }
  std::sort(first, end,
            [](const Candidate& a, const Candidate& b) { return std::tie(a.rank, a.name) < std::tie(b.rank, b.name); });
  return end;
}

void sort_and_unite(std::vector<Candidate>& functions) {
  std::sort(functions.begin(), functions.end(),
            [](const Candidate& a, const Candidate& b) { return a.address < b.address; });
  auto out = functions.begin();
  for (auto first = functions.begin(); first != functions.end();) {
    const std::uintptr_t address = first->address;
    const auto last =
        std::find_if(first, functions.end(), [address](const Candidate& c) { return c.address != address; });
    const auto end = unite_group(first, last);
    out = out == first ? end : std::move(first, end, out);
    first = last;
  }
  functions.erase(out, functions.end());
}

// A size-0 symbol takes its size from an alias, else reaches to the next function or to its segment's end.
void fill_sizes(const LoadedImage& image, std::vector<Candidate>& functions) {
  for (std::size_t start = 0, end = 0; start < functions.size(); start = end) {
    std::uint64_t size = 0;
    for (end = start; end < functions.size() && functions[end].address == functions[start].address; ++end)
      size = std::max(size, functions[end].size);
    const Segment* segment = image.segment_at(functions[start].address);
    std::uintptr_t limit = segment != nullptr ? segment->end : functions[start].address;
    if (end < functions.size()) limit = std::min(limit, functions[end].address);
    if (size == 0) size = limit - functions[start].address;
    for (std::size_t i = start; i < end; ++i)
      if (functions[i].size == 0) functions[i].size = size;
  }
}

void add_bound_ifuncs(const LoadedImage& image, const ElfImage* file, std::span<const LoadedImage> others,
                      Candidates& found) {
  std::vector<std::uintptr_t> starts;
  if (!found.ifuncs.empty()) {
    starts.reserve(found.functions.size());
    for (const Candidate& function : found.functions) starts.push_back(function.address);
    std::sort(starts.begin(), starts.end());
  }
  bind_ifuncs(image, file, others, starts, found.ifuncs);
  for (const Ifunc& ifunc : found.ifuncs)
    if (ifunc.implementation != 0) found.functions.push_back({ifunc.implementation, 0, ifunc.name, Rank::kBoundIfunc});
}

// Copies names, NUL-terminated, into a block that is exactly large enough.
class NamePacker {
 public:
  NamePacker(char* block) noexcept : next_(block) {}
  const char* pack(std::string_view name) noexcept {
    char* start = next_;
    std::memcpy(start, name.data(), name.size());
    start[name.size()] = '\0';
    next_ += name.size() + 1;
    return start;
  }

 private:
  char* next_;
};

struct ByAddress {
  bool operator()(const FunctionName& function, std::uintptr_t address) const noexcept {
    return function.address < address;
  }
  bool operator()(std::uintptr_t address, const FunctionName& function) const noexcept {
    return address < function.address;
  }
};

}  // namespace

Result<SymbolIndex> SymbolIndex::build(const LoadedImage& image, const ElfImage* file,
                                       std::span<const LoadedImage> others, const ElfImage* debug) {
  try {
    if (!sys::allocation_allowed()) throw std::bad_alloc();
    if (file != nullptr && !is_file_of(image, *file)) file = nullptr;
    // A debug file has the module's section headers too.
    const ElfImage* const layout = debug != nullptr && (file == nullptr || file->sections().empty()) ? debug : file;
    Collector collector(image, layout);
    const bool has_symbols = file != nullptr && !(file->symtab().empty() && file->dynsym().empty());
    if (has_symbols) {
      collector.add_all(file->symtab(), file->sections());
      collector.add_all(file->dynsym(), file->sections());
    }
    if (!has_symbols) collector.add_from_memory();
    if (debug != nullptr) collector.add_all(debug->symtab(), debug->sections());
    Candidates found = std::move(collector).take();
    add_bound_ifuncs(image, layout, others, found);
    sort_and_unite(found.functions);
    fill_sizes(image, found.functions);

    std::size_t size = 0;
    for (const Candidate& function : found.functions) size += function.name.size() + 1;
    for (const Ifunc& ifunc : found.ifuncs) size += ifunc.name.size() + 1;
    std::shared_ptr<char[]> strings(new char[size]);
    NamePacker packer(strings.get());

    SymbolIndex index;
    index.functions_.reserve(found.functions.size());
    for (const Candidate& function : found.functions)
      index.functions_.push_back({function.address, function.size, packer.pack(function.name)});
    for (const Ifunc& ifunc : found.ifuncs)
      if (ifunc.implementation == 0 && ifunc.resolver != 0) index.unbound_ifuncs_.push_back(packer.pack(ifunc.name));
    index.strings_ = std::move(strings);
    return index;
  } catch (const std::bad_alloc&) {
    return make_error(ENOMEM, "no memory for the function names of %s", image.path.c_str());
  }
}

std::span<const FunctionName> SymbolIndex::names_at(std::uintptr_t address) const noexcept {
  const auto [first, last] = std::equal_range(functions_.begin(), functions_.end(), address, ByAddress{});
  return {first, last};
}

const FunctionName* SymbolIndex::containing(std::uintptr_t address) const noexcept {
  constexpr std::size_t kMaxNested = 16;  // functions do not overlap, but assembly may have entries inside one
  auto at = std::upper_bound(functions_.begin(), functions_.end(), address, ByAddress{});
  for (std::size_t tried = 0; at != functions_.begin() && tried < kMaxNested; ++tried) {
    --at;
    if (address - at->address >= at->size) continue;
    return &*std::lower_bound(functions_.begin(), at, at->address, ByAddress{});  // its first name
  }
  return nullptr;
}

}  // namespace libfprobe::detail
