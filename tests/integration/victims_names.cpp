// See victims.h: the kinds of names that C++ functions have.
#include "integration/victims.h"

namespace space {

VICTIM long over(int x) {
  return x;
}
VICTIM long over(double x) {
  return 2 * static_cast<long>(x);
}

template <class T>
VICTIM long sized(long x) {
  return x * static_cast<long>(sizeof(T));
}

struct Number {
  long value;
  VICTIM long operator()(long factor) const { return value * factor; }
};

class Widget {
 public:
  VICTIM explicit Widget(long x) : value_(x) {}
  VICTIM virtual ~Widget() {}
  VICTIM long value() const { return value_; }

 private:
  long value_;
};

// Constructs its base by the base constructor; a Widget alone is constructed by the complete one.
class Gadget : public Widget {
 public:
  VICTIM explicit Gadget(long x) : Widget(x) {}
};

struct Left {
  virtual ~Left() = default;
  virtual long left(long x) = 0;
};
struct Right {
  virtual ~Right() = default;
  virtual long right(long x) = 0;
};
struct Both : Left, Right {
  VICTIM long left(long x) override { return 12 * x; }
  VICTIM long right(long x) override { return 13 * x; }
};

__attribute__((abi_tag("v2"))) VICTIM long tagged(long x) {
  return 17 * x;
}

template <class A, class B>
VICTIM long paired(A a, B b) {
  return static_cast<long>(a) + static_cast<long>(b);
}

VICTIM bool operator<(const Number& a, const Number& b) {
  return a.value < b.value;
}
VICTIM bool operator>(const Number& a, const Number& b) {
  return a.value > b.value;
}

VICTIM long call_right(Right& right, long x) {
  return right.right(x);
}

}  // namespace space

namespace {

VICTIM long hidden(long x) {
  return 11 * x;
}

}  // namespace

extern "C" {

VICTIM long call_overloads(long x) {
  return space::over(static_cast<int>(x)) + space::over(static_cast<double>(x));
}
VICTIM long call_widget(long x) {
  const space::Widget widget(x);
  const space::Gadget gadget(x);
  return widget.value() + gadget.value();
}
VICTIM long call_template(long x) {
  return space::sized<int>(x) + space::sized<long>(x);
}
VICTIM long call_lambda(long x) {
  const auto fivefold = [](long y) __attribute__((noinline)) {
    return 5 * y;
  };
  return fivefold(x);
}
VICTIM long call_operator(long x) {
  const space::Number seven{7};
  return seven(x);
}
VICTIM long call_anonymous(long x) {
  return hidden(x);
}
VICTIM long call_virtual(long x) {
  space::Both both;
  return space::call_right(both, x);
}

VICTIM long call_tagged(long x) {
  return space::tagged(x);
}
VICTIM long call_pair(long x) {
  return space::paired<int, long>(static_cast<int>(x), x);
}
VICTIM long call_compare(long x) {
  return (space::Number{x} < space::Number{3} ? 1 : 0) + (space::Number{x} > space::Number{3} ? 2 : 0);
}

}  // extern "C"
