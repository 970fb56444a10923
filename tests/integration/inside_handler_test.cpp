// What may be called inside a handler, and what is refused there.
#include <dlfcn.h>

#include <cerrno>
#include <csetjmp>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "integration/support.h"

namespace contract {
namespace {

// Runs `action` inside a handler at either end of twice(1); gives what it returned.
template <class Action>
int inside_handler(Ends end, const Action& action) {
  Probe probe(end);
  int result = -12345;
  probe.on_entry = [&](const Hit&) {
    result = action();
    return 0;
  };
  probe.on_exit = [&](const Hit&) { result = action(); };
  EXPECT_EQ(probe.attach({"twice"}), 0);
  EXPECT_EQ(twice(1), 2);
  return result;
}

TEST(InsideAHandler, UnregisterIsRefusedAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    ATTACH(other, "thrice");
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(&other); }), -EDEADLK);
    EXPECT_NE(std::string(fprobe_last_error()).find("unregister_fprobe_async"), std::string::npos);
    EXPECT_TRUE(fprobe_is_registered(&other));
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(nullptr); }), -EINVAL);
    Probe unregistered;
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(&unregistered); }), -EINVAL);
  }
}

TEST(InsideAHandler, UnregisteringItsOwnProbeIsRefused) {
  static int result;
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    result = unregister_fprobe(hit.probe);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(result, -EDEADLK);
  EXPECT_TRUE(fprobe_is_registered(&probe));
}

TEST(InsideAHandler, SynchronizeIsRefusedAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) EXPECT_EQ(inside_handler(end, [] { return fprobe_synchronize(); }), -EDEADLK);
  EXPECT_NE(std::string(fprobe_last_error()).find("unregister_fprobe_async()"), std::string::npos) << "the remedy";
}

TEST(InsideAHandler, RegisteringAnotherProbeWorksAtBothEndsInEveryWay) {
  unsigned long addresses[] = {site_of("thrice")};
  const std::string filter = std::string(kVictimModule) + ":thrice";
  const std::function<int(Probe&)> ways[] = {
      [](Probe& other) { return other.attach({"thrice"}); },
      [&](Probe& other) { return register_fprobe(&other, filter.c_str(), nullptr); },
      [&](Probe& other) { return register_fprobe_ips(&other, addresses, 1); },
  };
  for (const auto& register_it : ways) {
    for (const Ends end : {kEntry, kExit}) {
      Probe other;
      EXPECT_EQ(inside_handler(end, [&] { return register_it(other); }), 0) << fprobe_last_error();
      EXPECT_EQ(thrice(1), 3);
      EXPECT_EQ(other.exits, 1u);
    }
  }
}

TEST(InsideAHandler, RegisteringOnTheFunctionBeingProbedTakesEffectAtTheNextCall) {
  Probe other;
  EXPECT_EQ(inside_handler(kEntry, [&] { return other.attach({"twice"}); }), 0);
  EXPECT_EQ(other.entries, 0u);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(other.entries, 1u);
  EXPECT_EQ(other.exits, 1u);
}

TEST(InsideAHandler, UnregisterAsyncOfAnotherProbeWorksAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    ATTACH(other, "thrice");
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe_async(&other); }), 0);
    EXPECT_FALSE(fprobe_is_registered(&other));
    EXPECT_EQ(fprobe_synchronize(), 0);
    thrice(1);
    EXPECT_EQ(other.entries, 0u);
  }
}

TEST(InsideAHandler, UnregisterAsyncOfItsOwnProbeEndsItWithThisCallsEntry) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(unregister_fprobe_async(hit.probe), 0);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
  EXPECT_EQ(fprobe_synchronize(), 0);
}

TEST(InsideAHandler, AnOlderProbeUnregisteredByANewerOneDoesNotRunAnyMore) {
  Probe older, newer;
  newer.on_entry = [&](const Hit&) {
    if (fprobe_is_registered(&older)) {
      EXPECT_EQ(unregister_fprobe_async(&older), 0);
    }
    return 0;
  };
  ATTACH(older, "twice");
  ATTACH(newer, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(older.entries, 0u);
  EXPECT_EQ(older.exits, 0u);
  EXPECT_EQ(newer.exits, 1u);
}

TEST(InsideAHandler, DisableOfItsOwnProbeAtEntryCancelsTheExit) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    disable_fprobe(hit.probe);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
  enable_fprobe(&probe);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(InsideAHandler, EnableOfAnotherProbeWorks) {
  Probe other;
  disable_fprobe(&other);
  ATTACH(other, "thrice");
  inside_handler(kExit, [&] {
    enable_fprobe(&other);
    return 0;
  });
  thrice(1);
  EXPECT_EQ(other.exits, 1u);
}

// Memory of every size, locks, files, libraries, exceptions, jumps within the handler.
std::string use_the_c_library() {
  std::ostringstream text;
  for (std::size_t size = 1; size <= std::size_t{4} << 20; size *= 4) text << std::string(size, 'x').size() << ' ';
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  try {
    throw std::runtime_error("thrown ");
  } catch (const std::exception& error) {
    text << error.what();
  }
  static jmp_buf target;
  if (setjmp(target) == 0) longjmp(target, 1);
  std::FILE* const file = std::fopen("/proc/self/comm", "re");
  text << (file != nullptr && std::fgetc(file) != EOF && std::fclose(file) == 0 ? "read " : "not read ");
  void* const library = dlopen("libm.so.6", RTLD_NOW);
  text << (library != nullptr && dlsym(library, "cos") != nullptr && dlclose(library) == 0 ? "loaded " : "not loaded ");
  text << 0.5;
  return text.str();
}

// Threads of the handler's own, and a child process: for both the probe fires as for anybody.
long use_threads_and_processes() {
  long result = 0;
  std::thread([&] { result = thrice(1); }).join();
  const int status = status_of_fork_child([] { return static_cast<int>(thrice(2)) - 6; });
  return status == 0 ? result : -1;
}

TEST(InsideAHandler, AnythingMayBeCalledAtBothEnds) {
  const std::string expected = use_the_c_library();
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    ATTACH(other, "thrice");
    std::string text;
    long result = 0;
    const int sites = inside_handler(end, [&] {
      text = use_the_c_library();
      result = use_threads_and_processes();
      return fprobe_for_each_site([](const fprobe_site*, void*) { return 0; }, nullptr) +
             fprobe_count_ips_from_filter("thrice", nullptr);
    });
    EXPECT_EQ(sites, 1);
    EXPECT_EQ(text, expected);
    EXPECT_EQ(result, 3);
    EXPECT_EQ(other.exits, 1u);  // on the thread; the child counts for itself
    EXPECT_EQ(other.nmissed, 0u);
    EXPECT_EQ(thrice(1), 3);
    EXPECT_EQ(other.exits, 2u);
  }
}

}  // namespace
}  // namespace contract
