// See poke_errors.h.
#include "patch/poke_errors.h"

#include <errno.h>

namespace libfprobe::detail::poke_errors {
namespace {

unsigned long offset_in_module(const TextEdit& edit) noexcept {
  return edit.ip - (edit.image != nullptr ? edit.image->bias : 0);
}

}  // namespace

const char* module_of(const TextEdit& edit) noexcept {
  return edit.image != nullptr ? edit.image->name.c_str() : "(unknown module)";
}

Error foreign(const TextEdit& edit) noexcept {
  return make_error(EBUSY,
                    "the code at %s+0x%lx was changed by somebody else (a debugger's breakpoint, a kernel uprobe?): "
                    "remove it, then register again",
                    module_of(edit), offset_in_module(edit));
}

Error unmapped(const TextEdit& edit) noexcept {
  return make_error(EACCES,
                    "the code at %s+0x%lx is not readable or not mapped any more: register after it was loaded, and "
                    "leave its pages readable",
                    module_of(edit), offset_in_module(edit));
}

Error unreadable_map(int code) noexcept {
  return make_error(EACCES,
                    "/proc/self/maps cannot be read (errno %d), so the protection of code pages is unknown: mount "
                    "/proc, and let the program read it",
                    code);
}

Error no_barriers() noexcept {
  return make_error(EPERM,
                    "running threads cannot be told that code changes: the kernel refuses membarrier and "
                    "sched_setaffinity (a seccomp filter?); allow one of them, or register probes before the filter is "
                    "installed");
}

Error no_safe_way(const TextEdit& edit) noexcept {
  return make_error(EACCES,
                    "the long nop at %s+0x%lx cannot be replaced while other threads run: it would not change at once "
                    "for them; load the module or register the probe before the first thread is started, or compile "
                    "with -fpatchable-function-entry=5",
                    module_of(edit), offset_in_module(edit));
}

Error not_bytewise(const TextEdit& edit) noexcept {
  return make_error(EACCES,
                    "the long nop at %s+0x%lx cannot be replaced while other threads run: a seccomp filter, SELinux or "
                    "another policy forbids writable code, and through /proc/self/mem bytes arrive one by one; allow "
                    "it for this program, or compile with -fpatchable-function-entry=5",
                    module_of(edit), offset_in_module(edit));
}

Error not_written(const TextEdit& edit, int refusal, int code) noexcept {
  return make_error(refusal,
                    "the code at %s+0x%lx can be written neither directly (mprotect was refused) nor through "
                    "/proc/self/mem (errno %d); a seccomp filter, SELinux (execmod, execmem) or another policy "
                    "forbids it, allow it for this program",
                    module_of(edit), offset_in_module(edit), code);
}

Error not_left(const TextEdit& edit, pid_t suspect) noexcept {
  if (suspect == 0) {
    return make_error(EACCES,
                      "the single nops at %s+0x%lx cannot be replaced: a thread may stand between them, and "
                      "/proc/self/task does not list the threads; register the probe before the first thread is "
                      "started, or compile with -pg -mfentry",
                      module_of(edit), offset_in_module(edit));
  }
  return make_error(EACCES,
                    "the single nops at %s+0x%lx cannot be replaced now: thread %d may stand between them (it neither "
                    "ran nor was seen to wait elsewhere); let it run and try again, or register the probe before it is "
                    "started, or compile with -pg -mfentry",
                    module_of(edit), offset_in_module(edit), static_cast<int>(suspect));
}

}  // namespace libfprobe::detail::poke_errors
