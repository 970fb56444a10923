// What one hit costs: ns above the same loop without a probe, baselines in the same run.
#include "closing_table.h"
#include "counting_probe.h"
#include "victims.h"

#include <memory>

namespace {

constexpr const char* kVictim = "probed_step";

template <auto Step>
[[gnu::noinline]] void call_in_a_loop(benchmark::State& state) {
  long value = 1, index = 0;
  for (auto _ : state) value = Step(value, index++);
  benchmark::DoNotOptimize(value);
}

// The loop while `count` probes are attached; every hit must have been seen.
template <auto Step>
void call_probed(benchmark::State& state, const CountingOptions& options, int count) {
  std::unique_ptr<CountingProbe> probes[2];
  for (int i = 0; i < count; ++i) probes[i] = std::make_unique<CountingProbe>(kVictim, options);
  call_in_a_loop<Step>(state);
  for (int i = 0; i < count; ++i) {
    if (!probes[i]->saw(static_cast<unsigned long>(state.iterations()))) fail(state, "a handler missed a hit");
  }
}

// Adds the benchmark to the run and to the table.
template <auto Step>
void add(TableForm& form, const char* name, const char* baseline, const CountingOptions& options = {}, int count = 0) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { call_probed<Step>(state, options, count); });
  form.rows.push_back({name, baseline});
}

}  // namespace

int main(int argc, char** argv) {
  const CountingOptions entry{.entry = true}, exit{.exit = true}, both{.entry = true, .exit = true};
  CountingOptions data = both, general = both, general_entry = entry;
  data.data_size = 2 * sizeof(long);
  general.flags = general_entry.flags = FPROBE_FL_GENERAL_REGS;

  TableForm form{"One call, and one hit above the bare loop; counting handlers", "entry"};
  add<plain_step>(form, "bare loop", "");
  add<probed_step>(form, "idle site", "bare loop");
  add<probed_step>(form, "entry", "bare loop", entry, 1);
  add<probed_step>(form, "exit", "bare loop", exit, 1);
  add<probed_step>(form, "entry + exit", "bare loop", both, 1);
  add<probed_step>(form, "entry + exit, 16 bytes of entry data", "bare loop", data, 1);
  add<probed_step>(form, "entry + exit, two probes", "bare loop", both, 2);
  add<probed_step>(form, "entry, general registers", "bare loop", general_entry, 1);
  add<probed_step>(form, "entry + exit, general registers", "bare loop", general, 1);
  add<plain_chain>(form, "bare loop, 8 callers", "");
  add<probed_chain>(form, "idle site, 8 callers", "bare loop, 8 callers");
  add<probed_chain>(form, "entry, 8 callers", "bare loop, 8 callers", entry, 1);
  add<probed_chain>(form, "entry + exit, 8 callers", "bare loop, 8 callers", both, 1);
  return run_and_print(argc, argv, form);
}
