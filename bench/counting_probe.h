// A probe whose handlers count, attached while the object lives.
//
// Counting is the least a useful handler does; each hit is proved by it.  The handlers are compiled with
// -mgeneral-regs-only, so that FPROBE_FL_GENERAL_REGS may be set.
#ifndef FPROBE_BENCH_COUNTING_PROBE_H_
#define FPROBE_BENCH_COUNTING_PROBE_H_

#include <fprobe/fprobe.h>

#include <cstddef>

struct CountingOptions {
  bool entry = false;
  bool exit = false;
  unsigned flags = 0;
  std::size_t data_size = 0;  // the entry handler writes and the exit handler reads its first word
};

class CountingProbe {
 public:
  // Ends the process with the library's sentence when `function` cannot be probed.
  CountingProbe(const char* function, const CountingOptions& options);
  ~CountingProbe();
  CountingProbe(const CountingProbe&) = delete;
  CountingProbe& operator=(const CountingProbe&) = delete;

  // Whether each handler ran `calls` times and nothing was missed.
  [[nodiscard]] bool saw(unsigned long calls) const;

  struct Counters {
    fprobe probe;  // first: handlers get its address
    unsigned long entries, exits, data_errors;
  };

 private:
  Counters counters_{};
  CountingOptions options_;
};

// The handlers (counting_handlers.cpp).
int count_entry(fprobe* probe, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data);
void count_exit(fprobe* probe, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data);

#endif  // FPROBE_BENCH_COUNTING_PROBE_H_
