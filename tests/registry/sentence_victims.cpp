// Functions whose names people get wrong, and functions without a site.
#include "registry/sentence_victims.h"

#if defined(__clang__)
#define KEPT __attribute__((noinline, used))
#else
#define KEPT __attribute__((noipa, used))
#endif

extern "C" KEPT int c_function(int x) {
  return x + 1;
}

namespace app {

KEPT int work(int x) {
  return x + 2;
}
KEPT int work(double x) {
  return static_cast<int>(x) + 3;
}

struct Service {
  KEPT int handle(const std::string& request) { return static_cast<int>(request.size()); }
  KEPT int operator()(int x) const { return x + 4; }
};

template <class T>
KEPT T doubled(T x) {
  return x + x;
}

FPROBE_NOTRACE KEPT int quiet_one(int x);
FPROBE_NOTRACE KEPT int quiet_two(int x);
int quiet_one(int x) {
  return x + 5;
}
int quiet_two(int x) {
  return x + 6;
}

}  // namespace app

int call_sentence_victims(int x) {
  app::Service service;
  return c_function(x) + app::work(x) + app::work(1.0 * x) + service.handle("request") + service(x) + app::doubled(x) +
         app::quiet_one(x) + app::quiet_two(x);
}

unsigned long address_of_a_quiet_function() {
  return reinterpret_cast<unsigned long>(&app::quiet_one);
}
