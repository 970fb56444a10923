// Every flavour of instrumented program and library that tests/targets builds: the scan finds the sites that objdump
// sees in the file, no fewer and no more.
#include "image/site_scan.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "targets/victim.h"
#include "targets/victim_files.h"

namespace libfprobe::detail {
namespace {

using tests::Addresses;
using tests::expect_kind;
using tests::ips_of;
using tests::Line;
using tests::refused_ips_of;
using tests::Victim;
using tests::victim;

// --- Every flavour, by the first word of its name
// ----------------------------------------------------------------------

class EachVictim : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(victim_.is_there()) << GetParam(); }
  [[nodiscard]] bool is(const char* word) const { return GetParam().starts_with(std::string(word) + "_"); }
  [[nodiscard]] bool has(const char* word) const { return GetParam().find(word) != std::string::npos; }

  void expect_fentry_sites(const std::vector<Line>& lines) {
    Addresses calls = tests::find_calls(lines, "__fentry__", is("own") && has("mold"));
    if (calls.empty()) calls = tests::find_common_entry_calls(lines);
    EXPECT_GE(calls.size(), has("nested") ? 3u : kFewest);
    const ScanResult result = victim_.scan();
    EXPECT_EQ(ips_of(result), calls);
    EXPECT_TRUE(result.refused.empty());
    expect_kind(result, FPROBE_SITE_FENTRY);
    expect_whole_instructions(result, lines);
  }
  // -pg: behind a prologue, whose arguments gcc leaves alone.
  void expect_mcount_sites(const Addresses& calls) {
    EXPECT_GE(calls.size(), kFewest);
    const ScanResult result = victim_.scan();
    EXPECT_EQ(ips_of(result), calls);
    EXPECT_TRUE(result.refused.empty());
    expect_kind(result, FPROBE_SITE_MCOUNT);
    for (const FoundSite& site : result.sites) {
      EXPECT_TRUE(victim_.starts_function(site.function)) << std::hex << site.ip;
      EXPECT_TRUE(site.shape.is_behind_prologue());
      EXPECT_TRUE(has("clang") || !site.shape.arguments_moved) << std::hex << site.ip;
    }
  }
  void expect_nop_sites(const std::vector<Line>& lines, bool (*is_wanted)(const Line&), fprobe_site_kind kind) {
    const Addresses nops = tests::find_entry_nops(lines, is_wanted, 5, 1 << 20);
    EXPECT_GE(nops.size(), kFewest);
    const ScanResult result = victim_.scan();
    EXPECT_EQ(ips_of(result), nops);
    EXPECT_TRUE(result.refused.empty());
    expect_kind(result, kind);
    expect_whole_instructions(result, lines);
  }
  void expect_only_refusals(const Addresses& ips, const char* word) {
    EXPECT_GE(ips.size(), kFewest);
    const ScanResult result = victim_.scan();
    EXPECT_TRUE(result.sites.empty());
    EXPECT_EQ(refused_ips_of(result, word), ips);
    EXPECT_EQ(result.refused.size(), ips.size());
  }
  // Sites belong to functions' entries and end where objdump sees an instruction start.
  void expect_whole_instructions(const ScanResult& result, const std::vector<Line>& lines) const {
    Addresses boundaries;
    for (const Line& line : lines) boundaries.insert(line.address);
    for (const FoundSite& site : result.sites) {
      EXPECT_TRUE(victim_.starts_function(site.function)) << std::hex << site.ip;
      EXPECT_LE(site.ip - site.function, 6u);
      EXPECT_GE(site.shape.length, 5);
      EXPECT_LE(site.shape.length, arch::kMaxSiteLength);
      EXPECT_TRUE(boundaries.contains(site.ip + site.shape.length)) << std::hex << site.ip;
      EXPECT_TRUE(boundaries.contains(site.ip + site.shape.patch_offset) || victim_.mapped_byte(site.ip) == 0x67);
    }
  }
  // Where functions have recorded nops that are too few; behind its pad, which none of these has.
  [[nodiscard]] Addresses short_places(const std::vector<Line>& lines) const {
    if (!has("n5_5")) return tests::find_entry_nops(lines, tests::is_patchable_nop, 1, 4);
    Addresses found;
    for (const Line& line : lines) {
      if (line.starts_function && victim_.is_sized(line.address)) found.insert(line.address);
    }
    return found;
  }
  // Where a large-model call starts: at the function's first byte, since none of these is nested or padded.
  [[nodiscard]] static Addresses find_large_calls(const std::vector<Line>& lines) {
    Addresses found;
    for (const Line& line : lines) {
      if (line.starts_function && line.text.starts_with("movabs")) found.insert(line.address);
    }
    return found;
  }

