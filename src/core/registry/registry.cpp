// See registry.h: register as a transaction.  Unregister and the rest are in detach.cpp and listing.cpp.
//
// Everything that can fail happens in Attachment::prepare(); commit() is noexcept and starts with the first store that
// a hit can see.
#include "registry/registry.h"

#include <algorithm>
#include <vector>

#include "base/tsan.h"
#include "patch/text_poke.h"
#include "registry/state.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t round_up_to_longs(std::size_t bytes) noexcept {
  return (bytes + sizeof(long) - 1) / sizeof(long) * sizeof(long);
}

Error already_registered() noexcept {
  return make_error(EEXIST, "this struct fprobe is registered already");
}

// What a probe's handlers may change.
std::uint8_t kept_for_handlers(unsigned flags) noexcept {
  unsigned keeps = arch::kKeepAllVectors;
  // ThreadSanitizer's functions use vector registers, whatever the handlers do.
  if ((flags & FPROBE_FL_GENERAL_REGS) != 0 && !kTsanWatches) keeps = arch::kKeepEverything;
  if ((flags & FPROBE_FL_SAVE_FPENV) != 0) keeps |= arch::kKeepFpenv;
  return static_cast<std::uint8_t>(keeps);
}

// Checks of the struct alone, in the order of the return codes.
Result<void> check(const fprobe& probe) {
  if (live_slot(probe) != nullptr) return already_registered();
  if (probe.entry_data_size > MAX_FPROBE_DATA_SIZE)
    return make_error(E2BIG, "entry_data_size is %zu bytes, at most %zu are possible", probe.entry_data_size,
                      MAX_FPROBE_DATA_SIZE);
  return {};
}

// The handlers of all probes: what a filter leaves out.
std::vector<std::uintptr_t> handlers_of_all(const RegistryState& registry, const fprobe* joining) {
  std::vector<std::uintptr_t> handlers;
  const auto add = [&](std::uintptr_t handler) {
    if (handler != 0) handlers.push_back(handler);
  };
  for (const PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next) {
    add(slot->registration->entry_handler);
    add(slot->registration->exit_handler);
  }
  if (joining == nullptr) return handlers;
  add(reinterpret_cast<std::uintptr_t>(joining->entry_handler));
  add(reinterpret_cast<std::uintptr_t>(joining->exit_handler));
  return handlers;
}

Result<Selection> select(const RegistryState& registry, const FilterTarget& target, const fprobe* joining) {
  if (joining != nullptr && (joining->flags & FPROBE_FL_NEW_MODULES) != 0)
    return make_error(EOPNOTSUPP, "FPROBE_FL_NEW_MODULES is not available in this version");
  return resolve(registry.modules, target, handlers_of_all(registry, joining));
}
template <class Target>
Result<Selection> select(const RegistryState& registry, const Target& target, const fprobe*) {
  return resolve(registry.modules, target);
}

