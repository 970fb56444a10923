// Which ways of compiling and linking a program there are: the axes of the matrix with their flags, and, in one place, the
// combinations that do not exist.
#ifndef FPROBE_TESTS_MATRIX_CONFIGURATION_H_
#define FPROBE_TESTS_MATRIX_CONFIGURATION_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace libfprobe::tests {

enum Axis { kCompiler, kFlavour, kLevel, kLinkTime, kForm, kLinker, kBranches, kStripping, kAxes };

enum Compiler { kGcc, kClang };
enum Flavour { kFentry, kMcount, kNop, kPatchable5, kPatchable7_2 };
enum Level { kO0, kO1, kO2, kO3, kOs };
enum LinkTime { kPlain, kGarbageCollected, kLto };
enum Form { kPie, kNoPie, kSharedObject, kStatic, kStaticPie };
enum Linker { kBfd, kGold, kLld, kMold };
enum Branches { kNoPads, kPads };
enum Stripping { kWhole, kStripDebug, kStripAll };

// One value per axis.
using Configuration = std::array<int, kAxes>;

struct Value {
  const char* word;  // in names and in configurations.txt
  const char* compile;
  const char* link;  // flags that the compilation does not get
};
const std::vector<Value>& values_of(int axis);

// "gcc_fentry_O2_plain_pie_bfd_pads_whole"
std::string name_of(const Configuration& configuration);
// Of the eight words above with '_' or blanks between them.
std::optional<Configuration> parse_configuration(std::string text);

// Why the combination does not exist; nullptr if it does.
const char* reason_against(const Configuration& configuration);

// Every configuration that exists, in the order of the axes' values.
std::vector<Configuration> all_configurations();

}  // namespace libfprobe::tests

#endif  // FPROBE_TESTS_MATRIX_CONFIGURATION_H_
