// Functions and their names: from tables made up here, and from this very program (built as PIE, no-pie and static).
#include "image/symbol_index.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/attributes.h"
#include "base/syscalls.h"
#include "image/image_file.h"
#include "unit/elf_builder.h"

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

// A module that is not really there: code at 0x1000…0x1fff of its file.
LoadedImage made_up_image(std::uintptr_t bias = 0x7f0000000000) {
  LoadedImage image;
  image.path = "/lib/libmadeup.so";
  image.name = "libmadeup.so";
  image.bias = bias;
  image.low = bias;
  image.high = bias + 0x4000;
  image.segments = {{bias, bias + 0x1000, PF_R},
                    {bias + 0x1000, bias + 0x2000, PF_R | PF_X},
                    {bias + 0x3000, bias + 0x4000, PF_R | PF_W}};
  return image;
}

struct Built {
  std::string file;
  LoadedImage image = made_up_image();
  SymbolIndex index;
};

Built build(const ElfBuilder& builder) {
  Built built;
  built.file = builder.build();
  Result<ElfImage> file = ElfImage::parse(bytes_of(built.file), "libmadeup.so");
  EXPECT_TRUE(file.ok()) << file.error().sentence;
  Result<SymbolIndex> index = SymbolIndex::build(built.image, &*file);
  EXPECT_TRUE(index.ok()) << index.error().sentence;
  built.index = std::move(*index);
  return built;
}

Built build(const std::vector<ElfBuilder::Symbol>& symbols) {
  ElfBuilder builder;
  builder.add_text(0x1000, 0x1000);
  builder.add_symbols(SHT_SYMTAB, symbols);
  return build(builder);
}

std::vector<std::string> names_at(const SymbolIndex& index, std::uintptr_t address) {
  std::vector<std::string> names;
  for (const FunctionName& function : index.names_at(address)) names.emplace_back(function.linkage);
  return names;
}

std::vector<std::string> all_names(const SymbolIndex& index) {
  std::vector<std::string> names;
  for (const FunctionName& function : index.functions()) names.emplace_back(function.linkage);
  return names;
}

using Names = std::vector<std::string>;

// --- Made up tables.

TEST(SymbolIndex, FunctionsAreSortedByRunTimeAddress) {
  const Built built = build({{"late", 0x1100, 16}, {"early", 0x1000, 16}, {"middle", 0x1080, 16}});
  EXPECT_EQ(all_names(built.index), (Names{"early", "middle", "late"}));
  EXPECT_EQ(built.index.functions()[0].address, built.image.bias + 0x1000);
  EXPECT_EQ(built.index.functions()[0].size, 16u);
}

TEST(SymbolIndex, NamesOutliveTheFile) {
  SymbolIndex index;
  {
    ElfBuilder builder;
    builder.add_text(0x1000, 0x1000);
    builder.add_symbols(SHT_SYMTAB, {{"a_function_with_a_name_too_long_to_be_kept_inline", 0x1000, 16}});
    std::string bytes = builder.build();
    Result<ElfImage> file = ElfImage::parse(bytes_of(bytes), "libmadeup.so");
    ASSERT_TRUE(file.ok());
    Result<SymbolIndex> built = SymbolIndex::build(made_up_image(), &*file);
    ASSERT_TRUE(built.ok());
    index = std::move(*built);
    std::fill(bytes.begin(), bytes.end(), '#');
  }
  ASSERT_EQ(index.functions().size(), 1u);
  EXPECT_STREQ(index.functions()[0].linkage, "a_function_with_a_name_too_long_to_be_kept_inline");
}

TEST(SymbolIndex, AliasesShareAnAddressGlobalNamesFirst) {
  const Built built = build({{"local", 0x1000, 16, STT_FUNC, STB_LOCAL},
                             {"weak", 0x1000, 16, STT_FUNC, STB_WEAK},
                             {"global", 0x1000, 16},
                             {"other", 0x1010, 16}});
  EXPECT_EQ(names_at(built.index, built.image.bias + 0x1000), (Names{"global", "weak", "local"}));
  EXPECT_TRUE(built.index.names_at(built.image.bias + 0x1001).empty());
}

