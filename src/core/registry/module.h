// One loaded module as the registry knows it: its sites, their Sites and thunks, its names; and the set of all modules.
//
//   Module ──► SiteRecord[]  by address: where, which bytes, what we wrote last
//                 └─ site ──► Site + thunk in the module's arena: made on first use, kept until the module is unloaded
//
// Everything here is guarded by the registry mutex.  SiteRecords never move while their module lives.  Modules are
// scanned and compared inside the loader's lock (LoaderLock), so that none disappears meanwhile.
#ifndef FPROBE_SRC_CORE_REGISTRY_MODULE_H_
#define FPROBE_SRC_CORE_REGISTRY_MODULE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/arch.h"
#include "base/result.h"
#include "image/image_list.h"
#include "image/profiling_targets.h"
#include "image/site_scan.h"
#include "patch/near_alloc.h"
#include "registry/module_names.h"
#include "registry/site.h"

namespace libfprobe::detail {

class Module;

struct SiteRecord {
  FoundSite found;
  Module* module = nullptr;
  Site* site = nullptr;                       // null before the first registration
  std::uintptr_t thunk = 0;                   // its head, 0: not made yet
  std::uint8_t text[arch::kMaxSiteLength]{};  // what we wrote last, or the file's bytes
  bool armed = false;
  bool live = false;  // armed without a change of text: dispatched from its call (arming.h)
};

class Module {
 public:
  // Scans the image for sites.  An unreadable file is no failure: memory alone is scanned then.
  [[nodiscard]] static Result<std::unique_ptr<Module>> load(const LoadedImage& image,
                                                            std::span<const ProfilingFunction> known);

  [[nodiscard]] const LoadedImage& image() const noexcept { return image_; }
  [[nodiscard]] std::span<SiteRecord> sites() noexcept { return sites_; }
  [[nodiscard]] bool has_sites() const noexcept { return !sites_.empty(); }
  [[nodiscard]] std::size_t site_count() const noexcept { return sites_.size(); }
  [[nodiscard]] std::span<const RefusedSite> refused() const noexcept { return refused_; }

  // The site with this entry_ip, or the sites of the function that starts at `address`.
  [[nodiscard]] SiteRecord* site_at(std::uintptr_t ip) noexcept;
  void sites_of_function(std::uintptr_t first_byte, std::vector<SiteRecord*>& out);
  // Why the site or function at `address` is not patched; null: nothing known.
  [[nodiscard]] const char* refusal_at(std::uintptr_t address) const noexcept;

  // Built on first use.  `loaded`: all modules, see SymbolIndex.
  [[nodiscard]] Result<ModuleNames*> names(std::span<const LoadedImage> loaded);

  // Gives a record its Site, and its thunk; `seal_thunks` makes all of them executable.
  [[nodiscard]] Result<void> make_site(SiteRecord& record);
  [[nodiscard]] Result<void> make_thunk(SiteRecord& record);
  [[nodiscard]] Result<void> seal_thunks();

  // Whether every registration that covers new modules has seen this one.
  [[nodiscard]] bool was_offered() const noexcept { return was_offered_; }
  void set_offered() noexcept { was_offered_ = true; }
  // Some of its IFUNCs were not bound when its names were read last: they may be by now.
  [[nodiscard]] bool has_unbound_names() const noexcept {
    return names_ != nullptr && !names_->symbols().unbound_ifuncs().empty();
  }

  // Whether the text is as we left it, or fresh from the file: then it was unloaded and loaded again at the same place.
  enum class Text { kOurs, kFresh, kUntold };  // kUntold: we left it as the file has it
  [[nodiscard]] Text whose_text() const noexcept;
  // What is loaded now, scanned: are its sites the ones of this module, byte by byte?
  [[nodiscard]] bool has_sites_of(const Module& scanned) const noexcept;
  // After both: whatever happened, this module's Sites and thunks serve for `scanned`, of which it takes the rest.
  void become(Module& scanned) noexcept;

 private:
  explicit Module(const LoadedImage& image) : image_(image) {}
  void adopt(const ScanResult& found);
  [[nodiscard]] ThunkArena& arena_for(arch::EntryDoor door);
  [[nodiscard]] unsigned kept_registers(const arch::SiteShape& shape);

  LoadedImage image_;
  std::vector<SiteRecord> sites_;  // by ip
  std::vector<RefusedSite> refused_;
  std::unique_ptr<ModuleNames> names_;
  std::unique_ptr<ThunkArena> arenas_[arch::kEntryDoors];  // of thunks that lead to each door, made on first use
  bool has_unsealed_thunks_ = false;
  std::optional<bool> has_wide_vectors_;  // looked for when the first Site is made
  bool was_offered_ = false;
};

// FPROBE_SAVE_ALL: hits of sites made from now on keep the CPU's whole state.
void keep_everything() noexcept;

class ModuleSet {
 public:
  struct Changes {
    std::vector<Module*> added;
    std::vector<std::unique_ptr<Module>> departed;
  };
  // Follows what the loader did since the last call.  On failure nothing changes.  `moment` tells which new modules are
  // left to a later call.
  enum class Moment {
    kUntold,        // none
    kLoading,       // those whose text relocation is going to change
    kBetweenLoads,  // all others: they are being loaded, and taken in by kLoading
  };
  [[nodiscard]] Result<Changes> refresh(Moment moment = Moment::kUntold);

  // In load order, the main program first.
  [[nodiscard]] std::span<const std::unique_ptr<Module>> modules() const noexcept { return modules_; }
  [[nodiscard]] Result<ModuleNames*> names(Module& module) const { return module.names(snapshot_.images); }
  [[nodiscard]] Module* containing(std::uintptr_t address) const noexcept;

 private:
  [[nodiscard]] std::size_t index_of(const LoadedImage& image) const noexcept;
  void leave_to_others(ImageSnapshot& snapshot, Moment moment) const;

  bool is_known_ = false;  // a first refresh has happened
  ImageSnapshot snapshot_;
  std::vector<std::unique_ptr<Module>> modules_;  // one for each of its images
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_MODULE_H_
