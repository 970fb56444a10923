// See arming.h.
#include "registry/arming.h"

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <vector>

#include "base/syscalls.h"
#include "image/profiling_targets.h"

// mcount.S.  Under the registry mutex; relaxed: calls that see the number before they see the lists find no Site or no
// list, those that see it later began before the registration returned.
extern "C" __attribute__((visibility("hidden"))) std::atomic<std::uint32_t> fprobe_live_sites;

namespace libfprobe::detail {
namespace {

void bytes_of(const SiteRecord& record, TextForm form, std::uint8_t* out) noexcept {
  const FoundSite& found = record.found;
  switch (form) {
    case TextForm::kOriginal:
      std::memcpy(out, found.original, found.shape.length);
      return;
    case TextForm::kLive:
      if (found.kind != FPROBE_SITE_PATCHABLE) return bytes_of(record, TextForm::kOriginal, out);
      [[fallthrough]];
    case TextForm::kIdle:
      arch::idle_bytes(found.ip, found.shape, found.original, out);
      return;
    case TextForm::kArmed:
      arch::armed_bytes(found.ip, found.shape, record.thunk, found.original, out);
      return;
  }
}

TextEdit edit_for(const SiteRecord& record, TextForm form) noexcept {
  TextEdit edit;
  edit.ip = record.found.ip;
  edit.shape = record.found.shape;
  edit.image = &record.module->image();
  std::memcpy(edit.before, record.text, sizeof edit.before);
  std::memcpy(edit.after, record.text, sizeof edit.after);
  bytes_of(record, form, edit.after);
  return edit;
}

// --- Live calls

// Text or thunks may not be written, as opposed to: there is no memory, or somebody else has changed the text.
bool is_policy(const Error& error) noexcept {
  return error.code == EACCES || error.code == EPERM;
}

// Calls that no lazy binding has touched yet will lead to what the names mean in the global scope.
bool are_ours_in_global_scope() {
  const std::vector<ProfilingFunction> functions = global_profiling_functions();
  return std::all_of(functions.begin(), functions.end(), [](const ProfilingFunction& function) {
    return arch::is_own_profiling_function(function.address);
  });
}

bool may_be_live(const SiteRecord& record) {
  const FoundSite& found = record.found;
  if (record.live) return true;
  if (std::memcmp(record.text, found.original, found.shape.length) != 0) return false;
  const std::uintptr_t target = arch::live_call_target(found.ip, found.shape, found.original);
  if (target == 0) return false;
  return arch::is_own_profiling_function(target) ||
         (record.module->image().contains(target) && are_ours_in_global_scope());
}

void arm_live(SiteRecord& record) noexcept {
  if (record.live) return;
  Site& site = *record.site;  // no list leads to it, so nobody asks
  site.may_exit = arch::may_overwrite_returns();
  site.overwrites = true;
  record.live = record.armed = true;
  fprobe_live_sites.fetch_add(1, std::memory_order_relaxed);
}

// --- Jumps

// What thunks were to be made for.
Error of_module(const Error& error, const SiteRecord& record) noexcept {
  return make_error(error.code, "%s: %s", record.module->image().name.c_str(), error.sentence);
}

Result<void> arm_text(std::span<SiteRecord* const> records) {
  for (SiteRecord* const record : records) {
    if (record->live) continue;
    if (Result<void> made = record->module->make_thunk(*record); !made.ok()) return of_module(made.error(), *record);
  }
  const Module* sealed = nullptr;
  for (const SiteRecord* const record : records) {  // by address: each module's records are neighbours
    if (record->module == sealed) continue;
    if (Result<void> seal = record->module->seal_thunks(); !seal.ok()) return of_module(seal.error(), *record);
    sealed = record->module;
  }
  const Result<bool> armed = bring_into_form(records, TextForm::kArmed, PokeMode::kAllOrNothing);
  if (!armed.ok()) return armed.error();
  return {};
}

}  // namespace

Result<void> arm(std::span<SiteRecord* const> records) {
  const Result<void> armed = arm_text(records);
  if (armed.ok() || !is_policy(armed.error())) return armed;
  std::vector<SiteRecord*> live, others;
  live.reserve(records.size());
  others.reserve(records.size());
  for (SiteRecord* const record : records) (may_be_live(*record) ? live : others).push_back(record);
  if (live.empty()) return armed;
  if (Result<void> rest = arm_text(others); !rest.ok()) return rest;
  for (SiteRecord* const record : live) arm_live(*record);
  return {};
}

void disarm_live(SiteRecord& record) noexcept {
  if (!record.live) return;
  record.live = record.armed = false;
  fprobe_live_sites.fetch_sub(1, std::memory_order_relaxed);
}

Result<bool> bring_into_form(std::span<SiteRecord* const> records, TextForm form, PokeMode mode, Inside inside) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  // poke_text sorts its edits, so the records are sorted first: both stay in step.
  std::vector<SiteRecord*> changing;
  changing.reserve(records.size());
  std::vector<TextEdit> edits;
  edits.reserve(records.size());
  for (SiteRecord* const record : records) {
    if (record->live) {
      if (form != TextForm::kArmed) disarm_live(*record);
      continue;
    }
    const TextEdit edit = edit_for(*record, form);
    if (std::memcmp(edit.before, edit.after, sizeof edit.after) == 0)
      record->armed = form == TextForm::kArmed;
    else
      changing.push_back(record);
  }
  if (changing.empty()) return true;
  std::sort(changing.begin(), changing.end(),
            [](const SiteRecord* a, const SiteRecord* b) { return a->found.ip < b->found.ip; });
  for (const SiteRecord* const record : changing) {
    edits.push_back(edit_for(*record, form));
    edits.back().unentered = inside == Inside::kNobody;
  }

  const Result<void> poked = poke_text(edits, mode);
  bool all_done = true;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    all_done = all_done && edits[i].done;
    if (!edits[i].done) continue;
    std::memcpy(changing[i]->text, edits[i].after, sizeof edits[i].after);
    changing[i]->armed = form == TextForm::kArmed;
  }
  if (!poked.ok()) return poked.error();
  return all_done;
}

}  // namespace libfprobe::detail
