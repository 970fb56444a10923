// The functions of one module by address, with every name they answer to.
//
// Sources: .symtab and .dynsym of the file, else .dynsym in memory; .symtab of a debug file (debug_file.h).  Aliases,
// duplicates, clones (.constprop, .isra, .part), C1/C2 constructors, IFUNC (the implementation chosen at load, read from
// relocated words; never the resolver).  Of a name with several symbol versions each version's function bears it.
// Left out: data, PLT slots, undefined symbols, ".cold" parts and the compiler's own ".resolver" functions.
#ifndef FPROBE_SRC_CORE_IMAGE_SYMBOL_INDEX_H_
#define FPROBE_SRC_CORE_IMAGE_SYMBOL_INDEX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/elf_image.h"
#include "image/image_list.h"

namespace libfprobe::detail {

// One name of one function.  Several entries may share an address (aliases) or a name (static functions of two files).
struct FunctionName {
  std::uintptr_t address = 0;  // run-time
  std::uint64_t size = 0;      // of a size-0 symbol: up to the next function
  const char* linkage = "";    // as in the symbol table, without a symbol version
};

// The spellings under which a linkage name may be asked for (API.md "Names and filters").
struct Spellings {
  std::string linkage;       // "_ZN2ns5Class6methodEi.constprop.0"
  std::string linkage_base;  // without clone suffix; equal to linkage when there is none
  std::string signature;     // "ns::Class::method(int)": no leading template return type, ABI tags, clone notes; or ""
  std::string qualified;     // "ns::Class::method": the signature without parameters; or ""
  bool out_of_memory = false;  // some spellings are missing: the caller reports ENOMEM
};
[[nodiscard]] Spellings spell(const char* linkage);

class SymbolIndex {
 public:
  // Reads `file` (the module's own; null, or another file than the one that is loaded: names come from memory's dynamic
  // section if possible, else none).  `others`: modules whose words may tell which implementation an exported IFUNC of
  // this one was bound to.  The caller makes sure that all of them stay loaded meanwhile.  `debug`: the module's debug
  // file, verified; may be null.
  [[nodiscard]] static Result<SymbolIndex> build(const LoadedImage& image, const ElfImage* file,
                                                 std::span<const LoadedImage> others = {},
                                                 const ElfImage* debug = nullptr);

  // Sorted by address; at one address global names first.
  [[nodiscard]] std::span<const FunctionName> functions() const noexcept { return functions_; }
  // All names whose address is exactly `address`.
  [[nodiscard]] std::span<const FunctionName> names_at(std::uintptr_t address) const noexcept;
  // The function that contains `address` (a size-0 symbol reaches to the next one), null if none.
  [[nodiscard]] const FunctionName* containing(std::uintptr_t address) const noexcept;
  // IFUNC names that nobody has bound yet, so that no implementation can be told; an index built later may know more.
  [[nodiscard]] std::span<const char* const> unbound_ifuncs() const noexcept { return unbound_ifuncs_; }

 private:
  std::vector<FunctionName> functions_;
  std::vector<const char*> unbound_ifuncs_;
  std::shared_ptr<const char[]> strings_;  // functions' names: the file itself is not kept mapped
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SYMBOL_INDEX_H_
