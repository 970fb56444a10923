/* Compiled in many ways: instrument.sh looks at the first instructions of instrument_victim. */
int instrument_victim(int x);
int main(int argc, char** argv) {
  (void)argv;
  return instrument_victim(argc) == 0;
}
__attribute__((noinline)) int instrument_victim(int x) {
  return x * 3;
}
