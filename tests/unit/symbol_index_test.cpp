// Functions and their names, from tables made up here.
#include "image/symbol_index.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/syscalls.h"
#include "unit/elf_builder.h"

namespace libfprobe::detail {
namespace {

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

// --- with a debug file

Names names_with_debug_file(const ElfBuilder* own, const ElfBuilder& debug) {
  const std::string own_bytes = own != nullptr ? own->build() : "", debug_bytes = debug.build();
  Result<ElfImage> own_file = ElfImage::parse(bytes_of(own_bytes), "libmadeup.so");
  Result<ElfImage> debug_file = ElfImage::parse(bytes_of(debug_bytes), "libmadeup.so.debug");
  EXPECT_TRUE(debug_file.ok());
  Result<SymbolIndex> index =
      SymbolIndex::build(made_up_image(), own_file.ok() ? &*own_file : nullptr, {}, &*debug_file);
  EXPECT_TRUE(index.ok());
  return all_names(*index);
}

TEST(SymbolIndex, ADebugFileAddsItsSymbolsToTheModules) {
  ElfBuilder own, debug;
  own.add_text(0x1000, 0x1000);
  own.add_symbols(SHT_DYNSYM, {{"exported", 0x1000, 16}});
  debug.add_text(0x1000, 0x1000);
  debug.add_symbols(SHT_SYMTAB, {{"exported", 0x1000, 16}, {"local", 0x1010, 16, STT_FUNC, STB_LOCAL}});
  EXPECT_EQ(names_with_debug_file(&own, debug), (Names{"exported", "local"}));
  EXPECT_EQ(names_with_debug_file(nullptr, debug), (Names{"exported", "local"}));
}

// In its own section table, which the symbols count by: that of the module may have others.
TEST(SymbolIndex, ADebugFilesSectionsTellItsUntypedFunctionsAndPltSlots) {
  ElfBuilder own, debug;
  own.add_section(".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0x3000, "");
  debug.add_text(0x1000, 0x800);
  debug.add_section(".plt", SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1800, std::string(0x100, '\0'));
  debug.add_symbols(SHT_SYMTAB, {{"label", 0x1000, 0, STT_NOTYPE}, {"slot$plt", 0x1800, 16}});
  EXPECT_EQ(names_with_debug_file(nullptr, debug), (Names{"label"}));
  own.strip_section_headers();
  EXPECT_EQ(names_with_debug_file(&own, debug), (Names{"label"}));
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

}  // namespace
}  // namespace libfprobe::detail
