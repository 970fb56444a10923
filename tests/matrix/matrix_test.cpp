// The matrix: a program is compiled and linked in many ways; in each the library lists the sites that objdump counts, every
// function is hit as often as it runs, and the text is afterwards what it was.
//
// FPROBE_MATRIX_TABLE in the environment names another table than configurations.txt.
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "matrix/pairwise.h"
#include "matrix/site_count.h"

namespace libfprobe::tests {
namespace {

std::string file_content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

// Runs a command of the shell; false, and a failure of the test with all it wrote, if it fails.
bool run(const std::string& command, const std::string& output) {
  const int status = std::system((command + " >'" + output + "' 2>&1").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  ADD_FAILURE() << command << "\nended with status " << std::hex << status << '\n' << file_content(output);
  return false;
}

std::vector<Configuration> read_table(const std::string& path) {
  std::vector<Configuration> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::optional<Configuration> configuration = parse_configuration(line);
    if (!configuration) ADD_FAILURE() << path << ": not a configuration: " << line;
    if (configuration) table.push_back(*configuration);
  }
  return table;
}

std::string table_path() {
  const char* const other = std::getenv("FPROBE_MATRIX_TABLE");
  return other != nullptr ? other : FPROBE_MATRIX_SOURCES "/configurations.txt";
}

TEST(MatrixTable, IsAPairwiseCoverOfAtMost24ConfigurationsThatExist) {
  const std::vector<Configuration> table = read_table(FPROBE_MATRIX_SOURCES "/configurations.txt");
  EXPECT_LE(table.size(), 24u);
  for (const Configuration& each : table) EXPECT_EQ(reason_against(each), nullptr) << name_of(each);
  const Obligations met = obligations_of(table);
  for (const std::string& pair : obligations_of(all_configurations())) EXPECT_TRUE(met.contains(pair)) << pair;
}

// --- One program
// ---------------------------------------------------------------------------------------------------------

class EachConfiguration : public testing::TestWithParam<Configuration> {
 protected:
  [[nodiscard]] bool is(Axis axis, int value) const { return GetParam()[axis] == value; }
  [[nodiscard]] const Value& value(Axis axis) const {
    return values_of(axis)[static_cast<std::size_t>(GetParam()[axis])];
  }

  // The tool that this machine lacks, empty if none.
  [[nodiscard]] std::string missing_tool() const {
    const char* const compiler = is(kCompiler, kGcc) ? FPROBE_GXX : FPROBE_CLANGXX;
    const std::string linker = std::string(FPROBE_MATRIX_LINKERS "/ld.") + value(kLinker).word;
    if (*compiler == '\0') return value(kCompiler).word;
    return std::filesystem::exists(linker) ? "" : value(kLinker).word;
  }

  // The link step of -flto compiles too. Its flavour is what the objects say: -pg there would mean gprof's start files.
  [[nodiscard]] std::string flags_without_flavour() const {
    std::string flags = "-w -g1";
    for (int axis = 0; axis < kAxes; ++axis) {
      if (axis != kFlavour) flags += std::string(" ") + value(static_cast<Axis>(axis)).compile;
    }
    return flags;
  }
  [[nodiscard]] std::string use_linker() const {
    const std::string linker = value(kLinker).word;
    return is(kCompiler, kGcc) ? "-B" FPROBE_MATRIX_LINKERS " -fuse-ld=" + linker
                               : "--ld-path=" FPROBE_MATRIX_LINKERS "/ld." + linker;
  }

  // Two objects, then the program or the shared object with the program around it; before stripping.
  bool build() {
    const std::string cc = is(kCompiler, kGcc) ? FPROBE_GCC : FPROBE_CLANG;
    const std::string cxx = is(kCompiler, kGcc) ? FPROBE_GXX : FPROBE_CLANGXX;
    const std::string flags =
        " " + flags_without_flavour() + " " + value(kFlavour).compile + " -I" FPROBE_MATRIX_SOURCES "/.. ";
    const std::string objects = " '" + at("c.o") + "' '" + at("cpp.o") + "'";
    const std::string link = cxx + " " + use_linker();
    const std::string options = " " + std::string(is(kLinkTime, kLto) ? flags_without_flavour() : "") + " " +
                                value(kForm).link + " " + value(kLinkTime).link;
    const std::string host = " " FPROBE_MATRIX_HOST, library = " " FPROBE_MATRIX_LIBRARY;
    const auto to = [this](const char* file) { return " -o '" + at(file) + "'"; };
    if (!run(cc + flags + "-std=gnu11 -c " FPROBE_MATRIX_SOURCES "/workload.c" + to("c.o"), at("log")) ||
        !run(cxx + flags + "-std=gnu++17 -c " FPROBE_MATRIX_SOURCES "/workload.cpp" + to("cpp.o"), at("log")))
      return false;
    if (!is(kForm, kSharedObject)) return run(link + options + objects + host + library + to("whole"), at("log"));
    return run(link + options + objects + " -Wl,-soname,module" + to("whole"), at("log")) &&
           run(link + " -pie -Wl,-rpath,'$ORIGIN'" + host + " '" + at("whole") + "'" + library + to("program"),
               at("log"));
  }

