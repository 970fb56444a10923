// Nops that compilers leave at function entries, and which of them are sites.
//
//   evidence   a section entry that names the function (after validation), or nops that only compilers write
//              (arch::nop_origin).  Entries alone are not enough: gcc loses some (all of an object when the linker
//              discards a COMDAT), gold and mold too; nor are any nops: assemblers align loops at an entry with them
//   proof      decoded nops up to the site's end, and no jump of the function into the middle of the site
//
// An entry of __patchable_function_entries is the first nop: of a function that has some before its first byte
// (-fpatchable-function-entry=N,M) it lies M bytes in front of it.
#include "image/scan_state.h"

namespace libfprobe::detail {
namespace {

constexpr const char* kTooFewNops =
    "it has fewer than 5 bytes of nops behind its entry; compile it with -fpatchable-function-entry=5";
constexpr const char* kOddNops =
    "the nops at its entry are of no known form; compile it with -fpatchable-function-entry=5";
constexpr const char* kJumpedInto = "it jumps into the nops at its entry; compile it with -pg -mfentry";
constexpr const char* kNoFramePointer =
    "its -pg place is not preceded by the set-up of a frame pointer; recompile it with -pg -mfentry";
constexpr const char* kNoFunction = "it is a place recorded for patching, but of no function of the symbol table";

constexpr std::string_view kPatchableSection = "__patchable_function_entries";
constexpr std::string_view kMcountSection = "__mcount_loc";
constexpr std::size_t kPatchLength = 5;         // jmp rel32
constexpr std::uintptr_t kMaxNopsBefore = 256;  // M of -fpatchable-function-entry=N,M

class PatchableScan {
 public:
  PatchableScan(ScanState& state, const std::vector<std::uintptr_t>& with_site) noexcept
      : state_(state), with_site_(with_site) {}

  void run() {
    read_hints(kPatchableSection, &PatchableScan::take_patchable_entry);
    read_hints(kMcountSection, &PatchableScan::take_mcount_entry);
    std::sort(patchable_.begin(), patchable_.end());
    auto with_site = with_site_.begin();  // both lists are sorted
    for (const FunctionRange& range : state_.starts.all()) {
      while (with_site != with_site_.end() && *with_site < range.start) ++with_site;
      if (with_site == with_site_.end() || *with_site != range.start) consider(range.start);
    }
  }

 private:
  // Hands the entries of every section of this name, as relocated in memory, to `take`.
  void read_hints(std::string_view name, void (PatchableScan::*take)(std::uintptr_t)) {
    for (const ElfSection& section : state_.file != nullptr ? state_.file->sections() : std::span<const ElfSection>{}) {
      if (section.name != name || (section.flags & SHF_ALLOC) == 0) continue;
      std::uintptr_t entry = 0;
      for (std::uint64_t at = 0; at + sizeof entry <= section.size; at += sizeof entry) {
        if (!state_.memory.read(section.address + state_.image.bias + at, entry)) break;
        if (state_.memory.is_code(entry)) (this->*take)(entry);  // mold leaves zeros
      }
    }
  }

  void take_patchable_entry(std::uintptr_t entry) {
    const std::uintptr_t function = function_of_entry(entry);
    if (function == 0) {
      if (!state_.starts.is_complete()) return state_.refuse_unknown_start(entry);
      return state_.refuse(entry, entry, kNoFunction);
    }
    patchable_.push_back(function);
  }

  // The function whose nops start at `entry`: there, behind a pad, or some nops further on; 0 if there is none.
  [[nodiscard]] std::uintptr_t function_of_entry(std::uintptr_t entry) const noexcept {
    arch::SiteShape shape;
    std::size_t offset = 0;
    const std::uintptr_t before = state_.starts.last_before(entry);
    if (before == entry) return entry;
    (void)arch::match_patchable(state_.memory.from(before), shape, offset);
    if (before != 0 && shape.length != 0 && before + offset == entry) return before;
    const std::uintptr_t after = state_.starts.next_after(entry);
    return after != 0 && after - entry <= kMaxNopsBefore && are_nops(entry, after) ? after : 0;
  }

