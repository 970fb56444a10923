// Latency per function of a program nobody here wrote: probes every instrumented function of GoogleTest while
// GoogleTest runs its own unit tests, then prints a table and a histogram.
//
// One probe serves all functions. The entry handler leaves a time stamp in entry_data, the exit handler files the
// difference under entry_ip. Filing is a lookup in a table that no longer changes and a few relaxed atomic adds, so any
// number of threads may be inside. Times include callees, and what their probes cost.
//
//   function_latency [--all] [--log <file for what the tests print>] [GoogleTest's own options]
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Counter = std::atomic<std::uint32_t>;

// Log-linear: 8 buckets per power of two, so a bucket is at most 12.5 % wide. Nanoseconds up to 2^40, 18 minutes.
class Histogram {
 public:
  static constexpr unsigned kBuckets = 8 * 38;

  void add(std::uint64_t ns) { buckets_[bucket_of(ns)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t at(unsigned bucket) const { return buckets_[bucket].load(std::memory_order_relaxed); }

  // Middle of the bucket in which the given share of all `total` values is reached.
  [[nodiscard]] std::uint64_t quantile(double share, std::uint64_t total) const {
    std::uint64_t below = 0;
    for (unsigned i = 0; i < kBuckets; ++i) {
      below += at(i);
      if (below > 0 && static_cast<double>(below) >= share * static_cast<double>(total)) {
        return (start_of(i) + start_of(i + 1)) / 2;
      }
    }
    return 0;
  }

  static std::uint64_t start_of(unsigned bucket) {
    if (bucket < 8) return bucket;
    return std::uint64_t{8 + bucket % 8} << (bucket / 8 - 1);
  }

 private:
  static unsigned bucket_of(std::uint64_t ns) {
    if (ns < 8) return static_cast<unsigned>(ns);
    const unsigned log = static_cast<unsigned>(std::bit_width(ns)) - 4;  // ns >> log lies in 8..15
    return std::min(kBuckets - 1, 8 * log + static_cast<unsigned>(ns >> log));
  }

  std::array<Counter, kBuckets> buckets_{};
};

struct Function {
  unsigned long ip = 0;
  std::string name;
  Counter entered{0}, returned{0}, unwound{0};
  std::atomic<std::uint64_t> total{0}, min{UINT64_MAX}, max{0};
  Histogram times;

  [[nodiscard]] std::uint32_t left() const { return returned + unwound; }
  // A bucket's middle may lie outside of what was seen.
  [[nodiscard]] std::uint64_t quantile(double share) const {
    return left() == 0 ? 0 : std::clamp(times.quantile(share, left()), min.load(), max.load());
  }

  void file(std::uint64_t ns) {
    total.fetch_add(ns, std::memory_order_relaxed);
    for (auto old = min.load(std::memory_order_relaxed); ns < old && !min.compare_exchange_weak(old, ns);) {
    }
    for (auto old = max.load(std::memory_order_relaxed); ns > old && !max.compare_exchange_weak(old, ns);) {
    }
    times.add(ns);
  }
};

struct Site {
  unsigned long ip;
  std::string name;
};

std::vector<Site> all_sites() {
  std::vector<Site> sites;
  fprobe_for_each_site(
      [](const fprobe_site* site, void* result) {
        static_cast<std::vector<Site>*>(result)->push_back({site->ip, site->demangled});
        return 0;
      },
      &sites);
  return sites;
}

// Functions found by address: open addressing, filled before the probe is registered and only read from then on.
class FunctionTable {
 public:
  explicit FunctionTable(const std::vector<Site>& sites)
      : functions_(sites.size()), slots_(std::bit_ceil(4 * sites.size() + 1)) {
    for (std::size_t i = 0; i < sites.size(); ++i) {
      functions_[i].ip = sites[i].ip;
      functions_[i].name = sites[i].name;
      std::size_t slot = hash(sites[i].ip);
      while (slots_[slot] != nullptr) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = &functions_[i];
    }
  }

  [[nodiscard]] Function* find(unsigned long ip) {
    for (std::size_t i = hash(ip);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] == nullptr || slots_[i]->ip == ip) return slots_[i];
    }
  }

  [[nodiscard]] std::vector<const Function*> called() const {
    std::vector<const Function*> result;
    for (const Function& function : functions_) {
      if (function.entered != 0) result.push_back(&function);
    }
    return result;
  }

 private:
  [[nodiscard]] std::size_t hash(unsigned long ip) const {
    return ((ip * 0x9e3779b97f4a7c15) >> 20) & (slots_.size() - 1);
  }

  std::vector<Function> functions_;
  std::vector<Function*> slots_;
};

// What the handlers need, around the probe: found from the probe as the kernel's container_of does it.
struct LatencyProbe {
  fprobe probe{};
  FunctionTable functions{all_sites()};
};

using Clock = std::chrono::steady_clock;

int on_entry(fprobe* fp, unsigned long entry_ip, unsigned long, ftrace_regs*, void* entry_data) {
  Function* function = reinterpret_cast<LatencyProbe*>(fp)->functions.find(entry_ip);
  if (function == nullptr) return 1;  // no exit wanted
  function->entered.fetch_add(1, std::memory_order_relaxed);
  const auto now = Clock::now().time_since_epoch().count();
  std::memcpy(entry_data, &now, sizeof now);
  return 0;
}

void on_exit(fprobe* fp, unsigned long entry_ip, unsigned long, ftrace_regs* regs, void* entry_data) {
  const auto now = Clock::now().time_since_epoch().count();
  Clock::rep start = 0;
  std::memcpy(&start, entry_data, sizeof start);
  Function* function = reinterpret_cast<LatencyProbe*>(fp)->functions.find(entry_ip);
  const bool unwound = fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND;
  (unwound ? function->unwound : function->returned).fetch_add(1, std::memory_order_relaxed);
  function->file(static_cast<std::uint64_t>(now - start));
}

