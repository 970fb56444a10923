#include "matrix/configuration.h"

#include <algorithm>
#include <sstream>

namespace libfprobe::tests {
namespace {

const std::array<std::vector<Value>, kAxes> kValues = {{
    {{"gcc", "", ""}, {"clang", "", ""}},
    {{"fentry", "-pg -mfentry", ""},
     {"mcount", "-pg", ""},
     {"nop", "-pg -mfentry -mnop-mcount", ""},
     {"patchable5", "-fpatchable-function-entry=5", ""},
     {"patchable7x2", "-fpatchable-function-entry=7,2", ""}},
    {{"O0", "-O0", ""}, {"O1", "-O1", ""}, {"O2", "-O2", ""}, {"O3", "-O3", ""}, {"Os", "-Os", ""}},
    {{"plain", "", ""}, {"gc", "-ffunction-sections -fdata-sections", "-Wl,--gc-sections"}, {"lto", "-flto", "-flto"}},
    {{"pie", "-fPIE", "-pie"},
     {"nopie", "-fno-pie", "-no-pie"},
     {"dso", "-fPIC", "-shared"},
     {"static", "-fno-pie", "-static"},
     {"staticpie", "-fPIE", "-static-pie"}},
    {{"bfd", "", ""}, {"gold", "", ""}, {"lld", "", ""}, {"mold", "", ""}},
    {{"nopads", "-fcf-protection=none", ""}, {"pads", "-fcf-protection=full", ""}},
    {{"whole", "", ""}, {"nodebug", "", ""}, {"stripped", "", ""}},
}};

struct Impossible {
  const char* reason;
  bool (*applies)(const Configuration& c);
};

const Impossible kImpossible[] = {
    {"clang has no -mnop-mcount", [](const Configuration& c) { return c[kCompiler] == kClang && c[kFlavour] == kNop; }},
    {"gcc refuses -mnop-mcount in position-independent code",
     [](const Configuration& c) { return c[kFlavour] == kNop && c[kForm] != kNoPie && c[kForm] != kStatic; }},
    {"gcc does not hand -pg to the link step of -flto: functions have no site",
     [](const Configuration& c) {
       return c[kCompiler] == kGcc && c[kLinkTime] == kLto && c[kFlavour] != kPatchable5 &&
              c[kFlavour] != kPatchable7_2;
     }},
    {"lld cannot read gcc's LTO objects",
     [](const Configuration& c) { return c[kCompiler] == kGcc && c[kLinkTime] == kLto && c[kLinker] == kLld; }},
    {"gold does not know --no-dynamic-linker, which -static-pie needs",
     [](const Configuration& c) { return c[kForm] == kStaticPie && c[kLinker] == kGold; }},
};

}  // namespace

const std::vector<Value>& values_of(int axis) {
  return kValues[static_cast<std::size_t>(axis)];
}

std::string name_of(const Configuration& configuration) {
  std::string name;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (axis != 0) name += '_';
    name += values_of(axis)[static_cast<std::size_t>(configuration[static_cast<std::size_t>(axis)])].word;
  }
  return name;
}

std::optional<Configuration> parse_configuration(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  std::istringstream words(text);
  Configuration configuration{};
  std::string word;
  for (int axis = 0; axis < kAxes; ++axis) {
    const std::vector<Value>& values = values_of(axis);
    words >> word;
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const Value& value) { return word == value.word; });
    if (!words || found == values.end()) return std::nullopt;
    configuration[static_cast<std::size_t>(axis)] = static_cast<int>(found - values.begin());
  }
  if (words >> word) return std::nullopt;
  return configuration;
}

const char* reason_against(const Configuration& configuration) {
  for (const Impossible& each : kImpossible) {
    if (each.applies(configuration)) return each.reason;
  }
  return nullptr;
}

std::vector<Configuration> all_configurations() {
  std::vector<Configuration> all;
  for (Configuration next{};;) {
    if (reason_against(next) == nullptr) all.push_back(next);
    // Counts on like an odometer.
    int axis = kAxes - 1;
    while (axis >= 0) {
      int& digit = next[static_cast<std::size_t>(axis)];
      if (++digit < static_cast<int>(values_of(axis).size())) break;
      digit = 0;
      --axis;
    }
    if (axis < 0) return all;
  }
}

}  // namespace libfprobe::tests
