// Modules without a symbol table and without a debug file.
#include <errno.h>

#include <algorithm>
#include <vector>

#include "image/debug_file.h"
#include "symbols/support.h"

namespace {

using std::filesystem::path;

// Of its symbols, or of its section headers too.

class Stripped : public ::testing::TestWithParam<const char*> {
 protected:
  Stripped() {
    std::string bytes = read_file(built("library_sha1_1.so"));
    if (std::string_view(GetParam()) == "OfItsSectionHeadersToo") bytes = without_section_headers(std::move(bytes));
    write_file(module_, bytes);
    libfprobe::detail::set_debug_root(root_.c_str());  // nothing is there
  }

  Folder folder_;
  path module_ = folder_ / "libvictim.so";
  std::string root_ = folder_ / "root";
};

INSTANTIATE_TEST_SUITE_P(Library, Stripped, ::testing::Values("OfItsSymbols", "OfItsSectionHeadersToo"),
                         [](const auto& form) { return std::string(form.param); });

TEST_P(Stripped, FunctionsWithoutANameAreProbedByAddress) {
  const Library library(module_);
  unsigned long address = library.address_of_hidden();
  fprobe probe = counting_probe();
  ASSERT_EQ(register_fprobe_ips(&probe, &address, 1), 0) << fprobe_last_error();
  hits = 0;
  EXPECT_EQ(library.call("exported_function"), 3);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(hits, 1);
}

TEST_P(Stripped, ExportedFunctionsHaveTheirNames) {
  const Library library(module_);
  EXPECT_EQ(hits_by_name(library, "exported_function"), 1) << fprobe_last_error();
  EXPECT_EQ(hits_by_name(library, "libvictim.so:exported_function"), 1) << fprobe_last_error();
  EXPECT_EQ(fprobe_count_ips_from_filter("libvictim.so:*", nullptr), 2) << "those with a name";
}

struct Listed {
  unsigned long function;
  std::string symbol, demangled;
};

std::vector<Listed> sites_of(const path& module) {
  struct Request {
    std::string module;
    std::vector<Listed> sites;
  } request{module, {}};
  const auto add = [](const fprobe_site* site, void* argument) {
    auto& wanted = *static_cast<Request*>(argument);
    if (site->symbol == nullptr || site->demangled == nullptr) return 1;
    if (site->module == wanted.module) wanted.sites.push_back({site->function, site->symbol, site->demangled});
    return 0;
  };
  EXPECT_EQ(fprobe_for_each_site(add, &request), 0);
  return request.sites;
}

TEST_P(Stripped, SitesWithoutANameAreListedWithEmptyOnes) {
  const Library library(module_);
  const std::vector<Listed> sites = sites_of(module_);
  EXPECT_EQ(sites.size(), 3u);
  const auto hidden = std::find_if(sites.begin(), sites.end(),
                                   [&](const Listed& site) { return site.function == library.address_of_hidden(); });
  ASSERT_NE(hidden, sites.end());
  EXPECT_EQ(hidden->symbol, "");
  EXPECT_EQ(hidden->demangled, "");
  EXPECT_EQ(std::count_if(sites.begin(), sites.end(), [](const Listed& site) { return site.symbol.empty(); }), 1);
}

TEST_P(Stripped, AnUnknownNameIsSaidToBeStrippedWithTheRemedies) {
  const Library library(module_);
  EXPECT_EQ(hits_by_name(library, "hidden_function"), -ENOENT);
  expect_all(fprobe_last_error(),
             {"'hidden_function'", module_, "stripped", "do not strip it", "debug file at " + root_, "export"});
}

TEST_P(Stripped, AnAddressInsideAFunctionWithoutANameIsRefused) {
  const Library library(module_);
  unsigned long address = library.address_of_hidden() + 1;
  fprobe probe{};
  EXPECT_EQ(register_fprobe_ips(&probe, &address, 1), -ENOENT);
  expect_all(fprobe_last_error(), {module_, "neither a probe site nor a function's first byte"});
}

}  // namespace
