// Both back ends of arch::decode, side by side: on instructions that site scanning asks about, and on whole libraries.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#define FPROBE_DECODE_NAME decode_by_zydis
#include "../../src/arch/x86_64/decode_zydis.cpp"
#undef FPROBE_DECODE_NAME
#define FPROBE_DECODE_NAME decode_by_capstone
#include "../../src/arch/x86_64/decode_capstone.cpp"
#undef FPROBE_DECODE_NAME
#include "image/elf_image.h"
#include "image/image_list.h"

namespace libfprobe::detail::arch {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Decode = bool (*)(std::span<const std::byte>, std::uintptr_t, Insn&) noexcept;
constexpr std::uintptr_t kIp = 0x401000;

class EachDecoder : public testing::TestWithParam<Decode> {
 protected:
  static Insn decoded(const Bytes& bytes) {
    Insn insn;
    EXPECT_TRUE(GetParam()(std::as_bytes(std::span(bytes)), kIp, insn));
    return insn;
  }
  static void expect(const Bytes& bytes, InsnKind kind, std::uintptr_t target = 0) {
    const Insn insn = decoded(bytes);
    EXPECT_EQ(insn.length, bytes.size());
    EXPECT_EQ(insn.kind, kind);
    EXPECT_EQ(insn.target, target);
  }
};

TEST_P(EachDecoder, TellsDirectCalls) {
  expect({0xe8, 0x10, 0, 0, 0}, InsnKind::kCallDirect, kIp + 0x15);
  expect({0x67, 0xe8, 0x10, 0, 0, 0}, InsnKind::kCallDirect, kIp + 0x16);
  expect({0xe8, 0xfb, 0xff, 0xff, 0xff}, InsnKind::kCallDirect, kIp);
  expect({0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0}, InsnKind::kCallDirect, kIp + 8);  // as thread-local accesses have it
}

TEST_P(EachDecoder, TellsCallsAndJumpsThroughMemory) {
  expect({0xff, 0x15, 0x10, 0, 0, 0}, InsnKind::kCallIndirectMemory, kIp + 0x16);
  expect({0xff, 0x25, 0x10, 0, 0, 0}, InsnKind::kJumpIndirectMemory, kIp + 0x16);
  expect({0xf2, 0xff, 0x25, 0x10, 0, 0, 0}, InsnKind::kJumpIndirectMemory, kIp + 0x17);
  expect({0xff, 0x14, 0x01}, InsnKind::kCallIndirectMemory);    // call *(%rcx,%rax): no address known
  expect({0xff, 0xd0}, InsnKind::kOther);                       // call *%rax
  expect({0xff, 0xe0}, InsnKind::kOther);                       // jmp *%rax
  expect({0xff, 0x1d, 0x10, 0, 0, 0}, InsnKind::kOther);        // lcall *...
  expect({0x48, 0xff, 0x05, 0x10, 0, 0, 0}, InsnKind::kOther);  // inc
}

TEST_P(EachDecoder, TellsJumpsOfEveryForm) {
  expect({0xeb, 0x10}, InsnKind::kJumpDirect, kIp + 0x12);
  expect({0xe9, 0x10, 0, 0, 0}, InsnKind::kJumpDirect, kIp + 0x15);
  expect({0x74, 0xfe}, InsnKind::kJumpDirect, kIp);
  expect({0x0f, 0x85, 0x10, 0, 0, 0}, InsnKind::kJumpDirect, kIp + 0x16);
  expect({0xe0, 0x10}, InsnKind::kJumpDirect, kIp + 0x12);
  expect({0xe1, 0x10}, InsnKind::kJumpDirect, kIp + 0x12);
  expect({0xe2, 0x10}, InsnKind::kJumpDirect, kIp + 0x12);
  expect({0xe3, 0x10}, InsnKind::kJumpDirect, kIp + 0x12);
}

TEST_P(EachDecoder, TellsNopsAndPads) {
  expect({0x90}, InsnKind::kNop);
  expect({0x66, 0x90}, InsnKind::kNop);
  expect({0x66, 0x66, 0x66, 0x66, 0x90}, InsnKind::kNop);
  expect({0x0f, 0x1f, 0x00}, InsnKind::kNop);
  expect({0x0f, 0x1f, 0x44, 0x00, 0x08}, InsnKind::kNop);
  expect({0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0}, InsnKind::kNop);
  expect({0xf3, 0x0f, 0x1e, 0xfa}, InsnKind::kPad);
  expect({0xf3, 0x0f, 0x1e, 0xfb}, InsnKind::kOther);  // endbr32
  expect({0xf3, 0x90}, InsnKind::kOther);              // pause
  expect({0x87, 0xc0}, InsnKind::kOther);              // xchg %eax,%eax clears the upper half
}

TEST_P(EachDecoder, KnowsTheLengthOfVectorInstructions) {
  expect({0xc5, 0xfb, 0x93, 0xc0}, InsnKind::kOther);                    // kmovd %k0,%eax
  expect({0xc4, 0xe1, 0xfb, 0x93, 0xc0}, InsnKind::kOther);              // kmovq %k0,%rax
  expect({0x62, 0xf3, 0x7d, 0x20, 0x3f, 0xc1, 0x00}, InsnKind::kOther);  // vpcmpeqb ymm, with an immediate
  expect({0x62, 0xf1, 0xfe, 0x28, 0x6f, 0x06}, InsnKind::kOther);        // vmovdqu64 (%rsi),%ymm0
}

TEST_P(EachDecoder, RefusesCutOffAndInvalidCode) {
  Insn insn;
  const Bytes call = {0xff, 0x15, 0x10, 0, 0, 0};
  for (std::size_t size = 0; size < call.size(); ++size) {
    EXPECT_FALSE(GetParam()(std::as_bytes(std::span(call)).first(size), kIp, insn)) << size;
  }
  const Bytes vector = {0x62, 0xf3, 0x7d, 0x20, 0x3f, 0xc1, 0x00};
  for (std::size_t size = 0; size < vector.size(); ++size) {
    EXPECT_FALSE(GetParam()(std::as_bytes(std::span(vector)).first(size), kIp, insn)) << size;
  }
  const Bytes invalid = {0x06, 0x90};  // push %es, in 32-bit code only
  EXPECT_FALSE(GetParam()(std::as_bytes(std::span(invalid)), kIp, insn));
}

INSTANTIATE_TEST_SUITE_P(Decode, EachDecoder, testing::Values(&decode_by_zydis, &decode_by_capstone),
                         [](const auto& each) { return each.index == 0 ? "Zydis" : "Capstone"; });

struct Disagreements {
  long decoded = 0;
  std::map<std::string, long> kinds;  // by leading bytes
  long count = 0;
};

std::string leading_bytes(std::span<const std::byte> code) {
  std::string text;
  char digits[4];
  for (std::size_t i = 0; i < 4 && i < code.size(); ++i) {
    std::snprintf(digits, sizeof digits, "%02x ", static_cast<unsigned>(code[i]));
    text += digits;
  }
  return text;
}

void compare(std::span<const std::byte> code, std::uintptr_t ip, Disagreements& found) {
  for (std::size_t at = 0; at < code.size();) {
    Insn zydis, capstone;
    const bool is_zydis = decode_by_zydis(code.subspan(at), ip + at, zydis);
    const bool is_capstone = decode_by_capstone(code.subspan(at), ip + at, capstone);
    const bool agree =
        is_zydis == is_capstone && (!is_zydis || (zydis.length == capstone.length && zydis.kind == capstone.kind &&
                                                  zydis.target == capstone.target));
    if (!agree) {
      ++found.count;
      ++found.kinds[leading_bytes(code.subspan(at))];
    }
    ++found.decoded;
    at += is_zydis ? zydis.length : 1;
  }
}

// What Capstone 4 lacks and the C library or libgcc has; nothing else may differ.
bool is_unknown_to_capstone(const std::string& bytes) {
  for (const char* known : {"0f 01 ee", "0f 01 ef",                          // rdpkru, wrpkru
                            "f3 48 0f 1e", "f3 49 0f 1e", "f3 48 0f ae"}) {  // rdsspq, incsspq
    if (bytes.starts_with(known)) return true;
  }
  return false;
}

// Every library this test has loaded, from its file: the C and C++ libraries, the decoders, this program itself.
TEST(Decoders, AgreeOnWholeLibraries) {
  const Result<ImageSnapshot> snapshot = snapshot_images();
  ASSERT_TRUE(snapshot.ok());
  Disagreements found;
  int files = 0;
  for (const LoadedImage& image : snapshot.value().images) {
    const Result<ElfImage> file = ElfImage::open(image.path.c_str());
    if (!file.ok()) continue;
    const ElfSection* text = file.value().section(".text");
    if (text == nullptr) continue;
    ++files;
    compare(text->bytes, text->address, found);
  }
  EXPECT_GE(files, 5);
  EXPECT_GT(found.decoded, 500'000);
  for (const auto& [bytes, count] : found.kinds) EXPECT_TRUE(is_unknown_to_capstone(bytes)) << bytes << "× " << count;
}

}  // namespace
}  // namespace libfprobe::detail::arch
