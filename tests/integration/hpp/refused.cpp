// One misuse per CASE that must not compile; refused.sh looks for the sentence. CASE 0 compiles: its like, done right.
#include <complex>
#include <fprobe/fprobe.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using libfprobe::by_filter;
using libfprobe::context;
using libfprobe::probe;

typedef float Vector16 __attribute__((vector_size(16)));
typedef float Vector32 __attribute__((vector_size(32)));
struct WrappedVector {
  Vector32 a;
};
union Union {
  int a;
  float b;
};
class Private {
 public:
  Private();

 private:
  int a_;
  float b_;
};
struct Base {
  int a;
};
struct Derived : Base {
  float b;
};
struct BitFields {
  int a : 8;
  int b : 8;
  float c;
};
struct __attribute__((packed)) Packed {
  char a;
  long b;
};
struct Nine {
  char a, b, c, d, e, f, g, h, i;
};
struct WrongStandIn {
  WrongStandIn();

 private:
  int a_;
};
template <>
struct libfprobe::passed_as<WrongStandIn> {
  using type = long;
};
struct Incomplete;
Incomplete incomplete_function();
int function(int);

void refused(context& call, const by_filter& target) {
  const auto handler = [](context&) {};
#if CASE == 0
  call.args<long double, std::string, const Union&, Private*>();
  call.args<int, const std::unique_ptr<int>&>();
  call.result<std::string>();
  probe::with_data<int[2]>(target, handler, [](context&) { return 1; });
  probe(function, handler, nullptr);
#elif CASE == 1
  call.args<int, Vector16>();
#elif CASE == 2
  call.args<Vector32>();
#elif CASE == 3
  call.args<int, WrappedVector>();
#elif CASE == 4
  call.args<__complex__ double>();
#elif CASE == 5
  call.args<std::complex<double> >();
#elif CASE == 6
  call.args<Union>();
#elif CASE == 7
  call.args<Private>();
#elif CASE == 8
  call.args<Derived>();
#elif CASE == 9
  call.args<BitFields>();
#elif CASE == 10
  call.args<Packed>();
#elif CASE == 11
  call.args<Nine>();
#elif CASE == 12
  call.args<WrongStandIn>();
#elif CASE == 13
  call.args<int[3]>();
#elif CASE == 14
  call.args<std::unique_ptr<int> >();
#elif CASE == 15
  call.result<long double>();
#elif CASE == 16
  call.result<std::optional<int> >();
#elif CASE == 17
  call.set_result<Vector16>(Vector16());
#elif CASE == 18
  call.args<Private(int)>();
#elif CASE == 19
  call.data<std::string>();
#elif CASE == 20
  call.data<long[16]>();
#elif CASE == 21
  call.data<long double>();
#elif CASE == 22
  probe::with_data<std::vector<int> >(target, handler, handler);
#elif CASE == 23
  probe::with_data<long[16]>(target, handler, handler);
#elif CASE == 24
  probe(
      target, [](context&) { return 1; }, nullptr);
#elif CASE == 25
  probe(
      target, [](int) {}, nullptr);
#elif CASE == 26
  probe(target, nullptr, [](context&, int) {});
#elif CASE == 27
  probe("function", handler, nullptr);
#elif CASE == 28
  probe(42, handler, nullptr);
#elif CASE == 29
  probe(&incomplete_function, handler, nullptr);
#endif
}
