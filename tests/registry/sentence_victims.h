#ifndef FPROBE_TESTS_REGISTRY_SENTENCE_VICTIMS_H_
#define FPROBE_TESTS_REGISTRY_SENTENCE_VICTIMS_H_

#include <fprobe/fprobe.h>

#include <string>

int call_sentence_victims(int x);             // calls all of them
unsigned long address_of_a_quiet_function();  // app::quiet_one(int), which has no site

#endif  // FPROBE_TESTS_REGISTRY_SENTENCE_VICTIMS_H_