std::string human(std::uint64_t ns) {
  const double value = static_cast<double>(ns);
  char text[32];
  if (ns < 10'000) std::snprintf(text, sizeof text, "%llu ns", static_cast<unsigned long long>(ns));
  if (ns >= 10'000) std::snprintf(text, sizeof text, "%.1f us", value / 1e3);
  if (ns >= 10'000'000) std::snprintf(text, sizeof text, "%.1f ms", value / 1e6);
  return text;
}

void print_table(std::vector<const Function*> functions, bool all) {
  std::sort(functions.begin(), functions.end(),
            [](const Function* a, const Function* b) { return a->total.load() > b->total.load(); });
  const std::size_t rows = all ? functions.size() : std::min<std::size_t>(40, functions.size());
  const std::size_t width = all ? std::string::npos : 100;
  std::printf("\nBy total time; times include callees and what their probes cost.\n");
  std::printf("%9s %7s %7s %9s %9s %9s %9s  %s\n", "calls", "missed", "thrown", "min", "median", "p99", "max",
              "function");
  for (std::size_t i = 0; i < rows; ++i) {
    const Function& f = *functions[i];
    const std::string name = f.name.size() <= width ? f.name : f.name.substr(0, width) + "...";
    std::printf("%9u %7u %7u %9s %9s %9s %9s  %s\n", f.entered.load(), f.entered - f.left(), f.unwound.load(),
                human(f.left() != 0 ? f.min.load() : 0).c_str(), human(f.quantile(0.5)).c_str(),
                human(f.quantile(0.99)).c_str(), human(f.max.load()).c_str(), name.c_str());
  }
  if (rows < functions.size()) std::printf("%9s and %zu more functions (--all)\n", "...", functions.size() - rows);
}

// Of the functions with enough calls to say something, the one with the highest median.
const Function* slowest(const std::vector<const Function*>& functions) {
  const Function* result = nullptr;
  for (const Function* function : functions) {
    if (function->left() < 100) continue;
    if (result == nullptr || function->quantile(0.5) > result->quantile(0.5)) result = function;
  }
  return result;
}

void print_histogram(const Function& function) {
  std::printf("\nSlowest by median among those called 100 times or more: %s\n", function.name.c_str());
  constexpr unsigned kPerRow = 4;  // half a power of two
  std::array<std::uint64_t, Histogram::kBuckets / kPerRow> rows{};
  for (unsigned i = 0; i < Histogram::kBuckets; ++i) rows[i / kPerRow] += function.times.at(i);
  const auto is_used = [](std::uint64_t count) { return count != 0; };
  const auto first = std::find_if(rows.begin(), rows.end(), is_used);
  const auto last = std::find_if(rows.rbegin(), rows.rend(), is_used).base();
  const std::uint64_t most = *std::max_element(rows.begin(), rows.end());
  for (auto row = first; row < last; ++row) {
    const auto bucket = static_cast<unsigned>(row - rows.begin()) * kPerRow;
    std::printf("%10s .. %-10s %8llu |%s\n", human(Histogram::start_of(bucket)).c_str(),
                human(Histogram::start_of(bucket + kPerRow)).c_str(), static_cast<unsigned long long>(*row),
                std::string((*row * 50 + most - 1) / most, '#').c_str());
  }
}

void print_misses(const fprobe& probe) {
  std::printf("\nMissed in all: %lu (recursion %lu, no frame %lu, dropped %lu, thread %lu)\n", probe.nmissed,
              fprobe_missed(&probe, FPROBE_MISS_RECURSION), fprobe_missed(&probe, FPROBE_MISS_NO_FRAME),
              fprobe_missed(&probe, FPROBE_MISS_DROPPED), fprobe_missed(&probe, FPROBE_MISS_THREAD));
}

struct Options {
  bool all = false;
  const char* log = nullptr;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) options.all = true;
    if (std::strcmp(argv[i], "--log") == 0 && i + 1 < argc) options.log = argv[++i];
  }
  return options;
}

// The workload prints hundreds of failures it provokes: sends them to `log`, if one is named.
int run_workload(const char* log) {
  if (log == nullptr) return RUN_ALL_TESTS();
  const int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return std::perror(log), 1;
  std::fflush(stdout);
  const int output = dup(STDOUT_FILENO);
  const int errors = dup(STDERR_FILENO);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  const int failed = RUN_ALL_TESTS();
  std::fflush(stdout);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  std::printf("What the tests printed is in %s; GoogleTest says they %s.\n", log, failed == 0 ? "passed" : "FAILED");
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const Options options = parse(argc, argv);

  LatencyProbe latency;
  static_assert(offsetof(LatencyProbe, probe) == 0, "the handlers cast");
  latency.probe.entry_handler = on_entry;
  latency.probe.exit_handler = on_exit;
  latency.probe.entry_data_size = sizeof(Clock::rep);
  const int count = fprobe_count_ips_from_filter("*", nullptr);
  if (register_fprobe(&latency.probe, "*", nullptr) != 0) {
    std::fprintf(stderr, "register_fprobe: %s\n", fprobe_last_error());
    return 1;
  }
  const int failed = run_workload(options.log);
  unregister_fprobe(&latency.probe);

  const std::vector<const Function*> called = latency.functions.called();
  std::printf("%d functions probed, %zu of them called.\n", count, called.size());
  print_table(called, options.all);
  if (const Function* function = slowest(called)) print_histogram(*function);
  print_misses(latency.probe);
  return failed;
}
