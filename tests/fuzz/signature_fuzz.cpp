// Any text as a demangled name: its parts are parts of it, and taking them apart ends.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/target.h"
#include "image/name_syntax.h"
#include "image/signature.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace libfprobe::detail;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool has_prefix_words : {false, true}) {
    const Signature signature = read_signature(text, has_prefix_words);
    if (text.find(signature.whole) == std::string_view::npos) std::abort();
    if (!signature.whole.starts_with(signature.qualified)) std::abort();
  }
  const std::string_view base = without_clone_suffixes(text);
  if (!text.starts_with(base) || without_clone_suffixes(base) != base) std::abort();
  return 0;
}
