// What the storms share: the functions with sites at every offset of a cache line, a probe that proves the unregister
// promise, and the knobs of longer runs.
//
//   FPROBE_STRESS_SCALE   multiplies the counts (default 1); tests/soak/run.sh raises it
//   FPROBE_STRESS_SEED    the random choices of a run; printed, so that a run can be repeated
#ifndef FPROBE_TESTS_STRESS_STORM_H_
#define FPROBE_TESTS_STRESS_STORM_H_

#include <fprobe/fprobe.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace storm {

inline constexpr unsigned kOffsets = 64, kFamilies = 6, kFunctions = kOffsets * kFamilies, kTailFamily = 4;
inline constexpr const char* kFamilyNames[kFamilies] = {"call", "got", "gcc_nops", "clang_nop", "tail", "page"};

using Function = long (*)(long, long, long, long, long, long);
extern "C" const Function storm_functions[kFunctions];  // storm_functions.S: 64 * family + offset

// What function `index` returns; a tail-calling one returns what its target does.
constexpr long constant_of(unsigned index) {
  return index / kOffsets == kTailFamily ? index % kOffsets : index;
}
constexpr long expected(unsigned index, long a, long b, long c, long d, long e, long f) {
  return constant_of(index) + a + 2 * b + c + d + e + f;
}
inline unsigned long address_of(unsigned index) {
  return reinterpret_cast<unsigned long>(storm_functions[index]);
}
// The function whose site lies at `entry_ip`; kFunctions when none does.
unsigned index_of(unsigned long entry_ip);
// Calls function `index` with arguments made of `salt`; false when a wrong value comes back.
bool call(unsigned index, long salt);

unsigned long scale();
std::uint64_t seed();

class Random {  // xorshift64*
 public:
  explicit Random(std::uint64_t stream)
      : state_((seed() + 1) * 0x9e3779b97f4a7c15u + (stream + 1) * 0xbf58476d1ce4e5b9u) {}
  std::uint32_t below(std::uint32_t limit) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>(((state_ * 0x2545f4914f6cdd1du) >> 32) * limit >> 32);
  }

 private:
  std::uint64_t state_;
};

// The SigBlk, SigIgn and SigCgt lines of /proc/self/status.
std::string signal_state();

// What handlers found wrong; each must be 0.
struct Failures {
  std::atomic<unsigned long> after_unregister{0};  // a handler ran although unregister_fprobe had returned
  std::atomic<unsigned long> foreign_site{0};      // entry_ip is no site of ours
  std::atomic<unsigned long> wrong_data{0};        // entry data is not what the entry handler left, or not there
  std::atomic<unsigned long> wrong_result{0};      // an exit handler saw another return value than the caller

  [[nodiscard]] unsigned long sum() const { return after_unregister + foreign_site + wrong_data + wrong_result; }
};
extern Failures failures;

// Hits seen by handlers, by function.
extern std::array<std::atomic<unsigned long>, kFunctions> entry_hits, exit_hits;

enum class Handlers { kEntry, kExit, kBoth };

// A probe on the heap whose handlers check that it still lives.  After unregister_fprobe the struct is marked dead and
// overwritten; it stays in quarantine for a while, so that a late handler finds the mark and not reused memory.
class Probe {
 public:
  explicit Probe(Handlers handlers);
  ~Probe();  // must be unregistered
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  int attach(std::vector<unsigned long>& addresses);
  // unregister_fprobe; or unregister_fprobe_async and fprobe_synchronize.
  int detach(bool in_two_steps);
  [[nodiscard]] unsigned long entries() const { return entries_; }
  [[nodiscard]] unsigned long exits() const { return exits_; }
  [[nodiscard]] unsigned long missed() const { return fprobe_.nmissed; }

  // Takes a detached probe out of use.
  static void bury(std::unique_ptr<Probe> probe);

 private:
  static constexpr std::uint32_t kAlive = 0x600d600d, kDead = 0xdeaddead;
  struct Data {
    unsigned long entry_ip, ret_ip;
    long argument_sum;
  };
  static int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*);
  static void on_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*);
  static Probe* alive(fprobe* probe);

  fprobe fprobe_{};  // first: handlers get its address
  std::atomic<std::uint32_t> state_{kAlive};
  std::atomic<unsigned long> entries_{0}, exits_{0};
};

}  // namespace storm

#endif  // FPROBE_TESTS_STRESS_STORM_H_
