// Code that looks like sites and is none (tests/targets/odd.s), and modules that are damaged: what a scan must not do.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "image/site_scan.h"
#include "targets/victim.h"

namespace libfprobe::detail {
namespace {

using tests::Addresses;
using tests::ips_of;
using tests::Victim;
using tests::victim;

// --- Code that looks like sites: tests/targets/odd.s -----------------------------------------------------------------

class OddCode : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(odd_.is_there());
    for (const FoundSite& site : odd_.scan().sites) sites_[site.function] = site;
    for (const RefusedSite& refused : odd_.scan().refused) refused_[refused.function] = refused.reason;
  }
  FoundSite site(const std::string& function) {
    EXPECT_TRUE(sites_.contains(odd_.symbol(function))) << function;
    return sites_[odd_.symbol(function)];
  }
  std::string reason(const std::string& function) {
    EXPECT_FALSE(sites_.contains(odd_.symbol(function))) << function;
    return refused_[odd_.symbol(function)];
  }

  Victim odd_{victim("odd")};
  std::map<std::uintptr_t, FoundSite> sites_;
  std::map<std::uintptr_t, std::string> refused_;
};

TEST_F(OddCode, HasTheSitesThatItsNamesTellAndNoOther) {
  Addresses expected, found;
  for (const ElfSymbol& symbol : odd_.file().symtab()) {
    if (!symbol.name.starts_with("site_")) continue;
    const std::uintptr_t ip = odd_.symbol("ip_" + std::string(symbol.name));
    expected.insert(ip != 0 ? ip : symbol.value);
  }
  for (const auto& [function, site] : sites_) found.insert(site.ip);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(expected.size(), 16u);
}

TEST_F(OddCode, NopInFrontOfACallBelongsToTheSiteWhenTheFunctionStartsWithIt) {
  for (const char* name : {"site_mold", "site_mold_endbr", "site_mold_nested"}) {
    EXPECT_EQ(site(name).shape.form, arch::SiteForm::kCallRel32Prefixed) << name;
    EXPECT_EQ(site(name).shape.patch_offset, 1) << name;
  }
}

TEST_F(OddCode, ByteInFrontOfAFunctionIsNotPartOfItsSite) {
  for (const char* name : {"site_behind_padding", "site_behind_67"}) {
    EXPECT_EQ(site(name).shape.form, arch::SiteForm::kCallRel32) << name;
    EXPECT_EQ(site(name).ip, site(name).function) << name;
  }
}

TEST_F(OddCode, NestedFunctionsAreKnownByPushAndPop) {
  for (const char* name : {"site_mold_nested", "site_nested_endbr", "site_nop_mcount_nested"}) {
    EXPECT_TRUE(site(name).shape.nested) << name;
  }
  EXPECT_FALSE(site("site_mold_endbr").shape.nested);
  EXPECT_NE(reason("elsewhere_push"), "");
}

TEST_F(OddCode, CallsElsewhereAreRefusedWithAReason) {
  EXPECT_NE(reason("elsewhere_call").find("elsewhere"), std::string::npos);
  EXPECT_NE(reason("popped_call").find("recompile it with -pg -mfentry"), std::string::npos);
  EXPECT_NE(reason("frameless_call").find("recompile it with -pg -mfentry"), std::string::npos);
  EXPECT_EQ(reason("call_in_immediate"), "");
  EXPECT_EQ(reason("data_in_text"), "");
}

TEST_F(OddCode, CallsBehindAPrologueAreSitesWithTheirPrefix) {
  EXPECT_EQ(site("site_pg").shape.frame, arch::FrameForm::kPointer);
  EXPECT_FALSE(site("site_pg").shape.arguments_moved);
  EXPECT_EQ(site("site_pg_behind_90").shape.form, arch::SiteForm::kCallRel32);
  EXPECT_EQ(site("site_pg_mold").shape.form, arch::SiteForm::kCallRel32Prefixed);
  EXPECT_EQ(site("site_pg_realigned").shape.frame, arch::FrameForm::kRealigned);
  EXPECT_EQ(site("site_pg_realigned").shape.frame_word, 2);
}

TEST_F(OddCode, NopsThatAreJumpedIntoAreGivenUpAsFarAsTheJumpReaches) {
  EXPECT_NE(reason("jumped_into").find("jumps into"), std::string::npos);
  EXPECT_EQ(site("site_nops_then_loop").shape.length, 5);
  EXPECT_EQ(site("site_looks_jumped_into").shape.length, 5);
}

TEST_F(OddCode, DataInTextIsNoSiteWithoutSymbolsEither) {
  const std::uintptr_t bias = odd_.mapped().image().bias;
  const std::vector<ProfilingFunction> known{{odd_.symbol("__fentry__") + bias, kFentryCall},
                                             {odd_.symbol("mcount") + bias, kMcountCall}};
  const Result<ScanResult> stripped = scan_sites(odd_.mapped().image(), nullptr, known);
  ASSERT_TRUE(stripped.ok());
  Addresses found;
  for (const FoundSite& site : stripped.value().sites) found.insert(site.ip - bias);
  EXPECT_FALSE(found.contains(odd_.symbol("data_in_text")));
  EXPECT_EQ(found.size(), sites_.size());
}

