#include "matrix/pairwise.h"

#include <algorithm>
#include <bitset>
#include <random>

namespace libfprobe::tests {
namespace {

// Each value of each axis has a number; a pair's bit is made of two.
constexpr int kMostValues = 32;
using Pairs = std::bitset<kMostValues * kMostValues>;

int number_of(int axis, int value) {
  int number = value;
  for (int before = 0; before < axis; ++before) number += static_cast<int>(values_of(before).size());
  return number;
}

bool is_between_others(int axis, int value) {
  return axis == kLevel && value == kO1;
}

template <class Body>
void for_each_obligation(const Configuration& configuration, Body body) {
  for (int a = 0; a < kAxes; ++a) {
    const int first = configuration[static_cast<std::size_t>(a)];
    body(a, first, a, first);
    for (int b = a + 1; b < kAxes; ++b) {
      const int second = configuration[static_cast<std::size_t>(b)];
      if (!is_between_others(a, first) && !is_between_others(b, second)) body(a, first, b, second);
    }
  }
}

std::vector<int> pairs_of(const Configuration& configuration) {
  std::vector<int> pairs;
  for_each_obligation(configuration, [&](int a, int first, int b, int second) {
    pairs.push_back(number_of(a, first) * kMostValues + number_of(b, second));
  });
  return pairs;
}

struct Candidates {
  std::vector<Configuration> configurations = all_configurations();
  std::vector<std::vector<int>> pairs;
  Pairs every;
  Candidates() {
    for (const Configuration& each : configurations) {
      pairs.push_back(pairs_of(each));
      for (const int pair : pairs.back()) every.set(static_cast<std::size_t>(pair));
    }
  }
};

// So many configurations, changed one at a time as long as that does not lose pairs, now and then although it does. Empty
// when no cover was found.
class Search {
 public:
  Search(const Candidates& candidates, std::size_t size, unsigned seed)
      : candidates_(candidates), random_(seed), rows_(size), times_met_(candidates.every.size()) {
    missing_ = static_cast<int>(candidates.every.count());
    for (std::size_t& row : rows_) add(row = any());
  }

  std::vector<Configuration> run(int steps) {
    for (int step = 0; step < steps && missing_ > 0; ++step) {
      std::size_t& row = rows_[random_() % rows_.size()];
      const std::size_t old = row;
      const int before = missing_;
      remove(old);
      add(row = any());
      const int worse = missing_ - before;
      if (worse <= 0 || (worse <= 2 && random_() % (worse == 1 ? kOneIn : kOneIn * kOneIn) == 0)) continue;
      remove(row);
      add(row = old);
    }
    std::vector<Configuration> cover;
    if (missing_ > 0) return cover;
    for (const std::size_t row : rows_) cover.push_back(candidates_.configurations[row]);
    std::sort(cover.begin(), cover.end());
    return cover;
  }

 private:
  static constexpr unsigned kOneIn = 400;

  std::size_t any() { return random_() % candidates_.configurations.size(); }
  void add(std::size_t candidate) {
    for (const int pair : candidates_.pairs[candidate]) missing_ -= times_met_[static_cast<std::size_t>(pair)]++ == 0;
  }
  void remove(std::size_t candidate) {
    for (const int pair : candidates_.pairs[candidate]) missing_ += --times_met_[static_cast<std::size_t>(pair)] == 0;
  }

  const Candidates& candidates_;
  std::mt19937 random_;  // gives the same numbers wherever it is compiled
  std::vector<std::size_t> rows_;
  std::vector<int> times_met_;
  int missing_;
};

}  // namespace

Obligations obligations_of(const std::vector<Configuration>& configurations) {
  Obligations found;
  const auto word = [](int axis, int value) { return values_of(axis)[static_cast<std::size_t>(value)].word; };
  for (const Configuration& each : configurations) {
    for_each_obligation(each, [&](int a, int first, int b, int second) {
      found.insert(a == b ? std::string(word(a, first)) : std::string(word(a, first)) + "+" + word(b, second));
    });
  }
  return found;
}

std::vector<Configuration> make_cover(std::size_t size) {
  const Candidates candidates;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::vector<Configuration> cover = Search(candidates, size, seed).run(2'000'000);
    if (!cover.empty()) return cover;
  }
  return {};
}

}  // namespace libfprobe::tests
