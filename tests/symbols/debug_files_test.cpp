// Debug files: where they are found, which are refused, and what is said then.
#include <errno.h>
#include <sys/stat.h>

#include <cstddef>
#include <optional>

#include "base/syscalls.h"
#include "image/crc32.h"
#include "image/debug_file.h"
#include "symbols/support.h"
#include "unit/elf_builder.h"

namespace {

namespace detail = libfprobe::detail;
using std::filesystem::path;

// Two folders: `root` in place of /usr/lib/debug, and `lib` with the module.
class DebugFile : public ::testing::Test {
 protected:
  DebugFile() { detail::set_debug_root(root_name_.c_str()); }

  // "…/.build-id/ab/cdef….debug" of the module; it has to be loaded.
  [[nodiscard]] static path build_id_path(const path& module) {
    const auto loaded = detail::snapshot_images();
    for (const detail::LoadedImage& image : loaded.value().images)
      if (image.path == module) return detail::path_by_build_id(image);
    ADD_FAILURE() << module << " is not loaded";
    return {};
  }

  static void expect_named(const Library& library) {
    EXPECT_EQ(hits_by_name(library, "hidden_function"), 1) << fprobe_last_error();
  }
  static void expect_nameless(const Library& library, std::initializer_list<std::string> sentence) {
    EXPECT_EQ(hits_by_name(library, "hidden_function"), -ENOENT);
    expect_all(fprobe_last_error(), sentence);
    EXPECT_EQ(hits_by_name(library, "exported_function"), 1) << "of the module's own: " << fprobe_last_error();
  }
  // The debug file under the root is refused for this reason.
  void expect_refused(const std::string& bytes, const std::string& reason) {
    const path module = place(built("library_sha1_1.so"), lib_ / "libvictim.so");
    const Library library(module);
    const path debug = build_id_path(module);
    write_file(debug, bytes);
    expect_nameless(library, {module, "stripped", debug, reason, "install the debug file of this very build"});
  }

