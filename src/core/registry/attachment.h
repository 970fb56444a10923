// A probe on its way to sites: what can fail is done first, what a hit can see last.
//
//   prepare   Sites and thunks ─ new lists ─ states for threads ─ text armed        may fail; leaves unused thunks at most
//   publish   entry_ip → Site ─ the lists are shown [PUBLISH]                       cannot fail
//
// Used for a registration's own sites and for those that new modules bring to it later.  Under the registry mutex and
// the loader's lock.
#ifndef FPROBE_SRC_CORE_REGISTRY_ATTACHMENT_H_
#define FPROBE_SRC_CORE_REGISTRY_ATTACHMENT_H_

#include <memory>
#include <vector>

#include "base/result.h"
#include "registry/probe_lists.h"
#include "registry/state.h"

namespace libfprobe::detail {

class Attachment {
 public:
  Attachment(RegistryState& registry, const Selection& records) noexcept : registry_(registry), records_(records) {}

  // `entry`: what the lists of the sites get, with the generation that its slot has when publish() is called.
  [[nodiscard]] Result<void> prepare(const ListEntry& entry);
  void publish() noexcept;

 private:
  [[nodiscard]] Result<void> make_sites();
  void plan_lists(const ListEntry& entry);

  RegistryState& registry_;
  const Selection& records_;
  ListChanges changes_;
  std::unique_ptr<Retirement> replaced_;  // the lists that the new ones replace
};

// The Sites of `records`, sorted.
[[nodiscard]] std::vector<const Site*> sites_of(const Selection& records);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_ATTACHMENT_H_
