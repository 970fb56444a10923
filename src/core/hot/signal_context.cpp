// See signal_context.h.
//
// The kernel lets a signal handler return into a trampoline of libc.  A look at the stack words for that address is
// cheap and finds most hits innocent; a stale word can deceive it, so a find is confirmed by unwinding (libgcc looks
// frame information up without a lock from glibc 2.35 on).
#include "hot/signal_context.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <unwind.h>

#include <cstring>

#include "base/arch.h"

namespace libfprobe::detail::signal_context {
namespace {

constexpr unsigned kMaxTrampolines = 8;
constinit std::uintptr_t g_trampolines[kMaxTrampolines];  // written once, at load
constinit unsigned g_trampoline_count = 0;

FPROBE_UNPROBED FPROBE_UNSANITIZED bool is_trampoline(std::uintptr_t address) noexcept {
  for (unsigned i = 0; i < g_trampoline_count; ++i) {
    if (g_trampolines[i] == address) return true;
  }
  return false;
}

void collect_from(std::uintptr_t start, std::size_t size) noexcept {
  const std::span<const std::uint8_t> code = arch::signal_trampoline_code();
  const auto* from = reinterpret_cast<const std::uint8_t*>(start);
  const std::uint8_t* const end = from + size;
  while (g_trampoline_count < kMaxTrampolines) {
    const auto* found =
        static_cast<const std::uint8_t*>(memmem(from, static_cast<std::size_t>(end - from), code.data(), code.size()));
    if (found == nullptr) return;
    g_trampolines[g_trampoline_count++] = reinterpret_cast<std::uintptr_t>(found);
    from = found + code.size();
  }
}

bool holds(const dl_phdr_info& info, std::uintptr_t address) noexcept {
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type == PT_LOAD && address - (info.dlpi_addr + header.p_vaddr) < header.p_memsz) return true;
  }
  return false;
}

// libc's image (the program's own when it is linked statically): the one with a function that nobody interposes.
int collect_from_image(dl_phdr_info* info, std::size_t, void*) noexcept {
  if (!holds(*info, reinterpret_cast<std::uintptr_t>(&gnu_get_libc_version))) return 0;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const bool is_readable_text = header.p_type == PT_LOAD && (header.p_flags & (PF_X | PF_R)) == (PF_X | PF_R);
    if (is_readable_text) collect_from(info->dlpi_addr + header.p_vaddr, header.p_filesz);
  }
  return 0;
}

struct Walk {
  std::uintptr_t guard_sp;
  unsigned frames_left;
  bool found;
};

struct InterruptedWalk {
  std::uintptr_t guard_sp;
  unsigned frames_left;
  bool is_next_interrupted, found;
};
constexpr unsigned kMaxFrames = 1000;

// _Unwind_GetCFA in a trace callback is the stack pointer of the frame: it meets guard_sp at the function whose hit
// opened the guard.
FPROBE_UNPROBED FPROBE_UNSANITIZED _Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) noexcept {
  Walk& walk = *static_cast<Walk*>(argument);
  if (is_trampoline(_Unwind_GetIP(context))) {
    walk.found = true;
    return _URC_NORMAL_STOP;
  }
  const bool at_guard = _Unwind_GetCFA(context) == walk.guard_sp;
  return at_guard || --walk.frames_left == 0 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// The frame that follows a trampoline's is the interrupted one, with its stack pointer.
FPROBE_UNPROBED FPROBE_UNSANITIZED _Unwind_Reason_Code visit_interrupted(_Unwind_Context* context,
                                                                         void* argument) noexcept {
  InterruptedWalk& walk = *static_cast<InterruptedWalk*>(argument);
  if (walk.is_next_interrupted && _Unwind_GetCFA(context) <= walk.guard_sp) {
    walk.found = true;
    return _URC_NORMAL_STOP;
  }
  walk.is_next_interrupted = is_trampoline(_Unwind_GetIP(context));
  return --walk.frames_left == 0 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

}  // namespace

void initialise() noexcept {
  dl_iterate_phdr(collect_from_image, nullptr);
}

bool is_between(std::uintptr_t sp, std::uintptr_t guard_sp, bool same_stack) noexcept {
  if (same_stack) {
    bool seen = false;
    for (std::uintptr_t word = sp; word < guard_sp && !seen; word += sizeof word) {
      seen = is_trampoline(*reinterpret_cast<const std::uintptr_t*>(word));
    }
    if (!seen) return false;
  }
  Walk walk{guard_sp, kMaxFrames, false};
  _Unwind_Backtrace(visit, &walk);
  return walk.found;
}

bool has_interrupted_below(std::uintptr_t guard_sp) noexcept {
  InterruptedWalk walk{guard_sp, kMaxFrames, false, false};
  _Unwind_Backtrace(visit_interrupted, &walk);
  return walk.found;
}

}  // namespace libfprobe::detail::signal_context
