// Calls of {__fentry__, mcount, _mcount} in a module's text, and which of them are sites.
//
// A call of __fentry__ is a site when a function starts so that the call is its first instruction, over endbr64 or a
// nested function's push; a call of mcount is one behind a prologue that sets up a frame pointer.  Only known starts decide, also whether a 67 or 90 in front of e8 belongs to the site: at a function
// that mold relaxed it does, at a padded one it does not.  Where nobody knows the functions (stripped code without
// unwind tables) a start is inferred from the bytes, and only where functions are aligned to: data lies anywhere.
#include "image/scan_state.h"

namespace libfprobe::detail {
namespace {

constexpr const char* kNoFramePointer =
    "its -pg call is not preceded by the set-up of a frame pointer; recompile it with -pg -mfentry";
constexpr const char* kLargeCall = "its profiling call is of -mcmodel=large; compile it without that option";
constexpr const char* kElsewhere =
    "it calls __fentry__ elsewhere than at its entry; leave that call to the compiler (-pg -mfentry)";

constexpr std::uintptr_t kFunctionAlignment = 16;  // of gcc -O2 and clang

struct Text {
  std::span<const std::byte> bytes;
  std::uintptr_t start = 0;
};

struct Question {
  const ProfilingTargets* targets;
  std::uint8_t calls = kNoProfilingCall;  // the last answer
};

bool is_profiling_target(std::uintptr_t target, bool through_memory, void* argument) {
  auto& question = *static_cast<Question*>(argument);
  question.calls = question.targets->lookup(target, through_memory);
  return question.calls != kNoProfilingCall;
}

// A call read with or without the byte in front of it, and the function it would be the entry of.
struct Reading {
  std::size_t at = 0;
  arch::SiteShape shape;
  std::uint8_t calls = kNoProfilingCall;
  std::size_t function = 0;
  bool is_start_known = false;
};

class CallScan {
 public:
  explicit CallScan(ScanState& state) noexcept : state_(state) {}

  void run(const Text& text) {
    for (std::size_t at = 0; (at = arch::next_call_candidate(text.bytes, at)) < text.bytes.size(); ++at) {
      Reading bare;
      if (read_at(text, at, at, bare)) {
        decide(text, at, choose(text, at, bare));
      } else if (is_large_call(text, at)) {
        refuse(text.start + at, kLargeCall);
      }
    }
  }

 private:
  // Reads a call whose first byte is at `at` and whose opcode is at `opcode`; false: there is none.
  [[nodiscard]] bool read_at(const Text& text, std::size_t at, std::size_t opcode, Reading& reading) const noexcept {
    Question question{&state_.targets};
    const std::span<const std::byte> code = text.bytes.subspan(at);
    if (!arch::match_call_site(code, text.start + at, is_profiling_target, &question, reading.shape)) return false;
    if (at + reading.shape.patch_offset != opcode) return false;
    reading.at = at;
    reading.calls = question.calls;
    find_function(text, reading);
    return true;
  }

  // The farthest known start, else the farthest.
  void find_function(const Text& text, Reading& reading) const noexcept {
    arch::StartGuess guesses[arch::kMaxStartGuesses];
    const std::size_t count = arch::guess_function_starts(text.bytes, reading.at, reading.shape.length, guesses);
    std::size_t chosen = 0;
    for (std::size_t i = 0; i < count && !reading.is_start_known; ++i) {
      reading.is_start_known = state_.starts.is_start(text.start + guesses[i].offset);
      if (reading.is_start_known) chosen = i;
    }
    reading.function = guesses[chosen].offset;
    reading.shape.nested = guesses[chosen].nested;
  }

  // The call with or without the byte in front of it.  Without known starts that byte is taken along unless the opcode
  // lies where functions are aligned to.
  [[nodiscard]] Reading choose(const Text& text, std::size_t opcode, const Reading& bare) const noexcept {
    Reading prefixed;
    if (bare.is_start_known || opcode == 0 || !read_at(text, opcode - 1, opcode, prefixed)) return bare;
    const bool is_aligned = (text.start + bare.function) % kFunctionAlignment == 0;
    return prefixed.is_start_known || !is_aligned ? prefixed : bare;
  }

  [[nodiscard]] bool is_large_call(const Text& text, std::size_t at) const noexcept {
    Question question{&state_.targets};
    return arch::match_large_call(text.bytes.subspan(at), text.start + at, is_profiling_target, &question) != 0;
  }

  void decide(const Text& text, std::size_t opcode, const Reading& reading) {
    const std::uintptr_t ip = text.start + reading.at;
    const std::uintptr_t function = text.start + reading.function;
    const bool is_unknown = !state_.starts.is_complete() && !state_.starts.covers(ip);
    if ((reading.calls & kFentryCall) != 0) {
      if (reading.is_start_known || (is_unknown && function % kFunctionAlignment == 0)) {
        state_.add(ip, function, FPROBE_SITE_FENTRY, reading.shape);
        return;
      }
    }
    if (is_unknown) return state_.refuse_unknown_start(ip);
    if ((reading.calls & kMcountCall) == 0) return refuse(ip, kElsewhere);
    if (!add_behind_prologue(text, opcode)) refuse(ip, kNoFramePointer);
  }

  // A -pg call; the function's first instructions tell whether a byte in front of the opcode belongs to it.
  [[nodiscard]] bool add_behind_prologue(const Text& text, std::size_t opcode) {
    const std::uintptr_t function = state_.starts.last_before(text.start + opcode);
    if (function < text.start) return false;
    const std::size_t start = function - text.start;
    arch::SiteShape frame;
    std::size_t site = 0;
    Reading reading;
    if (!arch::read_prologue(text.bytes.subspan(start), function, opcode - start, frame, site)) return false;
    if (!read_at(text, start + site, opcode, reading)) return false;
    arch::SiteShape shape = reading.shape;
    shape.adopt_frame(frame);
    state_.add(text.start + reading.at, function, FPROBE_SITE_MCOUNT, shape);
    return true;
  }

  // Outside all functions, when all are known, lies data.
  void refuse(std::uintptr_t ip, const char* reason) {
    const bool is_inside = state_.starts.covers(ip);
    if (!is_inside && state_.starts.is_complete()) return;
    state_.refuse(ip, is_inside ? state_.starts.last_before(ip) : ip, reason);
  }

  ScanState& state_;
};

}  // namespace

void scan_calls(ScanState& state) {
  CallScan scan(state);
  for (const Segment& segment : state.image.segments) {
    if (is_readable_text(segment)) scan.run(Text{state.memory.from(segment.start), segment.start});
  }
}

bool has_calls(const LoadedImage& image, const ImageMemory& memory, const ProfilingTargets& targets) {
  Question question{&targets};
  arch::SiteShape shape;
  for (const Segment& segment : image.segments) {
    if (!is_readable_text(segment)) continue;
    const std::span<const std::byte> text = memory.from(segment.start);
    for (std::size_t at = 0; (at = arch::next_call_candidate(text, at)) < text.size(); ++at) {
      const std::span<const std::byte> code = text.subspan(at);
      if (arch::match_call_site(code, segment.start + at, is_profiling_target, &question, shape)) return true;
      if (arch::match_large_call(code, segment.start + at, is_profiling_target, &question) != 0) return true;
    }
  }
  return false;
}

}  // namespace libfprobe::detail
