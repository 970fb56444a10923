/* Two versions of one name, as a library keeps them whose function changed: who was linked before calls the old one. */
long versioned_old(long x);
long versioned_new(long x);
long call_both_versions(long x);

long versioned_old(long x) {
  return x + 1;
}
__asm__(".symver versioned_old, versioned@V1");

long versioned_new(long x) {
  return x + 2;
}
__asm__(".symver versioned_new, versioned@@V2");

long call_both_versions(long x) {
  return versioned_old(x) + versioned_new(x);
}
