// What the tests of symbol sources share: folders of their own, and libraries loaded from them.
#ifndef FPROBE_TESTS_SYMBOLS_SUPPORT_H_
#define FPROBE_TESTS_SYMBOLS_SUPPORT_H_

#include <dlfcn.h>
#include <elf.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

// A folder that ends with the test.
class Folder {
 public:
  Folder() {
    std::string path = std::filesystem::canonical(::testing::TempDir()) / "fprobe_symbols_XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::filesystem::path operator/(const std::filesystem::path& below) const { return path_ / below; }

 private:
  std::filesystem::path path_;
};

// One of the files that were built for these tests.
inline std::string built(const std::string& name) {
  return FILES + name;
}

inline std::filesystem::path place(const std::string& file, const std::filesystem::path& at) {
  std::filesystem::create_directories(at.parent_path());
  std::filesystem::copy_file(file, at, std::filesystem::copy_options::overwrite_existing);
  return at;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A new file under the old name: the old one may be mapped.
inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// As sstrip makes them: program headers alone.
inline std::string without_section_headers(std::string bytes) {
  auto* const header = reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  const auto end = header->e_shoff;
  header->e_shoff = 0;
  header->e_shnum = header->e_shstrndx = 0;
  bytes.resize(end);
  return bytes;
}

class Library {
 public:
  explicit Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << ::dlerror();
  }
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  [[nodiscard]] long call(const char* name) const { return function<long(long)>(name)(1); }
  [[nodiscard]] unsigned long address_of_hidden() const {
    return function<unsigned long()>("address_of_hidden_function")();
  }

 private:
  void* handle_;
};

inline int hits = 0;

inline fprobe counting_probe() {
  fprobe probe{};
  probe.entry_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) { return ++hits; };
  return probe;
}

// How often a probe on `name` fires while `call` of the library runs; negative: it cannot be registered.
inline int hits_by_name(const Library& library, const char* name, const char* call = "exported_function") {
  fprobe probe = counting_probe();
  if (const int code = register_fprobe_syms(&probe, &name, 1); code != 0) return code;
  hits = 0;
  (void)library.call(call);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  return hits;
}

inline void expect_all(const std::string& sentence, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(sentence.find(part), std::string::npos) << "not \"" << part << "\" in: " << sentence;
}

#endif  // FPROBE_TESTS_SYMBOLS_SUPPORT_H_
