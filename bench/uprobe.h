// A kernel uprobe on a function of this program, for comparison: a counting perf event without a ring buffer.
//
// perf_event_open(2): the PMU "uprobe" takes the file's path in config1 (uprobe_path) and the offset in config2
// (probe_offset); a bit of config, named by the PMU's format/retprobe, asks for the return.
#ifndef FPROBE_BENCH_UPROBE_H_
#define FPROBE_BENCH_UPROBE_H_

#include <string>

class Uprobe {
 public:
  enum class End { kEntry, kReturn };

  // Check is_open().  The function must lie in the program itself.
  Uprobe(const void* function, End end);
  ~Uprobe();
  Uprobe(const Uprobe&) = delete;
  Uprobe& operator=(const Uprobe&) = delete;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] const std::string& reason() const { return reason_; }  // why it is not open
  [[nodiscard]] unsigned long hits() const;

 private:
  int descriptor_ = -1;
  std::string reason_;
};

#endif  // FPROBE_BENCH_UPROBE_H_
