// A function with a site and next to nothing else.
namespace golden {
[[gnu::noinline]] long step(long value) {
  asm volatile("" : "+r"(value));
  return value + 1;
}
}  // namespace golden
