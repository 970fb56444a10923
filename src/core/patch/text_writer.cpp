// See text_writer.h.
#include "patch/text_writer.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>

#include "base/arch.h"
#include "base/attributes.h"
#include "base/syscalls.h"

namespace libfprobe::detail {
namespace {

bool needs_change(const PageRun& run) noexcept {
  return (run.protection & PROT_WRITE) == 0;
}

void close_runs(std::span<const PageRun> runs) noexcept {
  for (const PageRun& run : runs) {
    if (run.is_open && needs_change(run)) take_back_write(run.start, run.end, run.protection);
  }
}

Error refusal(const PageRun& run, int code) noexcept {
  const char* module = run.module != nullptr ? run.module : "(unknown module)";
  if (code == ENOMEM) {
    return make_error(
        ENOMEM,
        "cannot make the code of %s at 0x%lx writable: the kernel has no memory for it or the process has "
        "too many mappings (vm.max_map_count)",
        module, static_cast<unsigned long>(run.start));
  }
  return make_error(
      code == EPERM ? EPERM : EACCES,
      "cannot make the code of %s at 0x%lx writable: mprotect gave errno %d, and /proc/self/mem cannot be "
      "written either; a seccomp filter, SELinux (execmod, execmem) or another policy forbids it, allow "
      "it for this program",
      module, static_cast<unsigned long>(run.start), code);
}

template <class Word>
FPROBE_UNSANITIZED void store_whole(std::uintptr_t address, const std::uint8_t* bytes) noexcept {
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = Word;
  Word value;
  std::memcpy(&value, bytes, sizeof value);
  *reinterpret_cast<volatile Unaligned*>(address) = value;  // volatile: one store instruction
}

FPROBE_UNSANITIZED void store(std::uintptr_t address, const std::uint8_t* bytes, std::size_t length) noexcept {
  if (length == 2) return store_whole<std::uint16_t>(address, bytes);
  if (length == 4 && address % 4 == 0) return store_whole<std::uint32_t>(address, bytes);
  for (std::size_t i = 0; i < length; ++i) store_whole<std::uint8_t>(address + i, bytes + i);
}

}  // namespace

FPROBE_UNSANITIZED bool text_holds(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) noexcept {
  const auto* const text = reinterpret_cast<const volatile std::uint8_t*>(address);
  for (std::size_t i = 0; i < size; ++i) {
    if (text[i] != bytes[i]) return false;
  }
  return true;
}

int TextWriter::write(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size,
                      bool is_alone) const noexcept {
  if (is_file()) return is_alone ? file_.write(address, bytes, size) : file_.write_bytewise(address, bytes, size);
  store(address, bytes, size);
  return 0;
}

void TextWriter::put_back(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept {
  if (is_file()) return file_.put_back(address, bytes, size);
  store(address, bytes, size);
}

void take_back_write(std::uintptr_t start, std::uintptr_t end, int protection) noexcept {
  if (sys::mprotect(start, end - start, protection) == 0) return;
  // Past sys::mprotect, so that a fault injected there cannot leave text writable either.
  (void)arch::syscall(SYS_mprotect, static_cast<long>(start), static_cast<long>(end - start), protection, 0, 0, 0);
}

void widen_to_mappings(std::vector<PageRun>& runs) noexcept {
  if (runs.size() <= kMaxPageRuns) return;
  std::size_t kept = 0;
  for (PageRun run : runs) {
    run.start = run.mapping_start;
    run.end = run.mapping_end;
    if (kept > 0) run.start = std::max(run.start, runs[kept - 1].end);
    if (run.start >= run.end) continue;  // the mapping of the run before
    runs[kept++] = run;
  }
  runs.resize(kept);
}

Result<WritableText> WritableText::open(std::span<PageRun> runs, OnRefusal on_refusal) {
  for (PageRun& run : runs) {
    const int result =
        needs_change(run) ? sys::mprotect(run.start, run.end - run.start, run.protection | PROT_WRITE) : 0;
    run.is_open = result == 0;
    if (run.is_open || on_refusal == OnRefusal::kSkip) continue;
    close_runs(runs);
    // The kernel may have widened the first pages of a run before it refused the next.
    take_back_write(run.start, run.end, run.protection);
    return refusal(run, -result);
  }
  return WritableText(runs);
}

WritableText::~WritableText() {
  close_runs(runs_);
}

bool WritableText::covers(std::uintptr_t start, std::uintptr_t end) const noexcept {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), start,
                              [](std::uintptr_t address, const PageRun& r) { return address < r.end; });
  for (; run != runs_.end() && run->is_open && run->start <= start; ++run) {
    if (run->end >= end) return true;
    start = run->end;
  }
  return false;
}

}  // namespace libfprobe::detail