TEST(SymbolIndex, StaticFunctionsOfTwoFilesKeepTheirName) {
  const Built built = build({{"helper", 0x1000, 16, STT_FUNC, STB_LOCAL}, {"helper", 0x1040, 16, STT_FUNC, STB_LOCAL}});
  EXPECT_EQ(all_names(built.index), (Names{"helper", "helper"}));
}

TEST(SymbolIndex, DataThreadLocalsAndUndefinedSymbolsAreLeftOut) {
  const Built built = build({{"function", 0x1000, 16},
                             {"object", 0x1000, 8, STT_OBJECT},
                             {"thread_local", 0x1000, 8, STT_TLS},
                             {"section", 0x1000, 0, STT_SECTION},
                             {"file.c", 0x1000, 0, STT_FILE},
                             {"undefined", 0x1000, 0, STT_FUNC, STB_GLOBAL, SHN_UNDEF},
                             {"absolute", 0x1000, 0, STT_FUNC, STB_GLOBAL, SHN_ABS},
                             {"", 0x1000, 16},
                             {"outside", 0x9000, 16},
                             {"in_data", 0x3000, 16}});
  EXPECT_EQ(all_names(built.index), (Names{"function"}));
}

TEST(SymbolIndex, UntypedGlobalLabelsInCodeAreFunctions) {
  const Built built = build({{"global_label", 0x1000, 0, STT_NOTYPE},
                             {"local_label", 0x1010, 0, STT_NOTYPE, STB_LOCAL},
                             {"_etext", 0x2000, 0, STT_NOTYPE},
                             {"absolute_label", 0x1020, 0, STT_NOTYPE, STB_GLOBAL, SHN_ABS}});
  EXPECT_EQ(all_names(built.index), (Names{"global_label"}));
}

TEST(SymbolIndex, ColdPartsAndCompilersResolversAreLeftOut) {
  const Built built = build({{"f", 0x1000, 16},
                             {"f.cold", 0x1100, 16, STT_FUNC, STB_LOCAL},
                             {"f.cold.1", 0x1110, 16, STT_FUNC, STB_LOCAL},
                             {"f.part.0.cold", 0x1120, 16, STT_FUNC, STB_LOCAL},
                             {"f.constprop.0", 0x1130, 16, STT_FUNC, STB_LOCAL},
                             {"f.isra.0", 0x1140, 16, STT_FUNC, STB_LOCAL},
                             {"f.part.0", 0x1150, 16, STT_FUNC, STB_LOCAL},
                             {"f.coldest", 0x1160, 16},
                             {"f.resolver", 0x1170, 16}});
  EXPECT_EQ(all_names(built.index), (Names{"f", "f.constprop.0", "f.isra.0", "f.part.0", "f.coldest"}));
}

TEST(SymbolIndex, VersionsAreCutOff) {
  const Built built = build({{"f@@LIB_2.0", 0x1000, 16}, {"g@LIB_1.0", 0x1010, 16}, {"f", 0x1000, 16}});
  EXPECT_EQ(all_names(built.index), (Names{"f", "g"}));
}

TEST(SymbolIndex, BothSymbolTablesAreUnited) {
  ElfBuilder builder;
  builder.add_text(0x1000, 0x1000);
  builder.add_symbols(SHT_SYMTAB, {{"both", 0x1000, 0}, {"local", 0x1010, 16, STT_FUNC, STB_LOCAL}});
  builder.add_symbols(SHT_DYNSYM, {{"both", 0x1000, 16}, {"dynamic", 0x1020, 16}});
  const Built built = build(builder);
  EXPECT_EQ(all_names(built.index), (Names{"both", "local", "dynamic"}));
  EXPECT_EQ(built.index.functions()[0].size, 16u);
}

