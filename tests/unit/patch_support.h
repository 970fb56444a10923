// Small functions made of bytes, with a site of every form: what the tests of the patch layer change and call.
//
//   area   page 0   0x000 word "__fentry__" (what ff 15 goes through)   0x008 calls counted   0x010 hits counted
//                   0x100 the counting __fentry__: lock incq calls; ret
//          page 1…  functions: site, then rdi + 2*rsi + rdx + rcx + r8 + r9 in rax
//   A hand-made thunk counts a hit and jumps behind the site.
#ifndef FPROBE_TESTS_UNIT_PATCH_SUPPORT_H_
#define FPROBE_TESTS_UNIT_PATCH_SUPPORT_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/arch.h"

namespace fprobe_test {

using libfprobe::detail::arch::SiteForm;
using libfprobe::detail::arch::SiteShape;
using Bytes = std::vector<std::uint8_t>;

inline std::string hex(const std::uint8_t* bytes, std::size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

// The rights of every mapped page of [start, end), from /proc/self/maps: "r-xp".  Whether neighbours of equal rights
// are one mapping or two is the kernel's affair.
inline std::vector<std::string> page_rights(std::uintptr_t start, std::uintptr_t end) {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> rights;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t low = 0, high = 0;
    char flags[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &low, &high, flags) != 3) continue;
    for (std::uintptr_t page = std::max(low, start); page < std::min(high, end); page += 4096) rights.push_back(flags);
  }
  return rights;
}

// What compilers leave for a form; operands of calls are filled in by CodeArea::original.
struct Flavour {
  const char* name;
  SiteShape shape;
  Bytes bytes;
};

inline Flavour make_flavour(const char* name, SiteForm form, std::uint8_t patch_offset, Bytes bytes) {
  SiteShape shape;
  shape.form = form;
  shape.length = static_cast<std::uint8_t>(bytes.size());
  shape.patch_offset = patch_offset;
  return {name, shape, std::move(bytes)};
}

inline const std::vector<Flavour>& flavours() {
  static const std::vector<Flavour> kAll = {
      make_flavour("call", SiteForm::kCallRel32, 0, {0xe8, 0, 0, 0, 0}),
      make_flavour("addr32 call", SiteForm::kCallRel32Prefixed, 1, {0x67, 0xe8, 0, 0, 0, 0}),
      make_flavour("nop; call", SiteForm::kCallRel32Prefixed, 1, {0x90, 0xe8, 0, 0, 0, 0}),
      make_flavour("call through GOT", SiteForm::kCallGot, 0, {0xff, 0x15, 0, 0, 0, 0}),
      make_flavour("gcc nop5", SiteForm::kNop5, 0, {0x0f, 0x1f, 0x44, 0x00, 0x00}),
      make_flavour("clang nop5", SiteForm::kNop5, 0, {0x0f, 0x1f, 0x44, 0x00, 0x08}),
      make_flavour("gcc nops, 5", SiteForm::kNops, 0, Bytes(5, 0x90)),
      make_flavour("gcc nops, 9", SiteForm::kNops, 0, Bytes(9, 0x90)),
      make_flavour("clang nops, 6", SiteForm::kNopRun, 0, {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x08}),
      make_flavour("clang nops, 8", SiteForm::kNopRun, 0, {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00}),
      make_flavour("clang nops, 10+6", SiteForm::kNopRun, 0,
                   {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x08}),
  };
  return kAll;
}

class CodeArea {
 public:
  static constexpr std::size_t kFirstFunction = 4096;

  explicit CodeArea(std::size_t size = std::size_t{64} << 10, int protection = PROT_READ | PROT_WRITE | PROT_EXEC)
      : size_(size) {
    base_ = static_cast<std::uint8_t*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    const std::uint8_t count_call[] = {0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xc3};  // lock incq calls(%rip); ret
    put(kFentry, count_call, sizeof count_call);
    put_distance(kFentry + 4, kFentry + 8, kCalls);
    const std::uintptr_t fentry = address(kFentry);
    put(0, &fentry, sizeof fentry);
    protect_functions(protection);
  }
  ~CodeArea() { ::munmap(base_, size_); }
  CodeArea(const CodeArea&) = delete;
  CodeArea& operator=(const CodeArea&) = delete;

