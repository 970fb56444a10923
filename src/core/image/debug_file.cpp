// See debug_file.h.
#include "image/debug_file.h"

#include <errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "image/crc32.h"
#include "image/image_file.h"

namespace libfprobe::detail {
namespace {

constinit const char* g_debug_root = "/usr/lib/debug";  // written by tests only, before any module is read

// --- What a file must be to be used; null: it is.

const char* refuse_build_id(std::span<const std::byte> loaded, const ElfImage& file) noexcept {
  const auto found = file.build_id();
  return std::equal(loaded.begin(), loaded.end(), found.begin(), found.end()) ? nullptr
                                                                              : "its build id is not the module's";
}

const char* refuse_checksum(std::uint32_t stated, const ElfImage& file) noexcept {
  return crc32(file.bytes()) == stated ? nullptr
                                       : "its checksum is not the one that the module's .gnu_debuglink states";
}

// Prelinking moves a module away from its debug file, and leaves both build ids alone.
bool is_at_the_modules_addresses(const LoadedImage& image, const ElfImage* own, const ElfImage& file) noexcept {
  bool has_code = false;
  for (const ElfSection& section : file.sections()) {
    if ((section.flags & SHF_ALLOC) == 0 || (section.flags & SHF_EXECINSTR) == 0) continue;
    has_code = true;
    const std::uintptr_t start = image.bias + section.address;
    const Segment* const segment = image.segment_at(start);
    if (segment == nullptr || (segment->flags & PF_X) == 0 || section.size > segment->end - start) return false;
    const ElfSection* const same = own != nullptr ? own->section(section.name) : nullptr;
    if (same != nullptr && (same->address != section.address || same->size != section.size)) return false;
  }
  return has_code;
}

const char* refuse_symbols(const LoadedImage& image, const ElfImage* own, const ElfImage& file) noexcept {
  if (file.symtab().empty()) return "it has no symbol table";
  return is_at_the_modules_addresses(image, own, file) ? nullptr : "its code lies at other addresses than the module's";
}

// --- Where it may lie.

std::string build_id_path(std::span<const std::byte> id) {
  if (id.size() < 2) return {};
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string path = std::string(g_debug_root) + "/.build-id/";
  for (std::size_t i = 0; i < id.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(id[i]);
    path += kDigits[byte >> 4];
    path += kDigits[byte & 0xf];
    if (i == 0) path += '/';
  }
  return path + ".debug";
}

std::string_view folder_of(std::string_view path) noexcept {
  return path.substr(0, path.rfind('/'));  // "" of a file in "/": the paths below begin with '/' again
}

// Symbolic links resolved; "" when the file is gone.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real != nullptr ? real.get() : std::string();
}

// Of a damaged file, whose remedy is that of a module's own file.
std::string_view without_remedy(const Error& error) noexcept {
  const std::string_view sentence = error.sentence;
  return error.code == ENOEXEC ? sentence.substr(0, sentence.rfind("; ")) : sentence;
}

// --- The search.

class Search {
 public:
  Search(const LoadedImage& image, const ElfImage* own) : image_(image), own_(own), build_id_(loaded_build_id(image)) {}

  [[nodiscard]] Result<DebugFile> run() {
    if (const std::string path = build_id_path(build_id_); !path.empty())
      if (is_over(path, [&](const ElfImage& file) { return refuse_build_id(build_id_, file); })) return take();

    const std::optional<DebugLink> link = own_ != nullptr ? debug_link_of(*own_) : std::nullopt;
    if (!link || !image_.path.starts_with('/')) return take();
    const std::string_view folder = folder_of(image_.path);
    if (are_over(std::string(folder), *link)) return take();
    const std::string real = real_path(image_.path);
    if (!real.empty() && folder_of(real) != folder) (void)are_over(std::string(folder_of(real)), *link);
    return take();
  }

 private:
  [[nodiscard]] bool are_over(const std::string& folder, const DebugLink& link) {
    const auto check = [&](const ElfImage& file) {
      const bool has_ids = !build_id_.empty() && !file.build_id().empty();
      const char* const reason = has_ids ? refuse_build_id(build_id_, file) : nullptr;
      return reason != nullptr ? reason : refuse_checksum(link.crc, file);
    };
    return is_over(folder + "/" + link.name, check) || is_over(folder + "/.debug/" + link.name, check) ||
           is_over(g_debug_root + folder + "/" + link.name, check);
  }

  // Tries one file; true when the search has ended, by finding it or by a shortage.
  template <class Check>
  [[nodiscard]] bool is_over(const std::string& path, const Check& check) {
    Result<ElfImage> file = ElfImage::open(path.c_str());
    if (!file.ok()) {
      const Error& error = file.error();
      if (is_shortage(error)) shortage_ = error;
      const bool is_there = error.code != ENOENT && error.code != ENOTDIR && error.code != ENAMETOOLONG;
      if (is_there) refuse(std::string(without_remedy(error)));
      return shortage_.has_value();
    }
    const char* reason = check(*file);
    if (reason == nullptr) reason = refuse_symbols(image_, own_, *file);
    if (reason != nullptr) refuse(path + " is not used: " + reason);
    if (reason == nullptr) found_.file = std::move(*file);
    return reason == nullptr;
  }

  void refuse(std::string sentence) {
    if (found_.refusal.empty()) found_.refusal = std::move(sentence);
  }

  [[nodiscard]] Result<DebugFile> take() {
    if (shortage_) return *shortage_;
    return std::move(found_);
  }

  const LoadedImage& image_;
  const ElfImage* own_;
  std::span<const std::byte> build_id_;  // in the module's memory
  DebugFile found_;
  std::optional<Error> shortage_;
};

}  // namespace

Result<DebugFile> find_debug_file(const LoadedImage& image, const ElfImage* own) {
  return Search(image, own).run();
}

std::string path_by_build_id(const LoadedImage& image) {
  return build_id_path(loaded_build_id(image));
}

// A name with its NUL, padded to a multiple of four, then the CRC.
std::optional<DebugLink> debug_link_of(const ElfImage& file) {
  const ElfSection* const section = file.section(".gnu_debuglink");
  if (section == nullptr || section->bytes.empty()) return std::nullopt;
  const std::string_view bytes(reinterpret_cast<const char*>(section->bytes.data()), section->bytes.size());
  const std::size_t end = bytes.find('\0');
  if (end == std::string_view::npos || end == 0 || bytes.substr(0, end).find('/') != std::string_view::npos)
    return std::nullopt;
  DebugLink link{std::string(bytes.substr(0, end)), 0};
  const std::size_t place = (end / 4 + 1) * 4;
  if (place + sizeof link.crc > bytes.size()) return std::nullopt;
  std::memcpy(&link.crc, bytes.data() + place, sizeof link.crc);
  return link;
}

void set_debug_root(const char* folder) noexcept {
  g_debug_root = folder;
}

}  // namespace libfprobe::detail
