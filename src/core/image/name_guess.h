// What a user may have meant by a name that nobody bears: the namespace missing, other case or blanks, template
// arguments left out, parameters of a C function, a template's return type in front (as nm -C prints it), std::string
// spelled short, one letter wrong.
//
// Pure text, for sentences of errors only: nothing is ever probed by a guess.
#ifndef FPROBE_SRC_CORE_IMAGE_NAME_GUESS_H_
#define FPROBE_SRC_CORE_IMAGE_NAME_GUESS_H_

#include <string>
#include <string_view>

#include "image/symbol_index.h"

namespace libfprobe::detail {

class NameGuess {
 public:
  // `name`: without a module prefix.  Throws std::bad_alloc, as all of this.
  explicit NameGuess(std::string_view name);

  // Whether a function with this linkage name can have the same last component: a quick look before it is demangled.
  [[nodiscard]] bool may_be_meant(std::string_view linkage) const noexcept;
  // How much the names resemble the one asked for; 0: not at all.
  [[nodiscard]] int resemblance(const Spellings& names) const;
  // The same for a last component with one letter wrong, missing, added or exchanged with its neighbour.
  [[nodiscard]] int resemblance_of_typo(const Spellings& names) const;
  // The spelling to suggest: with parameters if the user wrote some.
  [[nodiscard]] const std::string& suggestion(const Spellings& names) const noexcept;

 private:
  // Lower case, without blanks and template arguments.
  struct Loose {
    std::string whole;      // with parameters, template arguments kept
    std::string qualified;  // "app::s::method"
    std::string last;       // "method"
  };
  [[nodiscard]] static Loose loosen(std::string_view name);

  Loose wanted_;
  std::string word_;  // of the last component, part of every mangled name that can be meant; "" when there is none
  bool has_parameters_ = false;
};

// Whether an exact name was probably meant as a filter: a '*', '?', '[', ',' or leading '!' that no C++ name has there.
[[nodiscard]] bool looks_like_filter(std::string_view name) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_NAME_GUESS_H_
