// What the rare sites and handlers need kept around a piece of a hit, beside the argument registers.
//
// The argument registers themselves are saved before and restored after: their values may be a handler's.
#ifndef FPROBE_SRC_CORE_HOT_KEEPING_H_
#define FPROBE_SRC_CORE_HOT_KEEPING_H_

#include "base/arch.h"
#include "base/attributes.h"
#include "regs.h"
#include "vectors.h"  // from src/arch/<cpu>/

namespace libfprobe::detail {

// One function for each kind, so that only hits that need it pay with their stack.
template <class State, class Body>
FPROBE_COLD void keeping_state(const Body& body) {
  State state;
  state.save();
  body();
  state.restore();
}

// `keeps`: bits of arch::kKeep...
template <class Body>
FPROBE_COLD void keeping(unsigned keeps, const Body& body) {
  constexpr unsigned kBoth = arch::kKeepWide | arch::kKeepCallerSaved;
  const bool all_of_them = (keeps & arch::kKeepEverything) != 0 || (keeps & kBoth) == kBoth;
  if ((keeps & arch::kKeepFpenv) != 0) {
    keeping_state<arch::FloatingPointFlags>([&] { keeping(keeps & ~arch::kKeepFpenv, body); });
  } else if (all_of_them) {
    keeping_state<arch::WholeState>(body);
  } else if ((keeps & arch::kKeepWide) != 0) {
    keeping_state<arch::WideVectors>(body);
  } else if ((keeps & arch::kKeepCallerSaved) != 0) {
    keeping_state<arch::CallerSavedVectors>(body);
  } else {
    body();
  }
}

// For the rare paths, where an unwinder or libc may be called: all that the site's callers rely on.
template <class Body>
FPROBE_COLD void keeping_at_entry(unsigned keeps, ftrace_regs& regs, const Body& body) {
  arch::save_arguments(regs);
  keeping(keeps & arch::kKeepAllVectors, body);
  arch::restore_arguments(regs);
}
template <class Body>
FPROBE_COLD void keeping_at_exit(unsigned keeps, ftrace_regs& regs, const Body& body) {
  arch::save_results(regs);
  keeping(keeps & arch::kKeepAllVectors, body);
  arch::restore_results(regs);
}

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_HOT_KEEPING_H_
