// matrix_table cover [size=24]   prints a pairwise cover: the lines of configurations.txt
// matrix_table all                prints every configuration that exists
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "matrix/pairwise.h"

int main(int count, char** arguments) {
  using namespace libfprobe::tests;
  const bool is_cover = count > 1 && std::strcmp(arguments[1], "cover") == 0;
  if (!is_cover && (count != 2 || std::strcmp(arguments[1], "all") != 0)) {
    std::fprintf(stderr, "matrix_table cover [size=24] | all\n");
    return 2;
  }
  const std::size_t size = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 24;
  const std::vector<Configuration> configurations = is_cover ? make_cover(size) : all_configurations();
  for (const Configuration& each : configurations) std::printf("%s\n", name_of(each).c_str());
  return configurations.empty() ? 1 : 0;
}
