// The text of the program: changed while a probe needs it, as before when none does.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include <link.h>

#include "integration/support.h"

namespace contract {
namespace {

using Bytes = std::vector<unsigned char>;

// The executable segments of every module, by address.
std::map<unsigned long, Bytes> all_text() {
  std::map<unsigned long, Bytes> text;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        if (std::strstr(info->dlpi_name, "linux-vdso") != nullptr) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
          const auto* start = reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr);
          (*static_cast<std::map<unsigned long, Bytes>*>(out))[reinterpret_cast<unsigned long>(start)] =
              Bytes(start, start + header.p_filesz);
        }
        return 0;
      },
      &text);
  return text;
}

// Start, end and permissions of every mapping of a file.
std::string file_mappings() {
  std::string mappings;
  std::FILE* file = std::fopen("/proc/self/maps", "re");
  char line[1024];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strchr(line, '/') != nullptr) mappings += line;
  }
  if (file != nullptr) std::fclose(file);
  return mappings;
}

Bytes bytes_at(unsigned long address, std::size_t size) {
  const auto* start = reinterpret_cast<const unsigned char*>(address);
  return Bytes(start, start + size);
}

constexpr const char* kManyNames[] = {"twice", "thrice",    "quadruple",  "nine",
                                      "deep",  "call_back", "tail_first", "mixed"};

TEST(Text, IsByteForByteAsBeforeTheFirstRegistrationWhenUnregisterReturns) {
  const auto before = all_text();
  Probe first, second(kEntry);
  ASSERT_EQ(register_fprobe_syms(&first, const_cast<const char**>(kManyNames), 8), 0) << fprobe_last_error();
  ATTACH(second, "twice");
  EXPECT_EQ(all_text() != before, kTextIsWritten);
  twice(1);
  ASSERT_EQ(unregister_fprobe(&first), 0);
  EXPECT_EQ(all_text() != before, kTextIsWritten);  // the second one's site is still armed
  ASSERT_EQ(unregister_fprobe(&second), 0);
  EXPECT_TRUE(all_text() == before);
}

TEST(Text, IsAsBeforeWithAnotherThreadRunning) {
  const auto before = all_text();
  BlockedCall call;  // a second thread: the protocol for running programs
  Probe probe;
  ASSERT_EQ(register_fprobe_syms(&probe, const_cast<const char**>(kManyNames), 8), 0) << fprobe_last_error();
  EXPECT_EQ(all_text() != before, kTextIsWritten);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_TRUE(all_text() == before);
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
}

TEST(Text, OfEverySiteIsAsBeforeAfterProbingAllOfThem) {
  const auto before = all_text();
  Probe probe(kEntry);
  const std::string filter = std::string(kVictimModule) + ":*";
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(twice(1), 2);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_TRUE(all_text() == before);
}

TEST(Text, MappingsHaveTheirPermissionsBackAndNoneIsSplit) {
  const std::string before = file_mappings();
  Probe probe;
  ASSERT_EQ(register_fprobe_syms(&probe, const_cast<const char**>(kManyNames), 8), 0) << fprobe_last_error();
  EXPECT_EQ(file_mappings(), before);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(file_mappings(), before);
}

TEST(Text, IsIdleAgainAtTheNextSynchronizeAfterAnAsynchronousUnregister) {
  const auto before = all_text();
  Probe probe;
  ATTACH(probe, "twice");
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);
  ASSERT_EQ(fprobe_synchronize(), 0);
  EXPECT_TRUE(all_text() == before);
}

TEST(Text, IsIdleAgainAtTheNextRegisterAfterAnAsynchronousUnregister) {
  const unsigned long site = site_of("twice");
  const Bytes before = bytes_at(site, 6);
  Probe probe, other;
  ATTACH(probe, "twice");
  EXPECT_EQ(bytes_at(site, 6) != before, kTextIsWritten);
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);
  ATTACH(other, "thrice");
  EXPECT_EQ(bytes_at(site, 6), before);
}

TEST(Text, IsIdleAgainAtTheNextUnregisterAfterAnAsynchronousUnregister) {
  const auto before = all_text();
  Probe probe, other;
  ATTACH(probe, "twice");
  ATTACH(other, "thrice");
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);
  ASSERT_EQ(unregister_fprobe(&other), 0);
  EXPECT_TRUE(all_text() == before);
}

TEST(Text, OfAProbedFunctionDiffersFromItsIdleForm) {
  const unsigned long site = site_of("twice");
  ASSERT_NE(site, 0u);
  const Bytes before = bytes_at(site, 6);
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_EQ(bytes_at(site, 6) != before, kTextIsWritten);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(bytes_at(site, 6), before);
}

// What the file holds at `address` of the victims' module.
Bytes file_bytes(unsigned long address, std::size_t size) {
  char path[4096] = "";
  long offset = -1;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  char line[4352];
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long start = 0, end = 0, at = 0;
    if (std::sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095[^\n]", &start, &end, &at, path) != 4) continue;
    if (address < start || address >= end) continue;
    offset = static_cast<long>(address - start + at);
    break;
  }
  if (maps != nullptr) std::fclose(maps);
  Bytes bytes(size);
  std::FILE* file = offset >= 0 ? std::fopen(path, "re") : nullptr;
  if (file == nullptr) return {};
  if (std::fseek(file, offset, SEEK_SET) != 0 || std::fread(bytes.data(), 1, size, file) != size) bytes.clear();
  std::fclose(file);
  return bytes;
}

TEST(RestoreText, PutsTheFilesOwnBytesBackAtEverySite) {
  const std::vector<unsigned long> sites = sites_of_victims();
  ASSERT_GT(sites.size(), 40u);
  ASSERT_EQ(fprobe_restore_text(), 0) << fprobe_last_error();
  for (const unsigned long site : sites) ASSERT_EQ(bytes_at(site, 5), file_bytes(site, 5)) << std::hex << site;
  // A later registration works as usual.
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(RestoreText, IsRefusedWhileAnythingIsRegistered) {
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_EQ(fprobe_restore_text(), -EBUSY);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(fprobe_restore_text(), 0);
}

}  // namespace
}  // namespace contract
