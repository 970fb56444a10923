// Clones that gcc makes of functions (.constprop, .isra, .part): who answers to which name.
#include <cerrno>
#include <string>

#include "integration/support.h"

namespace contract {
namespace {

constexpr const char* kScaled = "_ZN5space6scaledEll";
constexpr const char* kScaledClone = "_ZN5space6scaledEll.constprop.0";

// How often the probe fires in a call of space::scaled, and in one of its clone.
struct Fired {
  unsigned long function, clone;
  bool operator==(const Fired&) const = default;
};
Fired fired_in_scaled(Probe& probe) {
  const unsigned long before = probe.entries;
  EXPECT_EQ(call_scaled(1, 2), 4);
  const unsigned long between = probe.entries;
  EXPECT_EQ(call_scaled_thrice(1), 8);
  EXPECT_EQ(probe.exits, probe.entries);
  return {between - before, probe.entries - between};
}

TEST(Clones, AreFunctionsWithSitesOfTheirOwn) {
  for (const char* const symbol : {kScaled, kScaledClone, "summed.isra.0", "parted.part.0"})
    EXPECT_NE(site_of(symbol), 0u) << symbol << ": the compiler did not make what these tests are about";
  for (const char* const symbol : {"summed", "parted"}) EXPECT_EQ(site_of(symbol), 0u) << symbol;
}

TEST(Clones, AnswerToTheirFunctionsNameInEverySpelling) {
  for (const char* const name : {kScaled, "space::scaled", "space::scaled(long, long)"}) {
    Probe probe;
    ATTACH(probe, name);
    EXPECT_EQ(fired_in_scaled(probe), (Fired{1, 1})) << name;
  }
}

TEST(Clones, ALinkageNameWithTheSuffixMeansThatCloneAlone) {
  Probe probe;
  ATTACH(probe, kScaledClone);
  EXPECT_EQ(fired_in_scaled(probe), (Fired{0, 1}));
}

TEST(Clones, AnswerToTheNameOfAFunctionThatIsNotThereItself) {
  Probe summed, parted;
  ATTACH(summed, "summed");
  ATTACH(parted, "parted");
  EXPECT_EQ(call_summed(2), 11);
  EXPECT_EQ(call_summed_of_others(2), 16);
  EXPECT_EQ(summed.exits, 2u);
  EXPECT_EQ(call_parted(-1), -1);  // decided before the part is called
  EXPECT_EQ(parted.entries, 0u);
  call_parted(3);
  call_parted_and_add(3);
  EXPECT_EQ(parted.exits, 2u);
}

TEST(Clones, AreSelectedAndLeftOutByFiltersAlike) {
  const std::string in_module = std::string(kVictimModule) + ":";
  const auto register_by = [&](Probe& probe, const char* filter, const char* notfilter) {
    return register_fprobe(&probe, (in_module + filter).c_str(), notfilter);
  };
  Probe both, function, clone, none;
  ASSERT_EQ(register_by(both, "space::scaled", nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(fired_in_scaled(both), (Fired{1, 1}));
  ASSERT_EQ(register_by(function, "space::scaled", kScaledClone), 0) << fprobe_last_error();
  EXPECT_EQ(fired_in_scaled(function), (Fired{1, 0}));
  ASSERT_EQ(register_by(clone, "_ZN5space6scaled*.constprop.*", nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(fired_in_scaled(clone), (Fired{0, 1}));
  EXPECT_EQ(register_by(none, "space::scaled", "space::scaled"), -ENOENT);
  EXPECT_EQ(fprobe_count_ips_from_filter((in_module + "summed," + in_module + "part[e]d").c_str(), nullptr), 2);
}

}  // namespace
}  // namespace contract
