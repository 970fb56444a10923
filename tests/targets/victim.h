// A victim of tests/targets laid out in memory, its file, and what a scan says of it; addresses are the file's.
#ifndef FPROBE_TESTS_TARGETS_VICTIM_H_
#define FPROBE_TESTS_TARGETS_VICTIM_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "image/site_scan.h"
#include "targets/mapped_image.h"

namespace libfprobe::tests {

using Addresses = std::set<std::uintptr_t>;

inline std::string victim(const std::string& name) {
  return std::string(FPROBE_VICTIMS) + "/" + name;
}

class Victim {
 public:
  explicit Victim(const std::string& path) : mapped_(path), file_(detail::ElfImage::open(path.c_str())) {}

  [[nodiscard]] bool is_there() const { return mapped_.is_mapped() && file_.ok(); }
  MappedImage& mapped() { return mapped_; }
  [[nodiscard]] const detail::ElfImage& file() const { return file_.value(); }

  detail::ScanResult scan(bool with_file = true) {
    detail::Result<detail::ScanResult> result =
        detail::scan_sites(mapped_.image(), with_file ? &file_.value() : nullptr);
    EXPECT_TRUE(result.ok());
    const std::uintptr_t bias = mapped_.image().bias;
    for (detail::FoundSite& site : result->sites) {
      const std::uint8_t* const there = mapped_.at(site.ip);
      for (std::size_t i = 0; i < site.shape.length; ++i)
        EXPECT_TRUE(there[i] == site.original[i] || there[i] == 0xcc);  // a breakpoint, which hides the file's byte
      site.ip -= bias;
      site.function -= bias;
    }
    for (detail::RefusedSite& refused : result->refused) {
      refused.ip -= bias;
      refused.function -= bias;
    }
    return std::move(*result);
  }

  [[nodiscard]] std::uint8_t mapped_byte(std::uintptr_t address) const {
    return *reinterpret_cast<const std::uint8_t*>(address + mapped_.image().bias);
  }
  [[nodiscard]] std::uintptr_t symbol(const std::string& name) const {
    for (const detail::ElfSymbol& symbol : file().symtab()) {
      if (symbol.name == name) return symbol.value;
    }
    return 0;
  }
  // A function of the victims' own sources: the C runtime's start files have none of a known size.
  [[nodiscard]] bool is_sized(std::uintptr_t address) const {
    const auto symbols = file().symtab();
    return std::any_of(symbols.begin(), symbols.end(), [&](const detail::ElfSymbol& symbol) {
      return symbol.value == address && symbol.type == STT_FUNC && symbol.size != 0;
    });
  }
  [[nodiscard]] bool starts_function(std::uintptr_t address) const {
    const auto symbols = file().symtab();
    return std::any_of(symbols.begin(), symbols.end(), [&](const detail::ElfSymbol& symbol) {
      return symbol.value == address && symbol.type == STT_FUNC && symbol.section != SHN_UNDEF;
    });
  }

 private:
  MappedImage mapped_;
  detail::Result<detail::ElfImage> file_;
};

inline Addresses ips_of(const detail::ScanResult& result) {
  Addresses ips;
  for (const detail::FoundSite& site : result.sites) ips.insert(site.ip);
  EXPECT_EQ(ips.size(), result.sites.size());
  return ips;
}

inline Addresses refused_ips_of(const detail::ScanResult& result, const char* word) {
  Addresses ips;
  for (const detail::RefusedSite& refused : result.refused) {
    if (std::string_view(refused.reason).find(word) != std::string_view::npos) ips.insert(refused.ip);
  }
  return ips;
}

inline void expect_kind(const detail::ScanResult& result, fprobe_site_kind kind) {
  for (const detail::FoundSite& site : result.sites) EXPECT_EQ(site.kind, kind);
}

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_TARGETS_VICTIM_H_
