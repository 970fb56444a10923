// A program whose kernel refuses new code from the start, in memory and through files: sites stay the calls that the
// compiler made of them, and probes are dispatched from there.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <fprobe/ftrace_regs.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "registry/process_text.h"
#include "registry/victims.h"

extern "C" std::atomic<unsigned> fprobe_live_sites;  // mcount.S

namespace {

using fprobe_test::main_mappings;
using fprobe_test::main_text;

// mprotect that makes memory executable, mmap that makes it writable too, and opening a file to write: EACCES.
void forbid_new_code(int, char**, char**) {
  constexpr unsigned kFlags = offsetof(seccomp_data, args[2]);  // of each of the three, the low half
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 3, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 3, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
  };
  const sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(9);
}
__attribute__((section(".preinit_array"), used)) void (*const g_forbid)(int, char**, char**) = &forbid_new_code;

struct Probe : fprobe {
  Probe() : fprobe{} {
    entry_handler = [](fprobe* fp, unsigned long ip, unsigned long, ftrace_regs*, void*) {
      static_cast<Probe*>(fp)->last_ip = ip;
      __atomic_fetch_add(&static_cast<Probe*>(fp)->entries, 1, __ATOMIC_RELAXED);
      return 0;
    };
    exit_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      __atomic_fetch_add(&static_cast<Probe*>(fp)->exits, 1, __ATOMIC_RELAXED);
    };
  }
  ~Probe() { (void)unregister_fprobe(this); }
  int attach(std::vector<const char*> names) {
    return register_fprobe_syms(this, names.data(), static_cast<int>(names.size()));
  }
  unsigned long entries = 0, exits = 0, last_ip = 0;
};

unsigned live_sites() {
  return fprobe_live_sites.load();
}

TEST(LiveCalls, AreProbedInEveryWayOfRegisteringWithTheTextUnchanged) {
  const std::string text = main_text(), mappings = main_mappings();
  unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim),
                               reinterpret_cast<unsigned long>(&second_victim)};
  for (int way = 0; way < 3; ++way) {
    Probe probe;
    const int result = way == 0   ? probe.attach({"first_victim", "second_victim"})
                       : way == 1 ? register_fprobe(&probe, "first_victim,second_victim", nullptr)
                                  : register_fprobe_ips(&probe, addresses, 2);
    ASSERT_EQ(result, 0) << fprobe_last_error();
    EXPECT_EQ(live_sites(), 2U);
    EXPECT_EQ(first_victim(1) + second_victim(1) + third_victim(1), 9);
    EXPECT_EQ(probe.entries, 2U);
    EXPECT_EQ(probe.exits, 2U);
    EXPECT_EQ(main_text(), text);
    EXPECT_EQ(main_mappings(), mappings);
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    EXPECT_EQ(live_sites(), 0U);
    EXPECT_EQ(first_victim(1) + second_victim(1), 5);
    EXPECT_EQ(probe.entries, 2U);
  }
}

TEST(LiveCalls, AreSharedByProbesThatComeAndGo) {
  Probe first, second;
  ASSERT_EQ(first.attach({"first_victim"}), 0) << fprobe_last_error();
  ASSERT_EQ(second.attach({"first_victim", "third_victim"}), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1) + third_victim(1), 6);
  ASSERT_EQ(unregister_fprobe(&first), 0);
  EXPECT_EQ(live_sites(), 2U);
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(first.entries, 1U);
  EXPECT_EQ(second.entries, 3U);
  EXPECT_EQ(second.exits, 3U);
}

TEST(LiveCalls, CannotServeNopsSoTheWholeRegistrationIsRefused) {
  const std::string text = main_text();
  Probe probe;
  EXPECT_EQ(probe.attach({"first_victim", "patchable_victim", "second_victim"}), -EACCES);
  EXPECT_NE(std::string(fprobe_last_error()).find("registry_live_calls_test"), std::string::npos)
      << fprobe_last_error();
  EXPECT_NE(std::string(fprobe_last_error()).find("allow"), std::string::npos);
  EXPECT_EQ(live_sites(), 0U);
  EXPECT_EQ(first_victim(1) + patchable_victim(1) + second_victim(1), 10);
  EXPECT_EQ(probe.entries, 0U);
  EXPECT_EQ(main_text(), text);
  EXPECT_EQ(probe.attach({"first_victim", "second_victim"}), 0) << fprobe_last_error();
}

