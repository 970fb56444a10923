// See support.h.
#include "integration/support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace contract {
namespace {

std::string file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

struct Search {
  const char* symbol;
  unsigned long ip;
};

int find_symbol(const fprobe_site* site, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (file_name(site->module) != kVictimModule || std::strcmp(site->symbol, search.symbol) != 0) return 0;
  search.ip = site->ip;
  return 1;
}

int collect_site(const fprobe_site* site, void* argument) {
  if (file_name(site->module) == kVictimModule) static_cast<std::vector<unsigned long>*>(argument)->push_back(site->ip);
  return 0;
}

long field_of_statm(int index) {
  long fields[2] = {0, 0};
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return -1;
  const int read = std::fscanf(file, "%ld %ld", &fields[0], &fields[1]);
  std::fclose(file);
  return read == 2 ? fields[index] * (sysconf(_SC_PAGESIZE) / 1024) : -1;
}

}  // namespace

unsigned long site_of(const char* symbol) {
  Search search{symbol, 0};
  fprobe_for_each_site(&find_symbol, &search);
  return search.ip;
}

std::vector<unsigned long> sites_of_victims() {
  std::vector<unsigned long> ips;
  fprobe_for_each_site(&collect_site, &ips);
  return ips;
}

long resident_kib() {
  return field_of_statm(1);
}
long address_space_kib() {
  return field_of_statm(0);
}

bool in_process_with(const char* assignment) {
  const std::string name(assignment, std::strchr(assignment, '='));
  if (std::getenv(name.c_str()) != nullptr) return true;

  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string filter = std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
  const std::string command =
      std::string(assignment) + " /proc/" + std::to_string(getpid()) + "/exe '" + filter + "' 2>&1";
  std::FILE* output = popen(command.c_str(), "re");
  std::string text;
  char buffer[256];
  while (output != nullptr && std::fgets(buffer, sizeof buffer, output) != nullptr) text += buffer;
  const int status = output != nullptr ? pclose(output) : -1;
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("[  PASSED  ] 1 test."), std::string::npos) << text;
  return false;
}

int status_of_fork_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return status;
}

}  // namespace contract