// A debugger's breakpoints are there before the library is loaded.
TEST(SiteScan, BreakpointsOnSitesHideNone) {
  for (const char* name :
       {"fentry_gcc_dso_full", "own_gcc_pie_full", "patchable_gcc_dso_none", "fentry_clang_nopie_none"}) {
    Victim victim_of_debugger(victim(name));
    ASSERT_TRUE(victim_of_debugger.is_there()) << name;
    const ScanResult before = victim_of_debugger.scan();
    ASSERT_FALSE(before.sites.empty()) << name;
    const std::uintptr_t bias = victim_of_debugger.mapped().image().bias;
    for (const FoundSite& site : before.sites) *victim_of_debugger.mapped().at(site.ip + bias) = 0xcc;
    const ScanResult after = victim_of_debugger.scan();
    EXPECT_EQ(ips_of(after), ips_of(before)) << name;
    EXPECT_TRUE(after.refused.empty()) << name;
    for (std::size_t i = 0; i < after.sites.size(); ++i) {
      EXPECT_EQ(std::memcmp(after.sites[i].original, before.sites[i].original, after.sites[i].shape.length), 0) << name;
    }
  }
}

// --- Damage
// --------------------------------------------------------------------------------------------------------------

// Everything that a scan reads is damaged at random, and pages outside the segments are inaccessible.
TEST(SiteScan, DamagedModulesAreReadWithoutACrash) {
  std::minstd_rand random(1);
  for (const char* name : {"fentry_gcc_dso_full", "patchable_gcc_dso_none", "own_gcc_pie_full"}) {
    for (int round = 0; round < 150; ++round) {
      Victim damaged(victim(name));
      ASSERT_TRUE(damaged.is_there());
      const LoadedImage& image = damaged.mapped().image();
      for (int change = 0; change < 400; ++change) {
        const Segment& segment = image.segments[random() % image.segments.size()];
        std::uint8_t* const at = damaged.mapped().at(segment.start + random() % (segment.end - segment.start));
        *at = static_cast<std::uint8_t>(random());
      }
      for (const FoundSite& site : damaged.scan(round % 2 == 0).sites) {
        const Segment* segment = image.segment_at(site.ip + image.bias);
        ASSERT_NE(segment, nullptr);
        EXPECT_NE(segment->flags & PF_X, 0u);
        EXPECT_LE(site.ip + image.bias + site.shape.length, segment->end);
      }
      (void)may_have_sites(image);
    }
  }
}

TEST(SiteScan, LyingTablesAreReadWithoutACrash) {
  Victim victim_under_test(victim("fentry_gcc_dso_full"));
  ASSERT_TRUE(victim_under_test.is_there());
  LoadedImage& image = victim_under_test.mapped().image();
  const LoadedImage truth = image;
  for (const std::uintptr_t lie : {std::uintptr_t{1}, truth.low, truth.high - 1, truth.high, UINTPTR_MAX - 7}) {
    image.dynamic = lie;
    image.eh_frame_hdr = lie;
    image.eh_frame_hdr_size = SIZE_MAX;
    (void)victim_under_test.scan(false);
    (void)victim_under_test.scan(true);
  }
  image = truth;
  EXPECT_GE(victim_under_test.scan().sites.size(), 75u);
}

// Text that ends where inaccessible memory begins, with every candidate cut off at every byte.
TEST(SiteScan, NothingIsReadBehindASegment) {
  constexpr std::size_t kPage = 4096;
  auto* const pages =
      static_cast<std::uint8_t*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  const auto end = reinterpret_cast<std::uintptr_t>(pages + kPage);
  for (const int filler : {0xe8, 0xff, 0x90, 0x49, 0x67, 0x0f}) {
    for (std::size_t size = 0; size < 64; ++size) {
      std::memset(pages, filler, kPage);
      LoadedImage image;
      image.low = end - size;
      image.high = end;
      image.segments = {{end - size, end, PF_R | PF_X}};
      const ProfilingFunction anywhere[] = {{end - 3, kFentryCall}};
      EXPECT_TRUE(scan_sites(image, nullptr, anywhere).ok());
      (void)may_have_sites(image, anywhere);
    }
  }
  munmap(pages, 2 * kPage);
}

TEST(SiteScan, ExecuteOnlyTextIsLeftAlone) {
  Victim secret(victim("fentry_gcc_dso_full"));
  ASSERT_TRUE(secret.is_there());
  for (Segment& segment : secret.mapped().image().segments) {
    if ((segment.flags & PF_X) == 0) continue;
    segment.flags = PF_X;
    const std::uintptr_t page = segment.start & ~std::uintptr_t{4095};
    ASSERT_EQ(mprotect(secret.mapped().at(page), segment.end - page, PROT_NONE), 0);
  }
  EXPECT_TRUE(secret.scan().sites.empty());
}

}  // namespace
}  // namespace libfprobe::detail
