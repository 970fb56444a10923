// What objdump says of a linked file: which functions have a probe site, and where.
#ifndef FPROBE_TESTS_MATRIX_SITE_COUNT_H_
#define FPROBE_TESTS_MATRIX_SITE_COUNT_H_

#include <cstdint>
#include <map>
#include <string>

#include "matrix/configuration.h"

namespace libfprobe::tests {

// Address of each site in the file, with the linkage name of its function.
using CountedSites = std::map<std::uintptr_t, std::string>;

CountedSites count_sites(const std::string& path, const Configuration& configuration);

// The name in the words of host_expectations.h: demangled, without a clone's suffix.
std::string plain_name(const std::string& linkage_name);

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_MATRIX_SITE_COUNT_H_
