// spell(): from a linkage name to the names a user may write (symbol_index.h): demangled, cleaned, taken apart.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "image/name_syntax.h"
#include "image/signature.h"
#include "image/symbol_index.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

struct Free {
  void operator()(char* text) const noexcept { std::free(text); }
};

// Takes "[abi:cxx11]" out, wherever it stands.
void remove_abi_tags(std::string& text) {
  for (std::size_t at = text.find("[abi:"); at != kNone; at = text.find("[abi:", at)) {
    const std::size_t end = text.find(']', at);
    if (end == kNone) return;
    text.erase(at, end + 1 - at);
  }
}

// Code that a compiler took out of a function: it has the function's demangled name and is not the function.
bool is_outlined(std::string_view linkage) noexcept {
  for (const std::string_view suffix : {"_omp_fn", "_omp_cpyfn", "omp_outlined", "omp_outlined_debug__", "omp"})
    if (has_suffix_component(linkage, suffix)) return true;
  return false;
}

void spell_demangled(Spellings& names) {
  if (!names.linkage_base.starts_with("_Z") || is_outlined(names.linkage)) return;
  int status = 0;
  const std::unique_ptr<char, Free> demangled(
      abi::__cxa_demangle(names.linkage_base.c_str(), nullptr, nullptr, &status));
  if (status == -1) throw std::bad_alloc();
  if (demangled == nullptr) return;

  std::string text = demangled.get();
  remove_abi_tags(text);
  // _ZT…: thunks and TLS wrappers, _ZG…: guards and transaction clones.
  const bool is_special = names.linkage_base.starts_with("_ZT") || names.linkage_base.starts_with("_ZG");
  const Signature signature = read_signature(text, is_special);
  names.signature = signature.whole;
  names.qualified = signature.qualified;
}

}  // namespace

Spellings spell(const char* linkage) {
  Spellings names;
  try {
    names.linkage = linkage;
    names.linkage_base = without_clone_suffixes(names.linkage);
    spell_demangled(names);
  } catch (const std::bad_alloc&) {
    names.out_of_memory = true;
  }
  return names;
}

}  // namespace libfprobe::detail
