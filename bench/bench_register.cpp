// What attaching and detaching 1, 100 and 10,000 functions costs, by addresses, names and filter; while the process has
// one thread (plain stores) and while another one lives (the whole protocol, with its barriers).
#include <fprobe/fprobe.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "closing_table.h"
#include "many_functions.h"

namespace {

using Clock = std::chrono::steady_clock;

int ignore_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  return 0;
}
void ignore_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {}

// What is attached and how it is named.
class Selection {
 public:
  enum class Way { kAddresses, kNames, kFilter };

  Selection(int count, Way way) : way_(way) {
    for (int i = 0; i < count; ++i) {
      addresses_.push_back(reinterpret_cast<unsigned long>(many_functions[i]));
      char name[16];
      std::snprintf(name, sizeof name, "function_%04d", i);
      texts_.emplace_back(name);
    }
    for (const std::string& text : texts_) names_.push_back(text.c_str());
    filter_ = count == 1 ? "function_0000" : count == 100 ? "function_00??" : "function_????";
  }

  int attach(fprobe& probe) {
    const int count = static_cast<int>(addresses_.size());
    if (way_ == Way::kAddresses) return register_fprobe_ips(&probe, addresses_.data(), count);
    if (way_ == Way::kNames) return register_fprobe_syms(&probe, names_.data(), count);
    return register_fprobe(&probe, filter_, nullptr);
  }
  [[nodiscard]] int count_by_filter() const { return fprobe_count_ips_from_filter(filter_, nullptr); }

 private:
  Way way_;
  std::vector<unsigned long> addresses_;
  std::vector<std::string> texts_;
  std::vector<const char*> names_;
  const char* filter_;
};

// A thread that lives and is blocked while the object does.
class OtherThread {
 public:
  ~OtherThread() {
    stop_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> stop_;
  std::thread thread_{[this] { stop_.get_future().wait(); }};
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

enum class Measured { kAttach, kDetach };

void attach_and_detach(benchmark::State& state, Selection& selection, Measured measured, bool with_thread) {
  const std::unique_ptr<OtherThread> thread = with_thread ? std::make_unique<OtherThread>() : nullptr;
  fprobe probe{};
  probe.entry_handler = ignore_entry;
  probe.exit_handler = ignore_exit;
  for (auto _ : state) {
    const Clock::time_point attaching = Clock::now();
    const int result = selection.attach(probe);
    const double attach_seconds = seconds_since(attaching);
    if (result != 0) return fail(state, fprobe_last_error());
    const Clock::time_point detaching = Clock::now();
    unregister_fprobe(&probe);
    state.SetIterationTime(measured == Measured::kAttach ? attach_seconds : seconds_since(detaching));
  }
}

void add(TableForm& form, const std::string& name, int count, std::function<void(benchmark::State&)> function) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(function))->UseManualTime();
  form.rows.push_back({name, ""});
  form.divisors[name] = count;
}

void add_all_of(TableForm& form, int count) {
  constexpr struct {
    Selection::Way way;
    const char* name;
  } kWays[] = {{Selection::Way::kAddresses, "addresses"},
               {Selection::Way::kNames, "names"},
               {Selection::Way::kFilter, "filter"}};
  const std::string suffix = ", " + std::to_string(count);
  for (const bool with_thread : {false, true}) {
    const std::string thread = with_thread ? ", 2 threads" : "";
    for (const auto& way : kWays) {
      auto selection = std::make_shared<Selection>(count, way.way);
      add(form, std::string("attach by ") + way.name + suffix + thread, count,
          [=](benchmark::State& state) { attach_and_detach(state, *selection, Measured::kAttach, with_thread); });
    }
    auto selection = std::make_shared<Selection>(count, Selection::Way::kAddresses);
    add(form, "detach" + suffix + thread, count,
        [=](benchmark::State& state) { attach_and_detach(state, *selection, Measured::kDetach, with_thread); });
  }
  auto selection = std::make_shared<Selection>(count, Selection::Way::kFilter);
  add(form, "count by filter" + suffix, count, [=](benchmark::State& state) {
    for (auto _ : state) {
      const Clock::time_point start = Clock::now();
      const int found = selection->count_by_filter();
      state.SetIterationTime(seconds_since(start));
      if (found != count) return fail(state, "the filter matches another number of functions");
    }
  });
}

// The first registration of a process also reads symbols and prepares threads.
void print_first_registration() {
  fprobe probe{};
  probe.entry_handler = ignore_entry;
  Selection selection(1, Selection::Way::kNames);
  const Clock::time_point start = Clock::now();
  const int result = selection.attach(probe);
  const double seconds = seconds_since(start);
  if (result != 0) {
    std::fprintf(stderr, "%s\n", fprobe_last_error());
    std::exit(1);
  }
  unregister_fprobe(&probe);
  std::printf("First registration of the process, by one name: %.2f ms\n", seconds * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  print_first_registration();
  TableForm form{"Attaching and detaching functions"};
  form.manual_time = true;
  form.unit = 1000;
  form.unit_name = "us";
  for (const int count : {1, 100, kManyFunctions}) add_all_of(form, count);
  return run_and_print(argc, argv, form, "0.005");
}
