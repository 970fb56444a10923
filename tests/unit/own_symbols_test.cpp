// Functions and names of this very program (built as PIE, no-pie and static): aliases, IFUNCs, assembly.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/attributes.h"
#include "image/image_file.h"
#include "image/symbol_index.h"

namespace sample {

struct Constructed {
  __attribute__((noinline)) explicit Constructed(int value);
  virtual ~Constructed();
  int value_;
};
Constructed::Constructed(int value) : value_(value) {}
Constructed::~Constructed() = default;

template <class T>
__attribute__((noinline, used)) T twice(T value) {
  return value + value;
}
template int twice<int>(int);

int data_object = 7;
thread_local int thread_object = 7;

}  // namespace sample

// Hidden symbols are local ones once linked.
#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {
__attribute__((noinline)) int sample_original(int value) noexcept {
  return value + sample::data_object + sample::thread_object;
}
int sample_alias(int) noexcept __attribute__((nothrow, alias("sample_original")));
HIDDEN int sample_local_alias(int) noexcept __attribute__((nothrow, alias("sample_original")));

__attribute__((noinline, used)) int sample_chosen(int value) {
  return value * 3;
}
__attribute__((noinline, used)) int sample_other(int value) {
  return value * 5;
}
using Sample = int(int);
// Resolvers run before a sanitizer is ready.
HIDDEN FPROBE_UNSANITIZED Sample* sample_resolver() {
  return sample::data_object == 8 ? sample_other : sample_chosen;
}
HIDDEN FPROBE_UNSANITIZED Sample* sample_pointed_resolver() {
  return sample_resolver();
}
HIDDEN FPROBE_UNSANITIZED Sample* never_called_resolver() {
  return sample_other;
}
int sample_exported_ifunc(int) __attribute__((ifunc("sample_resolver")));
HIDDEN int sample_hidden_ifunc(int) __attribute__((ifunc("sample_resolver")));
HIDDEN int sample_pointed_ifunc(int) __attribute__((ifunc("sample_pointed_resolver")));
HIDDEN int sample_unused_ifunc(int) __attribute__((ifunc("never_called_resolver")));
}

// The program may write to these, so they tell nothing about the IFUNCs.
Sample* sample_pointer = sample_exported_ifunc;
Sample* sample_only_pointer = sample_pointed_ifunc;

asm(R"(
  .pushsection .text
  .globl sample_untyped
sample_untyped:
  nop
  ret
sample_local_label:
  nop
  ret
  .type sample_sizeless, @function
  .globl sample_sizeless
sample_sizeless:
  nop
  nop
  ret
  .size sample_after, 1
  .type sample_after, @function
  .globl sample_after
sample_after:
  ret
  .popsection
)");

extern "C" int sample_untyped(), sample_sizeless(), sample_after();

namespace libfprobe::detail {
namespace {

std::uintptr_t address_of(auto* function) {
  return reinterpret_cast<std::uintptr_t>(function);
}

class OwnSymbols : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<ImageSnapshot> snapshot = snapshot_images();
    ASSERT_TRUE(snapshot.ok()) << snapshot.error().sentence;
    Result<ElfImage> file = open_file_of(snapshot->images.front());
    ASSERT_TRUE(file.ok()) << file.error().sentence;
    Result<SymbolIndex> built = SymbolIndex::build(snapshot->images.front(), &*file, snapshot->images);
    ASSERT_TRUE(built.ok()) << built.error().sentence;
    delete index_;
    index_ = new SymbolIndex(std::move(*built));
  }
  static void TearDownTestSuite() {
    delete index_;
    index_ = nullptr;
  }
  static bool has_name(std::uintptr_t address, std::string_view name) {
    const std::span<const FunctionName> names = index_->names_at(address);
    return std::any_of(names.begin(), names.end(), [&](const FunctionName& f) { return name == f.linkage; });
  }
  static std::vector<std::uintptr_t> bearers(std::string_view name) {
    std::vector<std::uintptr_t> addresses;
    for (const FunctionName& function : index_->functions())
      if (name == function.linkage) addresses.push_back(function.address);
    return addresses;
  }
  static SymbolIndex* index_;
};
SymbolIndex* OwnSymbols::index_ = nullptr;

