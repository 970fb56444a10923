// Finds an unwinder's accessors by the module that calls.  An unwinder calls personalities from a few places only, so
// what was found is kept by the caller's address; entries are written once and never change.
#include "unwind/unwinder.h"

#include <link.h>

#include <atomic>
#include <cstring>

#include "base/attributes.h"

namespace libfprobe::detail {
namespace {

struct KnownCaller {
  std::atomic<std::uintptr_t> caller{0};  // 0: not filled in yet
  Unwinder unwinder{};
};
constexpr unsigned kMaxKnown = 16;
constinit KnownCaller g_known[kMaxKnown];
constinit std::atomic<unsigned> g_known_count{0};

_Unwind_Reason_Code stop(_Unwind_Context*, void*) noexcept {
  return _URC_NORMAL_STOP;
}

// The unwinder that our own references bind to.  A copy of libgcc that nobody unwound with yet has empty tables, on
// which _Unwind_SetGR aborts: one step fills them.
Unwinder own_unwinder() noexcept {
  _Unwind_Backtrace(stop, nullptr);
  return {_Unwind_GetIP, _Unwind_GetCFA, _Unwind_SetGR, _Unwind_SetIP};
}

// What the loader mapped of a module: its exported names, looked up by hand.  (dlsym takes only handles of dlopen, and
// an answer from another module would be wrong here.)
struct Exports {
  std::uintptr_t base = 0;
  const std::uint32_t* gnu_hash = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;

  // The loader relocates these entries in place, but for modules whose dynamic section is read-only.
  template <class T>
  void set(const T*& member, ElfW(Addr) address) const noexcept {
    member = reinterpret_cast<const T*>(address < base ? base + address : address);
  }
};

std::uint32_t hash_of(const char* name) noexcept {
  std::uint32_t hash = 5381;  // the GNU hash of symbol names
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// DT_GNU_HASH: { buckets, first symbol, bloom words, shift } bloom[] bucket[] chain[]; the last of a chain has bit 0
// set.
void* find_export(const Exports& exports, const char* name) noexcept {
  const std::uint32_t* table = exports.gnu_hash;
  const std::uint32_t hash = hash_of(name);
  const std::uint32_t first = table[1];
  const std::uint32_t* buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
  const std::uint32_t* chains = buckets + table[0];
  std::uint32_t index = table[0] == 0 ? 0 : buckets[hash % table[0]];
  if (index < first) return nullptr;
  for (;; ++index) {
    const std::uint32_t link = chains[index - first];
    const ElfW(Sym)& symbol = exports.symbols[index];
    if ((link | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
        std::strcmp(exports.names + symbol.st_name, name) == 0) {
      return reinterpret_cast<void*>(exports.base + symbol.st_value);
    }
    if ((link & 1) != 0) return nullptr;
  }
}

template <class Function>
bool find(const Exports& exports, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(find_export(exports, name));
  return function != nullptr;
}

bool read_exports(const dl_phdr_info& module, Exports& exports) noexcept {
  exports.base = module.dlpi_addr;
  const ElfW(Dyn)* dynamic = nullptr;
  for (unsigned i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = module.dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(module.dlpi_addr + header.p_vaddr);
  }
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_GNU_HASH) exports.set(exports.gnu_hash, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) exports.set(exports.symbols, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) exports.set(exports.names, dynamic->d_un.d_ptr);
  }
  return exports.gnu_hash != nullptr && exports.symbols != nullptr && exports.names != nullptr;
}

struct Search {
  std::uintptr_t caller;
  Unwinder unwinder;
  bool is_found;
};

int look_at_module(dl_phdr_info* module, std::size_t, void* argument) noexcept {
  Search& search = *static_cast<Search*>(argument);
  bool is_callers = false;
  for (unsigned i = 0; i < module->dlpi_phnum && !is_callers; ++i) {
    const ElfW(Phdr)& header = module->dlpi_phdr[i];
    is_callers = header.p_type == PT_LOAD && search.caller - (module->dlpi_addr + header.p_vaddr) < header.p_memsz;
  }
  if (!is_callers) return 0;
  Exports exports;
  Unwinder& found = search.unwinder;
  search.is_found = read_exports(*module, exports) && find(exports, "_Unwind_GetIP", found.get_ip) &&
                    find(exports, "_Unwind_GetCFA", found.get_cfa) && find(exports, "_Unwind_SetGR", found.set_gr) &&
                    find(exports, "_Unwind_SetIP", found.set_ip);
  return 1;
}

// Without exported accessors (a copy linked in statically) the caller is our own unwinder or a copy of the same kind.
FPROBE_COLD Unwinder find_unwinder(std::uintptr_t caller) noexcept {
  Search search{caller, {}, false};
  dl_iterate_phdr(look_at_module, &search);
  return search.is_found ? search.unwinder : own_unwinder();
}

FPROBE_COLD void remember(std::uintptr_t caller, const Unwinder& unwinder) noexcept {
  const unsigned index = g_known_count.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMaxKnown) {
    g_known_count.store(kMaxKnown, std::memory_order_relaxed);
    return;
  }
  g_known[index].unwinder = unwinder;
  g_known[index].caller.store(caller, std::memory_order_release);  // [UNWINDER] pairs with unwinder_of()
}

}  // namespace

FPROBE_UNPROBED Unwinder unwinder_of(std::uintptr_t caller) noexcept {
  for (const KnownCaller& known : g_known) {
    const std::uintptr_t address = known.caller.load(std::memory_order_acquire);  // [UNWINDER]
    if (address == caller) return known.unwinder;
    if (address == 0) break;
  }
  const Unwinder unwinder = find_unwinder(caller);
  remember(caller, unwinder);
  return unwinder;
}

}  // namespace libfprobe::detail
