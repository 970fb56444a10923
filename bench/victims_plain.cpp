// Functions without a site: the bare loop's, and the eight callers of a chain.
#include "victims.h"

namespace {

// The sum keeps each call from being a tail call.
template <auto Step, int Depth>
struct Chain {
  [[gnu::noinline]] static long call(long value, long index) {
    return Chain<Step, Depth - 1>::call(value, index) + Depth;
  }
};
template <auto Step>
struct Chain<Step, 1> {
  [[gnu::noinline]] static long call(long value, long index) { return Step(value, index) + 1; }
};

}  // namespace

extern "C" {

[[gnu::noinline]] long plain_step(long value, long index) {
  return FPROBE_BENCH_STEP_BODY(value, index);
}
long plain_chain(long value, long index) {
  return Chain<plain_step, 7>::call(value, index) + 8;
}
long probed_chain(long value, long index) {
  return Chain<probed_step, 7>::call(value, index) + 8;
}

}  // extern "C"
