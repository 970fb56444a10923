// FPROBE_FL_NEW_MODULES: registrations that go on selecting, among modules loaded after them.
//
// follow_loader() (state.h) offers every module that was not offered yet to every registration that keeps its filter.
// While there is one, modules come in by the loader's hook alone (loader_hook.h), not by operations that other threads
// happen to be in: on the loading thread, with dlopen's lock held, before the first instruction of the module has run.
// So even sites that cannot be changed while a thread may be inside (gcc's single nops) are changed.
//
// What fails there can be told to nobody: of one registration and one module nothing is attached then, and the next
// call of register_*, unregister_*, fprobe_synchronize() or the next load tries again.
#ifndef FPROBE_SRC_CORE_REGISTRY_NEW_MODULES_H_
#define FPROBE_SRC_CORE_REGISTRY_NEW_MODULES_H_

#include "registry/state.h"

namespace libfprobe::detail {

// Under the registry mutex and the loader's lock, after ModuleSet::refresh().
void offer_new_modules(RegistryState& registry, Follower follower) noexcept;
// Whether any live registration keeps its filter.
[[nodiscard]] bool some_cover_new_modules(const RegistryState& registry) noexcept;
// Addresses of the handlers of all live registrations: what a filter leaves out.
[[nodiscard]] std::vector<std::uintptr_t> handlers_of_all(const RegistryState& registry);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_NEW_MODULES_H_
