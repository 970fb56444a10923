// fprobe_dump(): each kind of line, and how it is written.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "image/symbol_match.h"
#include "registry/late_modules.h"
#include "registry/victims.h"

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  return text;
}

std::string dumped() {
  const int file = memfd_create("dump", MFD_CLOEXEC);
  EXPECT_EQ(fprobe_dump(file), 0) << fprobe_last_error();
  EXPECT_EQ(lseek(file, 0, SEEK_SET), 0);
  std::string text = read_all(file);
  close(file);
  return text;
}

// The line that a glob matches somewhere, "" if none does.
std::string line_of(const std::string& text, const std::string& glob) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (libfprobe::detail::glob_match("*" + glob + "*", line)) return line;
  return {};
}
#define EXPECT_LINE(text, glob) EXPECT_NE(line_of(text, glob), "") << (glob) << "\n" << (text)

std::string address_of(const void* object) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", object);
  return text;
}

int attach(CountingProbe& probe, const char* name) {
  return register_fprobe_syms(&probe, &name, 1);
}

// --- Lines.

TEST(Dump, NamesTheLibraryAndTheProcess) {
  EXPECT_LINE(dumped(), "libfprobe *, process " + std::to_string(getpid()));
}

TEST(Dump, CountsEachModulesSitesByKindFormAndState) {
  CountingProbe probe(0);
  ASSERT_EQ(attach(probe, "first_victim"), 0) << fprobe_last_error();
  const LatePlugin fentry(LATE_FENTRY), patchable(LATE_PATCHABLE), mcount(LATE_MCOUNT);
  const std::string text = dumped();
  EXPECT_LINE(text, "registry_dump_test: * sites (* fentry; *call*), 1 armed");
  EXPECT_LINE(text, "late_fentry.so: * sites (* fentry; *), 0 armed");
  EXPECT_LINE(text, "late_mcount.so: * sites (* mcount; *)");
  EXPECT_LINE(text, "late_patchable.so: * sites (* patchable; * single nops)");
  EXPECT_LINE(text, "(* modules without sites)");
}

TEST(Dump, SaysWhyPlacesAreRefused) {
  const LatePlugin plugin(LATE_SHORT);
  const std::string text = dumped();
  EXPECT_LINE(text, "late_short.so: 0 sites");
  EXPECT_LINE(text, "  refused *: *nop");
}

int entered(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  return static_cast<int>(first_victim(1)) - 2;  // recursion
}
void left(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {}

TEST(Dump, TellsEachProbesTargetHandlersFlagsAndMisses) {
  fprobe by_filter{}, by_name{}, by_address{};
  by_filter.entry_handler = entered;
  by_filter.exit_handler = left;
  by_filter.entry_data_size = 5;
  by_filter.flags = FPROBE_FL_KPROBE_SHARED | FPROBE_FL_NEW_MODULES;
  ASSERT_EQ(register_fprobe(&by_filter, "*_victim", "second_*"), 0) << fprobe_last_error();
  const char* names[] = {"first_victim", "second_victim"};
  ASSERT_EQ(register_fprobe_syms(&by_name, names, 2), 0) << fprobe_last_error();
  unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim)};
  ASSERT_EQ(register_fprobe_ips(&by_address, addresses, 1), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  const std::string text = dumped();
  const std::string filter = line_of(text, address_of(&by_filter) + ": ");
  EXPECT_LINE(filter,
              "* sites by filter '\\*_victim' without 'second_\\*', entry *entered* (registry_dump_test), "
              "exit *left* (registry_dump_test), 8 bytes of entry data, flags kprobe_shared new_modules, "
              "1 missed (1 recursion)");
  EXPECT_LINE(text, address_of(&by_name) +
                        ": 2 sites by 2 names: first_victim, second_victim, entry none, exit none, 1 missed");
  EXPECT_LINE(text, address_of(&by_address) + ": 1 sites by 1 addresses, entry none");
  for (fprobe* const probe : {&by_filter, &by_name, &by_address}) EXPECT_EQ(unregister_fprobe(probe), 0);
  EXPECT_EQ(line_of(dumped(), address_of(&by_filter)), "");
}

TEST(Dump, TellsWhetherModulesLoadedLaterAreNoticed) {
  EXPECT_LINE(dumped(), "modules loaded later: seen by the next call");
  CountingProbe probe;
  ASSERT_EQ(register_fprobe(&probe, "late_function", nullptr), 0) << fprobe_last_error();
  EXPECT_LINE(dumped(), "modules loaded later: announced by a jump in *ld-linux");
}

TEST(Dump, ListsTheProbesOfASiteInTheOrderOfTheirHandlers) {
  CountingProbe older(0), newer(0);
  ASSERT_EQ(attach(older, "first_victim"), 0) << fprobe_last_error();
  ASSERT_EQ(attach(newer, "first_victim"), 0) << fprobe_last_error();
  const fprobe *first = &newer, *second = &older;
  EXPECT_LINE(dumped(),
              "0x* first_victim (registry_dump_test): armed, " + address_of(first) + " " + address_of(second));
}

