/*
 * What victims count about themselves, to be compared with what the probes saw.
 *
 * Every victim says CALLED() first and RETURNED() last; a frame left by an exception, a cancellation or a jump never
 * says RETURNED(). The counts lie in memory that the scenario's child process shares with its parent (scenario.cpp).
 */
#ifndef FPROBE_TESTS_INTEGRATION_UNWIND_TALLY_H_
#define FPROBE_TESTS_INTEGRATION_UNWIND_TALLY_H_

#ifdef __cplusplus
extern "C" {
#endif

struct victim_tally {
  unsigned long calls;
  unsigned long returns;
};
extern struct victim_tally* g_victim_tally;

#ifdef __cplusplus
}
#endif

/* Counters of many threads, read after they are joined: relaxed. */
#define CALLED() ((void)__atomic_fetch_add(&g_victim_tally->calls, 1, __ATOMIC_RELAXED))
#define RETURNED() ((void)__atomic_fetch_add(&g_victim_tally->returns, 1, __ATOMIC_RELAXED))

/* One call, one frame: neither inlined nor cloned nor analysed across. */
#ifdef __clang__
#define VICTIM __attribute__((noinline))
#else
#define VICTIM __attribute__((noipa))
#endif

#endif /* FPROBE_TESTS_INTEGRATION_UNWIND_TALLY_H_ */
