// The C++ interface: arguments and results with their types, data from entry to exit, a call that is answered instead of
// made, and a probe that ends with its scope.
#include <fprobe/fprobe.hpp>

#include <chrono>
#include <cstdio>
#include <string>

struct Order {
  int id;
  double price;
};

class Shop {
 public:
  [[gnu::noinline]] std::string sell(const std::string& customer, Order order, int count) {
    sold_ += count;
    return customer + " pays " + std::to_string(order.price * count) + " for " + std::to_string(order.id);
  }
  [[gnu::noinline]] bool is_open(int hour) const { return hour >= opens_; }

 private:
  int sold_ = 0;
  volatile int opens_ = 9;  // else the compiler need not ask twice
};

int main(int argc, char**) {
  using libfprobe::context;
  using Clock = std::chrono::steady_clock;
  Shop shop;
  {
    const auto sales = libfprobe::probe::with_data<Clock::time_point>(
        &Shop::sell,
        [](context& call) {
          const auto [self, customer, order, count] = call.args<Shop*, const std::string&, Order, int>();
          std::printf("sell(\"%s\", order %d at %.2f, %d)\n", customer.c_str(), order.id, order.price, count);
          call.data<Clock::time_point>() = Clock::now();
          return count > 1;  // false: the exit of this call is of no interest
        },
        [](context& call) {
          const bool measured = Clock::now() >= call.data<Clock::time_point>();
          std::printf("= \"%s\"%s\n", call.result<std::string&>().c_str(),
                      measured ? "" : ", by a clock that goes backwards");
        });
    const libfprobe::probe always_open(
        &Shop::is_open,
        [](context& call) {
          call.skip();
          call.set_result<bool>(true);
        },
        nullptr);

    shop.sell("Ada", {argc, 2.5}, 1);
    shop.sell("Grace", {argc + 1, 10.0}, 4);
    std::printf("open at %d: %s\n", argc, shop.is_open(argc) ? "yes" : "no");
  }
  std::printf("open at %d without the probe: %s\n", argc, shop.is_open(argc) ? "yes" : "no");

  std::error_code error;
  const libfprobe::probe none(libfprobe::by_filter{"Shop::buy"}, nullptr, nullptr, error);
  std::printf("Shop::buy: %s\n", fprobe_last_error());
  return error ? 0 : 1;
}
