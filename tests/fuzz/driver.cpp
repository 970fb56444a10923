// Runs a fuzz target without libFuzzer: every file named (or in a folder named), then `rounds` changed copies of each.
//
//   driver [-rounds=N] [-seed=N] path…
//
// The changes depend on the seed alone, so a failure comes back.  Ends by abort at the first finding, with the input
// in ./crash-input.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

std::string g_input;  // what is being tried, for the report

extern "C" void save_input(int) {
  std::ofstream("crash-input", std::ios::binary) << g_input;
  std::_Exit(1);
}

void try_input() {
  // A block of exactly this size: AddressSanitizer sees the first byte beyond it.
  const std::unique_ptr<std::uint8_t[]> block(new std::uint8_t[g_input.size()]);
  std::memcpy(block.get(), g_input.data(), g_input.size());
  LLVMFuzzerTestOneInput(block.get(), g_input.size());
}

class Mutator {
 public:
  explicit Mutator(unsigned long seed) : random_(seed) {}

  void change(std::string& text, const std::vector<std::string>& seeds) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change_once(text, seeds);
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change_once(std::string& text, const std::vector<std::string>& seeds) {
    constexpr char kInteresting[] = "\0\x01\x7f\x80\xff*?[]!-\\,:<>(){}.@ \n";
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
      case 1:
        if (at < text.size()) text[at] = kInteresting[below(sizeof kInteresting)];
        break;
      case 2:
        text.insert(at, 1, kInteresting[below(sizeof kInteresting)]);
        break;
      case 3:
        text.erase(at, 1 + below(8));
        break;
      case 4: {
        const std::uint64_t values[] = {random_(), below(text.size()), ~below(64), below(8)};
        const std::uint64_t value = values[below(4)];
        if (text.size() >= at + sizeof value) std::memcpy(text.data() + at, &value, sizeof value);
        break;
      }
      case 5: {  // a piece of another seed
        const std::string& other = seeds[below(seeds.size())];
        const std::size_t from = below(other.size() + 1);
        text.insert(at, other, from, 1 + below(16));
        break;
      }
      default:
        text.resize(at);
        break;
    }
  }

  std::mt19937_64 random_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long rounds = 0, seed = 1;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-rounds="))
      rounds = std::stoul(argument.substr(8));
    else if (argument.starts_with("-seed="))
      seed = std::stoul(argument.substr(6));
    else if (std::filesystem::is_directory(argument))
      std::copy(std::filesystem::directory_iterator(argument), {}, std::back_inserter(paths));
    else
      paths.push_back(argument);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) seeds.push_back(read_file(path));
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: %s [-rounds=N] [-seed=N] path...\n", argv[0]);
    return 2;
  }

  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, save_input);
  Mutator mutator(seed);
  for (const std::string& text : seeds) {
    g_input = text;
    try_input();
    for (unsigned long round = 0; round < rounds; ++round) {
      if (mutator.below(8) == 0) g_input = text;  // else pile changes up
      mutator.change(g_input, seeds);
      try_input();
    }
  }
  std::printf("%zu inputs, %lu changed copies of each: nothing found\n", seeds.size(), rounds);
  return 0;
}
