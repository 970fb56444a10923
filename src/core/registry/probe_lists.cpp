// See probe_lists.h.
#include "registry/probe_lists.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/syscalls.h"
#include "base/tsan.h"

namespace libfprobe::detail {
namespace {

// In memory a list is preceded by its count:   ListHeader | ProbeList | ListEntry × count
struct alignas(ProbeList) ListHeader {
  std::size_t references = 0;
  ListHeader *before = nullptr, *after = nullptr;
};

// All lists, chained: Sites lie in memory that leak checkers do not search.
constinit ListHeader* g_lists = nullptr;

ListHeader& header_of(const ProbeList* list) noexcept {
  return *(reinterpret_cast<ListHeader*>(const_cast<ProbeList*>(list)) - 1);
}

// No reference yet.
ProbeList* allocate_list(std::size_t entries) {
  const std::size_t size = sizeof(ListHeader) + sizeof(ProbeList) + entries * sizeof(ListEntry);
  void* const memory = sys::allocation_allowed() ? std::malloc(size) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  auto* const header = new (memory) ListHeader;
  header->after = g_lists;
  if (g_lists != nullptr) g_lists->before = header;
  g_lists = header;
  return new (header + 1) ProbeList;
}

void free_list(const ProbeList* list) noexcept {
  ListHeader& header = header_of(list);
  (header.before != nullptr ? header.before->after : g_lists) = header.after;
  if (header.after != nullptr) header.after->before = header.before;
  std::free(&header);
}

void append(ProbeList& list, const ListEntry& entry) noexcept {
  new (&list.entries[list.count]) ListEntry(entry);
  ++list.count;
  list.exit_count += entry.has_exit ? 1 : 0;
  list.data_bytes += entry.data_size;
  list.entry_keeps |= entry.entry_keeps;
  list.exit_keeps |= entry.exit_keeps;
}

std::size_t count_live(const ProbeList* list) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; list != nullptr && i < list->count; ++i) count += is_live(list->entries[i]) ? 1 : 0;
  return count;
}

std::uint64_t order_of(const ListEntry& entry) noexcept {
  return static_cast<const PooledSlot*>(entry.slot)->order;  // all slots come from the pool
}

}  // namespace

bool is_live(const ListEntry& entry) noexcept {
  return entry.slot->generation.load(std::memory_order_relaxed) == entry.generation;  // stored under the same mutex
}

bool all_live(const ProbeList* list) noexcept {
  return count_live(list) == list->count;
}

void release_list(const ProbeList* list) noexcept {
  if (list != nullptr && --header_of(list).references == 0) free_list(list);
}

void release_lists(std::vector<const ProbeList*>& lists) noexcept {
  for (const ProbeList* list : lists) release_list(list);
  lists.clear();
}

ListChanges::~ListChanges() {
  for (const auto& [old, next] : successors_)
    if (next != nullptr && next != old && header_of(next).references == 0) free_list(next);
}

void ListChanges::plan(Site& site, const ListEntry* added) {
  const ProbeList* const old = site.probes.load(std::memory_order_relaxed);  // stored under the same mutex
  const ProbeList* const next = successor(old, added);
  if (next == old) return;
  changes_.push_back({&site, next});
  if (old != nullptr) ++retired_count_;
}

const ProbeList* ListChanges::successor(const ProbeList* old, const ListEntry* added) {
  const auto [at, is_new] = successors_.try_emplace(old, old);
  if (!is_new) return at->second;
  const std::size_t live = count_live(old);
  const std::size_t count = live + (added != nullptr ? 1 : 0);
  if (added == nullptr && old != nullptr && live == old->count) return old;  // nothing to take out
  if (count == 0) return at->second = nullptr;
  ProbeList* const list = allocate_list(count);
  // Newest registration first, even when an older one comes to a module that was loaded after the newer was registered.
  for (std::size_t i = 0; old != nullptr && i < old->count; ++i) {
    if (!is_live(old->entries[i])) continue;
    if (added != nullptr && order_of(old->entries[i]) <= order_of(*added))
      append(*list, *std::exchange(added, nullptr));
    append(*list, old->entries[i]);
  }
  if (added != nullptr) append(*list, *added);
  return at->second = list;
}

void ListChanges::publish(std::vector<const ProbeList*>& retired) noexcept {
  for (const auto& [old, next] : successors_)
    if (next != nullptr) tsan_release(next);  // pairs with tsan_acquire(list) on the hit path
  for (const Change& change : changes_) {
    const ProbeList* const old = change.site->probes.load(std::memory_order_relaxed);
    if (change.next != nullptr) ++header_of(change.next).references;
    // release: pairs with the acquire in dispatch.cpp, the list is filled and its slot's generation is set [PUBLISH].
    change.site->probes.store(change.next, std::memory_order_release);
    if (old != nullptr) retired.push_back(old);  // the site's reference goes along
  }
}

}  // namespace libfprobe::detail
