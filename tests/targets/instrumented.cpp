// C++ functions of every kind that gets a site: members, constructors, destructors, virtual ones with their thunks,
// templates, lambdas, functions with exceptions and so a cold part.  Counted, never probed.
namespace targets {

struct Base {
  virtual ~Base();
  virtual int first(int x) { return x + 1; }
};
struct Second {
  virtual ~Second() {}
  virtual Second* clone() { return this; }
  virtual int second(int x) = 0;
};
Base::~Base() {}

struct Both : Base, virtual Second {
  Both();
  ~Both() override;
  int first(int x) override { return x * 2; }
  Both* clone() override { return this; }  // a covariant thunk
  int second(int x) override;              // a virtual thunk
  int member = 0;
};
Both::Both() = default;
Both::~Both() {
  member = 1;
}
int Both::second(int x) {
  return x + member;
}

struct Failure {
  int code;
};
[[gnu::noinline]] int thrower(int x) {
  if (x > 3) throw Failure{x};
  return x;
}
int catcher(int x) {
  try {
    return thrower(x);
  } catch (const Failure& failure) {
    return failure.code * 2;
  }
}

template <int N>
[[gnu::noinline]] int templated(int x) {
  return x * N;
}
int call_templates(int x) {
  return templated<2>(x) + templated<3>(x) + templated<5>(x);
}

using Function = int (*)(int);
Function make_lambda() {
  return [](int x) { return x + 40; };
}

inline int inlined(int x) {
  return thrower(x) - 1;
}
Function address_of_inlined() {
  return inlined;
}

}  // namespace targets

extern "C" int use_targets(int x) {
  targets::Both both;
  targets::Second* second = both.clone();
  return second->second(x) + both.first(x) + targets::catcher(x) + targets::call_templates(x) +
         targets::make_lambda()(x) + targets::address_of_inlined()(x);
}
