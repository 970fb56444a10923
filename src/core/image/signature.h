// Where the parts of a demangled function name begin and end.
//
// What abi::__cxa_demangle prints, in the two dialects of libstdc++ and libc++abi:
//
//   [return type ' '] name '(' parameters ')' [' const'] [' &'] ['::' local name '(' …]   [' [clone .x]' | ' (.x)']
//   void (*name(parameters))(char)                      the return type wraps the name of a template function
//   A::operator void (*)(int)() const                   the type of a conversion belongs to the name
//
// Only template functions carry a return type, so at bracket depth 0 a space ends a return type, except in an
// operator's name and in front of a qualifier.
#ifndef FPROBE_SRC_CORE_IMAGE_SIGNATURE_H_
#define FPROBE_SRC_CORE_IMAGE_SIGNATURE_H_

#include <string_view>

namespace libfprobe::detail {

struct Signature {
  std::string_view whole;      // without return type and clone notes
  std::string_view qualified;  // and without parameters and what follows them
};

// `has_prefix_words`: the words in front are no return type ("non-virtual thunk to A::f()").  The views are parts of
// `demangled`, from which ABI tags have been taken out.
[[nodiscard]] Signature read_signature(std::string_view demangled, bool has_prefix_words) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SIGNATURE_H_
