// Pairwise covers: few configurations in which every two values of different axes meet that meet in any.
#ifndef FPROBE_TESTS_MATRIX_PAIRWISE_H_
#define FPROBE_TESTS_MATRIX_PAIRWISE_H_

#include <set>
#include <string>
#include <vector>

#include "matrix/configuration.h"

namespace libfprobe::tests {

// What a cover has to contain: "gcc+O0" for a pair, "O1" for a single value. -O1 need not meet every other value: its code
// is between that of -O0 and -O2, and with a fifth level 24 configurations would not do (5 levels x 5 forms).
using Obligations = std::set<std::string>;

Obligations obligations_of(const std::vector<Configuration>& configurations);

// A cover of everything that exists with so many configurations, the same one every time; empty if none was found.
std::vector<Configuration> make_cover(std::size_t size);

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_MATRIX_PAIRWISE_H_
