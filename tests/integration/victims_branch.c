/* Compiled with -fcf-protection: endbr64 comes before the site. */
#include "integration/victims.h"

VICTIM long guarded(long x) {
  return x + 50;
}
