// See attachment.h.
#include "registry/attachment.h"

#include <algorithm>

namespace libfprobe::detail {

std::vector<const Site*> sites_of(const Selection& records) {
  std::vector<const Site*> sites;
  sites.reserve(records.size());
  for (const SiteRecord* const record : records) sites.push_back(record->site);
  std::sort(sites.begin(), sites.end());
  return sites;
}

Result<void> Attachment::prepare(const ListEntry& entry) {
  assert_held(registry_.mutex);
  if (Result<void> made = make_sites(); !made.ok()) return made.error();
  plan_lists(entry);
  if (registry_.prepare_threads != nullptr && !registry_.prepare_threads()) return no_memory();
  // Last, because it is the one step that others can see; a hit on a site without a list runs the function untouched.
  return arm(records_);
}

Result<void> Attachment::make_sites() {
  if (!registry_.table.reserve(records_.size())) return no_memory();
  for (SiteRecord* const record : records_)
    if (Result<void> made = record->module->make_site(*record); !made.ok()) return made.error();
  return {};
}

void Attachment::plan_lists(const ListEntry& entry) {
  changes_.reserve(records_.size());
  for (const SiteRecord* const record : records_) changes_.plan(*record->site, &entry);
  if (changes_.retired_count() == 0) return;
  replaced_ = std::make_unique<Retirement>();
  replaced_->sites = sites_of(records_);
  replaced_->lists.reserve(changes_.retired_count());
}

void Attachment::publish() noexcept {
  for (const SiteRecord* const record : records_) registry_.table.insert(*record->site);
  std::vector<const ProbeList*> none;
  changes_.publish(replaced_ != nullptr ? replaced_->lists : none);
  if (replaced_ != nullptr) registry_.limbo.add(replaced_.release());
}

}  // namespace libfprobe::detail
