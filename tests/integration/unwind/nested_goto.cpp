// GNU C's nested functions; see nested.c.
#include "nested.h"
#include "scenario.h"

SCENARIO(AGotoOutOfANestedFunctionLeavesProbedFrames, kJumping) {
  leave_nested_functions(100000);
}
