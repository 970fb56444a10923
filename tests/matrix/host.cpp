// The host of the workload: compiled once, not instrumented, linked with the workload and a static libfprobe in every
// configuration.
//
//   program                          runs the workload and prints its results
//   program <list> names|addresses   the same with a probe on every function of the workload, then says how many hits there
//                                    were; exit status 1 and a sentence for each thing that is wrong
//
// The list says what is known of the linked file from elsewhere: the kind of its sites, then address and function of each.
#include <fprobe/fprobe.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "matrix/host_expectations.h"

namespace matrix_host {
namespace {

int g_faults;
std::atomic<unsigned long> g_wrong_hits;

#define FAULT(...) (++g_faults, std::fprintf(stderr, __VA_ARGS__), std::fputc('\n', stderr))

void* run_on_thread(void* number) {
  return run_thread_part(number);
}

void run_workload() {
  run_c_part();
  run_cpp_part();
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], nullptr, &run_on_thread, reinterpret_cast<void*>(i)) != 0) std::abort();
  }
  for (long i = 0; i < kThreads; ++i) {
    void* result = nullptr;
    pthread_join(threads[i], &result);
    expect_result("run_thread_part", reinterpret_cast<long>(result), i + kCallsOfEachThread);
  }
}

// ---- The module that holds the workload: the program itself or a shared object
struct Module {
  unsigned long bias = 0;
  std::string path, name;
  struct Text {
    const char* start;
    std::size_t size, offset;  // in memory and in the file
  };
  std::vector<Text> texts;

  [[nodiscard]] std::string text_in_memory() const {
    std::string bytes;
    for (const Text& text : texts) bytes.append(text.start, text.size);
    return bytes;
  }
  [[nodiscard]] std::string text_in_file() const {
    std::string bytes;
    FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return bytes;
    for (const Text& text : texts) {
      std::string part(text.size, '\0');
      std::fseek(file, static_cast<long>(text.offset), SEEK_SET);
      if (std::fread(part.data(), 1, part.size(), file) == part.size()) bytes += part;
    }
    std::fclose(file);
    return bytes;
  }
};

int take_if_it_holds_the_workload(dl_phdr_info* info, std::size_t, void* argument) {
  Module module;
  bool is_it = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    const unsigned long start = info->dlpi_addr + header.p_vaddr;
    module.texts.push_back({reinterpret_cast<const char*>(start), header.p_filesz, header.p_offset});
    is_it = is_it || reinterpret_cast<unsigned long>(&run_c_part) - start < header.p_memsz;
  }
  if (!is_it) return 0;
  module.bias = info->dlpi_addr;
  char* const path = realpath(info->dlpi_name[0] == '\0' ? "/proc/self/exe" : info->dlpi_name, nullptr);
  if (path != nullptr) module.path = path;
  std::free(path);
  module.name = module.path.substr(module.path.rfind('/') + 1);
  *static_cast<Module*>(argument) = module;
  return 1;
}

// ---- Sites: as the list has them, sorted by address, with what was counted there
struct Counted {
  unsigned long ip;
  std::string function;
  std::atomic<unsigned long> entries{0}, exits{0}, unwound{0};

  Counted(unsigned long at, std::string name) : ip(at), function(std::move(name)) {}
  Counted(Counted&& other) noexcept : ip(other.ip), function(std::move(other.function)) {}
  Counted& operator=(Counted&& other) noexcept {
    ip = other.ip;
    function = std::move(other.function);
    return *this;
  }
};
std::vector<Counted> g_sites;
int g_kind = -1;

Counted* site_at(unsigned long ip) {
  const auto found = std::lower_bound(g_sites.begin(), g_sites.end(), ip,
                                      [](const Counted& site, unsigned long at) { return site.ip < at; });
  return found != g_sites.end() && found->ip == ip ? &*found : nullptr;
}

bool read_list(const char* path, unsigned long bias) {
  FILE* const file = std::fopen(path, "r");
  if (file == nullptr || std::fscanf(file, "kind %d\n", &g_kind) != 1) return false;
  unsigned long address = 0;
  char name[512];
  while (std::fscanf(file, "%lx %511[^\n]\n", &address, name) == 2) g_sites.emplace_back(address + bias, name);
  std::fclose(file);
  std::sort(g_sites.begin(), g_sites.end(), [](const Counted& a, const Counted& b) { return a.ip < b.ip; });
  return !g_sites.empty();
}

void compare_with_listed_sites(const Module& module) {
  struct Listing {
    const Module& module;
    std::vector<unsigned long> ips;
  } listing{module, {}};
  fprobe_for_each_site(
      [](const fprobe_site* site, void* argument) {
        auto& into = *static_cast<Listing*>(argument);
        const unsigned long at = site->ip - into.module.bias;
        if (into.module.path != site->module) FAULT("%s: a site of %s at %lx", site->module, site->symbol, site->ip);
        if (site_at(site->ip) == nullptr) FAULT("listed but not in the file: %lx of %s", at, site->symbol);
        if (site->kind != g_kind) FAULT("%s at %lx is of kind %d", site->symbol, at, static_cast<int>(site->kind));
        into.ips.push_back(site->ip);
        return 0;
      },
      &listing);
  std::sort(listing.ips.begin(), listing.ips.end());
  for (const Counted& site : g_sites) {
    if (!std::binary_search(listing.ips.begin(), listing.ips.end(), site.ip))
      FAULT("in the file but not listed: %lx of %s", site.ip - module.bias, site.function.c_str());
  }
  std::printf("%zu sites listed, %zu counted\n", listing.ips.size(), g_sites.size());
}

