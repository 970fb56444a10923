// All or nothing: whichever allocation or system call fails, a registration fails with its code, text and struct are as
// before, and the next attempt works; unregister succeeds whatever fails.
//
// Every attempt runs in a fork child of its own, since the library remembers what it prepared once.
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "base/syscalls.h"
#include "registry/process_text.h"
#include "registry/victims.h"

namespace {

using libfprobe::detail::sys::Call;
using libfprobe::detail::sys::fault;

// How many of this thread's allocations by operator new succeed before all others fail; negative: all succeed.
thread_local long tls_new_until_failure = -1;

bool fails_now() {
  if (tls_new_until_failure < 0) return false;
  return tls_new_until_failure == 0 || tls_new_until_failure-- == 0;
}

void* allocate(std::size_t size) {
  void* const memory = fails_now() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails_now() ? nullptr : std::malloc(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return fails_now() ? nullptr : std::malloc(size);
}
// Not inline: gcc would see free() get what an operator new made.
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using fprobe_test::main_mappings;
using fprobe_test::main_text;

// What fails from the n-th time on.
struct Failing {
  const char* name;
  std::function<void(long)> arm;
  std::function<void()> disarm;
  int code;
};

Failing failing_call(const char* name, Call call, int error) {
  return {name,
          [=](long n) {
            fault(call).fail_after = n;
            fault(call).error = error;
          },
          [=] { fault(call).error = 0; }, -error};
}

// Code may be written neither directly nor through /proc/self/mem.
Failing failing_text(int error) {
  const Failing protection = failing_call("mprotect and /proc/self/mem", Call::kMprotect, error);
  return {protection.name,
          [=](long n) {
            protection.arm(n);
            fault(Call::kWriteAt).fail_after = 0;
            fault(Call::kWriteAt).error = error;
          },
          [=] {
            protection.disarm();
            fault(Call::kWriteAt).error = 0;
          },
          -error};
}

Failing failing_new() {
  return {"operator new", [](long n) { tls_new_until_failure = n; }, [] { tls_new_until_failure = -1; }, -ENOMEM};
}

unsigned long g_entries, g_exits;
int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}
void on_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_exits;
}

fprobe counting_probe() {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  probe.exit_handler = &on_exit;
  return probe;
}

// Three ways to say the same.
int by_names(fprobe* probe) {
  const char* names[] = {"first_victim", "second_victim", "patchable_victim"};
  return register_fprobe_syms(probe, names, 3);
}
int by_filter(fprobe* probe) {
  return register_fprobe(probe, "first_victim,second_victim,patchable_victim", "third*");
}
int by_addresses(fprobe* probe) {
  unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim),
                               reinterpret_cast<unsigned long>(&second_victim),
                               reinterpret_cast<unsigned long>(&patchable_victim)};
  return register_fprobe_ips(probe, addresses, 3);
}
using Registering = int (*)(fprobe*);

// A failed expectation in a child tells its line and ends it.
#define CHECK_IN_CHILD(condition)                                                                    \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, fprobe_last_error()); \
      return kFailed;                                                                                \
    }                                                                                                \
  } while (false)

constexpr int kSucceeded = 10, kRefused = 11, kFailed = 12;

// The exit status of `body` in a child.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool victims_work() {
  return first_victim(1) == 2 && second_victim(1) == 3 && third_victim(1) == 4 && patchable_victim(1) == 5;
}

