// Addresses inside the assembly files.
#include <cstdint>

#include "base/arch.h"
#include "base/attributes.h"
#include "regs_offsets.h"

extern "C" {
__attribute__((visibility("hidden"))) extern const char fprobe_entry_code[];
__attribute__((visibility("hidden"))) extern const char fprobe_entry_behind_prologue[];
__attribute__((visibility("hidden"))) extern const char fprobe_entry_keeping_all[];
__attribute__((visibility("hidden"))) extern const char fprobe_entry_behind_prologue_keeping_all[];
__attribute__((visibility("hidden"))) extern unsigned char fprobe_exits_keep_all;  // return.S
__attribute__((visibility("hidden"))) extern const char fprobe_unentered[];
__attribute__((visibility("hidden"))) extern const char fprobe_unentered_behind_prologue[];
__attribute__((visibility("hidden"))) extern const char fprobe_unentered_realigned[];
__attribute__((visibility("hidden"))) extern const char fprobe_landing[];
}

namespace libfprobe::detail {

namespace arch {
namespace {

constexpr std::uintptr_t kStubSize = 16;
constexpr std::uintptr_t kPlantingCallSize = 3;  // call *%r11

std::uintptr_t address_of(const char* label) {
  return reinterpret_cast<std::uintptr_t>(label);
}

}  // namespace

std::uintptr_t entry_code(EntryDoor door) noexcept {
  if (door.behind_prologue)
    return address_of(door.keeps_all ? fprobe_entry_behind_prologue_keeping_all : fprobe_entry_behind_prologue);
  return address_of(door.keeps_all ? fprobe_entry_keeping_all : fprobe_entry_code);
}

// relaxed: the barriers of arming come between this and the first exit that needs it.
void let_exits_keep_all() noexcept {
  __atomic_store_n(&fprobe_exits_keep_all, 1, __ATOMIC_RELAXED);
}

// A frame whose registers may have changed, only the function's own tables know the way out of.  An unwinder looks up the
// byte in front of a return address.
void hide_function(const SiteShape& shape, std::uintptr_t& resume) noexcept {
  constexpr std::uint8_t kMostPushes = 6;  // the callee-saved registers but rbp, and r10: what gcc's prologue can push
  constexpr std::uintptr_t kEntrySize = 2;
  if (!shape.is_behind_prologue()) {
    resume = address_of(fprobe_unentered);
  } else if (shape.arguments_moved) {
    return;
  } else if (shape.frame == FrameForm::kPointer) {
    resume = address_of(fprobe_unentered_behind_prologue);
  } else if (shape.frame_word <= kMostPushes) {
    resume = address_of(fprobe_unentered_realigned) + kEntrySize * (shape.frame_word - 1u) + 1;
  }
}

// rdsspq leaves its operand alone where there is no shadow stack.
bool may_overwrite_returns() noexcept {
  unsigned long shadow_stack_pointer = 0;
  asm volatile("rdsspq %0" : "+r"(shadow_stack_pointer));
  return shadow_stack_pointer == 0;
}

std::uintptr_t landing_code() noexcept {
  return address_of(fprobe_landing);
}

std::uintptr_t stub_address(unsigned index) noexcept {
  return address_of(fprobe_stubs) + index / kStubsPerPage * kPageSize + (index % kStubsPerPage + 1) * kStubSize;
}

std::uintptr_t stub_return_address(unsigned index) noexcept {
  return stub_address(index) + kPlantingCallSize;
}

unsigned stub_index(std::uintptr_t pc) noexcept {
  const std::uintptr_t offset = pc - address_of(fprobe_stubs);
  return static_cast<unsigned>(offset / kPageSize * kStubsPerPage + offset % kPageSize / kStubSize - 1);
}

std::span<const std::uint8_t> signal_trampoline_code() noexcept {
  static constexpr std::uint8_t kCode[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00,  // mov $SYS_rt_sigreturn, %rax
                                           0x0f, 0x05};                               // syscall
  return kCode;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED std::uintptr_t thread_pointer() noexcept {
  std::uintptr_t pointer;
  asm("movq %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

}  // namespace arch
}  // namespace libfprobe::detail
