// See registry.h: register as a transaction.  Unregister and the rest are in detach.cpp and listing.cpp.
//
// Everything that can fail happens in Joining::prepare(); commit() is noexcept and starts with the first store that
// a hit can see.
#include "registry/registry.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/debug_log.h"
#include "base/text.h"
#include "base/tsan.h"
#include "patch/text_poke.h"
#include "registry/attachment.h"
#include "registry/new_modules.h"
#include "registry/state.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t round_up_to_longs(std::size_t bytes) noexcept {
  return (bytes + sizeof(long) - 1) / sizeof(long) * sizeof(long);
}

Error already_registered() noexcept {
  return make_error(EEXIST, "this struct fprobe is registered already: unregister it first, or use a second struct");
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
    return make_error(E2BIG,
                      "entry_data_size is %zu bytes, at most %zu are possible: keep the rest elsewhere, and a pointer "
                      "to it in the entry data",
                      probe.entry_data_size, MAX_FPROBE_DATA_SIZE);
  return {};
}

// The handlers of all probes, and of one that is about to join them.
std::vector<std::uintptr_t> handlers_with(const RegistryState& registry, const fprobe* joining) {
  std::vector<std::uintptr_t> handlers = handlers_of_all(registry);
  if (joining == nullptr) return handlers;
  if (joining->entry_handler != nullptr) handlers.push_back(reinterpret_cast<std::uintptr_t>(joining->entry_handler));
  if (joining->exit_handler != nullptr) handlers.push_back(reinterpret_cast<std::uintptr_t>(joining->exit_handler));
  return handlers;
}

bool covers_new_modules(const fprobe& probe) noexcept {
  return (__atomic_load_n(&probe.flags, __ATOMIC_RELAXED) & FPROBE_FL_NEW_MODULES) != 0;  // fixed while it registers
}

// What a registration is to keep of its target for modules to come: a filter with the flag; addresses and names mean
// what is loaded now.
Result<std::unique_ptr<const Filter>> filter_to_keep(const FilterTarget& target, const fprobe& probe) {
  std::unique_ptr<const Filter> kept;
  if (!covers_new_modules(probe)) return kept;
  Result<Filter> filter = Filter::parse(target.match, target.exclude);
  if (!filter.ok()) return filter.error();
  kept = std::make_unique<const Filter>(std::move(*filter));
  return kept;
}
template <class Target>
Result<std::unique_ptr<const Filter>> filter_to_keep(const Target&, const fprobe&) {
  return std::unique_ptr<const Filter>();
}

Result<Selection> select(const RegistryState& registry, const FilterTarget& target, const fprobe* joining) {
  const bool may_come_later = joining != nullptr && covers_new_modules(*joining);
  return resolve(registry.modules, target, handlers_with(registry, joining),
                 may_come_later ? Enough::kMayComeLater : Enough::kFound);
}
template <class Target>
Result<Selection> select(const RegistryState& registry, const Target& target, const fprobe*) {
  return resolve(registry.modules, target);
}

// What was asked for, for humans: "filter 'app::*' without 'app::test*'", "3 names: a, b, c".
std::string describe_target(const FilterTarget& target) {
  std::string text;
  append(text, "filter '%s'", target.match);
  if (target.exclude != nullptr && target.exclude[0] != '\0') append(text, " without '%s'", target.exclude);
  return text;
}
std::string describe_target(SymbolsTarget target) {
  constexpr std::size_t kShown = 3;
  std::string text;
  append(text, "%zu names", target.size());
  for (std::size_t i = 0; i < std::min(kShown, target.size()); ++i)
    append(text, "%s %s", i == 0 ? ":" : ",", target[i]);
  if (target.size() > kShown) text += ", ...";
  return text;
}
std::string describe_target(AddressesTarget target) {
  std::string text;
  append(text, "%zu addresses", target.size());
  return text;
}

// What a registration keeps of its target.
struct Kept {
  std::string origin;
  std::unique_ptr<const Filter> filter;
};

