/* nested.c */
#ifndef FPROBE_TESTS_INTEGRATION_UNWIND_NESTED_H_
#define FPROBE_TESTS_INTEGRATION_UNWIND_NESTED_H_

#ifdef __cplusplus
extern "C" {
#endif

void leave_nested_functions(int times);

#ifdef __cplusplus
}
#endif

#endif /* FPROBE_TESTS_INTEGRATION_UNWIND_NESTED_H_ */
