// See late_modules.h.
#include "registry/late_modules.h"

#include <link.h>

namespace fprobe_test {

unsigned long loader_function() {
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_DEBUG) return reinterpret_cast<const r_debug*>(entry->d_un.d_ptr)->r_brk;
  return 0;
}

std::string loader_code() {
  constexpr std::size_t kEnough = 32;
  return {reinterpret_cast<const char*>(loader_function()), kEnough};
}

}  // namespace fprobe_test
