// Linked into a form of the tests: from the program's first moment on no text may be made writable, and with
// FPROBE_REFUSE_FILE nothing may be written through /proc/self/mem either.
#include <errno.h>

#include "base/syscalls.h"

namespace {

using libfprobe::detail::sys::Call;
using libfprobe::detail::sys::fault;

void refuse(int, char**, char**) {
  fault(Call::kMprotect).error = EACCES;
  if (FPROBE_REFUSE_FILE) fault(Call::kWriteAt).error = EACCES;
}

// Before every constructor, the library's too.
__attribute__((section(".preinit_array"), used)) void (*const g_refuse)(int, char**, char**) = &refuse;

}  // namespace
