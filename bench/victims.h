// What the benchmarks call: the same small function with and without a site, alone and below eight ordinary callers.
//
//   plain_step    compiled without instrumentation: the bare loop
//   probed_step   compiled through fprobe_instrument(), as a user's code is
//   *_chain       eight plain functions above it, none of them a tail call: their returns show what a probe does to
//                 the return predictor of the code around it
//
// Each result is the next call's argument: a dependent chain, as in real code, so that nothing is hidden behind
// out-of-order execution of the next call.
#ifndef FPROBE_BENCH_VICTIMS_H_
#define FPROBE_BENCH_VICTIMS_H_

extern "C" {
long plain_step(long value, long index);
long probed_step(long value, long index);
long plain_chain(long value, long index);
long probed_chain(long value, long index);
}

// The body of both, seen by the two files that compile it.
#define FPROBE_BENCH_STEP_BODY(value, index) (((value) ^ ((index) >> 3)) * 3 + (index))

#endif  // FPROBE_BENCH_VICTIMS_H_
