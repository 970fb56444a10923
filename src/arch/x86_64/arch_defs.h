// Constants and layouts of x86-64.  The other CPUs' arch_defs.h define the same names.
#ifndef FPROBE_SRC_ARCH_X86_64_ARCH_DEFS_H_
#define FPROBE_SRC_ARCH_X86_64_ARCH_DEFS_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace libfprobe::detail::arch {

inline constexpr std::size_t kMaxSiteLength = 16;  // bytes of a site that we remember
inline constexpr std::size_t kPageSize = 4096;
inline constexpr std::uintptr_t kThunkReach = (std::uintptr_t{1} << 31) - (1 << 20);  // jmp rel32, less a margin

// Thunk slabs: heads are placed by low byte, tails are packed.
inline constexpr std::size_t kThunkHeadSize = 16;  // [pop %r10] lea site(%rip),%r11; jmp entry
inline constexpr std::size_t kThunkTailSize = 8;   // [push %r10] jmp resume
inline constexpr std::size_t kEntryJumpSize = 16;  // jmp *word(%rip); word

// What the toolchain left at a site (bytes are drawn in patch.cpp).
enum class SiteForm : std::uint8_t {
  kCallRel32,          // e8 rel32                       5 bytes
  kCallRel32Prefixed,  // 67|90 e8 rel32                 6 bytes, byte 0 stays for ever
  kCallGot,            // ff 15 disp32                   6 bytes
  kNop5,               // 0f 1f 44 00 xx                 5 bytes (gcc -mnop-mcount, clang patchable)
  kNops,               // 90 × n, n >= 5                 gcc patchable: a thread can stand between them
  kNopRun,             // one long nop, 6 <= n <= 15     clang patchable (more nops may follow, they are left alone)
  kReturn,             // c3, then 4 bytes of padding    no site: the end of an empty function (loader_hook.cpp)
};

inline constexpr std::uintptr_t kLiveCallLengths[] = {5, 6};  // of sites that are calls

// Where a site's function keeps its return slot when the site is reached.
enum class FrameForm : std::uint8_t {
  kEntry,      // (%rsp), or 8(%rsp) in a nested function
  kPointer,    // 8(%rbp): the site lies behind a prologue (-pg)
  kRealigned,  // likewise, but 8(%rbp) is a copy: the caller's stack pointer was saved in a word below rbp
};

inline constexpr std::uint8_t kBreakpoint[] = {0xcc};  // int3, as debuggers write it
inline constexpr std::size_t kMaxPltHead = 11;  // bytes of a PLT slot in front of its jump, at most: endbr64; mov; bnd

// Where glibc keeps the kernel tid in its thread control block; used only when a check at load finds it there.
inline constexpr std::size_t kTcbTidOffset = 0x2d0;

// Return stubs: pages of 4096 bytes, a 16-byte header and 255 stubs of 16 bytes (return.S).
inline constexpr unsigned kStubPages = 32;
inline constexpr unsigned kStubsPerPage = 255;
inline constexpr unsigned kMaxThreads = kStubPages * kStubsPerPage;

// ELF: the machine, and the relocations that put a function's address into a word.
inline constexpr unsigned kElfMachine = EM_X86_64;
inline constexpr unsigned kRelocationIrelative = R_X86_64_IRELATIVE;
inline constexpr unsigned kRelocationGlobDat = R_X86_64_GLOB_DAT;
inline constexpr unsigned kRelocationJumpSlot = R_X86_64_JUMP_SLOT;
inline constexpr unsigned kRelocationAddress = R_X86_64_64;

}  // namespace libfprobe::detail::arch

#endif  // FPROBE_SRC_ARCH_X86_64_ARCH_DEFS_H_
