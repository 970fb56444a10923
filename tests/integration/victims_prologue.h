/* victims_prologue.c, compiled with -pg by gcc and, under other names, by clang. */
#ifndef FPROBE_TESTS_INTEGRATION_VICTIMS_PROLOGUE_H_
#define FPROBE_TESTS_INTEGRATION_VICTIMS_PROLOGUE_H_

#ifdef __cplusplus
extern "C" {
#endif

struct prologue_victims {
  const char* compiler;
  int arguments_are_read;                /* an entry handler may read and change them */
  long (*weigh)(long, long, long, long); /* a + 2b + 3c + 4d, all kept over a call */
  long (*twice)(long);                   /* calls nothing */
  double (*halve)(double);
  long (*realigned)(long, long, long, long, long, long, long,
                    long);              /* 1*a + 2*b + ... 8*h, a realigned and a movable frame */
  long (*aligned)(long);                /* a realigned frame, returns its argument */
  long (*large)(long);                  /* a frame of many pages, returns its argument */
  long (*sum)(int, ...);                /* of that many longs */
  long (*call)(long (*)(void*), void*); /* calls back, adds 1 */
  long (*tail)(long);                   /* ends in a call of twice */
};
extern const struct prologue_victims gcc_victims, clang_victims;

#ifdef __cplusplus
}
#endif

#endif /* FPROBE_TESTS_INTEGRATION_VICTIMS_PROLOGUE_H_ */
