// Reading machine code: bounds-checked bytes and the opcodes that site recognition names.
#ifndef FPROBE_SRC_ARCH_X86_64_BYTES_H_
#define FPROBE_SRC_ARCH_X86_64_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace libfprobe::detail::arch {

using Code = std::span<const std::byte>;

inline constexpr std::uint8_t kCallRel32Opcode = 0xe8;    // call rel32
inline constexpr std::uint8_t kGroup5Opcode = 0xff;       // with ModRM: call, jmp through memory
inline constexpr std::uint8_t kCallRipModrm = 0x15;       // ff 15 disp32   call *disp(%rip)
inline constexpr std::uint8_t kJumpRipModrm = 0x25;       // ff 25 disp32   jmp *disp(%rip)
inline constexpr std::uint8_t kAddressSizePrefix = 0x67;  // bfd, gold and lld put it in front of a relaxed call
inline constexpr std::uint8_t kNop = 0x90;                // mold puts it there
inline constexpr std::uint8_t kBndPrefix = 0xf2;
inline constexpr std::uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
inline constexpr std::uint8_t kPushR10[] = {0x41, 0x52};  // push %r10: a nested function's static chain
inline constexpr std::uint8_t kPopR10[] = {0x41, 0x5a};   // pop %r10

// The byte at `offset`; 0, which starts nothing that is looked for, beyond the end.
[[nodiscard]] inline std::uint8_t byte_at(Code code, std::size_t offset) noexcept {
  return offset < code.size() ? static_cast<std::uint8_t>(code[offset]) : std::uint8_t{0};
}

template <std::size_t N>
[[nodiscard]] bool has_bytes(Code code, std::size_t offset, const std::uint8_t (&bytes)[N]) noexcept {
  return offset <= code.size() && code.size() - offset >= N && std::memcmp(code.data() + offset, bytes, N) == 0;
}

// Little-endian value at `offset`, which must lie within `code`.
template <class T>
[[nodiscard]] T load(Code code, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, code.data() + offset, sizeof value);
  return value;
}

// Where a rel8 or rel32 at `offset` of `code` (address ip) leads, seen from the instruction's end behind it.
template <class T>
[[nodiscard]] std::uintptr_t relative_target(Code code, std::uintptr_t ip, std::size_t offset) noexcept {
  return ip + offset + sizeof(T) + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(load<T>(code, offset)));
}

}  // namespace libfprobe::detail::arch

#endif  // FPROBE_SRC_ARCH_X86_64_BYTES_H_
