// FPROBE_DEBUG: the lines on standard error.  The variable is read at load, so each case is this program started anew.
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "image/symbol_match.h"
#include "registry/late_modules.h"
#include "registry/victims.h"

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;

// What the child does: something of every kind.
TEST(Scenario, OfEverythingRunsWithoutTheVariableToo) {
  {
    CountingProbe probe;
    ASSERT_EQ(register_fprobe(&probe, "late_function,first_victim", nullptr), 0) << fprobe_last_error();
    { const LatePlugin plugin(LATE_FENTRY); }
    errno = 4321;
    const char* names[] = {"no_such_function"};
    fprobe refused{};
    EXPECT_EQ(register_fprobe_syms(&refused, names, 1), -ENOENT);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
  }
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// Standard error of this program, started with FPROBE_DEBUG set to `value` (null: not set), playing the scenario.
std::string errors_with(const char* value) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (value != nullptr) setenv("FPROBE_DEBUG", value, 1);
    if (value == nullptr) unsetenv("FPROBE_DEBUG");
    dup2(ends[1], STDERR_FILENO);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    execl("/proc/self/exe", "debug_log_test", "--gtest_filter=Scenario.*", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  return text;
}

bool has_line(const std::string& text, const std::string& glob) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (libfprobe::detail::glob_match("libfprobe\\[[0-9]*]: " + glob, line)) return true;
  return false;
}

TEST(DebugLog, TellsWhatTheLibraryDoes) {
  const std::string text = errors_with("1");
  for (const char* const line : {
           "libfprobe [0-9]* loaded",
           "loaded */registry_debug_log_test: [0-9]* sites, [0-9]* refused",
           "the loader's announcements at 0x* are heard",
           "registered 0x*: 1 sites by filter 'late_function,first_victim', [0-9]* us",
           "loaded */*late_fentry.so: [0-9]* sites, 0 refused",
           "0x* covers 1 sites more in *late_fentry.so",
           "unloaded */*late_fentry.so",
           "refused, -2: *no_such_function*",
           "the loader has its own bytes again",
           "unregistered 0x*: [0-9]* sites, [0-9]* us, waited [0-9]* us of them",
           "forked: *",
       })
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

TEST(DebugLog, IsSilentUnlessSwitchedOn) {
  for (const char* const value : {static_cast<const char*>(nullptr), "", "0"}) EXPECT_EQ(errors_with(value), "");
}

}  // namespace
