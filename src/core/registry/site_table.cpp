// See site_table.h.
#include "registry/site_table.h"

#include <new>

#include "base/attributes.h"
#include "base/syscalls.h"
#include "base/tsan.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kSmallestTable = 256;

// Fibonacci hashing: entry addresses differ mostly in their middle bits.
FPROBE_HOT std::size_t hash(std::uintptr_t ip) noexcept {
  return static_cast<std::size_t>((ip * 0x9e3779b97f4a7c15u) >> 20);
}

}  // namespace

FPROBE_HOT const Site* SiteTable::find(std::uintptr_t ip) const noexcept {
  // acquire: pairs with the release in reserve(), the cells are filled.
  const Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr || ip == 0) return nullptr;
  for (std::size_t i = hash(ip), steps = 0; steps <= table->mask; ++i, ++steps) {
    const Cell& cell = table->cells[i & table->mask];
    // acquire: pairs with the release in insert_into(), the Site is filled.
    const std::uintptr_t found = cell.ip.load(std::memory_order_acquire);
    if (found == 0) return nullptr;
    if (found != ip) continue;
    const Site* const site = cell.site.load(std::memory_order_acquire);
    if (site != nullptr && site->ip == ip) return site;
  }
  return nullptr;
}

bool SiteTable::reserve(std::size_t more) noexcept {
  Table* const old = table_.load(std::memory_order_relaxed);  // relaxed: only writers store it, under the mutex
  if (old != nullptr && (old->used + more) * 2 <= old->mask + 1) return true;
  std::size_t cells = kSmallestTable;
  while (cells < (live_ + more) * 3) cells *= 2;
  Table* const table = make_table(cells);
  if (table == nullptr) return false;
  if (old != nullptr) {
    for (std::size_t i = 0; i <= old->mask; ++i)
      if (const Site* const site = old->cells[i].site.load(std::memory_order_relaxed)) insert_into(*table, *site);
  }
  table->older = old;                              // keeps it reachable: readers may be inside
  table_.store(table, std::memory_order_release);  // pairs with the acquire in find()
  return true;
}

void SiteTable::insert(const Site& site) noexcept {
  tsan_release(&site);  // this file is compiled without ThreadSanitizer: pairs with tsan_acquire() of who finds it
  if (find(site.ip) == nullptr) ++live_;
  insert_into(*table_.load(std::memory_order_relaxed), site);
}

void SiteTable::erase(std::uintptr_t ip) noexcept {
  if (find(ip) == nullptr) return;
  Table& table = *table_.load(std::memory_order_relaxed);
  std::size_t at = hash(ip);
  while (table.cells[at & table.mask].ip.load(std::memory_order_relaxed) != ip) ++at;
  table.cells[at & table.mask].site.store(nullptr, std::memory_order_release);  // pairs with the acquire in find()
  --live_;
  free_erased_tail(table, at);
}

// Erased cells in front of a free one end no search: they become free, or ever new addresses would fill the table.
void SiteTable::free_erased_tail(Table& table, std::size_t at) noexcept {
  if (table.cells[(at + 1) & table.mask].ip.load(std::memory_order_relaxed) != 0) return;
  for (;; --at) {
    Cell& cell = table.cells[at & table.mask];
    if (cell.ip.load(std::memory_order_relaxed) == 0 || cell.site.load(std::memory_order_relaxed) != nullptr) return;
    cell.ip.store(0, std::memory_order_release);  // pairs with the acquire in find()
    --table.used;
  }
}

SiteTable::Table* SiteTable::make_table(std::size_t cells) noexcept {
  if (!sys::allocation_allowed()) return nullptr;
  Table* const table = new (std::nothrow) Table;
  if (table == nullptr) return nullptr;
  table->mask = cells - 1;
  table->cells = new (std::nothrow) Cell[cells];
  if (table->cells != nullptr) return table;
  delete table;
  return nullptr;
}

void SiteTable::insert_into(Table& table, const Site& site) noexcept {
  Cell* target = nullptr;  // the ip's own cell, else the first erased one on the way, else the free one at the end
  for (std::size_t i = hash(site.ip);; ++i) {
    Cell& cell = table.cells[i & table.mask];
    const std::uintptr_t ip = cell.ip.load(std::memory_order_relaxed);
    const bool is_end = ip == 0;
    if (ip == site.ip) target = &cell;
    if (target == nullptr && (is_end || cell.site.load(std::memory_order_relaxed) == nullptr)) target = &cell;
    if (!is_end && ip != site.ip) continue;
    if (is_end && target == &cell) ++table.used;
    break;
  }
  // The Site first: whoever finds the new ip finds its Site; whoever still sees the cell's old ip asks the Site.
  target->site.store(&site, std::memory_order_release);  // pairs with the acquire in find()
  target->ip.store(site.ip, std::memory_order_release);  // pairs with the acquire in find()
}

}  // namespace libfprobe::detail