  [[nodiscard]] std::uint8_t* at(std::size_t offset) const { return base_ + offset; }
  [[nodiscard]] std::uintptr_t address(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(base_) + offset;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] unsigned long calls() const { return __atomic_load_n(counter(kCalls), __ATOMIC_RELAXED); }
  [[nodiscard]] unsigned long hits() const { return __atomic_load_n(counter(kHits), __ATOMIC_RELAXED); }

  void protect_functions(int protection) {
    if (::mprotect(base_ + kFirstFunction, size_ - kFirstFunction, protection) != 0) std::abort();
  }

  void put(std::size_t offset, const void* bytes, std::size_t count) {
    if (count > 0) std::memcpy(base_ + offset, bytes, count);
  }
  // rel32 at `where` from the end of its instruction to `target`.
  void put_distance(std::size_t where, std::size_t end, std::size_t target) {
    const auto distance = static_cast<std::int32_t>(target) - static_cast<std::int32_t>(end);
    put(where, &distance, sizeof distance);
  }

  // The bytes of a site at `offset` as a linker leaves them.
  [[nodiscard]] Bytes original(const Flavour& flavour, std::size_t offset) const {
    Bytes bytes = flavour.bytes;
    std::size_t operand = 0, target = kFentry;
    if (flavour.shape.form == SiteForm::kCallRel32) operand = 1;
    if (flavour.shape.form == SiteForm::kCallRel32Prefixed || flavour.shape.form == SiteForm::kCallGot) operand = 2;
    if (flavour.shape.form == SiteForm::kCallGot) target = 0;
    if (operand == 0) return bytes;
    const auto distance = static_cast<std::int32_t>(target) - static_cast<std::int32_t>(offset + flavour.shape.length);
    std::memcpy(bytes.data() + operand, &distance, sizeof distance);
    return bytes;
  }

  // A function whose site lies at `offset`; at most kMaxFunction bytes.
  static constexpr std::size_t kMaxFunction = 48;
  void put_function(const Flavour& flavour, std::size_t offset) {
    const Bytes site = original(flavour, offset);
    put(offset, site.data(), site.size());
    const std::uint8_t body[] = {0x48, 0x8d, 0x04, 0x77,  // lea (%rdi,%rsi,2),%rax
                                 0x48, 0x01, 0xd0,        // add %rdx,%rax
                                 0x48, 0x01, 0xc8,        // add %rcx,%rax
                                 0x4c, 0x01, 0xc0,        // add %r8,%rax
                                 0x4c, 0x01, 0xc8,        // add %r9,%rax
                                 0xc3};
    put(offset + site.size(), body, sizeof body);
  }
  // lock incq hits(%rip); jmp resume
  static constexpr std::size_t kThunkSize = 13;
  void put_thunk(std::size_t offset, std::size_t resume) {
    const std::uint8_t thunk[] = {0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0};
    put(offset, thunk, sizeof thunk);
    put_distance(offset + 4, offset + 8, kHits);
    put_distance(offset + 9, offset + 13, resume);
  }

  // Calls the function at `offset`; every argument register must have survived.
  [[nodiscard]] bool runs(std::size_t offset) const {
    using Function = long (*)(long, long, long, long, long, long);
    return reinterpret_cast<Function>(address(offset))(1, 20, 300, 4000, 50000, 600000) == 654341;
  }

 private:
  static constexpr std::size_t kCalls = 8, kHits = 16, kFentry = 0x100;
  [[nodiscard]] const unsigned long* counter(std::size_t offset) const {
    return reinterpret_cast<const unsigned long*>(base_ + offset);
  }
  std::uint8_t* base_;
  std::size_t size_;
};

}  // namespace fprobe_test

#endif  // FPROBE_TESTS_UNIT_PATCH_SUPPORT_H_
