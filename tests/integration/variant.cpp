// What differs between the forms that the tests are linked in.
#include "integration/support.h"

namespace contract {

const char* const kVictimModule = FPROBE_VICTIM_MODULE;
const bool kVictimsAreShared = FPROBE_VICTIMS_ARE_SHARED;
#ifndef FPROBE_REFUSE_FILE
#define FPROBE_REFUSE_FILE 0
#endif
const bool kTextIsWritten = FPROBE_REFUSE_FILE == 0;

}  // namespace contract
