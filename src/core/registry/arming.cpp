// See arming.h.
#include "registry/arming.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/syscalls.h"

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

}  // namespace

Result<bool> bring_into_form(std::span<SiteRecord* const> records, TextForm form, PokeMode mode, Inside inside) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  // poke_text sorts its edits, so the records are sorted first: both stay in step.
  std::vector<SiteRecord*> changing;
  changing.reserve(records.size());
  std::vector<TextEdit> edits;
  edits.reserve(records.size());
  for (SiteRecord* const record : records) {
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
