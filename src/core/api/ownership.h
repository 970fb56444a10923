// One copy of the library owns a process; a second one (linked into a plugin, beside an agent's) must not patch too.
//
// Nothing may be exported for the copies to find each other, so each carries an ELF note in its loaded image that leads
// to its ownership word:
//
//   PT_NOTE:  "libfprobe", type 1, {int32: distance from here to the word}          word: 0 free, 1 owns the process
//
// A copy claims the process unless a note of another loaded module leads to a word that says 1.
#ifndef FPROBE_SRC_CORE_API_OWNERSHIP_H_
#define FPROBE_SRC_CORE_API_OWNERSHIP_H_

namespace libfprobe::detail::ownership {

// At load, serialised by the loader.  False: another copy was first.
bool claim() noexcept;
[[nodiscard]] bool is_mine() noexcept;

}  // namespace libfprobe::detail::ownership

#endif  // FPROBE_SRC_CORE_API_OWNERSHIP_H_