  static constexpr std::size_t kFewest = 65;  // functions of tests/targets/instrumented.c
  Victim victim_{victim(GetParam())};
};

TEST_P(EachVictim, HasTheSitesThatObjdumpSees) {
  const std::vector<Line> lines = tests::disassemble(victim(GetParam()));
  ASSERT_GT(lines.size(), 50u);
  if (is("fentry") || is("own")) return expect_fentry_sites(lines);
  if (is("patchable")) return expect_nop_sites(lines, tests::is_patchable_nop, FPROBE_SITE_PATCHABLE);
  if (is("nopmcount")) return expect_nop_sites(lines, tests::is_mcount_nop, FPROBE_SITE_FENTRY);
  if (is("short")) return expect_only_refusals(short_places(lines), "5 bytes");
  if (is("legacy")) return expect_mcount_sites(tests::find_calls(lines, "mcount", has("own") && has("mold")));
  if (is("large")) return expect_only_refusals(find_large_calls(lines), "-mcmodel=large");
  ASSERT_TRUE(is("none")) << "a victim of a kind that no expectation knows: " << GetParam();
  EXPECT_TRUE(victim_.scan().sites.empty());
  EXPECT_TRUE(victim_.scan().refused.empty());
}

TEST_P(EachVictim, IsJudgedFromMemoryAloneAsFarAsMemoryTells) {
  const bool has_hidden_refusals = has("_n1_") || GetParam().ends_with("_n1") || has("_n5_5");
  EXPECT_EQ(may_have_sites(victim_.mapped().image()), !is("none") && !has_hidden_refusals);

  // Without the file nothing tells the functions of a program without unwind tables in memory, nor which definition a
  // direct call of a static program goes to.
  const ScanResult with = victim_.scan(), without = victim_.scan(false);
  const Addresses known = ips_of(with), found = ips_of(without);
  const bool has_table = victim_.mapped().image().eh_frame_hdr != 0;
  if (has_table && !has("nounwind") && !has("static")) {
    EXPECT_EQ(found, known);
    return;
  }
  for (const std::uintptr_t ip : found) EXPECT_TRUE(known.contains(ip)) << std::hex << ip;
}

