// A process in which the kernel itself refuses what a registration needs: room within reach, code that may be written.
// (faults_test.cpp refuses single calls; here nothing of the library is touched.)
//
// Every attempt runs in a fork child of its own.
#include <errno.h>
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "registry/process_text.h"
#include "registry/victims.h"

namespace {

using fprobe_test::main_mappings;
using fprobe_test::main_text;

int g_entries;
int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

int by_names(fprobe* probe) {
  const char* names[] = {"first_victim", "second_victim"};
  return register_fprobe_syms(probe, names, 2);
}
int by_filter(fprobe* probe) {
  return register_fprobe(probe, "first_victim,second_victim", nullptr);
}
int by_addresses(fprobe* probe) {
  unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim),
                               reinterpret_cast<unsigned long>(&second_victim)};
  return register_fprobe_ips(probe, addresses, 2);
}
using Registering = int (*)(fprobe*);
constexpr Registering kWays[] = {by_names, by_filter, by_addresses};

// A failed expectation in a child tells its line and ends it.
#define CHECK_IN_CHILD(condition)                                                                    \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, fprobe_last_error()); \
      return 1;                                                                                      \
    }                                                                                                \
  } while (false)

int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// A registration that fails with `code` and leaves everything as it was.
int expect_refusal(Registering registering, int code) {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  const std::string text = main_text(), mappings = main_mappings();
  CHECK_IN_CHILD(registering(&probe) == code);
  CHECK_IN_CHILD(fprobe_last_error()[0] != '\0');
  CHECK_IN_CHILD(!fprobe_is_registered(&probe));
  CHECK_IN_CHILD(unregister_fprobe(&probe) == -EINVAL);
  CHECK_IN_CHILD(main_text() == text);
  CHECK_IN_CHILD(main_mappings() == mappings);
  CHECK_IN_CHILD(first_victim(1) == 2 && second_victim(1) == 3 && g_entries == 0);
  return 0;
}

int expect_success(Registering registering) {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  CHECK_IN_CHILD(registering(&probe) == 0);
  CHECK_IN_CHILD(first_victim(1) == 2 && second_victim(1) == 3 && g_entries == 2);
  CHECK_IN_CHILD(unregister_fprobe(&probe) == 0);
  return 0;
}

struct Range {
  unsigned long start, end;
};

// The free places between the mappings that overlap `window`.
std::vector<Range> gaps_in(Range window) {
  std::vector<Range> gaps;
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  unsigned long start = 0, end = 0, last = window.start;
  while (maps != nullptr && std::fscanf(maps, "%lx-%lx%*[^\n]", &start, &end) == 2) {
    if (start > last && last < window.end) gaps.push_back({last, start < window.end ? start : window.end});
    if (end > last) last = end;
  }
  if (maps != nullptr) std::fclose(maps);
  return gaps;
}

// Takes all memory within jump range of the program's text, and gives it back.
class Crowd {
 public:
  Crowd() {
    constexpr unsigned long kReach = (1UL << 31) + (1UL << 24);
    const auto text = reinterpret_cast<unsigned long>(&first_victim) & ~0xfffUL;
    const unsigned long lowest = text > kReach ? text - kReach : 0x10000;
    // Until there is nothing left: reading the map takes memory too.
    for (std::vector<Range> gaps; !(gaps = gaps_in({lowest, text + kReach})).empty();)
      if (!take(gaps)) return;
    is_complete_ = true;
  }
  ~Crowd() {
    for (const Range& range : taken_) munmap(reinterpret_cast<void*>(range.start), range.end - range.start);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  [[nodiscard]] bool is_complete() const { return is_complete_; }

 private:
  bool take(const std::vector<Range>& gaps) {
    bool some = false;
    for (const Range& gap : gaps) {
      // By the system call: a sanitizer would have a say.
      const long memory = syscall(SYS_mmap, gap.start, gap.end - gap.start, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0L);
      if (memory != static_cast<long>(gap.start)) continue;
      taken_.push_back(gap);
      some = true;
    }
    return some;
  }
  std::vector<Range> taken_;
  bool is_complete_ = false;
};

TEST(NoRoomForThunks, IsRefusedInEveryWayAndWithRoomItWorks) {
  for (const Registering registering : kWays) {
    EXPECT_EQ(in_child([&] {
                {
                  const Crowd crowd;
                  CHECK_IN_CHILD(crowd.is_complete());
                  if (const int failed = expect_refusal(registering, -ENOSPC)) return failed;
                }
                return expect_success(registering);
              }),
              0);
  }
}

// From now on the kernel answers `error` to a call that makes memory executable, or opens a file to write.
enum class Files { kMayBeWritten, kMayNot };
bool forbid_new_code(int error, Files files = Files::kMayNot) {
  constexpr unsigned kFlags = offsetof(seccomp_data, args[2]);  // of mprotect and of openat, the low half
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, files == Files::kMayNot ? __NR_openat : ~0U, 3, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 3, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
  };
  const sock_fprog program = {sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SeccompThatForbidsNewCode, IsToldInEveryWayAndTextIsUnchanged) {
  for (const int error : {EACCES, EPERM}) {
    for (const Registering registering : kWays) {
      EXPECT_EQ(in_child([&] {
                  CHECK_IN_CHILD(forbid_new_code(error));
                  return expect_refusal(registering, -error);
                }),
                0);
    }
  }
}

// As systemd's MemoryDenyWriteExecute= does.
TEST(SeccompThatForbidsNewCode, DoesNoHarmWhereProcSelfMemMayBeWritten) {
  for (const int error : {EACCES, EPERM}) {
    for (const Registering registering : kWays) {
      EXPECT_EQ(in_child([&] {
                  const std::string text = main_text(), mappings = main_mappings();
                  CHECK_IN_CHILD(forbid_new_code(error, Files::kMayBeWritten));
                  for (int round = 0; round < 2; ++round) {  // thunks that are new, and some that are there
                    g_entries = 0;
                    if (const int failed = expect_success(registering)) return failed;
                    CHECK_IN_CHILD(main_text() == text);
                    CHECK_IN_CHILD(main_mappings() == mappings);
                  }
                  return 0;
                }),
                0);
    }
  }
}

// Thunks are there, the text is what cannot be written.
TEST(SeccompThatForbidsNewCode, AfterAnEarlierRegistrationIsToldAndTextIsUnchanged) {
  for (const int error : {EACCES, EPERM}) {
    for (const Registering registering : kWays) {
      EXPECT_EQ(in_child([&] {
                  if (const int failed = expect_success(registering)) return failed;
                  g_entries = 0;
                  CHECK_IN_CHILD(forbid_new_code(error));
                  return expect_refusal(registering, -error);
                }),
                0);
    }
  }
}

}  // namespace
