// entry_ip → Site: an open-addressed hash that readers walk without a lock, in any context.
//
// Serves whoever has only an address: the listing, the unwinder, live calls of __fentry__.  Writers hold the registry
// mutex.  A table that grew stays readable for ever (a reader may be inside; the sizes double, so that all old ones
// together are no larger than the present one).
//
//   cell:  ip 0, site null       free: a search ends here
//          ip x, site s          s is x's Site
//          ip x, site null       erased: a search goes on, an insertion may take it over
//
// A reader can meet a cell between two owners, hence it asks the Site itself for its ip.
#ifndef FPROBE_SRC_CORE_REGISTRY_SITE_TABLE_H_
#define FPROBE_SRC_CORE_REGISTRY_SITE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "registry/site.h"

namespace libfprobe::detail {

class SiteTable {
 public:
  constexpr SiteTable() noexcept = default;
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  // Null when there is none.  Async-signal-safe.
  [[nodiscard]] const Site* find(std::uintptr_t ip) const noexcept;

  // Room for `more` insertions; false: no memory.
  [[nodiscard]] bool reserve(std::size_t more) noexcept;
  // Adds or replaces; room must have been reserved.
  void insert(const Site& site) noexcept;
  void erase(std::uintptr_t ip) noexcept;

 private:
  struct Cell {
    std::atomic<std::uintptr_t> ip{0};
    std::atomic<const Site*> site{nullptr};
  };
  struct Table {
    Table* older = nullptr;
    std::size_t mask = 0;
    std::size_t used = 0;  // cells whose ip is not 0
    Cell* cells = nullptr;
  };
  static Table* make_table(std::size_t cells) noexcept;
  static void free_erased_tail(Table& table, std::size_t at) noexcept;
  static void insert_into(Table& table, const Site& site) noexcept;

  std::atomic<Table*> table_{nullptr};
  std::size_t live_ = 0;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_SITE_TABLE_H_
