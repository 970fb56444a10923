#include "closing_table.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace {

bool any_failed = false;

using Samples = std::map<std::string, std::vector<double>>;  // benchmark → units per iteration

double minimum(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Keeps every repetition's time; prints nothing but the context.
class Collector : public benchmark::BenchmarkReporter {
 public:
  explicit Collector(const TableForm& form) : form_(form) {}

  bool ReportContext(const Context& context) override {
    PrintBasicContext(&GetOutputStream(), context);
    GetOutputStream().flush();  // the table goes through stdio
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
      const double seconds = form_.manual_time ? run.real_accumulated_time : run.cpu_accumulated_time;
      samples_[run.run_name.function_name].push_back(seconds * 1e9 / form_.unit / static_cast<double>(run.iterations));
    }
  }
  [[nodiscard]] const Samples& samples() const { return samples_; }

 private:
  const TableForm& form_;
  Samples samples_;
};

struct Cost {
  double minimum, median;
};

// A row's cost: above its baseline when it has one.  False when one of the two was not run.
bool cost_of(const Samples& samples, const TableRow& row, Cost& cost) {
  const auto own = samples.find(row.benchmark);
  if (own == samples.end()) return false;
  cost = {minimum(own->second), median(own->second)};
  if (row.baseline.empty()) return true;
  const auto base = samples.find(row.baseline);
  if (base == samples.end()) return false;
  cost.minimum -= minimum(base->second);
  cost.median -= median(base->second);
  return true;
}

void print_row(const TableForm& form, const Samples& samples, const TableRow& row, int width) {
  const auto own = samples.find(row.benchmark);
  if (own == samples.end()) return;
  std::printf("%-*s %12.2f %12.2f", width, row.benchmark.c_str(), minimum(own->second), median(own->second));
  Cost cost{};
  if (!row.baseline.empty() && cost_of(samples, row, cost)) {
    std::printf(" %12.2f %12.2f", cost.minimum, cost.median);
    Cost unit{};
    const auto reference = std::find_if(form.rows.begin(), form.rows.end(),
                                        [&](const TableRow& other) { return other.benchmark == form.ratio_to; });
    if (reference != form.rows.end() && cost_of(samples, *reference, unit) && unit.minimum > 0) {
      std::printf(" %9.2f x", cost.minimum / unit.minimum);
    }
  }
  if (const auto divisor = form.divisors.find(row.benchmark); divisor != form.divisors.end()) {
    std::printf(" %14.2f", minimum(own->second) / divisor->second);
  }
  std::printf("\n");
}

void print_table(const TableForm& form, const Samples& samples) {
  std::size_t width = 0, repetitions = 0;
  for (const TableRow& row : form.rows) width = std::max(width, row.benchmark.size());
  for (const auto& [name, values] : samples) repetitions = std::max(repetitions, values.size());
  const bool has_baselines =
      std::any_of(form.rows.begin(), form.rows.end(), [](const TableRow& row) { return !row.baseline.empty(); });

  std::printf("\n%s (%s, %zu repetitions)\n%-*s %12s %12s", form.title.c_str(), form.unit_name, repetitions,
              static_cast<int>(width), "", "minimum", "median");
  if (has_baselines) std::printf(" %12s %12s", "above: min", "median");
  if (!form.ratio_to.empty()) std::printf("  '%s' = 1", form.ratio_to.c_str());
  if (!form.divisors.empty()) std::printf(" %14s", "per function");
  std::printf("\n");
  for (const TableRow& row : form.rows) print_row(form, samples, row, static_cast<int>(width));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

void name_the_machine() {
  benchmark::AddCustomContext("processor", processor_name());
  utsname system{};
  if (::uname(&system) == 0) benchmark::AddCustomContext("kernel", system.release);
#if defined(__clang__)
  benchmark::AddCustomContext("compiler", "clang " __clang_version__);
#else
  benchmark::AddCustomContext("compiler", "gcc " __VERSION__);
#endif
}

}  // namespace

int run_and_print(int argc, char** argv, const TableForm& form, const char* min_time) {
  std::string defaults[] = {"--benchmark_repetitions=21", "--benchmark_enable_random_interleaving=true",
                            "--benchmark_min_time=" + std::string(min_time)};
  std::vector<char*> arguments{argv[0]};
  for (std::string& argument : defaults) arguments.push_back(argument.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);  // later ones win
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);

  name_the_machine();
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  Collector collector(form);
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::Shutdown();
  print_table(form, collector.samples());
  return any_failed ? 1 : 0;
}

void fail(benchmark::State& state, const char* message) {
  any_failed = true;
  std::fprintf(stderr, "%s\n", message);
  state.SkipWithError(message);
}
