/* Functions with sites, for the registry's tests. */
#ifndef FPROBE_TESTS_REGISTRY_VICTIMS_H_
#define FPROBE_TESTS_REGISTRY_VICTIMS_H_

#ifdef __cplusplus
extern "C" {
#endif

/* victims.c: -mfentry */
long first_victim(long x);  /* x + 1 */
long second_victim(long x); /* x + 2 */
long third_victim(long x);  /* x + 3 */
long calls_back(long (*callback)(void*), void* argument);

/* patchable_victims.c: -fpatchable-function-entry=5 */
long patchable_victim(long x); /* x + 4 */

#ifdef __cplusplus
}
#endif

#endif /* FPROBE_TESTS_REGISTRY_VICTIMS_H_ */
