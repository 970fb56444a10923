// See ownership.h.
#include "api/ownership.h"

#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstring>

// relaxed everywhere: written by the constructor, which the loader orders before any call.
extern "C" {
__attribute__((visibility("hidden"), used)) constinit std::atomic<int> fprobe_ownership{0};
}

asm(R"(
        .pushsection .note.fprobe, "a", @note
        .balign 4
        .long   10                              # namesz: "libfprobe" and its zero
        .long   4                               # descsz
        .long   1                               # type
        .asciz  "libfprobe"
        .balign 4
0:      .long   fprobe_ownership - 0b
        .popsection
)");

namespace libfprobe::detail::ownership {
namespace {

constexpr char kNoteName[] = "libfprobe";
constexpr std::uint32_t kNoteType = 1;

constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// The ownership word that a note segment leads to, null if it has none.
std::atomic<int>* find_word(std::uintptr_t start, std::size_t size, std::size_t alignment) noexcept {
  if (alignment != 8) alignment = 4;
  std::size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= size) {
    const auto* const note = reinterpret_cast<const ElfW(Nhdr)*>(start + at);
    const std::size_t name = at + sizeof *note;
    const std::size_t description = align_up(name + note->n_namesz, alignment);
    const std::size_t end = description + note->n_descsz;
    if (description < at || end < description || end > size) return nullptr;  // not what a linker writes
    if (note->n_type == kNoteType && note->n_namesz == sizeof kNoteName && note->n_descsz == sizeof(std::int32_t) &&
        std::memcmp(reinterpret_cast<const char*>(start + name), kNoteName, sizeof kNoteName) == 0) {
      const auto* const distance = reinterpret_cast<const std::int32_t*>(start + description);
      return reinterpret_cast<std::atomic<int>*>(start + description +
                                                 static_cast<std::uintptr_t>(std::intptr_t{*distance}));
    }
    at = align_up(end, alignment);
  }
  return nullptr;
}

// dl_iterate_phdr: 1 when a module's copy owns the process and is not this one.
int is_other_owner(dl_phdr_info* info, std::size_t, void*) {
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const std::atomic<int>* const word = find_word(info->dlpi_addr + header.p_vaddr, header.p_memsz, header.p_align);
    if (word != nullptr && word != &fprobe_ownership && word->load(std::memory_order_relaxed) == 1) return 1;
  }
  return 0;
}

}  // namespace

bool claim() noexcept {
  if (dl_iterate_phdr(&is_other_owner, nullptr) != 0) return false;
  fprobe_ownership.store(1, std::memory_order_relaxed);
  return true;
}

bool is_mine() noexcept {
  return fprobe_ownership.load(std::memory_order_relaxed) == 1;
}

}  // namespace libfprobe::detail::ownership