// One registration on its way.  Dropped before commit() it leaves nothing but thunks that no site leads to.
class Attachment {
 public:
  Attachment(RegistryState& registry, fprobe& probe) noexcept : registry_(registry), probe_(probe) {}
  ~Attachment() {
    if (slot_ != nullptr) registry_.slots.give_back(slot_);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  [[nodiscard]] Result<void> prepare(Selection records);
  void commit() noexcept;

 private:
  [[nodiscard]] Result<void> make_sites();
  void make_registration(Selection records);
  void plan_lists();

  RegistryState& registry_;
  fprobe& probe_;
  PooledSlot* slot_ = nullptr;
  std::unique_ptr<Registration> registration_;
  ListChanges changes_;
  std::unique_ptr<Retirement> replaced_;  // the lists that the new ones replace
};

Result<void> Attachment::prepare(Selection records) {
  make_registration(std::move(records));
  if (Result<void> made = make_sites(); !made.ok()) return made.error();
  plan_lists();
  if (registry_.prepare_threads != nullptr && !registry_.prepare_threads()) return no_memory();
  // Last, because it is the one step that others can see; a hit on a site without a list runs the function untouched.
  return arm(registration_->records);
}

void Attachment::make_registration(Selection records) {
  slot_ = registry_.slots.take();
  registration_ = std::make_unique<Registration>();
  registration_->probe = &probe_;
  registration_->entry_handler = reinterpret_cast<std::uintptr_t>(probe_.entry_handler);
  registration_->exit_handler = reinterpret_cast<std::uintptr_t>(probe_.exit_handler);
  registration_->records = std::move(records);
  registration_->retirement = std::make_unique<Retirement>();
}

Result<void> Attachment::make_sites() {
  const Selection& records = registration_->records;
  if (!registry_.table.reserve(records.size())) return no_memory();
  for (SiteRecord* const record : records)
    if (Result<void> made = record->module->make_site(*record); !made.ok()) return made.error();
  return {};
}

void Attachment::plan_lists() {
  Retirement& retirement = *registration_->retirement;
  const Selection& records = registration_->records;
  retirement.sites.reserve(records.size());
  retirement.lists.reserve(records.size());
  for (const SiteRecord* const record : records) retirement.sites.push_back(record->site);
  std::sort(retirement.sites.begin(), retirement.sites.end());

  ListEntry entry;
  entry.probe = &probe_;
  entry.entry_handler = probe_.entry_handler;
  entry.slot = slot_;
  entry.generation = slot_->generation.load(std::memory_order_relaxed) + 1;  // what commit() makes it
  entry.has_exit = probe_.exit_handler != nullptr;
  entry.data_size = entry.has_exit ? static_cast<std::uint32_t>(round_up_to_longs(probe_.entry_data_size)) : 0;
  const std::uint8_t keeps = kept_for_handlers(probe_.flags);
  entry.entry_keeps = entry.entry_handler != nullptr || kTsanWatches ? keeps : 0;
  entry.exit_keeps = entry.has_exit ? keeps : 0;
  changes_.reserve(records.size());
  for (const SiteRecord* const record : records) changes_.plan(*record->site, &entry);

  if (changes_.retired_count() == 0) return;
  replaced_ = std::make_unique<Retirement>();
  replaced_->sites = retirement.sites;
  replaced_->lists.reserve(changes_.retired_count());
}

void Attachment::commit() noexcept {
  __atomic_store_n(&probe_.nmissed, 0, __ATOMIC_RELAXED);  // no hit of this registration has started
  for (unsigned long& count : probe_.missed_by_reason) __atomic_store_n(&count, 0, __ATOMIC_RELAXED);
  for (const SiteRecord* const record : registration_->records) registry_.table.insert(*record->site);

  // relaxed: live_slot() looks at it after the generation [GENERATION].
  __atomic_store_n(&slot_->probe, &probe_, __ATOMIC_RELAXED);
  slot_->exit_handler = probe_.exit_handler;
  slot_->flags = __atomic_load_n(&probe_.flags, __ATOMIC_RELAXED);
  slot_->ops_flags = probe_.ops.flags;
  // release: pairs with the acquire of whoever compares generations, the fields above are this registration's
  // [GENERATION].
  slot_->generation.fetch_add(1, std::memory_order_release);
  // release: pairs with the acquire in live_slot() [REGISTERED].
  __atomic_store_n(&probe_.handle, reinterpret_cast<void*>(slot_->number), __ATOMIC_RELEASE);
  slot_->registration = registration_.release();
  slot_->next = registry_.live;
  registry_.live = slot_;
  slot_ = nullptr;

  std::vector<const ProbeList*> none;
  changes_.publish(replaced_ != nullptr ? replaced_->lists : none);
  if (replaced_ != nullptr) registry_.limbo.add(replaced_.release());
}

template <class Target>
Result<void> attach_to(fprobe& probe, const Target& target) {
  if (Result<void> checked = check(probe); !checked.ok()) return checked;
  RegistryState& registry = state();
  const Operation operation;
  // Again: another thread may have registered the same struct before this one got the mutex.
  if (Result<void> checked = check(probe); !checked.ok()) return checked;
  return with_loader_locked([&]() -> Result<void> {
    if (!barriers_work())
      return make_error(EPERM, "neither membarrier nor a change of CPU is permitted: running code cannot be changed");
    tidy_up(registry);
    if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed;
    Result<Selection> selection = select(registry, target, &probe);
    if (!selection.ok()) return selection.error();
    Attachment attachment(registry, probe);
    if (Result<void> prepared = attachment.prepare(std::move(*selection)); !prepared.ok()) return prepared;
    attachment.commit();
    return {};
  });
}

}  // namespace

namespace registry {

Result<void> attach(fprobe& probe, const FilterTarget& target) {
  return attach_to(probe, target);
}
Result<void> attach(fprobe& probe, SymbolsTarget target) {
  return attach_to(probe, target);
}
Result<void> attach(fprobe& probe, AddressesTarget target) {
  return attach_to(probe, target);
}

Result<unsigned long> count_matches(const FilterTarget& target) {
  RegistryState& registry = state();
  const Operation operation;
  return with_loader_locked([&]() -> Result<unsigned long> {
    if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed.error();
    const Result<Selection> selection = select(registry, target, nullptr);
    if (!selection.ok()) return selection.error();
    return static_cast<unsigned long>(selection->size());
  });
}

bool is_attached(const fprobe& probe) noexcept {
  return live_slot(probe) != nullptr;
}

void prepare_loaded_modules() noexcept {
  RegistryState& registry = state();
  const Operation operation;
  // A failure here is no failure of the program: the next operation tries again and reports.
  (void)with_loader_locked([&] { return follow_loader(registry); });
}

void on_arming(bool (*prepare_threads)()) noexcept {
  state().prepare_threads = prepare_threads;
}

void keep_sites_live() noexcept {
  state().resting_form = TextForm::kLive;
}

void keep_everything() noexcept {
  detail::keep_everything();
}

const Site* find_site(std::uintptr_t ip) noexcept {
  return state().table.find(ip);
}

}  // namespace registry
}  // namespace libfprobe::detail
