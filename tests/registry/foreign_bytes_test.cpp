// Somebody else's byte on a site (a debugger's breakpoint, a kernel uprobe): refused at register, left alone at
// unregister.
#include <errno.h>
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "registry/process_text.h"
#include "registry/victims.h"

namespace {

using fprobe_test::main_text;

// Reads and writes text as a debugger does, without asking for its protection.
unsigned char byte_at(unsigned long place) {
  unsigned char byte = 0;
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(pread(memory, &byte, 1, static_cast<off_t>(place)), 1);
  close(memory);
  return byte;
}
void write_byte(unsigned long place, unsigned char byte) {
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(pwrite(memory, &byte, 1, static_cast<off_t>(place)), 1);
  close(memory);
}

constexpr unsigned char kInt3 = 0xcc;

class Breakpoint {
 public:
  explicit Breakpoint(unsigned long place) : place_(place), before_(byte_at(place)) { write_byte(place_, kInt3); }
  ~Breakpoint() { write_byte(place_, before_); }
  Breakpoint(const Breakpoint&) = delete;
  Breakpoint& operator=(const Breakpoint&) = delete;

 private:
  unsigned long place_;
  unsigned char before_;
};

unsigned long g_entries;
int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

// Where the patched byte of a site lies: a prefix in front of the jump is never written.
struct Wanted {
  const char* symbol;
  unsigned long ip;
};
unsigned long site_of(const char* symbol) {
  Wanted wanted{symbol, 0};
  fprobe_for_each_site(
      [](const fprobe_site* site, void* argument) {
        auto* const searched = static_cast<Wanted*>(argument);
        if (std::strcmp(site->symbol, searched->symbol) == 0) searched->ip = site->ip;
        return 0;
      },
      &wanted);
  return wanted.ip;
}
unsigned long patched_byte_of(const char* symbol) {
  const unsigned long ip = site_of(symbol);
  const unsigned char first = byte_at(ip);
  const bool has_prefix = first == 0x67 || first == 0x90;  // addr32 or nop in front of what was a call
  return has_prefix ? ip + 1 : ip;
}

class ForeignBytes : public ::testing::Test {
 protected:
  ForeignBytes() {
    probe_.entry_handler = &on_entry;
    g_entries = 0;
  }
  int attach() {
    const char* names[] = {"first_victim", "second_victim", "third_victim"};
    return register_fprobe_syms(&probe_, names, 3);
  }
  fprobe probe_{};
  const std::string text_ = main_text();
};

TEST_F(ForeignBytes, RefuseARegistrationWithASentenceAndLeaveAllTextAlone) {
  {
    const Breakpoint breakpoint(patched_byte_of("second_victim"));
    EXPECT_EQ(attach(), -EBUSY);
    EXPECT_NE(std::strstr(fprobe_last_error(), "registry_foreign_bytes_test"), nullptr) << fprobe_last_error();
    EXPECT_FALSE(fprobe_is_registered(&probe_));
  }
  EXPECT_EQ(main_text(), text_);
  EXPECT_EQ(attach(), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1) + second_victim(1), 5);
  EXPECT_EQ(g_entries, 2u);
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
  EXPECT_EQ(main_text(), text_);
}

TEST_F(ForeignBytes, StayAtUnregisterAndTheSiteIsTidiedUpLater) {
  ASSERT_EQ(attach(), 0) << fprobe_last_error();
  {
    const unsigned long place = patched_byte_of("second_victim");
    const Breakpoint breakpoint(place);
    EXPECT_EQ(unregister_fprobe(&probe_), 0);
    EXPECT_EQ(byte_at(place), kInt3);
    EXPECT_EQ(first_victim(1) + third_victim(1), 6);
  }
  // The debugger wrote our jump back: the site is armed with an empty list.
  EXPECT_EQ(second_victim(1), 3);
  EXPECT_EQ(g_entries, 0u);
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_EQ(main_text(), text_);
  EXPECT_EQ(second_victim(1), 3);
}

TEST_F(ForeignBytes, DoNotKeepTheSiteFromBeingRegisteredAgain) {
  ASSERT_EQ(attach(), 0) << fprobe_last_error();
  {
    const Breakpoint breakpoint(patched_byte_of("second_victim"));
    EXPECT_EQ(unregister_fprobe(&probe_), 0);
  }
  ASSERT_EQ(attach(), 0) << fprobe_last_error();
  EXPECT_EQ(second_victim(1), 3);
  EXPECT_EQ(g_entries, 1u);
  EXPECT_EQ(unregister_fprobe(&probe_), 0);
  EXPECT_EQ(main_text(), text_);
}

}  // namespace