  Folder folder_;
  path root_ = folder_ / "root", lib_ = folder_ / "lib";
  std::string root_name_ = root_;
};

// --- where they are found

TEST_F(DebugFile, IsFoundByBuildId) {
  const path module = place(built("library_sha1_1.so"), lib_ / "libvictim.so");
  const Library library(module);
  const path debug = build_id_path(module);
  EXPECT_EQ(debug.parent_path().parent_path(), root_ / ".build-id");
  EXPECT_EQ(debug.parent_path().filename().string().size(), 2u);
  EXPECT_EQ(debug.filename().string().size(), 38 + std::string(".debug").size());
  place(built("library_sha1_1.debug"), debug);
  expect_named(library);
}

TEST_F(DebugFile, MayBeTheModuleAsItWasBeforeItWasStripped) {
  const path module = place(built("library_sha1_1.so"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.whole"), build_id_path(module));
  expect_named(library);
}

TEST_F(DebugFile, OfADebugLinkIsFoundBesideTheModule) {
  place(built("library_none_1.debug"), lib_ / "library_none_1.debug");
  expect_named(Library(place(built("library_none_1.linked"), lib_ / "libvictim.so")));
}

TEST_F(DebugFile, OfADebugLinkIsFoundInTheModulesDebugFolder) {
  place(built("library_none_1.debug"), lib_ / ".debug/library_none_1.debug");
  expect_named(Library(place(built("library_none_1.linked"), lib_ / "libvictim.so")));
}

TEST_F(DebugFile, OfADebugLinkIsFoundUnderTheDebugRoot) {
  place(built("library_none_1.debug"), root_name_ + lib_.string() + "/library_none_1.debug");
  expect_named(Library(place(built("library_none_1.linked"), lib_ / "libvictim.so")));
}

TEST_F(DebugFile, OfADebugLinkIsFoundWhereASymbolicLinkToTheModuleLeads) {
  const path module = place(built("library_none_1.linked"), lib_ / "libvictim.so");
  place(built("library_none_1.debug"), lib_ / "library_none_1.debug");
  std::filesystem::create_directories(folder_ / "links");
  std::filesystem::create_symlink(module, folder_ / "links/libvictim.so");
  expect_named(Library(folder_ / "links/libvictim.so"));
}

TEST_F(DebugFile, OfTheBuildIdComesBeforeThatOfTheDebugLink) {
  const path module = place(built("library_sha1_1.linked"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.debug"), lib_ / "library_sha1_1.debug");
  place(built("library_sha1_1.renamed"), build_id_path(module));
  EXPECT_EQ(hits_by_name(library, "renamed_function"), 1) << fprobe_last_error();
}

TEST_F(DebugFile, OfTheDebugLinkIsUsedWhereThatOfTheBuildIdIsRefused) {
  const path module = place(built("library_sha1_1.linked"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.debug"), lib_ / "library_sha1_1.debug");
  place(built("library_sha1_2.debug"), build_id_path(module));
  expect_named(library);
}

TEST_F(DebugFile, OfAModuleWithoutSectionHeadersIsFoundByBuildId) {
  const path module = lib_ / "libvictim.so";
  write_file(module, without_section_headers(read_file(built("library_sha1_1.so"))));
  const Library library(module);
  place(built("library_sha1_1.debug"), build_id_path(module));
  expect_named(library);
}

TEST_F(DebugFile, OfAModuleThatWasDeletedIsFoundByBuildId) {
  const path module = place(built("library_sha1_1.whole"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.debug"), build_id_path(module));
  std::filesystem::remove(module);
  expect_named(library);
}

TEST_F(DebugFile, OfAModuleThatWasReplacedIsFoundByBuildId) {
  const path module = place(built("library_sha1_1.whole"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.debug"), build_id_path(module));
  write_file(module, read_file(built("library_sha1_2.whole")));
  expect_named(library);
}

TEST_F(DebugFile, TellsWhereFunctionsStartThatNoUnwindTableDescribes) {
  for (const std::string name : {"unwindless_fentry", "unwindless_patchable"}) {
    const path module = place(built(name + ".so"), lib_ / (name + ".so"));
    const Library library(module);
    place(built(name + ".debug"), build_id_path(module));
    expect_named(library);
  }
}

TEST_F(DebugFile, IsAskedForWhereNoUnwindTableDescribesTheFunction) {
  for (const std::string name : {"unwindless_fentry", "unwindless_patchable"}) {
    const path module = place(built(name + ".so"), lib_ / (name + ".so"));
    const Library library(module);
    fprobe probe{};
    unsigned long address = library.address_of_hidden();
    EXPECT_EQ(register_fprobe_ips(&probe, &address, 1), -ENOENT);
    expect_all(fprobe_last_error(), {module, "neither symbols nor an unwind table", "install its debug file"});
  }
}

TEST_F(DebugFile, IsNotReadForAModuleThatHasItsSymbols) {
  const path module = place(built("library_sha1_1.whole"), lib_ / "libvictim.so");
  const Library library(module);
  place(built("library_sha1_1.renamed"), build_id_path(module));
  expect_named(library);
  EXPECT_EQ(hits_by_name(library, "renamed_function"), -ENOENT);
}

// --- which are refused

TEST_F(DebugFile, OfAnotherBuildIsRefused) {
  expect_refused(read_file(built("library_sha1_2.debug")), "its build id is not the module's");
}

TEST_F(DebugFile, WithoutABuildIdIsRefusedWhereOneIsAskedFor) {
  expect_refused(read_file(built("library_none_1.debug")), "its build id is not the module's");
}

TEST_F(DebugFile, WithoutSymbolsIsRefused) {
  expect_refused(read_file(built("library_sha1_1.so")), "it has no symbol table");
}

TEST_F(DebugFile, ThatIsTruncatedIsRefused) {
  const std::string whole = read_file(built("library_sha1_1.debug"));
  expect_refused(whole.substr(0, whole.size() / 2), "no usable ELF file");
}

TEST_F(DebugFile, ThatIsNoElfFileIsRefused) {
  expect_refused("not found", "no usable ELF file");
}

TEST_F(DebugFile, ThatIsEmptyIsRefused) {
  expect_refused("", "it is empty");
}

TEST_F(DebugFile, ThatIsAFolderIsRefused) {
  const path module = place(built("library_sha1_1.so"), lib_ / "libvictim.so");
  const Library library(module);
  std::filesystem::create_directories(build_id_path(module));
  expect_nameless(library, {module, "not a regular file", "install the debug file"});
}

TEST_F(DebugFile, ThatIsAPipeNobodyWritesIsRefusedAndNotWaitedFor) {
  const path module = place(built("library_sha1_1.so"), lib_ / "libvictim.so");
  const Library library(module);
  const path debug = build_id_path(module);
  std::filesystem::create_directories(debug.parent_path());
  ASSERT_EQ(::mkfifo(debug.c_str(), 0600), 0);
  expect_nameless(library, {module, "not a regular file", "install the debug file"});
}

// The debug file with change(section) done to the headers of what is loaded.
template <class Change>
std::string with_sections_changed(std::string bytes, const Change& change) {
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  auto* const sections = reinterpret_cast<Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (unsigned i = 0; i < header->e_shnum; ++i)
    if ((sections[i].sh_flags & SHF_ALLOC) != 0) change(sections[i]);
  return bytes;
}

// As of a module that was prelinked behind its debug file's back.
TEST_F(DebugFile, WhoseCodeLiesElsewhereIsRefused) {
  for (const Elf64_Addr shift : {0x1000UL, 0x10000000UL, 0x8000000000000000UL})
    expect_refused(with_sections_changed(read_file(built("library_sha1_1.debug")),
                                         [&](Elf64_Shdr& section) { section.sh_addr += shift; }),
                   "its code lies at other addresses");
}

TEST_F(DebugFile, WhoseCodeIsOfAnotherSizeIsRefused) {
  for (const Elf64_Xword size : {0x1UL, 0x100000UL, 0xffffffffffffffffUL})
    expect_refused(with_sections_changed(read_file(built("library_sha1_1.debug")),
                                         [&](Elf64_Shdr& section) {
                                           if (section.sh_type == SHT_NOBITS) section.sh_size = size;
                                         }),
                   "its code lies at other addresses");
}

TEST_F(DebugFile, OfADebugLinkWithAnotherChecksumIsRefused) {
  const std::string right = read_file(built("library_none_1.debug"));
  std::string changed = right;
  changed.back() ^= 1;
  for (const std::string& bytes : {right + '\0', changed, read_file(built("library_none_2.debug"))}) {
    write_file(lib_ / "library_none_1.debug", bytes);
    const path module = place(built("library_none_1.linked"), lib_ / "libvictim.so");
    expect_nameless(Library(module), {module, "stripped", lib_ / "library_none_1.debug", "not used", "checksum",
                                      "install the debug file of this very build"});
  }
}

TEST_F(DebugFile, OfADebugLinkWithAnotherBuildIdIsRefused) {
  const path module = place(built("library_sha1_1.linked"), lib_ / "libvictim.so");
  place(built("library_sha1_2.debug"), lib_ / "library_sha1_1.debug");
  expect_nameless(Library(module), {module, lib_ / "library_sha1_1.debug", "its build id is not the module's"});
}

TEST_F(DebugFile, ThatIsMissingIsAskedForAtItsPlace) {
  const path by_id = place(built("library_sha1_1.so"), lib_ / "libbyid.so");
  {
    const Library library(by_id);
    expect_nameless(library, {by_id, "stripped", "do not strip it", build_id_path(by_id), "default visibility"});
  }
  const path by_link = place(built("library_none_1.linked"), lib_ / "libbylink.so");
  expect_nameless(Library(by_link), {by_link, "stripped", "library_none_1.debug beside it"});
  const path by_nothing = place(built("library_none_1.so"), lib_ / "libbynothing.so");
  expect_nameless(Library(by_nothing), {by_nothing, "stripped", "do not strip it", "--add-gnu-debuglink"});
}

TEST_F(DebugFile, ThatCannotBeOpenedForWantOfDescriptorsIsReported) {
  const path module = place(built("library_none_1.linked"), lib_ / "libvictim.so");
  const Library library(module);
  const auto images = detail::snapshot_images();
  for (const detail::LoadedImage& image : images.value().images) {
    if (image.path != module) continue;
    const auto own = detail::ElfImage::open(module.c_str());
    ASSERT_TRUE(own.ok());
    detail::sys::Fault& fault = detail::sys::fault(detail::sys::Call::kOpen);
    fault.fail_after = 1;
    fault.error = EMFILE;
    const auto found = detail::find_debug_file(image, &own.value());
    fault.error = 0;
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, EMFILE);
  }
}

// --- their parts

std::optional<detail::DebugLink> read_link(const std::string& section) {
  detail::ElfBuilder builder;
  builder.add_section(".gnu_debuglink", SHT_PROGBITS, 0, 0, section);
  const std::string bytes = builder.build();
  const auto file = detail::ElfImage::parse(detail::bytes_of(bytes), "linked");
  EXPECT_TRUE(file.ok());
  return detail::debug_link_of(file.value());
}

TEST(DebugLink, IsANamePaddedToFourBytesAndAChecksum) {
  for (const std::size_t size : {1, 2, 3, 4, 5, 7, 8}) {
    const std::string name(size, 'n');
    const auto link = read_link(name + std::string(4 - size % 4, '\0') + "\x78\x56\x34\x12");
    ASSERT_TRUE(link) << size;
    EXPECT_EQ(link->name, name);
    EXPECT_EQ(link->crc, 0x12345678u);
  }
}

TEST(DebugLink, ThatIsDamagedOrNamesAFolderIsNone) {
  using namespace std::string_literals;
  for (const std::string& section : {""s, "n"s, "name"s, "\0\0\0\0crc4"s, "name\0"s, "name\0\0\0\0crc"s, "nam\0crc"s,
                                     "../n\0\0\0\0crc4"s, "/name\0\0\0crc4"s})
    EXPECT_FALSE(read_link(section)) << testing::PrintToString(section);
}

TEST(Crc32, IsTheOneEverybodyComputes) {
  EXPECT_EQ(detail::crc32({}), 0u);
  EXPECT_EQ(detail::crc32(detail::bytes_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(detail::crc32(detail::bytes_of("The quick brown fox jumps over the lazy dog")), 0x414fa339u);
}

}  // namespace
