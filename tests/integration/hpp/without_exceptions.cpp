// Compiled with -fno-exceptions and -fno-rtti: probes work, and a constructor that would throw ends the process.
#include <fprobe/fprobe.hpp>

#include <cstdio>
#include <tuple>

int without_exceptions_victim(int value) __attribute__((noinline));
int without_exceptions_victim(int value) {
  asm volatile("");
  return value + 1;
}

int main(int argc, char**) {
  using libfprobe::context;
  int sum = 0;
  std::error_code error;
  const libfprobe::probe probe(
      &without_exceptions_victim, [&](context& call) { sum += std::get<0>(call.args<int>()); },
      [&](context& call) { sum += call.result<int>(); }, error);
  const libfprobe::probe refused(libfprobe::by_filter{"no_such_function"}, nullptr, nullptr, error);
  without_exceptions_victim(20 * argc);
  std::printf("sum %d, %s\n", sum, error.message().c_str());
  std::fflush(stdout);
  const libfprobe::probe fatal(libfprobe::by_filter{"no_such_function"}, nullptr, nullptr);
  std::puts("not reached");
}