  [[nodiscard]] bool are_nops(std::uintptr_t from, std::uintptr_t to) const noexcept {
    arch::Insn insn;
    while (from < to) {
      if (!arch::decode(state_.memory.range(from, to - from), from, insn) || insn.kind != arch::InsnKind::kNop) {
        return false;
      }
      from += insn.length;
    }
    return true;
  }

  // An entry of __mcount_loc is a call, which call_scan has judged, or the nop that -mnop-mcount put in its place: at a
  // function's entry it tells its origin itself, behind a prologue only the entry tells.
  void take_mcount_entry(std::uintptr_t entry) {
    arch::SiteShape shape, frame;
    std::size_t offset = 0, site = 0;
    const std::uintptr_t function = state_.starts.last_before(entry);
    if (function == 0 || !arch::match_patchable(state_.memory.from(entry), shape, offset) || offset != 0) return;
    const std::span<const std::byte> code = state_.memory.from(function);
    if (arch::match_patchable(code, frame, offset) && function + offset == entry) return;
    if (!arch::read_prologue(code, function, entry - function, frame, site) || function + site != entry) {
      state_.refuse(entry, function, kNoFramePointer);
      return;
    }
    shape.adopt_frame(frame);
    state_.add(entry, function, FPROBE_SITE_MCOUNT, shape);
  }

  void consider(std::uintptr_t function) {
    arch::SiteShape shape;
    std::size_t offset = 0;
    const std::span<const std::byte> code = state_.memory.from(function);
    const bool has_room = arch::match_patchable(code, shape, offset);
    const bool is_recorded = std::binary_search(patchable_.begin(), patchable_.end(), function);
    const std::uintptr_t ip = function + offset;
    if (!has_room) {
      if (is_recorded) state_.refuse(ip, function, shape.length < kPatchLength ? kTooFewNops : kOddNops);
      return;
    }

    const arch::NopOrigin origin = arch::nop_origin(code.subspan(offset), shape);
    if (!is_recorded && origin == arch::NopOrigin::kUnknown) return;
    if (!settle_length(function, ip, shape)) {
      state_.refuse(ip, function, kJumpedInto);
      return;
    }
    const bool is_mcount = !is_recorded && origin == arch::NopOrigin::kMcount;
    state_.add(ip, function, is_mcount ? FPROBE_SITE_FENTRY : FPROBE_SITE_PATCHABLE, shape);
  }

  // Single nops behind the first five may be another thing's, say a loop's alignment: given up when a jump leads there.
  [[nodiscard]] bool settle_length(std::uintptr_t function, std::uintptr_t ip, arch::SiteShape& shape) const noexcept {
    if (!is_jumped_into(function, ip, shape.length)) return true;
    if (shape.form != arch::SiteForm::kNops || shape.length <= kPatchLength) return false;
    shape.length = kPatchLength;
    return !is_jumped_into(function, ip, shape.length);
  }

  [[nodiscard]] bool is_jumped_into(std::uintptr_t function, std::uintptr_t ip, std::size_t length) const noexcept {
    const std::uintptr_t body = ip + length;
    const std::uintptr_t next = state_.starts.next_after(function);
    std::span<const std::byte> code = state_.memory.from(body);
    if (next > body) code = code.first(std::min<std::size_t>(code.size(), next - body));
    return arch::jumps_between(code, body, ip + 1, body);
  }

  ScanState& state_;
  const std::vector<std::uintptr_t>& with_site_;
  std::vector<std::uintptr_t> patchable_;  // functions that __patchable_function_entries names; sorted after reading
};

}  // namespace

void scan_patchable(ScanState& state, const std::vector<std::uintptr_t>& with_site) {
  PatchableScan(state, with_site).run();
}

bool has_nops(const ImageMemory& memory, const FunctionStarts& starts) {
  constexpr std::size_t kMinNops = 2;  // a single one starts many a function's cold part
  arch::SiteShape shape;
  std::size_t offset = 0;
  for (const FunctionRange& range : starts.all()) {
    if (arch::match_patchable(memory.from(range.start), shape, offset) || shape.length >= kMinNops) return true;
  }
  return false;
}

}  // namespace libfprobe::detail