std::vector<std::string> victim_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FPROBE_VICTIMS)) {
    const std::string name = entry.path().filename();
    if (name != "odd" && name != "both_gcc" && !name.starts_with("legacynop")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(SiteScan, EachVictim, testing::ValuesIn(victim_names()),
                         [](const auto& each) { return each.param; });

// --- Flavours with expectations of their own
// ---------------------------------------------------------------------------

TEST(SiteScan, FunctionWithNopsAndACallHasOneSiteTheNops) {
  Victim both(victim("both_gcc"));
  ASSERT_TRUE(both.is_there());
  const ScanResult result = both.scan();
  EXPECT_GE(result.sites.size(), 75u);
  expect_kind(result, FPROBE_SITE_PATCHABLE);
  EXPECT_TRUE(result.refused.empty());
}

TEST(SiteScan, ARecordedNopBehindAPrologueIsASite) {
  Victim legacy(victim("legacynop_gcc"));
  ASSERT_TRUE(legacy.is_there());
  const ScanResult result = legacy.scan();
  EXPECT_EQ(result.sites.size(), 65u);
  EXPECT_TRUE(result.refused.empty());
  expect_kind(result, FPROBE_SITE_MCOUNT);
  for (const FoundSite& site : result.sites) EXPECT_EQ(site.shape.frame, arch::FrameForm::kPointer);
}

TEST(SiteScan, PatchableFunctionsAreFoundWhoseRecordsTheLinkerLost) {
  Victim lossy(victim("patchable_gcc_dso_none"));
  ASSERT_TRUE(lossy.is_there());
  const ElfSection* records = lossy.file().section("__patchable_function_entries");
  ASSERT_NE(records, nullptr);
  EXPECT_GE(lossy.scan().sites.size(), records->size / sizeof(std::uintptr_t));
  // As mold and a damaged file have them.
  std::memset(lossy.mapped().at(records->address + lossy.mapped().image().bias), 0, records->size);
  EXPECT_EQ(lossy.scan().sites.size(),
            tests::find_entry_nops(tests::disassemble(victim("patchable_gcc_dso_none")), tests::is_patchable_nop, 5, 5)
                .size());
}

TEST(SiteScan, RecordThatNamesNoFunctionIsRefusedAndNothingElse) {
  Victim damaged(victim("patchable_gcc_pie_full"));
  ASSERT_TRUE(damaged.is_there());
  const std::size_t sites = damaged.scan().sites.size();
  const std::uintptr_t bias = damaged.mapped().image().bias;
  const std::uintptr_t main = damaged.symbol("main");
  const std::uintptr_t middle = main + bias + 11;
  const std::uintptr_t records = damaged.file().section("__patchable_function_entries")->address + bias;
  std::memcpy(damaged.mapped().at(records), &middle, sizeof middle);
  const ScanResult result = damaged.scan();
  EXPECT_EQ(result.sites.size(), sites);
  ASSERT_EQ(result.refused.size(), 1u);
  EXPECT_EQ(result.refused[0].ip, main + 11);
}

// strip(1) leaves .dynsym, the unwind tables and the sections with records.
TEST(SiteScan, StrippedModulesHaveTheSameSites) {
  for (const char* name : {"fentry_gcc_dso_full", "fentry_gcc_nopie_full", "own_gcc_pie_full", "patchable_gcc_dso_full",
                           "patchable_gcc_static_full", "nopmcount_gcc_plain"}) {
    Addresses known;
    {
      Victim whole(victim(name));
      ASSERT_TRUE(whole.is_there()) << name;
      known = ips_of(whole.scan());
    }
    const std::string path = testing::TempDir() + "stripped_" + name;
    ASSERT_EQ(std::system((std::string(FPROBE_STRIP) + " -o '" + path + "' '" + victim(name) + "'").c_str()), 0);
    Victim stripped(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(stripped.is_there()) << name;
    EXPECT_TRUE(stripped.file().symtab().empty());
    EXPECT_EQ(ips_of(stripped.scan()), known) << name;
  }
}

TEST(SiteScan, DefinitionThatNoTableNamesCanBeTold) {
  Victim program(victim("own_gcc_static_full"));
  ASSERT_TRUE(program.is_there());
  const Addresses sites = ips_of(program.scan());
  const ProfilingFunction ours[] = {{program.symbol("__fentry__"), kFentryCall}};
  EXPECT_TRUE(scan_sites(program.mapped().image(), nullptr)->sites.empty());
  const Result<ScanResult> told = scan_sites(program.mapped().image(), nullptr, ours);
  ASSERT_TRUE(told.ok());
  // -static has no unwind table in memory: only aligned functions are known by their bytes.
  const Addresses found = ips_of(told.value());
  EXPECT_GE(found.size(), 60u);
  for (const std::uintptr_t ip : found) EXPECT_TRUE(sites.contains(ip)) << std::hex << ip;
}

// --- Loaded modules
// ------------------------------------------------------------------------------------------------------

const LoadedImage* find_image(const ImageSnapshot& snapshot, const std::string& name) {
  for (const LoadedImage& image : snapshot.images) {
    if (image.name.starts_with(name)) return &image;
  }
  return nullptr;
}

TEST(SiteScan, LoadedModulesHaveTheSitesOfTheirFiles) {
  for (const char* name : {"fentry_gcc_dso_full", "fentry_clang_dso_none", "own_gcc_dso_full", "patchable_gcc_dso_full",
                           "patchable_clang_dso_none"}) {
    if (!std::filesystem::exists(victim(name))) continue;  // clang may be missing on this machine
    Victim file(victim(name));
    void* const handle = dlopen(victim(name).c_str(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    const Result<ImageSnapshot> snapshot = snapshot_images();
    ASSERT_TRUE(snapshot.ok());
    const LoadedImage* image = find_image(snapshot.value(), name);
    ASSERT_NE(image, nullptr);
    EXPECT_TRUE(may_have_sites(*image));
    Result<ScanResult> result = scan_sites(*image, &file.file());
    ASSERT_TRUE(result.ok());
    for (FoundSite& site : result->sites) site.ip -= image->bias;
    EXPECT_EQ(ips_of(*result), ips_of(file.scan())) << name;
    dlclose(handle);
  }
}

TEST(SiteScan, TheCLibraryDefinesTheFunctionsAndHasNoSite) {
  const Result<ImageSnapshot> snapshot = snapshot_images();
  ASSERT_TRUE(snapshot.ok());
  const LoadedImage* libc = find_image(snapshot.value(), "libc.so");
  ASSERT_NE(libc, nullptr);
  EXPECT_FALSE(may_have_sites(*libc));
  const Result<ElfImage> file = ElfImage::open(libc->path.c_str());
  ASSERT_TRUE(file.ok());
  const Result<ScanResult> result = scan_sites(*libc, &file.value());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value().sites.empty());
  EXPECT_TRUE(result.value().refused.empty());
}

}  // namespace
}  // namespace libfprobe::detail
