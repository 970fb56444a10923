// The same program in C++, and once more with the typed interface.
#include <fprobe/fprobe.hpp>

// consumer.c's main becomes a function of this program.
#define main consumer_main
#include "consumer.c"
#undef main

static bool typed_interface_works(int value) {
  int seen = 0, returned = 0;
  {
    const libfprobe::probe typed(
        &consumer_victim, [&](libfprobe::context& call) { seen = std::get<0>(call.args<int>()); },
        [&](libfprobe::context& call) { returned = call.result<int>(); });
    consumer_victim(value);
  }
  consumer_victim(value + 1);
  return seen == value && returned == 2 * value;
}

int main(int argc, char** argv) {
  if (!typed_interface_works(argc + 5)) return std::puts("the typed interface does not work"), 1;
  return consumer_main(argc, argv);
}