TEST(LiveCalls, OfFourThreadsAllReturnRightWhileProbesComeAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<unsigned long> wrong{0}, calls{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (!stop.load()) {
        for (long x = 0; x < 100; ++x) wrong += first_victim(x) != x + 1 || second_victim(x) != x + 2;
        calls.fetch_add(100);
      }
    });
  }
  unsigned long entries = 0;
  for (int round = 0; round < 300; ++round) {
    Probe probe;
    ASSERT_EQ(probe.attach({"first_victim", "second_victim"}), 0) << fprobe_last_error();
    const unsigned long before = calls.load();
    EXPECT_EQ(first_victim(7), 8);
    EXPECT_GE(__atomic_load_n(&probe.entries, __ATOMIC_RELAXED), 1U);
    while (round % 50 == 0 && calls.load() == before) std::this_thread::yield();
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    entries += probe.entries;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(entries, 300U);
}

TEST(LiveCalls, WorkOnInAForkChild) {
  Probe probe;
  ASSERT_EQ(probe.attach({"first_victim"}), 0) << fprobe_last_error();
  const pid_t child = fork();
  if (child == 0) {
    Probe other;
    const bool works = first_victim(1) == 2 && probe.exits == 1 && other.attach({"second_victim"}) == 0 &&
                       second_victim(1) == 3 && other.exits == 1;
    _exit(works ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(probe.entries, 0U);
}

class Library {
 public:
  Library(const char* path, int flags) : handle_(dlopen(path, flags)) { EXPECT_NE(handle_, nullptr) << dlerror(); }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  long call(long x) const { return reinterpret_cast<long (*)(long)>(dlsym(handle_, "plugin_function"))(x); }

 private:
  void* handle_;
};

// clang's code calls through a PLT slot, whose word leads back to the module before the first call.
TEST(LiveCalls, OfALibraryThatIsBoundLazilyAreProbed) {
  const Library library(LAZY_PLUGIN, RTLD_LAZY);
  Probe probe;
  ASSERT_EQ(probe.attach({"plugin_function"}), 0) << fprobe_last_error();
  EXPECT_EQ(library.call(1), 13);
  EXPECT_EQ(library.call(1), 13);
  EXPECT_EQ(probe.entries, 2U);
  EXPECT_EQ(probe.exits, 2U);
}

TEST(LiveCalls, OfAnUnloadedLibraryAreGone) {
  Probe probe;
  {
    const Library library(PLUGIN_1, RTLD_NOW);
    ASSERT_EQ(probe.attach({"plugin_function", "first_victim"}), 0) << fprobe_last_error();
    EXPECT_EQ(library.call(1), 11);
    EXPECT_EQ(live_sites(), 2U);
  }
  Probe other;
  ASSERT_EQ(other.attach({"second_victim"}), 0) << fprobe_last_error();
  EXPECT_EQ(live_sites(), 2U);
  EXPECT_EQ(first_victim(1) + second_victim(1), 5);
  EXPECT_EQ(probe.entries, 2U);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  ASSERT_EQ(unregister_fprobe(&other), 0);
  EXPECT_EQ(live_sites(), 0U);
}

// A plugin that looks names up in its own dependencies first: its calls lead to libc's functions.
TEST(LiveCalls, ThatLeadToAnotherDefinitionAreRefused) {
  const Library library(PLUGIN_1, RTLD_NOW | RTLD_DEEPBIND);
  Probe probe;
  EXPECT_EQ(probe.attach({"plugin_function"}), -EACCES);
  EXPECT_EQ(library.call(1), 11);
  EXPECT_EQ(live_sites(), 0U);
}

}  // namespace
