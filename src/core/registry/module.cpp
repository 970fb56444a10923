// See module.h.
#include "registry/module.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/syscalls.h"
#include "image/debug_file.h"
#include "image/image_file.h"
#include "image/image_memory.h"
#include "image/wide_vectors.h"

namespace libfprobe::detail {
namespace {

// What thunks must reach: the executable part of the module.
NearRange text_range(const LoadedImage& image) noexcept {
  NearRange range{image.high, image.low};
  for (const Segment& segment : image.segments) {
    if ((segment.flags & PF_X) == 0) continue;
    range.low = std::min(range.low, segment.start);
    range.high = std::max(range.high, segment.end);
  }
  return range;
}

bool is_same_module(const LoadedImage& a, const LoadedImage& b) noexcept {
  return a.program_headers == b.program_headers && a.bias == b.bias && a.low == b.low && a.high == b.high &&
         a.path == b.path;
}

bool is_same_site(const FoundSite& a, const FoundSite& b) noexcept {
  return a.ip == b.ip && a.function == b.function && a.kind == b.kind && a.shape.form == b.shape.form &&
         a.shape.length == b.shape.length && a.shape.patch_offset == b.shape.patch_offset &&
         a.shape.nested == b.shape.nested && std::memcmp(a.original, b.original, a.shape.length) == 0;
}

constinit bool g_keeps_everything = false;  // written at load, before any site is made

// Where the thunk of a site goes to.
arch::EntryDoor door_of(const arch::SiteShape& shape, unsigned keeps) noexcept {
  return {shape.is_behind_prologue(), (keeps & arch::kKeepCallerSaved) != 0};
}

}  // namespace

void keep_everything() noexcept {
  g_keeps_everything = true;
}

// --- Module ----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Module>> Module::load(const LoadedImage& image, std::span<const ProfilingFunction> known) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  std::unique_ptr<Module> module(new Module(image));
  if (!may_have_sites(image, known)) return module;
  Result<ElfImage> file = open_file_of(image);
  if (!file.ok() && is_shortage(file.error())) return file.error();
  const ElfImage* const own = file.ok() ? &*file : nullptr;
  Result<ScanResult> found = scan_sites(image, own, known);
  if (found.ok() && found->lacks_starts) {
    Result<DebugFile> debug = find_debug_file(image, own);
    if (!debug.ok()) return debug.error();
    if (debug->file) found = scan_sites(image, own, known, &*debug->file);
  }
  if (!found.ok()) return found.error();
  module->adopt(*found);
  return module;
}

void Module::adopt(const ScanResult& found) {
  sites_.resize(found.sites.size());
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    sites_[i].found = found.sites[i];
    sites_[i].module = this;
    std::memcpy(sites_[i].text, found.sites[i].original, sizeof sites_[i].text);
  }
  refused_ = found.refused;
}

SiteRecord* Module::site_at(std::uintptr_t ip) noexcept {
  const auto at = std::lower_bound(sites_.begin(), sites_.end(), ip,
                                   [](const SiteRecord& record, std::uintptr_t key) { return record.found.ip < key; });
  return at != sites_.end() && at->found.ip == ip ? &*at : nullptr;
}

void Module::sites_of_function(std::uintptr_t first_byte, std::vector<SiteRecord*>& out) {
  // A site lies behind its function's first byte and in front of the next function's, so the search by ip goes on from
  // there.  (Functions do not nest; `function` rises with `ip`.)
  auto at = std::lower_bound(sites_.begin(), sites_.end(), first_byte,
                             [](const SiteRecord& record, std::uintptr_t key) { return record.found.ip < key; });
  for (; at != sites_.end() && at->found.function == first_byte; ++at) out.push_back(&*at);
}

const char* Module::refusal_at(std::uintptr_t address) const noexcept {
  for (const RefusedSite& refused : refused_)
    if (refused.ip == address || refused.function == address) return refused.reason;
  return nullptr;
}

Result<ModuleNames*> Module::names(std::span<const LoadedImage> loaded) {
  // IFUNCs may have been bound since.
  if (names_ == nullptr || !names_->symbols().unbound_ifuncs().empty()) {
    Result<std::unique_ptr<ModuleNames>> built = ModuleNames::build(image_, sites_, loaded);
    if (!built.ok()) return built.error();
    names_ = std::move(*built);
  }
  return names_.get();
}

ThunkArena& Module::arena_for(arch::EntryDoor door) {
  std::unique_ptr<ThunkArena>& arena = arenas_[(door.behind_prologue ? 1 : 0) + (door.keeps_all ? 2 : 0)];
  if (arena == nullptr)
    arena = std::make_unique<ThunkArena>(text_range(image_), arch::entry_code(door), door.keeps_all);
  return *arena;
}

unsigned Module::kept_registers(const arch::SiteShape& shape) {
  if (!has_wide_vectors_) has_wide_vectors_ = has_wide_vectors(image_);
  return arch::kept_registers(shape, *has_wide_vectors_, g_keeps_everything);
}

Result<void> Module::make_site(SiteRecord& record) {
  if (record.site != nullptr) return {};
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  const FoundSite& found = record.found;
  const unsigned keeps = kept_registers(found.shape);
  if ((keeps & arch::kKeepCallerSaved) != 0) arch::let_exits_keep_all();
  Result<std::uintptr_t> memory = arena_for(door_of(found.shape, keeps)).allocate_data(sizeof(Site));
  if (!memory.ok()) return memory.error();
  record.site = new (reinterpret_cast<void*>(*memory)) Site;
  record.site->ip = found.ip;
  record.site->resume = found.ip + found.shape.length;
  record.site->record = &record;
  record.site->shape = found.shape;
  record.site->keeps = static_cast<std::uint8_t>(keeps);
  record.site->overwrites = found.shape.is_behind_prologue();
  record.site->may_exit = !record.site->overwrites || arch::may_overwrite_returns();
  return {};
}

