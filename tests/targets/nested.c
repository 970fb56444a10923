// gcc's nested functions: their static chain lies on the stack above the return slot when a profiling call runs.
int outer(int n) {
  int kept = n;
  __attribute__((noinline)) int called(int x) {
    return x + kept++;
  }
  __attribute__((noinline)) int taken(int x) {
    return x * kept;
  }
  int (*volatile pointer)(int) = taken;
  return called(1) + pointer(2) + kept;
}
