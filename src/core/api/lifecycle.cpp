// See lifecycle.h.
#include "api/lifecycle.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "api/ownership.h"
#include "base/debug_log.h"
#include "base/syscalls.h"
#include "hot/thread_state.h"
#include "patch/text_poke.h"
#include "registry/registry.h"

// Defined by gcrt1.o alone: the program was linked with -pg, and gmon counts its calls.
extern "C" void __gmon_start__() __attribute__((weak));
// A -static program has it only if it uses it itself.
extern "C" decltype(dlsym) dlsym __attribute__((weak));
extern "C" decltype(dlopen) dlopen __attribute__((weak));
extern "C" decltype(dladdr) dladdr __attribute__((weak));
// mcount.S
extern "C" __attribute__((visibility("hidden"))) void* fprobe_next_fentry;
extern "C" __attribute__((visibility("hidden"))) void* fprobe_next_mcount;

namespace libfprobe::detail::lifecycle {
namespace {

// The process whose threads we know.  relaxed everywhere: changes in a fork child only, before it has other threads.
constinit std::atomic<pid_t> g_pid{0};

// In a child: only the calling thread is left.
void become_child() noexcept {
  g_pid.store(sys::getpid(), std::memory_order_relaxed);
  prepare_barriers();
  threads::reset_after_fork();
  registry::reset_in_child();
  debug_log::say("forked: probes are this process's own from now on");
}

void after_fork_in_child() noexcept {
  become_child();
  registry::unlock_after_fork();
}

unsigned long frames_from_environment() noexcept {
  const char* const text = secure_getenv("FPROBE_SHADOW_STACK_FRAMES");
  return text != nullptr ? strtoul(text, nullptr, 0) : 0;
}

// For programs whose functions have calling conventions of their own.
bool wants_everything_kept() noexcept {
  const char* const text = secure_getenv("FPROBE_SAVE_ALL");
  return text != nullptr && *text != '\0' && strcmp(text, "0") != 0;
}

// gmon needs the calls: sites without probes stay as they are, and what they reach calls gmon's own functions.
void share_with_gmon() noexcept {
  if (&__gmon_start__ == nullptr) return;
  registry::keep_sites_live();
  if (&dlsym == nullptr) return;
  fprobe_next_fentry = dlsym(RTLD_NEXT, "__fentry__");
  fprobe_next_mcount = dlsym(RTLD_NEXT, "mcount");
}

// A static libfprobe may be part of a plugin. Like the shared one it stays when its module is closed: threads return
// through its stubs, and tell it when they exit.
void stay_loaded() noexcept {
  if (&dlopen == nullptr || &dladdr == nullptr) return;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(fprobe_stubs), &self) == 0 || self.dli_fname == nullptr) return;
  if (dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)
    (void)dlerror();  // the program itself, which nobody closes: the message is none of its business
}

// Inside dlopen and dlclose: what enter() does for a call of the API.
void enter_from_loader() noexcept {
  if (g_pid.load(std::memory_order_relaxed) != sys::getpid()) become_child();
  if (current_state() == nullptr) (void)threads::attach_current();
}

// As early as a constructor may run, so that the program's own ones are probed and its sites cost nothing from then on.
__attribute__((constructor(101))) void load() {
  g_pid.store(sys::getpid(), std::memory_order_relaxed);
  debug_log::initialise(secure_getenv("FPROBE_DEBUG"));
  if (!ownership::claim()) return debug_log::say("another copy of libfprobe is at work: this one stays out");
  debug_log::say("libfprobe " FPROBE_VERSION " loaded");
  stay_loaded();
  prepare_barriers();
  threads::initialise(frames_from_environment());
  if (wants_everything_kept()) registry::keep_everything();
  registry::on_arming(&threads::prepare_all);
  registry::on_loader_change(&enter_from_loader);
  share_with_gmon();
  registry::prepare_loaded_modules();
}

}  // namespace

// At the first call and not at load: handlers run in the reverse order before a fork, so that ours waits for the registry
// before an allocator of the program takes its locks (an operation under way may need them to finish).
void install_fork_handlers() noexcept {
  static constinit std::atomic<bool> is_installed{false};
  if (is_installed.exchange(true, std::memory_order_relaxed))
    return;  // only who installs matters, nothing is published
  pthread_atfork(&registry::lock_for_fork, &registry::unlock_after_fork, &after_fork_in_child);
}

Result<void> enter() noexcept {
  if (!ownership::is_mine())
    return make_error(EBUSY, "another copy of libfprobe is at work in this process: link it once, as a shared library");
  if (g_pid.load(std::memory_order_relaxed) != sys::getpid()) become_child();
  install_fork_handlers();
  if (current_state() == nullptr) (void)threads::attach_current();  // without one, probes miss; the call itself works
  return {};
}

}  // namespace libfprobe::detail::lifecycle
