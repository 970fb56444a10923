// Calls of {__fentry__, mcount, _mcount} in a module's text, and which of them are sites.
//
// A call is a site when a function starts so that the call is its first instruction, over endbr64 or a nested
// function's push.  Only known starts decide, also whether a 67 or 90 in front of e8 belongs to the site: at a function
// that mold relaxed it does, at a padded one it does not.  Where nobody knows a start (stripped code without unwind
// tables) the bytes alone have to do.
#include "image/scan_state.h"

namespace libfprobe::detail {
namespace {

constexpr const char* kLegacyCall =
    "it is compiled with -pg alone, whose call comes after the prologue; recompile it with -pg -mfentry";
constexpr const char* kLargeCall = "its profiling call is of -mcmodel=large; compile it without that option";
constexpr const char* kElsewhere = "it calls __fentry__ elsewhere than at its entry";

// The longest prefix of a call: 67 or 90.
constexpr std::size_t kMaxPrefix = 1;

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
      Question question{&state_.targets};
      const std::span<const std::byte> code = text.bytes.subspan(at);
      arch::SiteShape shape;
      if (arch::match_call_site(code, text.start + at, is_profiling_target, &question, shape)) {
        consider_call(text, at);
        continue;
      }
      if (arch::match_large_call(code, text.start + at, is_profiling_target, &question) != 0) {
        state_.refuse(text.start + at, state_.starts.last_before(text.start + at), kLargeCall);
      }
    }
  }

 private:
  // `at` is the call's opcode.
  void consider_call(const Text& text, std::size_t at) {
    Reading best;
    bool is_found = false;
    for (std::size_t prefix = 0; prefix <= std::min(kMaxPrefix, at); ++prefix) {
      Reading reading;
      if (!read_at(text, at - prefix, at, reading)) continue;
      if (!is_found || is_better(text, reading, best)) best = reading;
      is_found = true;
      if (best.is_start_known) break;
    }
    if (is_found) decide(text, best);
  }

  // Without known starts the longer reading is taken unless only the shorter one starts where functions are aligned to.
  [[nodiscard]] static bool is_better(const Text& text, const Reading& longer, const Reading& shorter) noexcept {
    constexpr std::uintptr_t kAlignment = 16;
    return longer.is_start_known || (text.start + shorter.function) % kAlignment != 0;
  }

  // Reads a site at `at` whose opcode is at `opcode`: no call, or one that starts elsewhere, is none.
  [[nodiscard]] bool read_at(const Text& text, std::size_t at, std::size_t opcode, Reading& reading) const noexcept {
    Question question{&state_.targets};
    const std::uintptr_t ip = text.start + at;
    if (!arch::match_call_site(text.bytes.subspan(at), ip, is_profiling_target, &question, reading.shape)) return false;
    if (at + reading.shape.patch_offset != opcode) return false;
    reading.at = at;
    reading.calls = question.calls;

    arch::StartGuess guesses[arch::kMaxStartGuesses];
    const std::size_t count = arch::guess_function_starts(text.bytes, at, reading.shape.length, guesses);
    for (std::size_t i = count; i-- > 0;) {
      // From the nearest to the farthest: the farthest known one wins, else the farthest.
      const bool is_known = state_.starts.is_start(text.start + guesses[i].offset);
      if (reading.is_start_known && !is_known) continue;
      reading.is_start_known = is_known;
      reading.function = guesses[i].offset;
      reading.shape.nested = guesses[i].nested;
    }
    return true;
  }

  void decide(const Text& text, const Reading& reading) {
    const std::uintptr_t ip = text.start + reading.at;
    if ((reading.calls & kFentryCall) == 0) {
      state_.refuse(ip, state_.starts.last_before(ip), kLegacyCall);
      return;
    }
    const bool is_inferable = !state_.starts.is_complete() && !state_.starts.covers(ip);
    if (reading.is_start_known || is_inferable) {
      state_.add(ip, text.start + reading.function, FPROBE_SITE_FENTRY, reading.shape);
      return;
    }
    const bool is_legacy_alias = (reading.calls & kMcountCall) != 0;
    state_.refuse(ip, state_.starts.last_before(ip), is_legacy_alias ? kLegacyCall : kElsewhere);
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
