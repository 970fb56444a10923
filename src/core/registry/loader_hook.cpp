// See loader_hook.h.
#include "registry/loader_hook.h"

#include <errno.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/debug_log.h"
#include "base/syscalls.h"
#include "image/image_memory.h"
#include "patch/near_alloc.h"

namespace libfprobe::detail {
namespace {

constexpr const char* kWithoutFlag =
    "register without FPROBE_FL_NEW_MODULES, and once more after each dlopen(), which selects among what is loaded by "
    "then";

Error no_loader() noexcept {
  return make_error(
      EOPNOTSUPP,
      "this program is linked with -static or tells no debugger what it loads, so modules that are loaded "
      "later cannot be noticed: %s",
      kWithoutFlag);
}

Error has_breakpoint(const LoadedImage& loader, std::uintptr_t place) noexcept {
  return make_error(
      EBUSY,
      "a debugger's breakpoint lies on %s+0x%lx, where FPROBE_FL_NEW_MODULES learns of loaded modules: attach "
      "the debugger after registering, or %s",
      loader.name.c_str(), static_cast<unsigned long>(place - loader.bias), kWithoutFlag);
}

Error is_unknown(const LoadedImage& loader, std::uintptr_t place) noexcept {
  return make_error(
      EOPNOTSUPP,
      "the function at %s+0x%lx, by which the loader announces modules to debuggers, is not the empty one that "
      "FPROBE_FL_NEW_MODULES knows: %s",
      loader.name.c_str(), static_cast<unsigned long>(place - loader.bias), kWithoutFlag);
}

}  // namespace

Result<void> LoaderHook::find(const ModuleSet& modules) {
  const std::uintptr_t word =
      modules.modules().empty() ? 0 : DynamicTables(modules.modules().front()->image()).debugger_word();
  loader_ = reinterpret_cast<const r_debug*>(word);
  if (loader_ == nullptr || loader_->r_brk == 0) return no_loader();
  const std::uintptr_t function = loader_->r_brk;
  const Module* const module = modules.containing(function);
  if (module == nullptr || !ImageMemory(module->image()).is_code(function)) return no_loader();

  const LoadedImage& image = module->image();
  const std::span<const std::byte> code = ImageMemory(image).from(function);
  std::size_t offset = 0;
  if (!arch::match_empty_function(code, function, shape_, offset)) {
    const auto has_int3 = [&](std::size_t at) { return std::memcmp(code.data() + at, arch::kBreakpoint, 1) == 0; };
    return !code.empty() && has_int3(0) ? has_breakpoint(image, function) : is_unknown(image, function);
  }
  place_ = function + offset;
  std::memcpy(original_, code.data() + offset, shape_.length);
  return make_jump(image);
}

Result<void> LoaderHook::make_jump(const LoadedImage& loader) {
  if (jump_ == 0) {
    const Result<std::uintptr_t> memory = map_near(NearRange{loader.low, loader.high}, arch::kPageSize);
    if (!memory.ok()) return memory.error();
    arch::emit_entry_jump(reinterpret_cast<std::uint8_t*>(memory.value()), arch::loader_hook_code());
    if (const int result = sys::mprotect(memory.value(), arch::kPageSize, PROT_READ | PROT_EXEC); result != 0) {
      sys::munmap(memory.value(), arch::kPageSize);
      return make_error(
          result == -ENOMEM  ? ENOMEM
          : result == -EPERM ? EPERM
                             : EACCES,
          "the memory that leads from %s to the library cannot be made executable (errno %d): allow it (a "
          "seccomp filter, SELinux execmem?), or %s",
          loader.name.c_str(), -result, kWithoutFlag);
    }
    jump_ = memory.value();
  }
  arch::armed_bytes(place_, shape_, jump_, original_, armed_);
  return {};
}

TextEdit LoaderHook::edit() const noexcept {
  TextEdit edit;
  edit.ip = place_;
  edit.shape = shape_;
  return edit;
}

Result<void> LoaderHook::arm(const ModuleSet& modules) {
  if (is_armed_) return {};
  if (Result<void> found = find(modules); !found.ok()) return found;
  TextEdit change = edit();
  change.image = &modules.containing(place_)->image();
  std::copy(std::begin(original_), std::end(original_), change.before);
  std::copy(std::begin(armed_), std::end(armed_), change.after);
  if (Result<void> poked = poke_text({&change, 1}, PokeMode::kAllOrNothing); !poked.ok()) return poked;
  is_armed_ = true;
  debug_log::say("the loader's announcements at %#lx are heard", static_cast<unsigned long>(place_));
  return {};
}

bool LoaderHook::is_in_place() const noexcept {
  return std::memcmp(reinterpret_cast<const void*>(place_), armed_, shape_.length) == 0;
}

void LoaderHook::disarm() noexcept {
  if (!is_armed_) return;
  TextEdit change = edit();
  std::copy(std::begin(armed_), std::end(armed_), change.before);
  std::copy(std::begin(original_), std::end(original_), change.after);
  (void)poke_text({&change, 1}, PokeMode::kBestEffort);
  is_armed_ = !change.done;
  debug_log::say(is_armed_ ? "the jump in the loader stays until a later call" : "the loader has its own bytes again");
}

bool LoaderHook::is_consistent() const noexcept {
  return loader_->r_state == r_debug::RT_CONSISTENT;
}

}  // namespace libfprobe::detail