TEST(Dump, ShowsSomebodyElsesByteOnASite) {
  CountingProbe probe(0);
  ASSERT_EQ(attach(probe, "first_victim"), 0) << fprobe_last_error();
  const std::string site = line_of(dumped(), "first_victim (");
  const unsigned long place = std::stoul(site, nullptr, 16) +
                              (*reinterpret_cast<unsigned char*>(std::stoul(site, nullptr, 16)) == 0xe9 ? 0 : 1);
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(pwrite(memory, "\xcc", 1, static_cast<off_t>(place)), 1);
  const std::string text = dumped();
  ASSERT_EQ(pwrite(memory, "\xe9", 1, static_cast<off_t>(place)), 1);
  close(memory);
  EXPECT_LINE(text, "first_victim (registry_dump_test): armed, changed by somebody else");
  EXPECT_LINE(text, "registry_dump_test: * armed, 1 changed by somebody else");
}

struct DumpingProbe : fprobe {
  DumpingProbe() : fprobe{} {
    entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      static_cast<DumpingProbe*>(fp)->text = dumped();
      return 0;
    };
    exit_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      static_cast<DumpingProbe*>(fp)->text_at_exit = dumped();
      unregister_fprobe_async(fp);
      static_cast<DumpingProbe*>(fp)->text_when_withdrawn = dumped();
    };
  }
  std::string text, text_at_exit, text_when_withdrawn;
};

TEST(Dump, MayBeCalledInAHandlerAndShowsItsThread) {
  DumpingProbe probe;
  const char* names[] = {"first_victim"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  const std::string thread = std::to_string(gettid());
  const std::string inside = ", in a handler of " + address_of(static_cast<fprobe*>(&probe)) + " at 0x*";
  EXPECT_LINE(probe.text, thread + ": * frames" + inside);
  EXPECT_LINE(probe.text_at_exit, thread + ": 1 frames" + inside);
  EXPECT_LINE(probe.text, "(* states without a thread)");
  EXPECT_LINE(probe.text, "waiting for readers: 0 sets of probe lists, 0 unloaded modules");
  EXPECT_LINE(probe.text_when_withdrawn, "waiting for readers: 1 sets of probe lists, 0 unloaded modules");
  EXPECT_EQ(line_of(dumped(), "in a handler"), "");
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_LINE(dumped(), thread + ": 0 frames");
}

// --- Writing.

TEST(Dump, PassesOnWhatWriteGives) {
  EXPECT_EQ(fprobe_dump(-1), -EBADF);
  EXPECT_NE(std::string(fprobe_last_error()).find("-1"), std::string::npos) << fprobe_last_error();
  const int read_only = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(fprobe_dump(read_only), -EBADF);
  close(read_only);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(fprobe_dump(ends[1]), -EPIPE);
  close(ends[1]);
}

// A thread as the kernel tells it: whether it sleeps, and how often it went to sleep.
struct Sleep {
  bool is_asleep = false;
  unsigned long count = 0;
};
Sleep sleep_of(pid_t thread) {
  Sleep sleep;
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) sleep.is_asleep = line.find("S (") != std::string::npos;
    if (line.starts_with("voluntary_ctxt_switches:")) sleep.count = std::stoul(line.substr(line.find(':') + 1));
  }
  return sleep;
}
unsigned long wait_until_it_sleeps(pid_t thread) {
  for (;;) {
    if (const Sleep sleep = sleep_of(thread); sleep.is_asleep) return sleep.count;
    std::this_thread::yield();
  }
}

TEST(Dump, GoesOnAfterShortAndInterruptedWritesAndHoldsNoLockMeanwhile) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);  // no SA_RESTART: the write is interrupted
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
  const std::string filler(4000, 'x');
  ASSERT_EQ(write(ends[1], filler.data(), filler.size()), 4000);
  std::atomic<pid_t> writer{0};
  int result = 1;
  std::thread thread([&] {
    writer = gettid();
    result = fprobe_dump(ends[1]);
    close(ends[1]);
  });
  while (writer == 0) std::this_thread::yield();
  wait_until_it_sleeps(writer);  // in write(): the pipe is full
  CountingProbe probe(0);
  EXPECT_EQ(attach(probe, "first_victim"), 0) << fprobe_last_error();
  const unsigned long before = wait_until_it_sleeps(writer);
  pthread_kill(thread.native_handle(), SIGUSR1);
  while (wait_until_it_sleeps(writer) == before) std::this_thread::yield();  // it was interrupted, and tries again
  const std::string text = read_all(ends[0]);
  thread.join();
  close(ends[0]);
  EXPECT_EQ(result, 0);
  EXPECT_LINE(text, "libfprobe *, process");
  EXPECT_LINE(text, "waiting for readers");
  EXPECT_TRUE(text.ends_with("unloaded modules\n")) << text;
}

}  // namespace