// Another thread, so that text is changed by the protocol for running threads.
class Company {
 public:
  Company() : thread_([this] { stop_.wait(false); }) {}
  ~Company() {
    stop_ = true;
    stop_.notify_all();
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

int register_with_fault(const Failing& failing, long n, Registering registering, fprobe& probe) {
  failing.arm(n);
  const int result = registering(&probe);
  failing.disarm();
  return result;
}

// In a child: one registration with the n-th call failing.
int try_to_register(const Failing& failing, long n, Registering registering, bool in_company) {
  std::unique_ptr<Company> company(in_company ? new Company : nullptr);
  const std::string text = main_text(), mappings = main_mappings();
  fprobe probe = counting_probe();
  const int result = register_with_fault(failing, n, registering, probe);
  if (result != 0) {
    CHECK_IN_CHILD(result == failing.code);
    CHECK_IN_CHILD(fprobe_last_error()[0] != '\0');
    CHECK_IN_CHILD(!fprobe_is_registered(&probe));
    CHECK_IN_CHILD(main_text() == text);
    CHECK_IN_CHILD(main_mappings() == mappings);
    CHECK_IN_CHILD(victims_work() && g_entries == 0);
    CHECK_IN_CHILD(registering(&probe) == 0);
  }
  g_entries = g_exits = 0;
  CHECK_IN_CHILD(victims_work());
  CHECK_IN_CHILD(g_entries == 3 && g_exits == 3);
  CHECK_IN_CHILD(unregister_fprobe(&probe) == 0);
  CHECK_IN_CHILD(main_text() == text);
  CHECK_IN_CHILD(main_mappings() == mappings);
  CHECK_IN_CHILD(victims_work() && g_entries == 3);
  return result == 0 ? kSucceeded : kRefused;
}

// The n-th call, for every n until none is left to fail.
void expect_all_or_nothing(const Failing& failing, Registering registering, bool in_company = false) {
  bool was_refused = false;
  for (long n = 0; n < 2'000; ++n) {
    const int status = in_child([&] { return try_to_register(failing, n, registering, in_company); });
    if (status == kSucceeded) {
      EXPECT_TRUE(was_refused) << failing.name << " was never called";
      return;
    }
    ASSERT_EQ(status, kRefused) << failing.name << " number " << n << " failed";
    was_refused = true;
  }
  FAIL() << failing.name << ": no end in sight";
}

TEST(RegisterWithFaults, AnyAllocationOfTheLibrary) {
  for (Registering registering : {by_names, by_filter, by_addresses})
    expect_all_or_nothing(failing_call("allocation", Call::kAllocate, ENOMEM), registering);
}
TEST(RegisterWithFaults, AnyOperatorNew) {
  for (Registering registering : {by_names, by_filter, by_addresses}) expect_all_or_nothing(failing_new(), registering);
}
TEST(RegisterWithFaults, AnyMapping) {
  for (Registering registering : {by_names, by_filter, by_addresses})
    expect_all_or_nothing(failing_call("mmap", Call::kMmap, ENOMEM), registering);
}
TEST(RegisterWithFaults, AnyProtectionIsRefusedAndTheFileServes) {
  for (Registering registering : {by_names, by_filter, by_addresses}) {
    for (const bool in_company : {false, true}) {
      for (long n = 0; n < 6; ++n) {
        const Failing failing = failing_call("mprotect", Call::kMprotect, EACCES);
        EXPECT_EQ(in_child([&] { return try_to_register(failing, n, registering, in_company); }), kSucceeded) << n;
      }
    }
  }
}
TEST(RegisterWithFaults, AnyProtectionAndTheFileAreRefused) {
  for (Registering registering : {by_names, by_filter, by_addresses}) {
    expect_all_or_nothing(failing_text(EACCES), registering);
    expect_all_or_nothing(failing_text(EPERM), registering, true);
  }
}

// A second probe on the same functions: then lists are replaced, and the replaced ones must survive a failure.
int try_to_join(const Failing& failing, long n) {
  fprobe before = counting_probe(), joining = counting_probe();
  CHECK_IN_CHILD(by_names(&before) == 0);
  const int result = register_with_fault(failing, n, by_filter, joining);
  CHECK_IN_CHILD(result == 0 || result == failing.code);
  g_entries = g_exits = 0;
  CHECK_IN_CHILD(victims_work());
  CHECK_IN_CHILD(g_entries == (result == 0 ? 6 : 3) && g_exits == g_entries);
  if (result == 0) CHECK_IN_CHILD(unregister_fprobe(&joining) == 0);
  CHECK_IN_CHILD(unregister_fprobe(&before) == 0);
  return result == 0 ? kSucceeded : kRefused;
}

TEST(RegisterWithFaults, AProbeThatJoinsAnotherOne) {
  for (const Failing& failing : {failing_call("allocation", Call::kAllocate, ENOMEM), failing_new()}) {
    int status = kRefused;
    for (long n = 0; status == kRefused && n < 2'000; ++n) status = in_child([&] { return try_to_join(failing, n); });
    EXPECT_EQ(status, kSucceeded) << failing.name;
  }
}

// In a child: unregister with everything failing from the n-th call on.
int try_to_unregister(const Failing& failing, long n, int (*unregistering)(fprobe*)) {
  const std::string text = main_text();
  fprobe staying = counting_probe(), leaving = counting_probe();
  const char* shared[] = {"first_victim"};
  CHECK_IN_CHILD(register_fprobe_syms(&staying, shared, 1) == 0);
  CHECK_IN_CHILD(by_names(&leaving) == 0);

  failing.arm(n);
  const int result = unregistering(&leaving);
  failing.disarm();
  CHECK_IN_CHILD(result == 0);
  CHECK_IN_CHILD(!fprobe_is_registered(&leaving));
  g_entries = g_exits = 0;
  CHECK_IN_CHILD(victims_work());
  CHECK_IN_CHILD(g_entries == 1 && g_exits == 1);  // the staying one

  // What could not be done is done by the next operation.
  CHECK_IN_CHILD(unregister_fprobe(&staying) == 0);
  CHECK_IN_CHILD(fprobe_synchronize() == 0);
  CHECK_IN_CHILD(main_text() == text);
  CHECK_IN_CHILD(by_names(&leaving) == 0);
  CHECK_IN_CHILD(victims_work() && g_entries == 4);
  CHECK_IN_CHILD(unregister_fprobe(&leaving) == 0);
  CHECK_IN_CHILD(main_text() == text);
  return kSucceeded;
}

TEST(UnregisterWithFaults, CannotFail) {
  for (auto* unregistering : {unregister_fprobe, unregister_fprobe_async}) {
    for (const Failing& failing :
         {failing_call("allocation", Call::kAllocate, ENOMEM), failing_new(), failing_call("mmap", Call::kMmap, ENOMEM),
          failing_call("mprotect", Call::kMprotect, ENOMEM), failing_text(ENOMEM)}) {
      for (long n = 0; n < 12; ++n)
        ASSERT_EQ(in_child([&] { return try_to_unregister(failing, n, unregistering); }), kSucceeded)
            << failing.name << " number " << n;
    }
  }
}

TEST(OtherCallsWithFaults, ReportENOMEMAndWorkAfterwards) {
  const auto count = [] { return fprobe_count_ips_from_filter("*victim", nullptr); };
  const auto list = [] { return fprobe_for_each_site([](const fprobe_site*, void*) { return 7; }, nullptr); };
  for (const std::function<int()>& call : {std::function<int()>(count), std::function<int()>(list)}) {
    for (const Failing& failing : {failing_call("allocation", Call::kAllocate, ENOMEM), failing_new()}) {
      int status = kRefused;
      for (long n = 0; status == kRefused && n < 2'000; ++n) {
        status = in_child([&] {
          failing.arm(n);
          const int result = call();
          failing.disarm();
          CHECK_IN_CHILD(result == -ENOMEM || result > 0);
          CHECK_IN_CHILD(call() > 0);
          return result == -ENOMEM ? kRefused : kSucceeded;
        });
      }
      EXPECT_EQ(status, kSucceeded) << failing.name;
    }
  }
}

}  // namespace
