// The executable bytes of the program as they are now, for "text unchanged".
#ifndef FPROBE_TESTS_REGISTRY_PROCESS_TEXT_H_
#define FPROBE_TESTS_REGISTRY_PROCESS_TEXT_H_

#include <string>

namespace fprobe_test {

// Of the main program.
std::string main_text();
// Lines of /proc/self/maps that belong to the main program: addresses, protections, offsets.
std::string main_mappings();

}  // namespace fprobe_test

#endif  // FPROBE_TESTS_REGISTRY_PROCESS_TEXT_H_
