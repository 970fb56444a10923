// Runs the registered benchmarks and prints one table at the end: minimum and median of the repetitions, and what lies
// above the baseline measured in the same run.
//
// Single repetitions go to --benchmark_out only.  CPU time of the thread is used (or the time a benchmark measured
// itself), because other programs run on most machines; the minimum is the steadiest figure, ratios travel best.
#ifndef FPROBE_BENCH_CLOSING_TABLE_H_
#define FPROBE_BENCH_CLOSING_TABLE_H_

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

struct TableRow {
  std::string benchmark;  // as registered
  std::string baseline;   // another row's benchmark; "" for a baseline itself
};

struct TableForm {
  std::string title;
  std::string ratio_to{};  // a row's benchmark: adds a column "how many times its cost"
  std::vector<TableRow> rows{};
  std::map<std::string, double> divisors{};  // benchmark → functions handled at once: adds a column "per function"
  bool manual_time = false;                  // benchmarks call SetIterationTime
  double unit = 1;                           // ns per unit shown
  const char* unit_name = "ns";
};

// Defaults that the command line overrides: 21 repetitions, random interleaving.  Returns the exit status.
int run_and_print(int argc, char** argv, const TableForm& form, const char* min_time = "0.05");

// Called by a benchmark whose result is wrong: it is skipped, and the exit status will be 1.
void fail(benchmark::State& state, const char* message);

#endif  // FPROBE_BENCH_CLOSING_TABLE_H_
