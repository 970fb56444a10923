// See dump.h; the lines are shown in registry/dump.h.
#include "api/dump.h"

#include <errno.h>

#include <string>
#include <string_view>

#include "base/syscalls.h"
#include "base/text.h"
#include "hot/thread_state.h"
#include "registry/dump.h"

namespace libfprobe::detail {
namespace {

// Of a thread that may be pushing and popping: a glimpse.  Records stay readable whatever becomes of them.
std::size_t count_frames(const ShadowStack& shadow) noexcept {
  std::size_t frames = 0;
  // acquire: a record's `prev` was stored before it was linked.
  for (const FrameRecord* record = __atomic_load_n(&shadow.header.top, __ATOMIC_ACQUIRE);
       record != nullptr && record != shadow.bottom() && frames < shadow.records_made();
       record = __atomic_load_n(&record->prev, __ATOMIC_ACQUIRE))
    if (record->slot.load(std::memory_order_relaxed) != kDeadSlot) ++frames;
  return frames;
}

void describe_guards(std::string& text, const ThreadState& state) {
  for (unsigned i = 0; i < kMaxContexts; ++i) {
    const GuardEntry& guard = state.guards[i];
    const Site* const site = guard.site.load(std::memory_order_acquire);  // [GRACE]
    if (site == nullptr || site->ip == 0) continue;  // outside; or the library's own work, this very call for instance
    append(text, ", in a handler of %p at %#lx",
           static_cast<const void*>(__atomic_load_n(&guard.running, __ATOMIC_RELAXED)),
           static_cast<unsigned long>(site->ip));
  }
}

void describe_threads(std::string& text) {
  unsigned long without_thread = 0;
  for (unsigned index = 0; index < threads::count(); ++index) {
    const ThreadState* const state = threads::at(index);
    if (state == nullptr) continue;
    const pid_t tid = state->tid.load(std::memory_order_relaxed);  // a glimpse
    if (tid <= 0) {
      ++without_thread;
      continue;
    }
    append(text, "%d: %zu frames%s", static_cast<int>(tid), count_frames(state->shadow),
           state->exiting ? ", exits" : "");
    describe_guards(text, *state);
    text += '\n';
  }
  append(text, "(%lu states without a thread)\n", without_thread);
}

}  // namespace

Result<void> dump(int fd) {
  const Result<std::string> text = registry::describe(&describe_threads);
  if (!text.ok()) return text.error();
  std::string_view rest = text.value();
  while (!rest.empty()) {
    const ssize_t written = sys::write(fd, rest.data(), rest.size());
    if (written == -EINTR) continue;
    if (written < 0)
      return make_error(
          static_cast<int>(-written),
          "fprobe_dump: file descriptor %d cannot be written to (errno %d): pass one that is open for writing", fd,
          static_cast<int>(-written));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace libfprobe::detail
