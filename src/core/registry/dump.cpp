// See dump.h.  Everything under the mutex and the loader's lock; the caller writes the text with both released.
#include "registry/dump.h"

#include <fprobe/fprobe.h>

#include <cstring>
#include <map>

#include "base/syscalls.h"
#include "base/text.h"
#include "registry/state.h"

namespace libfprobe::detail {
namespace {

constexpr const char* kKinds[] = {"fentry", "mcount", "patchable"};
constexpr const char* kReasons[] = {"recursion", "no frame", "kprobe", "dropped", "thread"};
struct FlagName {
  unsigned flag;
  const char* name;
};
constexpr FlagName kFlags[] = {{FPROBE_FL_DISABLED, "disabled"},
                               {FPROBE_FL_KPROBE_SHARED, "kprobe_shared"},
                               {FPROBE_FL_NEW_MODULES, "new_modules"},
                               {FPROBE_FL_GENERAL_REGS, "general_regs"},
                               {FPROBE_FL_SAVE_FPENV, "save_fpenv"}};

using Counts = std::map<std::string, unsigned long>;

// "10 fentry, 2 patchable"
void append_counts(std::string& text, const Counts& counts) {
  const char* separator = "";
  for (const auto& [name, count] : counts) {
    append(text, "%s%lu %s", separator, count, name.c_str());
    separator = ", ";
  }
}

bool is_foreign(const SiteRecord& record) noexcept {
  const std::size_t kept = record.found.shape.patch_offset;
  return std::memcmp(reinterpret_cast<const std::uint8_t*>(record.found.ip) + kept, record.text + kept,
                     record.found.shape.length - kept) != 0;
}

// --- Names

enum class Spelled { kWhole, kWithoutParameters };

std::string display_name(const Spellings& names, Spelled spelled) {
  const std::string& name = spelled == Spelled::kWhole ? names.signature : names.qualified;
  return name.empty() ? names.linkage : name;
}

// "app::work(int) (service)"; without a name "service+0x1234".
std::string name_of_code(const ModuleSet& modules, std::uintptr_t address, Spelled spelled = Spelled::kWhole) {
  std::string text;
  Module* const module = modules.containing(address);
  if (module == nullptr) {
    append(text, "%#lx", static_cast<unsigned long>(address));
    return text;
  }
  const LoadedImage& image = module->image();
  const Result<ModuleNames*> names = modules.names(*module);
  const FunctionName* const function = names.ok() ? names.value()->symbols().containing(address) : nullptr;
  if (function == nullptr) {
    append(text, "%s+%#lx", image.name.c_str(), static_cast<unsigned long>(address - image.bias));
    return text;
  }
  append(text, "%s (%s)", display_name(spell(function->linkage), spelled).c_str(), image.name.c_str());
  return text;
}

// --- Parts

void describe_library(std::string& text, const RegistryState& registry) {
  append(text, "libfprobe %s, process %d\n", FPROBE_VERSION, static_cast<int>(sys::getpid()));
  append(text, "sites without a probe: %s\n", registry.resting_form == TextForm::kLive ? "calls, for gmon" : "nops");
  const std::uintptr_t hook = registry.loader_hook.place();
  append(text, "modules loaded later: %s%s\n", hook != 0 ? "announced by a jump in " : "seen by the next call",
         hook != 0 ? name_of_code(registry.modules, hook).c_str() : "");
}

void describe_module(std::string& text, Module& module) {
  Counts kinds, forms, refused;
  unsigned long armed = 0, foreign = 0;
  for (const SiteRecord& record : module.sites()) {
    ++kinds[kKinds[record.found.kind]];
    ++forms[arch::form_name(record.found.shape.form)];
    armed += record.armed ? 1 : 0;
    foreign += is_foreign(record) ? 1 : 0;
  }
  for (const RefusedSite& site : module.refused()) ++refused[site.reason];
  append(text, "%s: %zu sites", module.image().path.c_str(), module.sites().size());
  if (module.has_sites()) {
    text += " (";
    append_counts(text, kinds);
    text += "; ";
    append_counts(text, forms);
    append(text, "), %lu armed", armed);
  }
  if (foreign != 0) append(text, ", %lu changed by somebody else", foreign);
  text += '\n';
  for (const auto& [reason, count] : refused) append(text, "  refused %lu: %s\n", count, reason.c_str());
}

void describe_modules(std::string& text, const RegistryState& registry) {
  text += "\nmodules\n";
  unsigned long without = 0;
  for (const auto& module : registry.modules.modules()) {
    if (module->has_sites() || !module->refused().empty())
      describe_module(text, *module);
    else
      ++without;
  }
  append(text, "(%lu modules without sites)\n", without);
}

void describe_handlers(std::string& text, const RegistryState& registry, const Registration& registration) {
  const auto name = [&](std::uintptr_t handler) {
    return handler == 0 ? std::string("none") : name_of_code(registry.modules, handler, Spelled::kWithoutParameters);
  };
  append(text, ", entry %s, exit %s", name(registration.entry_handler).c_str(),
         name(registration.exit_handler).c_str());
  if (registration.entry.data_size != 0) append(text, ", %u bytes of entry data", registration.entry.data_size);
}

void describe_flags(std::string& text, const fprobe& probe) {
  const unsigned flags = __atomic_load_n(&probe.flags, __ATOMIC_RELAXED);
  const char* before = ", flags ";
  for (const FlagName& flag : kFlags) {
    if ((flags & flag.flag) == 0) continue;
    append(text, "%s%s", before, flag.name);
    before = " ";
  }
}

void describe_misses(std::string& text, const fprobe& probe) {
  append(text, ", %lu missed", __atomic_load_n(&probe.nmissed, __ATOMIC_RELAXED));
  Counts counts;
  for (std::size_t i = 0; i < std::size(kReasons); ++i)
    if (const unsigned long count = __atomic_load_n(&probe.missed_by_reason[i], __ATOMIC_RELAXED))
      counts[kReasons[i]] = count;
  if (counts.empty()) return;
  text += " (";
  append_counts(text, counts);
  text += ')';
}

void describe_probes(std::string& text, const RegistryState& registry) {
  text += "\nprobes\n";
  for (const PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next) {
    const Registration& registration = *slot->registration;
    append(text, "%p: %zu sites by %s", static_cast<const void*>(registration.probe), registration.records.size(),
           registration.origin.c_str());
    describe_handlers(text, registry, registration);
    describe_flags(text, *registration.probe);
    describe_misses(text, *registration.probe);
    text += '\n';
  }
}

void describe_site(std::string& text, const RegistryState& registry, const SiteRecord& record, const ProbeList& list) {
  append(text, "%#lx %s: %s%s", static_cast<unsigned long>(record.found.ip),
         name_of_code(registry.modules, record.found.function).c_str(),
         record.live    ? "armed by its live call"
         : record.armed ? "armed"
                        : "idle",
         is_foreign(record) ? ", changed by somebody else" : "");
  for (std::size_t i = 0; i < list.count; ++i)
    append(text, "%s %p", i == 0 ? "," : "",
           is_live(list.entries[i]) ? static_cast<const void*>(list.entries[i].probe) : nullptr);
  text += '\n';
}

void describe_sites(std::string& text, const RegistryState& registry) {
  text += "\nsites with probes\n";
  for (const auto& module : registry.modules.modules()) {
    for (const SiteRecord& record : module->sites()) {
      const ProbeList* const list =
          record.site != nullptr ? record.site->probes.load(std::memory_order_relaxed) : nullptr;
      if (list != nullptr) describe_site(text, registry, record, *list);
    }
  }
}

}  // namespace

namespace registry {

Result<std::string> describe(void (*describe_threads)(std::string& text)) {
  RegistryState& registry = state();
  const Operation operation;
  return with_loader_locked([&]() -> Result<std::string> {
    if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed.error();
    std::string text;
    describe_library(text, registry);
    describe_modules(text, registry);
    describe_probes(text, registry);
    describe_sites(text, registry);
    text += "\nthreads\n";
    describe_threads(text);
    const Limbo::Size waiting = registry.limbo.size();
    append(text, "\nwaiting for readers: %zu sets of probe lists, %zu unloaded modules\n", waiting.retirements,
           waiting.modules);
    return text;
  });
}

}  // namespace registry
}  // namespace libfprobe::detail
