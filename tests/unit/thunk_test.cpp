// The bytes of thunks on x86-64, and thunks executed.
#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
namespace arch = libfprobe::detail::arch;

TEST(ThunkHead, NamesTheSiteAndJumpsToTheEntryCode) {
  std::uint8_t head[arch::kThunkHeadSize];
  arch::emit_thunk_head(head, 0x1000, 0x2007, false, false, 0x100c + 0x11223344);
  EXPECT_EQ(hex(head, sizeof head), "4c 8d 1d 00 10 00 00 e9 44 33 22 11 cc cc cc cc");
}
TEST(ThunkHead, OfANestedFunctionTakesTheStaticChainFromTheStackFirst) {
  std::uint8_t head[arch::kThunkHeadSize];
  arch::emit_thunk_head(head, 0x1000, 0x2009, true, false, 0x100e - 0x10);
  EXPECT_EQ(hex(head, sizeof head), "41 5a 4c 8d 1d 00 10 00 00 e9 f0 ff ff ff cc cc");
}
TEST(ThunkTail, JumpsBehindTheSite) {
  std::uint8_t tail[arch::kThunkTailSize];
  arch::emit_thunk_tail(tail, 0x1000, 0x1005 + 0x7f000000, false);
  EXPECT_EQ(hex(tail, sizeof tail), "e9 00 00 00 7f cc cc cc");
}
TEST(ThunkTail, OfANestedFunctionPutsTheStaticChainBack) {
  std::uint8_t tail[arch::kThunkTailSize];
  arch::emit_thunk_tail(tail, 0x1000, 0x1007, true);
  EXPECT_EQ(hex(tail, sizeof tail), "41 52 e9 00 00 00 00 cc");
}
TEST(EntryJump, GoesThroughAWordThatReachesEverywhere) {
  std::uint8_t jump[arch::kEntryJumpSize];
  arch::emit_entry_jump(jump, 0x1122334455667788);
  EXPECT_EQ(hex(jump, sizeof jump), "ff 25 02 00 00 00 cc cc 88 77 66 55 44 33 22 11");
}

// The entry code of these tests: counts, and goes to the tail. r11 → {tail, hits, where the stack pointer was}.
struct SiteData {
  std::uintptr_t tail = 0;
  unsigned long hits = 0;
  std::uintptr_t stack_pointer = 0;
};
extern "C" void test_entry();
asm(R"(
  .pushsection .text
  .globl test_entry
  .hidden test_entry
  .type test_entry, @function
test_entry:
  lock incq 8(%r11)
  movq %rsp, 16(%r11)
  jmp *(%r11)
  .size test_entry, .-test_entry
  .popsection
)");

class Thunk : public ::testing::Test {
 protected:
  static constexpr std::size_t kFunction = 0x1100, kHead = 0x2000, kTail = 0x2100, kJump = 0x2200, kSite = 0x40;

  // A function, armed with a real thunk whose head goes through a slab's entry jump.
  void arm(const Bytes& before_site, const Bytes& behind_site, bool nested) {
    const std::size_t site = kFunction + before_site.size();
    area_.put(kFunction, before_site.data(), before_site.size());
    const std::uint8_t jump = 0xe9;
    area_.put(site, &jump, 1);
    area_.put_distance(site + 1, site + 5, kHead);
    area_.put(site + 5, behind_site.data(), behind_site.size());
    arch::emit_thunk_head(area_.at(kHead), area_.address(kHead), area_.address(kSite), nested, false,
                          area_.address(kJump));
    arch::emit_thunk_tail(area_.at(kTail), area_.address(kTail), area_.address(site + 5), nested);
    arch::emit_entry_jump(area_.at(kJump), reinterpret_cast<std::uintptr_t>(&test_entry));
    data().tail = area_.address(kTail);
  }
  SiteData& data() { return *reinterpret_cast<SiteData*>(area_.at(kSite)); }
  CodeArea area_;
};

TEST_F(Thunk, RunsTheFunctionBehindItsSite) {
  arm({}, {0x48, 0x8d, 0x47, 0x01, 0xc3}, false);  // lea 1(%rdi),%rax; ret
  EXPECT_EQ(reinterpret_cast<long (*)(long)>(area_.address(kFunction))(41), 42);
  EXPECT_EQ(data().hits, 1U);
}

TEST_F(Thunk, OfANestedFunctionShowsTheEntryCodeTheReturnSlotAndKeepsTheChain) {
  // What gcc emits: push %r10; <site>; pop %r10; then this body: mov %r10,%rax; ret
  arm({0x41, 0x52}, {0x41, 0x5a, 0x4c, 0x89, 0xd0, 0xc3}, true);
  std::uintptr_t chain = 0, stack_pointer = 0;
  asm volatile(
      "sub $128, %%rsp\n\t"  // the red zone
      "mov $0x1234567, %%r10d\n\t"
      "lea -8(%%rsp), %1\n\t"
      "call *%2\n\t"
      "add $128, %%rsp"
      : "=&a"(chain), "=&b"(stack_pointer)
      : "r"(area_.address(kFunction))
      : "r10", "r11", "memory", "cc");
  EXPECT_EQ(chain, 0x1234567U);
  EXPECT_EQ(data().hits, 1U);
  EXPECT_EQ(data().stack_pointer, stack_pointer);  // the return slot, as in any other function
}

}  // namespace