// ---- The probe
struct EntryData {
  unsigned long entry_ip, ret_ip;
};

int on_entry(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs*, void* data) {
  *static_cast<EntryData*>(data) = {entry_ip, ret_ip};
  Counted* const site = site_at(entry_ip);
  (site != nullptr ? site->entries : g_wrong_hits).fetch_add(1, std::memory_order_relaxed);
  return 0;
}

void on_exit(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data) {
  const auto* const at_entry = static_cast<const EntryData*>(data);
  Counted* const site = site_at(entry_ip);
  if (site == nullptr || at_entry->entry_ip != entry_ip || at_entry->ret_ip != ret_ip) {
    g_wrong_hits.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  site->exits.fetch_add(1, std::memory_order_relaxed);
  if (fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND) site->unwound.fetch_add(1, std::memory_order_relaxed);
}

int attach(fprobe* probe, const Module& module, bool by_names) {
  if (by_names) return register_fprobe(probe, (module.name + ":*").c_str(), nullptr);
  std::vector<unsigned long> ips;
  for (const Counted& site : g_sites) ips.push_back(site.ip);
  return register_fprobe_ips(probe, ips.data(), static_cast<int>(ips.size()));
}

const Expectation* expectation_of(const std::string& function) {
  for (const Expectation& each : kExpectations) {
    if (function == each.name) return &each;
  }
  return nullptr;
}

// A constructor or destructor may have two bodies that call one another: each ran as often as expected, or not at all.
unsigned long compare_hits() {
  unsigned long hits = 0;
  for (const Counted& site : g_sites) {
    static constexpr Expectation kNever{"", 0};
    const Expectation* const known = expectation_of(site.function);
    const Expectation& wanted = known != nullptr ? *known : kNever;
    const unsigned long entries = site.entries, exits = site.exits, unwound = site.unwound;
    hits += entries;
    if (entries != exits || (entries != 0 && (entries != wanted.calls || unwound != wanted.unwound)))
      FAULT("%s: %lu entries, %lu exits, %lu of them unwound; expected %lu and %lu", site.function.c_str(), entries,
            exits, unwound, wanted.calls, wanted.unwound);
  }
  for (const Expectation& wanted : kExpectations) {
    unsigned long most = 0;
    bool has_site = false;
    for (const Counted& site : g_sites) {
      if (site.function != wanted.name) continue;
      has_site = true;
      most = std::max(most, site.entries.load());
    }
    if (has_site ? most == 0 : !wanted.may_have_no_site)
      FAULT("%s: %s", wanted.name, has_site ? "never hit" : "has no site in the file");
  }
  if (g_wrong_hits != 0) FAULT("%lu hits with a wrong entry_ip, ret_ip or entry_data", g_wrong_hits.load());
  return hits;
}

void run_probed(const Module& module, bool by_names) {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  probe.exit_handler = &on_exit;
  probe.entry_data_size = sizeof(EntryData);
  const std::string before = module.text_in_memory();
  if (attach(&probe, module, by_names) != 0) {
    FAULT("registration failed: %s", fprobe_last_error());
    return;
  }
  run_workload();
  if (unregister_fprobe(&probe) != 0) FAULT("unregister_fprobe: %s", fprobe_last_error());
  if (module.text_in_memory() != before) FAULT("the text is not as it was before the registration");
  const unsigned long hits = compare_hits();
  if (probe.nmissed != 0) FAULT("%lu hits were missed", probe.nmissed);
  if (fprobe_restore_text() != 0) FAULT("fprobe_restore_text: %s", fprobe_last_error());
  if (module.text_in_memory() != module.text_in_file()) FAULT("the text is not the file's after fprobe_restore_text()");
  std::printf("%lu hits\n", hits);
}

int run(int count, char** arguments) {
  if (count < 3) {
    run_workload();
    return g_faults == 0 ? 0 : 1;
  }
  Module module;
  dl_iterate_phdr(&take_if_it_holds_the_workload, &module);
  if (!read_list(arguments[1], module.bias)) {
    FAULT("%s cannot be read or names no site", arguments[1]);
    return 1;
  }
  compare_with_listed_sites(module);
  run_probed(module, std::strcmp(arguments[2], "names") == 0);
  return g_faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace matrix_host

extern "C" void expect_result(const char* what, long got, long wanted) {
  std::printf("%s = %ld\n", what, got);
  if (got != wanted) {
    ++matrix_host::g_faults;
    std::fprintf(stderr, "%s = %ld, expected %ld\n", what, got, wanted);
  }
}

int main(int count, char** arguments) {
  return matrix_host::run(count, arguments);
}