TEST_F(OwnSymbols, AliasesAreFoundAtTheAddressOfTheirFunction) {
  const std::uintptr_t original = address_of(sample_original);
  for (const char* name : {"sample_original", "sample_alias", "sample_local_alias"})
    EXPECT_TRUE(has_name(original, name)) << name;
  EXPECT_STREQ(index_->containing(original + 1)->linkage, "sample_alias") << "the first of the global names";
  EXPECT_EQ(sample_local_alias(1), sample_alias(1));
}

TEST_F(OwnSymbols, ConstructorsOfBothKindsAreFound) {
  const sample::Constructed object(1);
  EXPECT_EQ(object.value_, 1);
  EXPECT_EQ(bearers("_ZN6sample11ConstructedC1Ei").size(), 1u);
  EXPECT_EQ(bearers("_ZN6sample11ConstructedC2Ei").size(), 1u);
  EXPECT_EQ(spell("_ZN6sample11ConstructedC1Ei").qualified, spell("_ZN6sample11ConstructedC2Ei").qualified);
}

TEST_F(OwnSymbols, TemplateInstancesAreFound) {
  EXPECT_EQ(bearers("_ZN6sample5twiceIiEET_S1_").size(), 1u);
}

TEST_F(OwnSymbols, DataIsLeftOut) {
  EXPECT_TRUE(bearers("_ZN6sample11data_objectE").empty());
  EXPECT_TRUE(bearers("_ZN6sample13thread_objectE").empty());
  EXPECT_TRUE(bearers("sample_pointer").empty());
  EXPECT_TRUE(bearers("_etext").empty());
}

TEST_F(OwnSymbols, IfuncNamesStandAtTheChosenImplementation) {
  EXPECT_EQ(sample_exported_ifunc(2) + sample_hidden_ifunc(2), 12);
  const std::vector<std::uintptr_t> chosen{address_of(sample_chosen)};
  EXPECT_EQ(bearers("sample_exported_ifunc"), chosen);
  EXPECT_EQ(bearers("sample_hidden_ifunc"), chosen);
  EXPECT_STREQ(index_->names_at(chosen[0])[0].linkage, "sample_chosen") << "its own name comes first";
}

TEST_F(OwnSymbols, IfuncPointerThatTheProgramChangedTellsNothing) {
  Sample* const before[] = {sample_pointer, sample_only_pointer};
  sample_pointer = sample_only_pointer = sample_other;
  SetUpTestSuite();
  const std::uintptr_t chosen = address_of(sample_chosen);
  EXPECT_EQ(bearers("sample_exported_ifunc"), (std::vector<std::uintptr_t>{chosen}));
  // Where the linker made no other word for it, it is not to be told.
  for (const std::uintptr_t address : bearers("sample_pointed_ifunc")) EXPECT_EQ(address, chosen);
  sample_pointer = before[0];
  sample_only_pointer = before[1];
}

TEST_F(OwnSymbols, IfuncThatNobodyBoundHasNoAddress) {
  EXPECT_TRUE(bearers("sample_unused_ifunc").empty());
  const std::span<const char* const> unbound = index_->unbound_ifuncs();
  EXPECT_TRUE(std::any_of(unbound.begin(), unbound.end(),
                          [](const char* name) { return std::string_view(name) == "sample_unused_ifunc"; }));
}

TEST_F(OwnSymbols, ResolverAnswersToItsOwnNameOnly) {
  const std::vector<std::uintptr_t> resolver = bearers("sample_resolver");
  ASSERT_EQ(resolver.size(), 1u);
  ASSERT_EQ(index_->names_at(resolver[0]).size(), 1u);
  EXPECT_STREQ(index_->names_at(resolver[0])[0].linkage, "sample_resolver");
}

TEST_F(OwnSymbols, HandWrittenAssemblyIsFoundWithItsExtent) {
  EXPECT_TRUE(has_name(address_of(sample_untyped), "sample_untyped"));
  EXPECT_TRUE(bearers("sample_local_label").empty());
  ASSERT_TRUE(has_name(address_of(sample_sizeless), "sample_sizeless"));
  EXPECT_EQ(index_->names_at(address_of(sample_sizeless))[0].size, 3u);
  EXPECT_STREQ(index_->containing(address_of(sample_after))->linkage, "sample_after");
}

TEST_F(OwnSymbols, ContainingFindsTheFunctionOfAReturnAddress) {
  const FunctionName* function = index_->containing(address_of(&sample_other) + 1);
  ASSERT_NE(function, nullptr);
  EXPECT_STREQ(function->linkage, "sample_other");
}

}  // namespace
}  // namespace libfprobe::detail
