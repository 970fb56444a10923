// A hit of libfprobe beside a hit of a kernel uprobe, in the same run and the same loop.
//
// The uprobe sits on a twin function without a site: both tools on the same bytes would disturb each other.  Its
// handler is the kernel's own (a counter), the cheapest there is; libfprobe's handlers count in the program.
#include <cstdio>
#include <memory>

#include "closing_table.h"
#include "counting_probe.h"
#include "uprobe.h"
#include "victims.h"

extern "C" {
long uprobe_twin_nop5(long value, long index);
long uprobe_twin_push(long value, long index);
long uprobe_twin_plain(long value, long index);
}

namespace {

template <auto Step>
[[gnu::noinline]] void call_in_a_loop(benchmark::State& state) {
  long value = 1, index = 0;
  for (auto _ : state) value = Step(value, index++);
  benchmark::DoNotOptimize(value);
}

void call_probed(benchmark::State& state, const CountingOptions& options) {
  const CountingProbe probe("probed_step", options);
  call_in_a_loop<probed_step>(state);
  if (!probe.saw(static_cast<unsigned long>(state.iterations()))) fail(state, "a handler missed a hit");
}

template <auto Step>
void call_under_uprobe(benchmark::State& state, Uprobe::End end) {
  const Uprobe uprobe(reinterpret_cast<const void*>(Step), end);
  if (!uprobe.is_open()) return fail(state, uprobe.reason().c_str());
  call_in_a_loop<Step>(state);
  if (uprobe.hits() != static_cast<unsigned long>(state.iterations())) fail(state, "the uprobe missed a hit");
}

template <class Function>
void add(TableForm& form, const char* name, const char* baseline, Function function) {
  benchmark::RegisterBenchmark(name, function);
  form.rows.push_back({name, baseline});
}

// The three rows of one twin.
template <auto Step>
void add_uprobes(TableForm& form, const std::string& site) {
  const std::string bare = "bare loop, twin on " + site;
  add(form, bare.c_str(), "", call_in_a_loop<Step>);
  add(form, ("uprobe on " + site).c_str(), bare.c_str(),
      [](benchmark::State& state) { call_under_uprobe<Step>(state, Uprobe::End::kEntry); });
  add(form, ("uretprobe on " + site).c_str(), bare.c_str(),
      [](benchmark::State& state) { call_under_uprobe<Step>(state, Uprobe::End::kReturn); });
}

// Why the kernel lets us have no uprobe; "" when it does.
std::string try_uprobe() {
  return Uprobe(reinterpret_cast<const void*>(uprobe_twin_plain), Uprobe::End::kEntry).reason();
}

}  // namespace

int main(int argc, char** argv) {
  TableForm form{"One call, and one hit above the bare loop", "libfprobe, entry"};
  add(form, "bare loop", "", call_in_a_loop<plain_step>);
  add(form, "libfprobe, entry", "bare loop", [](benchmark::State& state) { call_probed(state, {.entry = true}); });
  add(form, "libfprobe, entry + exit", "bare loop",
      [](benchmark::State& state) { call_probed(state, {.entry = true, .exit = true}); });

  const std::string refused = try_uprobe();
  if (refused.empty()) {
    add_uprobes<uprobe_twin_nop5>(form, "nop5");
    add_uprobes<uprobe_twin_push>(form, "push %rbp");
    add_uprobes<uprobe_twin_plain>(form, "an ordinary instruction");
  }
  const int status = run_and_print(argc, argv, form);
  if (!refused.empty()) std::printf("\nNo uprobe was measured: %s.\n", refused.c_str());
  return status;
}
