// See support.h.
#include "integration/support.h"

#include <fcntl.h>
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
  unsigned long ip, function;
};

int find_symbol(const fprobe_site* site, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (file_name(site->module) != kVictimModule || std::strcmp(site->symbol, search.symbol) != 0) return 0;
  search.ip = site->ip;
  search.function = site->function;
  return 1;
}

int collect_site(const fprobe_site* site, void* argument) {
  if (file_name(site->module) == kVictimModule) static_cast<std::vector<unsigned long>*>(argument)->push_back(site->ip);
  return 0;
}

}  // namespace

unsigned long site_of(const char* symbol) {
  Search search{symbol, 0, 0};
  fprobe_for_each_site(&find_symbol, &search);
  return search.ip;
}

unsigned long first_byte_of(const char* symbol) {
  Search search{symbol, 0, 0};
  fprobe_for_each_site(&find_symbol, &search);
  return search.function;
}

std::vector<unsigned long> sites_of_victims() {
  std::vector<unsigned long> ips;
  fprobe_for_each_site(&collect_site, &ips);
  return ips;
}

long resident_kib() {
  long pages = -1, resident = -1;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return -1;
  if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = -1;
  std::fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

bool is_asleep(pid_t thread) {
  char path[64] = "/proc/self/task/", digits[16];
  int count = 0;
  for (pid_t rest = thread; rest != 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  char* end = path + std::strlen(path);
  while (count > 0) *end++ = digits[--count];
  std::strcpy(end, "/stat");
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[256] = "";
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  const char* const name_end = size > 0 ? std::strrchr(text, ')') : nullptr;  // "tid (name) S ..."
  return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
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
