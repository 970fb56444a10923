// Which implementation an IFUNC symbol was bound to.
//
// The symbol's value is the resolver: code that the dynamic linker (or the start-up code of a static program) ran to
// choose.  The choice stands in the words that its relocations filled:
//
//   R_*_IRELATIVE  addend = resolver   ──►  word = implementation      calls and pointers inside the module
//   R_*_JUMP_SLOT, GLOB_DAT, 64  "f"   ──►  word = implementation      other modules, and exported names
//
// A lazily bound JUMP_SLOT still leads to a PLT slot until its first call: that tells nothing.  Nor does a word that
// the program may have written since: only GOT words and what is read-only after relocation count.  Some linkers turn
// the symbol into a function at a PLT slot of its own; the slot's word tells then.
#ifndef FPROBE_SRC_CORE_IMAGE_IFUNC_BINDING_H_
#define FPROBE_SRC_CORE_IMAGE_IFUNC_BINDING_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "image/elf_image.h"
#include "image/image_list.h"

namespace libfprobe::detail {

struct Ifunc {
  std::string_view name;
  std::uintptr_t resolver = 0;
  std::uintptr_t plt_slot = 0;        // instead of the resolver
  std::uintptr_t implementation = 0;  // 0: nobody bound it yet
};

// `function_starts` (sorted) are the module's functions.  `others` are further modules whose words may be bound to this
// one's IFUNCs; all must stay loaded meanwhile.
void bind_ifuncs(const LoadedImage& image, const ElfImage* file, std::span<const LoadedImage> others,
                 std::span<const std::uintptr_t> function_starts, std::span<Ifunc> ifuncs);

// Where a file's procedure linkage tables are; addresses as in the file.
class PltSections {
 public:
  explicit PltSections(const ElfImage* file);
  [[nodiscard]] bool contains(std::uint64_t address) const noexcept;

 private:
  std::vector<const ElfSection*> sections_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_IFUNC_BINDING_H_
