// See ifunc_binding.h.
#include "image/ifunc_binding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/arch.h"
#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kMaxPltSlot = 16;

bool is_got_name(std::string_view section) noexcept {
  return section.starts_with(".got") || section.starts_with(".igot");
}

// What the loader makes read-only once it has relocated it.
Segment relro_of(const LoadedImage& image) noexcept {
  const ImageMemory memory(image);
  for (std::size_t i = 0; i < image.program_header_count; ++i) {
    Elf64_Phdr header;
    if (!memory.read(image.program_headers + i * sizeof header, header)) break;
    const std::uintptr_t start = image.bias + header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO) return {start, start + header.p_memsz, PF_R};
  }
  return {};
}

class Binder {
 public:
  Binder(const LoadedImage& image, const ElfImage* file, std::span<const std::uintptr_t> function_starts,
         std::span<Ifunc> ifuncs)
      : image_(image), memory_(image), file_(file), plt_(file), function_starts_(function_starts), ifuncs_(ifuncs) {}

  // The relocations of `image`, in its memory.
  void read_dynamic(const LoadedImage& image) {
    const DynamicTables tables(image);
    const ImageMemory memory(image);
    relro_ = relro_of(image);
    for (const bool is_plt : {true, false}) {
      const DynamicTables::Relocations list = is_plt ? tables.plt_relocations() : tables.relocations();
      for (std::size_t i = 0; i < list.count; ++i) {
        Elf64_Rela relocation;
        if (!memory.read(list.start + i * sizeof relocation, relocation)) break;
        const bool is_fixed = is_plt || stays_as_relocated(image, image.bias + relocation.r_offset);
        read(image, memory, &tables, relocation, is_fixed);
      }
    }
  }

  // A static program has no dynamic section: its start-up code finds .rela.plt by symbols, we by section headers.
  void read_sections() {
    relro_ = relro_of(image_);
    for (const ElfSection& section : file_->sections()) {
      if (section.type != SHT_RELA || (section.flags & SHF_ALLOC) == 0) continue;
      for (std::size_t at = 0; at + sizeof(Elf64_Rela) <= section.bytes.size(); at += sizeof(Elf64_Rela)) {
        Elf64_Rela relocation;
        std::memcpy(&relocation, section.bytes.data() + at, sizeof relocation);
        read(image_, memory_, nullptr, relocation, stays_as_relocated(image_, image_.bias + relocation.r_offset));
      }
    }
  }

  void read_plt_slots() {
    for (Ifunc& ifunc : ifuncs_) {
      const Segment* segment = ifunc.plt_slot == 0 ? nullptr : image_.segment_at(ifunc.plt_slot);
      if (segment == nullptr || !memory_.is_readable(ifunc.plt_slot, 1)) continue;
      const std::size_t size = std::min(kMaxPltSlot, segment->end - ifunc.plt_slot);
      const std::span code(reinterpret_cast<const std::byte*>(ifunc.plt_slot), size);
      const std::uintptr_t place = arch::plt_slot_word(code, ifunc.plt_slot);
      std::uintptr_t word = 0;
      if (place != 0 && memory_.read_word(place, word) && is_implementation(word)) ifunc.implementation = word;
    }
  }

 private:
  [[nodiscard]] bool stays_as_relocated(const LoadedImage& owner, std::uintptr_t place) const noexcept {
    if (place >= relro_.start && place < relro_.end) return true;
    if (&owner != &image_ || file_ == nullptr) return false;
    const std::uint64_t address = place - image_.bias;
    return std::any_of(file_->sections().begin(), file_->sections().end(), [&](const ElfSection& section) {
      return is_got_name(section.name) && address >= section.address && address - section.address < section.size;
    });
  }

  // `is_fixed`: the word cannot have changed since it was relocated.
  void read(const LoadedImage& owner, const ImageMemory& memory, const DynamicTables* tables,
            const Elf64_Rela& relocation, bool is_fixed) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
    const std::uintptr_t place = owner.bias + relocation.r_offset;
    if (type == arch::kRelocationIrelative) {
      if (is_fixed && &owner == &image_)
        bind_resolver(image_.bias + static_cast<std::uintptr_t>(relocation.r_addend), place);
      return;
    }
    const bool is_by_name = type == arch::kRelocationJumpSlot || type == arch::kRelocationGlobDat ||
                            (type == arch::kRelocationAddress && relocation.r_addend == 0 && is_fixed);
    if (!is_by_name || tables == nullptr) return;
    std::uintptr_t word = 0;
    if (!memory.read_word(place, word) || !is_implementation(word)) return;  // cheaper than the name
    Elf64_Sym symbol;
    std::string_view name;
    if (tables->read_symbol(ELF64_R_SYM(relocation.r_info), symbol, name)) bind_name(name, word);
  }

  void bind_resolver(std::uintptr_t resolver, std::uintptr_t place) {
    std::uintptr_t word = 0;
    if (!memory_.read_word(place, word) || word == resolver || !is_implementation(word)) return;
    for (Ifunc& ifunc : ifuncs_)
      if (ifunc.resolver != 0 && ifunc.resolver == resolver && ifunc.implementation == 0) ifunc.implementation = word;
  }

  void bind_name(std::string_view name, std::uintptr_t word) {
    for (Ifunc& ifunc : ifuncs_)
      if (ifunc.resolver != 0 && ifunc.name == name && ifunc.resolver != word && ifunc.implementation == 0)
        ifunc.implementation = word;
  }

  // Code of this module, and no PLT slot: where section headers do not tell, a known function.
  [[nodiscard]] bool is_implementation(std::uintptr_t address) const noexcept {
    if (!memory_.is_code(address)) return false;
    if (file_ != nullptr && !file_->sections().empty()) return !plt_.contains(address - image_.bias);
    return std::binary_search(function_starts_.begin(), function_starts_.end(), address);
  }

  const LoadedImage& image_;
  ImageMemory memory_;
  const ElfImage* file_;
  PltSections plt_;
  std::span<const std::uintptr_t> function_starts_;
  std::span<Ifunc> ifuncs_;
  Segment relro_;  // of the module whose relocations are being read
};

}  // namespace

void bind_ifuncs(const LoadedImage& image, const ElfImage* file, std::span<const LoadedImage> others,
                 std::span<const std::uintptr_t> function_starts, std::span<Ifunc> ifuncs) {
  if (ifuncs.empty()) return;
  Binder binder(image, file, function_starts, ifuncs);
  binder.read_plt_slots();
  if (image.dynamic != 0) binder.read_dynamic(image);
  if (image.dynamic == 0 && file != nullptr) binder.read_sections();
  for (const LoadedImage& other : others)
    if (other.dynamic != 0 && other.bias != image.bias) binder.read_dynamic(other);
}

PltSections::PltSections(const ElfImage* file) {
  if (file == nullptr) return;
  for (const ElfSection& section : file->sections())
    if (section.name.starts_with(".plt") || section.name.starts_with(".iplt")) sections_.push_back(&section);
}

bool PltSections::contains(std::uint64_t address) const noexcept {
  return std::any_of(sections_.begin(), sections_.end(), [address](const ElfSection* section) {
    return address >= section->address && address - section->address < section->size;
  });
}

}  // namespace libfprobe::detail
