// An ELF file laid out in this process as the loader would, but not run: programs (PIE, no-pie, -static) can be scanned
// without being started.
//
// Relative relocations are applied, so that recorded addresses are run-time ones; nothing is bound to other modules.
// Pages around and between the segments are inaccessible: a read outside them ends the test.
#ifndef FPROBE_TESTS_TARGETS_MAPPED_IMAGE_H_
#define FPROBE_TESTS_TARGETS_MAPPED_IMAGE_H_

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "image/image_list.h"

namespace libfprobe::tests {

class MappedImage {
 public:
  explicit MappedImage(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    if (bytes_.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) return;
    header_ = read<Elf64_Ehdr>(0);
    if (header_.e_machine != EM_X86_64 || (header_.e_type != ET_EXEC && header_.e_type != ET_DYN)) return;
    image_.path = path;
    image_.name = path.substr(path.rfind('/') + 1);
    image_.is_main = header_.e_type == ET_EXEC;
    if (map_segments()) apply_relative_relocations();
  }
  ~MappedImage() {
    if (base_ != nullptr) munmap(base_, size_);  // with its guard pages
  }
  MappedImage(const MappedImage&) = delete;
  MappedImage& operator=(const MappedImage&) = delete;

  [[nodiscard]] bool is_mapped() const { return base_ != nullptr; }
  [[nodiscard]] detail::LoadedImage& image() { return image_; }
  [[nodiscard]] const detail::LoadedImage& image() const { return image_; }
  // Tests change bytes of the copy through it.
  [[nodiscard]] std::uint8_t* at(std::uintptr_t address) { return reinterpret_cast<std::uint8_t*>(address); }

 private:
  template <class T>
  T read(std::size_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof value) {
      std::memcpy(&value, bytes_.data() + offset, sizeof value);
    }
    return value;
  }
  [[nodiscard]] Elf64_Phdr program_header(unsigned i) const {
    return read<Elf64_Phdr>(header_.e_phoff + std::size_t{i} * sizeof(Elf64_Phdr));
  }

  bool map_segments() {
    std::uintptr_t low = UINTPTR_MAX, high = 0;
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      const Elf64_Phdr segment = program_header(i);
      if (segment.p_type != PT_LOAD) continue;
      low = std::min<std::uintptr_t>(low, segment.p_vaddr & ~(kPage - 1));
      high = std::max<std::uintptr_t>(high, segment.p_vaddr + segment.p_memsz);
    }
    if (low >= high) return false;
    size_ = ((high - low + kPage - 1) & ~(kPage - 1)) + 2 * kPage;
    const bool is_fixed = header_.e_type == ET_EXEC;
    void* const wanted = is_fixed ? reinterpret_cast<void*>(low - kPage) : nullptr;
    base_ = mmap(wanted, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | (is_fixed ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (base_ == MAP_FAILED) {
      base_ = nullptr;
      return false;
    }
    image_.bias = reinterpret_cast<std::uintptr_t>(base_) + kPage - low;
    image_.low = image_.bias + low;
    image_.high = image_.bias + high;
    for (unsigned i = 0; i < header_.e_phnum; ++i) take_header(program_header(i));
    return true;
  }

  void take_header(const Elf64_Phdr& header) {
    const std::uintptr_t start = image_.bias + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      image_.segments.push_back({start, start + header.p_memsz, header.p_flags});
      const std::uintptr_t first_page = start & ~(kPage - 1);
      mprotect(reinterpret_cast<void*>(first_page), start + header.p_memsz - first_page, PROT_READ | PROT_WRITE);
      if (header.p_offset < bytes_.size()) {
        const std::size_t available = bytes_.size() - header.p_offset;
        std::memcpy(reinterpret_cast<void*>(start), bytes_.data() + header.p_offset,
                    std::min<std::size_t>(available, header.p_filesz));
      }
    }
    if (header.p_type == PT_DYNAMIC) image_.dynamic = start;
    if (header.p_type == PT_GNU_EH_FRAME) {
      image_.eh_frame_hdr = start;
      image_.eh_frame_hdr_size = header.p_memsz;
    }
  }

  void apply_relative_relocations() {
    if (image_.dynamic == 0) return;
    std::uintptr_t table = 0, size = 0;
    for (const auto* entry = reinterpret_cast<const Elf64_Dyn*>(image_.dynamic); entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_RELA) table = entry->d_un.d_ptr + image_.bias;
      if (entry->d_tag == DT_RELASZ) size = entry->d_un.d_val;
    }
    for (std::uintptr_t at = table; at + sizeof(Elf64_Rela) <= table + size; at += sizeof(Elf64_Rela)) {
      const auto* rela = reinterpret_cast<const Elf64_Rela*>(at);
      if (ELF64_R_TYPE(rela->r_info) != R_X86_64_RELATIVE) continue;
      const std::uintptr_t value = image_.bias + static_cast<std::uintptr_t>(rela->r_addend);
      std::memcpy(reinterpret_cast<void*>(image_.bias + rela->r_offset), &value, sizeof value);
    }
  }

  static constexpr std::uintptr_t kPage = 4096;
  std::vector<char> bytes_;
  Elf64_Ehdr header_{};
  void* base_ = nullptr;
  std::size_t size_ = 0;
  detail::LoadedImage image_;
};

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_TARGETS_MAPPED_IMAGE_H_