// One registration on its way.  Dropped before commit() it leaves nothing but thunks that no site leads to.
class Joining {
 public:
  Joining(RegistryState& registry, fprobe& probe) noexcept : registry_(registry), probe_(probe) {}
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  [[nodiscard]] Result<void> prepare(Selection records, Kept kept);
  void commit() noexcept;

 private:
  void make_registration(Selection records);
  [[nodiscard]] ListEntry make_entry() const noexcept;

  RegistryState& registry_;
  fprobe& probe_;
  PooledSlot* slot_ = nullptr;
  std::unique_ptr<Registration> registration_;
  std::optional<Attachment> attachment_;
};

Joining::~Joining() {
  if (slot_ == nullptr) return;
  registry_.slots.give_back(slot_);
  if (!some_cover_new_modules(registry_)) registry_.loader_hook.disarm();
}

Result<void> Joining::prepare(Selection records, Kept kept) {
  make_registration(std::move(records));
  registration_->origin = std::move(kept.origin);
  registration_->filter = std::move(kept.filter);
  if (registration_->filter != nullptr)
    if (Result<void> armed = registry_.loader_hook.arm(registry_.modules); !armed.ok()) return armed;
  registration_->retirement->lists.reserve(registration_->records.size());
  registration_->retirement->sites.reserve(registration_->records.size());
  return attachment_.emplace(registry_, registration_->records).prepare(registration_->entry);
}

void Joining::make_registration(Selection records) {
  slot_ = registry_.slots.take();
  slot_->order = ++registry_.registrations;
  registration_ = std::make_unique<Registration>();
  registration_->probe = &probe_;
  registration_->entry_handler = reinterpret_cast<std::uintptr_t>(probe_.entry_handler);
  registration_->exit_handler = reinterpret_cast<std::uintptr_t>(probe_.exit_handler);
  registration_->entry = make_entry();
  registration_->records = std::move(records);
  registration_->retirement = std::make_unique<Retirement>();
}

ListEntry Joining::make_entry() const noexcept {
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
  return entry;
}

void Joining::commit() noexcept {
  std::vector<const Site*>& sites = registration_->retirement->sites;  // prepare() made room
  for (const SiteRecord* const record : registration_->records) sites.push_back(record->site);
  std::sort(sites.begin(), sites.end());
  __atomic_store_n(&probe_.nmissed, 0, __ATOMIC_RELAXED);  // no hit of this registration has started
  for (unsigned long& count : probe_.missed_by_reason) __atomic_store_n(&count, 0, __ATOMIC_RELAXED);

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
  attachment_->publish();
}

template <class Target>
Result<void> attach_to(fprobe& probe, const Target& target) {
  if (Result<void> checked = check(probe); !checked.ok()) return checked;
  RegistryState& registry = state();
  const debug_log::Stopwatch watch;
  const Operation operation;
  // Again: another thread may have registered the same struct before this one got the mutex.
  if (Result<void> checked = check(probe); !checked.ok()) return checked;
  return with_loader_locked([&]() -> Result<void> {
    if (!barriers_work())
      return make_error(EPERM,
                        "running code cannot be changed: the kernel refuses membarrier and sched_setaffinity (a "
                        "seccomp filter?); allow one of them, or register probes before the filter is installed");
    tidy_up(registry);
    if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed;
    Result<Selection> selection = select(registry, target, &probe);
    if (!selection.ok()) return selection.error();
    Result<std::unique_ptr<const Filter>> filter = filter_to_keep(target, probe);
    if (!filter.ok()) return filter.error();
    Joining joining(registry, probe);
    if (Result<void> prepared = joining.prepare(std::move(*selection), {describe_target(target), std::move(*filter)});
        !prepared.ok())
      return prepared;
    joining.commit();
    const Registration& joined = *registry.live->registration;
    debug_log::say("registered %p: %zu sites by %s, %ld us", static_cast<const void*>(&probe), joined.records.size(),
                   joined.origin.c_str(), watch.microseconds());
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