Result<void> Module::make_thunk(SiteRecord& record) {
  if (record.thunk != 0) return {};
  const Site& site = *record.site;
  Result<ThunkArena::Thunk> thunk = arena_for(door_of(site.shape, site.keeps))
                                        .add_thunk(reinterpret_cast<std::uintptr_t>(&site), site.resume,
                                                   site.shape.nested, arch::thunk_place(site.ip, site.shape));
  if (!thunk.ok()) return thunk.error();
  has_unsealed_thunks_ = true;
  record.site->tail = thunk->tail;
  record.thunk = thunk->head;
  return {};
}

Result<void> Module::seal_thunks() {
  if (!has_unsealed_thunks_) return {};
  for (const std::unique_ptr<ThunkArena>& arena : arenas_) {
    if (arena == nullptr) continue;
    if (Result<void> sealed = arena->seal(); !sealed.ok()) return sealed;
  }
  has_unsealed_thunks_ = false;
  return {};
}

Module::Text Module::whose_text() const noexcept {
  bool some_changed = false;
  for (const SiteRecord& record : sites_) {
    const std::size_t length = record.found.shape.length;
    if (std::memcmp(record.text, record.found.original, length) == 0) continue;  // looks the same either way
    some_changed = true;
    // One site of ours is enough: a debugger changes single sites, a fresh mapping changes all.
    if (std::memcmp(reinterpret_cast<const void*>(record.found.ip), record.text, length) == 0) return Text::kOurs;
  }
  if (some_changed) return Text::kFresh;
  return image_.is_main ? Text::kOurs : Text::kUntold;
}

bool Module::has_sites_of(const Module& scanned) const noexcept {
  return std::equal(sites_.begin(), sites_.end(), scanned.sites_.begin(), scanned.sites_.end(),
                    [](const SiteRecord& a, const SiteRecord& b) { return is_same_site(a.found, b.found); });
}

void Module::become(Module& scanned) noexcept {
  image_ = std::move(scanned.image_);
  refused_ = std::move(scanned.refused_);
  names_ = nullptr;
}

// --- ModuleSet -------------------------------------------------------------------------------------------------------

std::size_t ModuleSet::index_of(const LoadedImage& image) const noexcept {
  for (std::size_t i = 0; i < modules_.size(); ++i)
    if (modules_[i] != nullptr && is_same_module(modules_[i]->image(), image)) return i;
  return modules_.size();
}

void ModuleSet::leave_to_others(ImageSnapshot& snapshot, Moment moment) const {
  if (moment == Moment::kUntold) return;
  const std::size_t left = std::erase_if(snapshot.images, [&](const LoadedImage& image) {
    return index_of(image) == modules_.size() &&
           DynamicTables(image).has_text_relocations() == (moment == Moment::kLoading);
  });
  if (left != 0) --snapshot.generation.added;  // a number the loader never tells again: the next call looks anew
}

Result<ModuleSet::Changes> ModuleSet::refresh(Moment moment) {
  if (is_known_ && image_generation() == snapshot_.generation) return Changes{};
  Result<ImageSnapshot> snapshot = snapshot_images();
  if (!snapshot.ok()) return snapshot.error();
  leave_to_others(*snapshot, moment);
  const bool some_unloaded = is_known_ && snapshot->generation.removed != snapshot_.generation.removed;

  // First all that can fail, beside the present set; then the exchange, which cannot.
  Changes changes;
  const std::vector<ProfilingFunction> known = global_profiling_functions();
  changes.departed.reserve(modules_.size());
  std::vector<std::unique_ptr<Module>> present(snapshot->images.size());
  std::vector<std::size_t> kept(snapshot->images.size());
  for (std::size_t i = 0; i < present.size(); ++i) {
    kept[i] = index_of(snapshot->images[i]);
    const Module* const old = kept[i] < modules_.size() ? modules_[kept[i]].get() : nullptr;
    const Module::Text text = old == nullptr  ? Module::Text::kFresh
                              : some_unloaded ? old->whose_text()
                                              : Module::Text::kOurs;
    if (text == Module::Text::kOurs) continue;
    Result<std::unique_ptr<Module>> loaded = Module::load(snapshot->images[i], known);
    if (!loaded.ok()) return loaded.error();
    present[i] = std::move(*loaded);
    // If it stayed, frames in flight and threads in thunks need what the old one has; else nobody does.
    if (text == Module::Text::kUntold && old->has_sites_of(*present[i])) continue;
    kept[i] = modules_.size();
    changes.added.push_back(present[i].get());
  }
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (kept[i] == modules_.size()) continue;
    if (present[i] != nullptr) modules_[kept[i]]->become(*present[i]);
    present[i] = std::move(modules_[kept[i]]);
  }
  for (std::unique_ptr<Module>& module : modules_)
    if (module != nullptr) changes.departed.push_back(std::move(module));
  modules_ = std::move(present);
  snapshot_ = std::move(*snapshot);
  is_known_ = true;
  return changes;
}

Module* ModuleSet::containing(std::uintptr_t address) const noexcept {
  for (const std::unique_ptr<Module>& module : modules_)
    if (module->image().contains(address)) return module.get();
  return nullptr;
}

}  // namespace libfprobe::detail
