// Modules that come, go and are replaced; IFUNCs bound late or from outside; programs deleted or started oddly.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "image/image_file.h"
#include "image/image_list.h"
#include "image/symbol_index.h"
#include "image/symbol_match.h"

namespace libfprobe::detail {
namespace {

using Function = int(int);

// dlopen for the time of a test.
class Loaded {
 public:
  explicit Loaded(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() { close(); }
  void close() {
    if (handle_ == nullptr) return;
    EXPECT_EQ(::dlclose(handle_), 0);
    handle_ = nullptr;
  }
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

ImageSnapshot snapshot() {
  Result<ImageSnapshot> images = snapshot_images();
  EXPECT_TRUE(images.ok()) << images.error().sentence;
  return images.ok() ? std::move(*images) : ImageSnapshot{};
}

// As the loader knows it, links resolved.
std::string real(const std::string& path) {
  return std::filesystem::canonical(path);
}

LoadedImage image_of(const ImageSnapshot& images, const char* path) {
  for (const LoadedImage& image : images.images)
    if (image.path.starts_with('/') && std::filesystem::exists(image.path) && real(image.path) == real(path))
      return image;
  ADD_FAILURE() << path << " is not among the loaded modules";
  return {};
}

SymbolIndex index_of(const LoadedImage& image, std::span<const LoadedImage> others) {
  Result<ElfImage> file = open_file_of(image);
  EXPECT_TRUE(file.ok()) << file.error().sentence;
  Result<SymbolIndex> index = SymbolIndex::build(image, file.ok() ? &*file : nullptr, others);
  EXPECT_TRUE(index.ok()) << index.error().sentence;
  return std::move(*index);
}

std::vector<std::uintptr_t> bearers(const SymbolIndex& index, std::string_view name) {
  std::vector<std::uintptr_t> addresses;
  for (const FunctionName& function : index.functions())
    if (name == function.linkage) addresses.push_back(function.address);
  return addresses;
}

bool is_unbound(const SymbolIndex& index, std::string_view name) {
  const std::span<const char* const> names = index.unbound_ifuncs();
  return std::any_of(names.begin(), names.end(), [name](const char* unbound) { return name == unbound; });
}

std::vector<std::uintptr_t> at(Function* function) {
  return {reinterpret_cast<std::uintptr_t>(function)};
}

// --- Coming and going.

TEST(Modules, LoadedLibraryIsListedWithFileNameAndSoname) {
  const Loaded library(IMAGE_LIBRARY);
  const LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  EXPECT_EQ(image.name, std::filesystem::path(IMAGE_LIBRARY).filename());
  EXPECT_EQ(image.soname, "libimage_library.so.1");
  EXPECT_FALSE(image.is_main);
  EXPECT_TRUE(image.contains(reinterpret_cast<std::uintptr_t>(library.function("library_chosen"))));
}

TEST(Modules, GenerationTellsLoadingFromUnloading) {
  const ImageGeneration before = image_generation();
  Loaded library(IMAGE_LIBRARY);
  const ImageGeneration loaded = image_generation();
  EXPECT_GT(loaded.added, before.added);
  EXPECT_EQ(loaded.removed, before.removed);
  library.close();
  EXPECT_GT(image_generation().removed, loaded.removed);
}

TEST(Modules, UnloadedLibraryIsKnownToBeGone) {
  Loaded library(IMAGE_LIBRARY);
  const LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  LoaderLock::run([&](const LoaderLock& lock) { EXPECT_TRUE(lock.still_loaded(image)); });
  library.close();
  LoaderLock::run([&](const LoaderLock& lock) { EXPECT_FALSE(lock.still_loaded(image)); });
}

TEST(Modules, RelativePathBecomesAbsolute) {
  const std::filesystem::path path(IMAGE_LIBRARY), before = std::filesystem::current_path();
  std::filesystem::current_path(path.parent_path());
  const Loaded library("./" + path.filename().string());
  std::filesystem::current_path("/");
  const LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  EXPECT_EQ(image.path, real(IMAGE_LIBRARY));
  std::filesystem::current_path(before);
}

TEST(Modules, SnapshotsHoldWhileOtherThreadsLoadAndUnload) {
  std::atomic<bool> stop{false};
  std::thread loader([&stop] {
    for (int i = 0; i < 60 || !stop; ++i) {
      Loaded user(IMAGE_USER);
      if (i > 100'000) break;
    }
  });
  for (int i = 0; i < 60; ++i) {
    const ImageSnapshot images = snapshot();
    EXPECT_TRUE(images.images.front().is_main);
    LoaderLock::run([&](const LoaderLock& lock) {
      for (const LoadedImage& image : images.images)
        if (image.name.starts_with("libimage_") && lock.still_loaded(image)) {
          EXPECT_TRUE(SymbolIndex::build(image, nullptr).ok());
        }
    });
  }
  stop = true;
  loader.join();
}

// --- Names without a file.

TEST(Modules, MemoryAloneGivesTheDynamicSymbols) {
  const Loaded library(IMAGE_LIBRARY);
  const LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  Result<SymbolIndex> from_memory = SymbolIndex::build(image, nullptr);
  ASSERT_TRUE(from_memory.ok());
  const SymbolIndex from_file = index_of(image, {});
  EXPECT_EQ(bearers(*from_memory, "library_chosen"), at(library.function("library_chosen")));
  EXPECT_EQ(bearers(*from_memory, "library_call_ifunc"), bearers(from_file, "library_call_ifunc"));
  EXPECT_TRUE(bearers(*from_memory, "local_function").empty());
  EXPECT_EQ(bearers(from_file, "local_function").size(), 1u);
  EXPECT_TRUE(bearers(*from_memory, "library_switch").empty());
}

TEST(Modules, EveryLoadedModuleCanBeIndexedFromMemory) {
  for (const LoadedImage& image : snapshot().images) {
    Result<SymbolIndex> index = SymbolIndex::build(image, nullptr);
    ASSERT_TRUE(index.ok()) << image.path;
    for (const FunctionName& function : index->functions()) EXPECT_TRUE(image.contains(function.address)) << image.path;
    if (image.name.starts_with("libc.so")) {
      EXPECT_GT(index->functions().size(), 1000u);
    }
  }
}

// --- Replaced and deleted files.

TEST(Modules, FileThatWasReplacedIsRefused) {
  const Loaded library(IMAGE_LIBRARY);
  LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  image.path = IMAGE_USER;
  const Result<ElfImage> file = open_file_of(image);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ESTALE);
  EXPECT_NE(std::string_view(file.error().sentence).find(IMAGE_USER), std::string_view::npos);
}

TEST(Modules, NamesOfAForeignFileAreNotTaken) {
  const Loaded library(IMAGE_LIBRARY);
  const LoadedImage image = image_of(snapshot(), IMAGE_LIBRARY);
  Result<ElfImage> foreign = ElfImage::open(IMAGE_USER);
  ASSERT_TRUE(foreign.ok());
  Result<SymbolIndex> index = SymbolIndex::build(image, &*foreign);
  ASSERT_TRUE(index.ok());
  EXPECT_TRUE(bearers(*index, "user_call_ifunc").empty());
  EXPECT_EQ(bearers(*index, "library_chosen").size(), 1u) << "from memory";
}

// Runs `arguments` with one more environment variable; the exit status.
int run(std::vector<std::string> arguments, const char* name, const std::string& value) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(name, value.c_str(), 1);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::execv(pointers[0], pointers.data());
    ::_exit(126);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr const char* kExpectedPath = "IMAGE_TEST_EXPECTED_PATH";
constexpr int kAsExpected = 42;

// What the started copies of this program do instead of testing.
bool path_is_as_expected(const char* expected) {
  const LoadedImage main = snapshot().images.front();
  Result<ElfImage> file = open_file_of(main);
  return main.path == expected && file.ok() && !bearers(index_of(main, {}), "main").empty();
}

TEST(Modules, DeletedProgramIsStillRead) {
  const std::string copy = testing::TempDir() + "deleted_program_" + std::to_string(::getpid());
  std::filesystem::copy_file("/proc/self/exe", copy, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(run({copy, "delete"}, kExpectedPath, real(copy) + " (deleted)"), kAsExpected);
  EXPECT_FALSE(std::filesystem::exists(copy));
}

TEST(Modules, ProgramStartedByNamingTheLoaderHasItsOwnPath) {
  std::string loader;
  for (const LoadedImage& image : snapshot().images)
    if (image.name.starts_with("ld-linux")) loader = image.path;
  ASSERT_FALSE(loader.empty());
  const std::string self = real("/proc/self/exe");
  EXPECT_EQ(run({loader, self}, kExpectedPath, self), kAsExpected);
}

// --- IFUNCs across modules.

TEST(Modules, IfuncIsUnboundUntilItsFirstCallAndThenItsImplementation) {
  const Loaded library(IMAGE_LIBRARY);
  const ImageSnapshot images = snapshot();
  const LoadedImage image = image_of(images, IMAGE_LIBRARY);
  const SymbolIndex before = index_of(image, images.images);
  EXPECT_TRUE(bearers(before, "library_ifunc").empty());
  EXPECT_TRUE(is_unbound(before, "library_ifunc"));

  EXPECT_EQ(library.function("library_call_ifunc")(2), 9);
  const SymbolIndex after = index_of(image, images.images);
  EXPECT_EQ(bearers(after, "library_ifunc"), at(library.function("library_chosen")));
  EXPECT_FALSE(is_unbound(after, "library_ifunc"));
  EXPECT_TRUE(is_unbound(after, "library_ifunc_for_users"));
}

TEST(Modules, IfuncBoundByAnotherModuleIsToldByThatModule) {
  const Loaded user(IMAGE_USER);
  EXPECT_EQ(user.function("user_call_ifunc")(2), 6);
  const ImageSnapshot images = snapshot();
  const LoadedImage image = image_of(images, IMAGE_LIBRARY);
  const std::vector<std::uintptr_t> chosen = at(user.function("library_chosen"));
  EXPECT_TRUE(bearers(index_of(image, {}), "library_ifunc_for_users").empty());
  EXPECT_EQ(bearers(index_of(image, images.images), "library_ifunc_for_users"), chosen);
  Result<SymbolIndex> from_memory = SymbolIndex::build(image, nullptr, images.images);
  ASSERT_TRUE(from_memory.ok());
  EXPECT_EQ(bearers(*from_memory, "library_ifunc_for_users"), chosen);
}

TEST(Modules, IfuncIsSelectedByItsNameInItsModule) {
  const Loaded user(IMAGE_USER);
  user.function("user_call_ifunc")(2);
  const ImageSnapshot images = snapshot();
  const LoadedImage image = image_of(images, IMAGE_LIBRARY);
  Result<Filter> filter = Filter::parse("libimage_library*:library_ifunc*", nullptr);
  ASSERT_TRUE(filter.ok());
  std::vector<std::uintptr_t> selected;
  const SymbolIndex index = index_of(image, images.images);
  for (const FunctionName& function : index.functions())
    if (filter->selects({image.name, image.soname}, spell(function.linkage))) selected.push_back(function.address);
  EXPECT_EQ(selected, at(user.function("library_chosen")));
}

}  // namespace
}  // namespace libfprobe::detail

int main(int argc, char** argv) {
  namespace image = libfprobe::detail;
  if (const char* expected = ::getenv(image::kExpectedPath)) {
    if (argc == 2) ::unlink(argv[0]);
    return image::path_is_as_expected(expected) ? image::kAsExpected : 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