  bool strip() {
    const std::string module = at(is(kForm, kSharedObject) ? "module" : "program");
    if (is(kStripping, kWhole)) return run("cp '" + at("whole") + "' '" + module + "'", at("log"));
    const std::string options = is(kStripping, kStripAll) ? " -s" : " --strip-debug";
    return run(FPROBE_STRIP + options + " -o '" + module + "' '" + at("whole") + "'", at("log"));
  }

  [[nodiscard]] fprobe_site_kind kind() const {
    if (is(kFlavour, kMcount)) return FPROBE_SITE_MCOUNT;
    return is(kFlavour, kFentry) || is(kFlavour, kNop) ? FPROBE_SITE_FENTRY : FPROBE_SITE_PATCHABLE;
  }
  bool write_list() {
    const CountedSites sites = count_sites(at("whole"), GetParam());
    std::ofstream list(at("list"));
    list << "kind " << static_cast<int>(kind()) << '\n';
    for (const auto& [address, function] : sites) list << std::hex << address << ' ' << plain_name(function) << '\n';
    return list.good();
  }

  [[nodiscard]] std::string at(const std::string& file) const { return folder_ + "/" + file; }

  // Configurations that differ in stripping only follow each other in a long table and share what is built.
  void SetUp() override {
    Configuration unstripped = GetParam();
    unstripped[kStripping] = kWhole;
    folder_ = FPROBE_MATRIX_OUTPUT "/" + std::to_string(getpid());
    if (built_ == unstripped) return;
    built_.reset();
    std::filesystem::create_directories(folder_);
    if (missing_tool().empty() && build() && write_list()) built_ = unstripped;
  }
  static void TearDownTestSuite() {
    if (std::getenv("FPROBE_MATRIX_KEEP") == nullptr)
      std::filesystem::remove_all(FPROBE_MATRIX_OUTPUT "/" + std::to_string(getpid()));
  }

  // What matrix/summary.sh adds up.
  void write_line(const std::string& line) const {
    std::ofstream(FPROBE_MATRIX_OUTPUT "/" + name_of(GetParam()) + ".line")
        << name_of(GetParam()) << ": " << line << '\n';
  }
  void tell(const std::string& line) const {
    std::printf("%s: %s\n", name_of(GetParam()).c_str(), line.c_str());
    write_line(line);
  }

  std::string folder_;
  static inline std::optional<Configuration> built_;
};

TEST_P(EachConfiguration, ListsTheSitesThatObjdumpCountsAndHitsThemAll) {
  write_line("FAILED");
  if (!missing_tool().empty()) {
    tell("NOT RUN, " + missing_tool() + " is not installed");
    GTEST_SKIP() << missing_tool() << " is not installed";
  }
  ASSERT_TRUE(built_.has_value());
  ASSERT_TRUE(strip());
  ASSERT_TRUE(run("'" + at("program") + "'", at("plain")));
  const char* const by = is(kStripping, kStripAll) ? " addresses" : " names";
  ASSERT_TRUE(run("'" + at("program") + "' '" + at("list") + "'" + by, at("probed")));

  // The host prints the workload's results, and what was counted.
  std::istringstream probed(file_content(at("probed")));
  std::string results, counts;
  for (std::string line; std::getline(probed, line);) {
    if (line.find(" = ") != std::string::npos)
      results += line + '\n';
    else
      counts += (counts.empty() ? "" : ", ") + line;
  }
  EXPECT_EQ(results, file_content(at("plain")));
  if (!HasFailure()) tell(counts);
}

INSTANTIATE_TEST_SUITE_P(Matrix, EachConfiguration, testing::ValuesIn(read_table(table_path())),
                         [](const auto& each) { return name_of(each.param); });

}  // namespace
}  // namespace libfprobe::tests
