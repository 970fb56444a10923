// See registry.h: the list of all sites.
//
// Everything is copied under the mutex first: during the user's callback no lock is held, so it may register, and a
// module may be unloaded, while the strings it got stay valid.
#include <string>
#include <vector>

#include "registry/registry.h"
#include "registry/state.h"

namespace libfprobe::detail {
namespace {

class Listing {
 public:
  [[nodiscard]] Result<void> copy(const RegistryState& registry);
  int visit_all(int (*visit)(const fprobe_site*, void*), void* argument) const;

 private:
  struct Row {
    std::uintptr_t ip, function;
    fprobe_site_kind kind;
    std::size_t symbol, demangled, module;  // offsets in text_
  };
  [[nodiscard]] std::size_t keep(const std::string& string);

  std::vector<Row> rows_;
  std::string text_ = std::string(1, '\0');  // offset 0: the empty string
};

std::size_t Listing::keep(const std::string& string) {
  if (string.empty()) return 0;
  const std::size_t offset = text_.size();
  text_.append(string.c_str(), string.size() + 1);
  return offset;
}

Result<void> Listing::copy(const RegistryState& registry) {
  for (const auto& module : registry.modules.modules()) {
    if (module->sites().empty()) continue;
    Result<ModuleNames*> names = registry.modules.names(*module);
    if (!names.ok() && is_shortage(names.error())) return names.error();
    const std::size_t path = keep(module->image().path);
    for (const SiteRecord& record : module->sites()) {
      const Spellings* const spelled = names.ok() ? (*names)->names_of(record) : nullptr;
      Row row{record.found.ip, record.found.function, record.found.kind, 0, 0, path};
      if (spelled != nullptr) {
        row.symbol = keep(spelled->linkage);
        row.demangled = spelled->signature.empty() ? row.symbol : keep(spelled->signature);
      }
      rows_.push_back(row);
    }
  }
  return {};
}

int Listing::visit_all(int (*visit)(const fprobe_site*, void*), void* argument) const {
  const char* const text = text_.c_str();
  for (const Row& row : rows_) {
    const fprobe_site site{row.ip, row.function, text + row.symbol, text + row.demangled, text + row.module, row.kind};
    if (const int answer = visit(&site, argument)) return answer;
  }
  return 0;
}

}  // namespace

namespace registry {

Result<int> for_each_site(int (*visit)(const fprobe_site*, void*), void* argument) {
  Listing listing;
  {
    RegistryState& registry = state();
    const Operation operation;
    Result<void> copied = with_loader_locked([&]() -> Result<void> {
      if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed;
      return listing.copy(registry);
    });
    if (!copied.ok()) return copied.error();
  }
  return listing.visit_all(visit, argument);
}

}  // namespace registry
}  // namespace libfprobe::detail