TEST(SymbolIndex, SizelessFunctionReachesToTheNextOne) {
  const Built built = build({{"sizeless", 0x1000, 0}, {"next", 0x1040, 16}, {"last", 0x1f00, 0}});
  const std::uintptr_t bias = built.image.bias;
  EXPECT_EQ(built.index.functions()[0].size, 0x40u);
  EXPECT_STREQ(built.index.containing(bias + 0x103f)->linkage, "sizeless");
  EXPECT_STREQ(built.index.containing(bias + 0x1040)->linkage, "next");
  EXPECT_STREQ(built.index.containing(bias + 0x1fff)->linkage, "last");
  EXPECT_EQ(built.index.containing(bias + 0x2000), nullptr);
}

TEST(SymbolIndex, SizelessAliasTakesItsSiblingsSize) {
  const Built built = build({{"entry", 0x1000, 0}, {"function", 0x1000, 24}, {"next", 0x1100, 16}});
  for (const FunctionName& name : built.index.names_at(built.image.bias + 0x1000)) EXPECT_EQ(name.size, 24u);
}

TEST(SymbolIndex, AddressBetweenFunctionsIsInNone) {
  const Built built = build({{"f", 0x1010, 16}, {"g", 0x1040, 16}});
  const std::uintptr_t bias = built.image.bias;
  EXPECT_EQ(built.index.containing(bias + 0x100f), nullptr);
  EXPECT_STREQ(built.index.containing(bias + 0x1010)->linkage, "f");
  EXPECT_STREQ(built.index.containing(bias + 0x101f)->linkage, "f");
  EXPECT_EQ(built.index.containing(bias + 0x1020), nullptr);
  EXPECT_STREQ(built.index.containing(bias + 0x104f)->linkage, "g");
  EXPECT_EQ(built.index.containing(bias + 0x1050), nullptr);
  EXPECT_EQ(built.index.containing(0), nullptr);
}

TEST(SymbolIndex, CodeBehindAnInnerEntryBelongsToTheOuterFunction) {
  const Built built = build({{"outer", 0x1000, 0x100}, {"inner", 0x1020, 8}});
  EXPECT_STREQ(built.index.containing(built.image.bias + 0x1024)->linkage, "inner");
  EXPECT_STREQ(built.index.containing(built.image.bias + 0x1030)->linkage, "outer");
}

TEST(SymbolIndex, ModuleWithoutFileAndDynamicSectionHasNoNames) {
  Result<SymbolIndex> index = SymbolIndex::build(made_up_image(), nullptr);
  ASSERT_TRUE(index.ok());
  EXPECT_TRUE(index->functions().empty());
  EXPECT_EQ(index->containing(made_up_image().bias + 0x1000), nullptr);
}

TEST(SymbolIndex, ManyFunctionsAtOneAddressAreAllKept) {
  std::vector<ElfBuilder::Symbol> symbols;
  for (int i = 0; i < 5000; ++i) symbols.push_back({"folded_" + std::to_string(i), 0x1000, 16});
  const Built built = build(symbols);
  EXPECT_EQ(built.index.names_at(built.image.bias + 0x1000).size(), 5000u);
}

TEST(SymbolIndex, ExhaustedMemoryIsToldAsSuch) {
  sys::Fault& fault = sys::fault(sys::Call::kAllocate);
  fault.fail_after = 0;
  fault.error = ENOMEM;
  const Result<SymbolIndex> index = SymbolIndex::build(made_up_image(), nullptr);
  fault.error = 0;
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().code, ENOMEM);
  EXPECT_NE(std::string_view(index.error().sentence).find("/lib/libmadeup.so"), std::string_view::npos);
}

// --- This program.

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
  EXPECT_EQ(names_at(*index_, resolver[0]), (Names{"sample_resolver"}));
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
