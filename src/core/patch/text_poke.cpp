// See text_poke.h.  Order of a batch, all under the loader's lock and then g_poke_mutex:
//
//   select   leave out edits whose module is gone; all-or-nothing: refuse those without a safe way    nothing changed
//   map      one reading of /proc/self/maps: the pages of all edits as runs of one protection         nothing changed
//   verify   every `before`                                                                           nothing changed
//   open     widen the runs by W                                                                      undone on failure
//   verify   again: a debugger may have come between                                                  undone on failure
//   write    step 1 of every edit, barrier, step 2 of every edit, barrier, ...
//   close    W is taken away
//
// An edit that takes part carries `done` from `select` on; whoever drops it clears the flag.
//
// One thread only: the same steps without barriers.  A signal handler on this thread still finds whole instructions
// after every store.  A thread that is created later cannot have fetched old bytes: no CPU has run in this address
// space but ours, whose own stores x86-64 honours at the next jump, and the new thread starts after the stores by way
// of clone and the scheduler, on a CPU whose caches are coherent.  (A CPU without coherent instruction caches flushes
// in arch::flush_instruction_cache, and a thread begins with an exception return, which synchronises.)
#include "patch/text_poke.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/attributes.h"
#include "base/mutex.h"
#include "base/syscalls.h"
#include "patch/memory_map.h"
#include "patch/text_writer.h"

namespace libfprobe::detail {
namespace {

// One batch at a time: two would verify each other's half-written sites.  near_alloc's lock may nest in it.
constinit RankedMutex g_poke_mutex{LockRank::kTextPoke};

constexpr unsigned kManyThreads = 2;

const char* module_of(const TextEdit& edit) noexcept {
  return edit.image != nullptr ? edit.image->name.c_str() : "(unknown module)";
}

unsigned long offset_in_module(const TextEdit& edit) noexcept {
  return edit.ip - (edit.image != nullptr ? edit.image->bias : 0);
}

std::uintptr_t end_of(const TextEdit& edit) noexcept {
  return edit.ip + edit.shape.length;
}

std::uintptr_t first_page(const TextEdit& edit) noexcept {
  return edit.ip & ~(arch::kPageSize - 1);
}

std::uintptr_t last_page(const TextEdit& edit) noexcept {
  return (end_of(edit) - 1) & ~(arch::kPageSize - 1);
}

void drop_all(std::span<TextEdit> edits) noexcept {
  for (TextEdit& edit : edits) edit.done = false;
}

bool any_left(std::span<const TextEdit> edits) noexcept {
  return std::any_of(edits.begin(), edits.end(), [](const TextEdit& edit) { return edit.done; });
}

// --- Bytes

template <class Word>
FPROBE_UNSANITIZED void store_whole(std::uintptr_t address, const std::uint8_t* bytes) noexcept {
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = Word;
  Word value;
  std::memcpy(&value, bytes, sizeof value);
  *reinterpret_cast<volatile Unaligned*>(address) = value;  // volatile: one store instruction
}

// Lengths of 1, 2 and, aligned, 4 are single stores: a thread may be decoding these bytes.  Longer or odd lengths are
// steps that no thread decodes, or any mixture of whose bytes is right (arch/<cpu>/patch.cpp).
FPROBE_UNSANITIZED void store(std::uintptr_t address, const std::uint8_t* bytes, std::size_t length) noexcept {
  if (length == 2) return store_whole<std::uint16_t>(address, bytes);
  if (length == 4 && address % 4 == 0) return store_whole<std::uint32_t>(address, bytes);
  for (std::size_t i = 0; i < length; ++i) store_whole<std::uint8_t>(address + i, bytes + i);
}

FPROBE_UNSANITIZED bool holds(std::uintptr_t address, const std::uint8_t* bytes, std::size_t length) noexcept {
  const auto* text = reinterpret_cast<const volatile std::uint8_t*>(address);
  for (std::size_t i = 0; i < length; ++i) {
    if (text[i] != bytes[i]) return false;
  }
  return true;
}

bool is_as_before(const TextEdit& edit) noexcept {
  const std::size_t kept = edit.shape.patch_offset;
  return holds(edit.ip + kept, edit.before + kept, edit.shape.length - kept);
}

// --- One batch

class Batch {
 public:
  // `runs` has room for every page of the edits.
  Batch(std::span<TextEdit> edits, PokeMode mode, std::vector<PageRun>& runs) noexcept
      : edits_(edits), mode_(mode), runs_(runs), is_alone_(count_threads() == 1) {}

  Result<void> run(const LoaderLock& loader) noexcept {
    if (auto selected = select(loader); !selected) return selected;
    if (auto mapped = map_runs(); !mapped) return mapped;
    if (auto verified = verify(); !verified) return verified;
    if (!any_left(edits_)) return {};

    widen_to_mappings(runs_);
    auto writable = WritableText::open(runs_, is_forgiving() ? OnRefusal::kSkip : OnRefusal::kFail);
    if (!writable) return writable.error();
    if (is_forgiving()) drop_closed(*writable);
    if (auto verified = verify(); !verified) return verified;
    return write();
  }

 private:
  [[nodiscard]] bool is_forgiving() const noexcept { return mode_ == PokeMode::kBestEffort; }

  [[nodiscard]] bool plan(const TextEdit& edit, arch::PokeSteps& steps) const noexcept {
    if (!is_alone_) return arch::plan_poke(edit.ip, edit.shape, edit.before, edit.after, steps);
    arch::plan_poke_alone(edit.shape, edit.before, edit.after, steps);
    return true;
  }

  Result<void> select(const LoaderLock& loader) noexcept {
    const LoadedImage* image = nullptr;  // of the edit before: edits are sorted, so one module's lie together
    bool is_loaded = true;
    for (TextEdit& edit : edits_) {
      edit.foreign = false;
      if (edit.image != image) is_loaded = edit.image == nullptr || loader.still_loaded(*edit.image);
      image = edit.image;
      arch::PokeSteps steps;
      edit.done = is_loaded && plan(edit, steps);
      if (edit.done) step_count_ = std::max<unsigned>(step_count_, steps.count);
      if (edit.done || !is_loaded || is_forgiving()) continue;
      return make_error(EBUSY,
                        "the site at %s+0x%lx cannot be changed while other threads run: one of them may stand between "
                        "its bytes; load the library before the first thread is started",
                        module_of(edit), offset_in_module(edit));
    }
    if (!is_alone_ && any_left(edits_) && !barriers_work()) return no_barriers();
    return {};
  }

  static Error no_barriers() noexcept {
    return make_error(
        EPERM,
        "running threads cannot be told that code changes: the kernel refuses membarrier and "
        "sched_setaffinity (a seccomp filter?); allow one of them, or register probes before the filter is "
        "installed");
  }

  // Mappings and edits both come in address order.
  Result<void> map_runs() noexcept {
    MemoryMap map;
    Mapping mapping;
    auto edit = edits_.begin();
    std::uintptr_t covered = 0;  // pages of *edit below this lie in runs already
    while (edit != edits_.end() && map.next(mapping)) {
      for (; edit != edits_.end(); ++edit) {
        if (!edit->done) continue;
        const std::uintptr_t start = std::max(first_page(*edit), covered);
        const std::uintptr_t end = last_page(*edit) + arch::kPageSize;
        if (start >= end) continue;  // in runs already: what is mapped behind them does not matter
        if (start >= mapping.end) break;
        if (start < mapping.start || (mapping.protection & PROT_READ) == 0) {
          if (!is_forgiving()) return unmapped(*edit);
          edit->done = false;
          continue;
        }
        covered = std::min(end, mapping.end);
        add_run(*edit, start, covered, mapping);
        if (covered < end) break;
      }
    }
    for (; edit != edits_.end(); ++edit) {
      if (!edit->done) continue;
      if (!is_forgiving()) return map.error() != 0 ? unreadable_map(map.error()) : unmapped(*edit);
      edit->done = false;
    }
    return {};
  }

  void add_run(const TextEdit& edit, std::uintptr_t start, std::uintptr_t end, const Mapping& mapping) noexcept {
    if (!runs_.empty() && runs_.back().end == start && runs_.back().protection == mapping.protection) {
      runs_.back().end = end;
      runs_.back().mapping_end = mapping.end;
      return;
    }
    runs_.push_back({start, end, mapping.protection, mapping.start, mapping.end, module_of(edit), false});
  }

  static Error unmapped(const TextEdit& edit) noexcept {
    return make_error(EACCES, "the code at %s+0x%lx is not readable or not mapped any more", module_of(edit),
                      offset_in_module(edit));
  }
  static Error unreadable_map(int code) noexcept {
    return make_error(EACCES, "/proc/self/maps cannot be read (errno %d), so the protection of code pages is unknown",
                      code);
  }

  Result<void> verify() noexcept {
    for (TextEdit& edit : edits_) {
      if (!edit.done || is_as_before(edit)) continue;
      edit.foreign = true;
      edit.done = false;
      if (is_forgiving()) continue;
      return make_error(
          EBUSY,
          "the code at %s+0x%lx was changed by somebody else (a debugger's breakpoint, a kernel uprobe?): "
          "remove it, then register again",
          module_of(edit), offset_in_module(edit));
    }
    return {};
  }

  void drop_closed(const WritableText& writable) noexcept {
    for (TextEdit& edit : edits_) {
      if (edit.done && !writable.covers(edit.ip, end_of(edit))) edit.done = false;
    }
  }

  Result<void> write() noexcept {
    for (unsigned index = 0; index < step_count_; ++index) {
      write_step(index);
      if (is_alone_ || barrier_sync_core()) continue;
      // Refused since barriers_work() looked.  One step alone is undone without a barrier: each CPU sees the old
      // instruction or the step's.  Later steps may be half seen: they stay, each is whole code of no effect.
      if (index == 0) undo_first_step();
      return no_barriers();
    }
    return {};
  }

  // Writes the step of every edit that has so many.
  void write_step(unsigned index) noexcept {
    arch::PokeSteps steps;
    for (const TextEdit& edit : edits_) {
      if (!edit.done || !plan(edit, steps) || index >= steps.count) continue;
      const arch::PokeSteps::Step& step = steps.steps[index];
      store(edit.ip + step.offset, step.bytes, step.length);
      arch::flush_instruction_cache(edit.ip + step.offset, step.length);
    }
  }

  void undo_first_step() noexcept {
    arch::PokeSteps steps;
    for (const TextEdit& edit : edits_) {
      if (!edit.done || !plan(edit, steps) || steps.count == 0) continue;
      const arch::PokeSteps::Step& step = steps.steps[0];
      store(edit.ip + step.offset, edit.before + step.offset, step.length);
      arch::flush_instruction_cache(edit.ip + step.offset, step.length);
    }
  }

  std::span<TextEdit> edits_;
  PokeMode mode_;
  std::vector<PageRun>& runs_;
  bool is_alone_;
  unsigned step_count_ = 0;  // the most that an edit needs
};

// Room for a run per page, made before any lock is taken: with the loader's lock held an allocator that unwinds its
// callers could wait for us while we wait for it.
bool reserve_runs(std::span<const TextEdit> edits, std::vector<PageRun>& runs) noexcept {
  std::size_t pages = 0;
  std::uintptr_t seen = 0;  // pages up to here are counted
  for (const TextEdit& edit : edits) {
    for (std::uintptr_t page = first_page(edit); page <= last_page(edit); page += arch::kPageSize) {
      if (page <= seen) continue;
      ++pages;
      seen = page;
    }
  }
  if (!sys::allocation_allowed()) return false;
  try {
    runs.reserve(pages);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

Result<void> poke_text(std::span<TextEdit> edits, PokeMode mode) {
  std::sort(edits.begin(), edits.end(), [](const TextEdit& a, const TextEdit& b) { return a.ip < b.ip; });
  drop_all(edits);
  std::vector<PageRun> runs;
  if (!reserve_runs(edits, runs))
    return make_error(ENOMEM, "no memory to list the code pages of %zu sites", edits.size());

  Result<void> result;
  LoaderLock::run([&](const LoaderLock& loader) {
    const MutexLock lock(g_poke_mutex);
    result = Batch(edits, mode, runs).run(loader);
    if (!result) drop_all(edits);
  });
  return result;
}

unsigned count_threads() noexcept {
  const int directory = sys::open_directory("/proc/self/task");
  if (directory < 0) return kManyThreads;
  struct Entry {  // struct linux_dirent64 without its name
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t length;
    unsigned char type;
    char name[1];
  };
  alignas(Entry) char buffer[512];
  unsigned threads = 0;
  ssize_t size = 0;
  while (threads < kManyThreads && (size = sys::getdents(directory, buffer, sizeof buffer)) > 0) {
    for (ssize_t position = 0; position < size;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + position);
      if (entry->name[0] != '.') ++threads;
      position += entry->length;
    }
  }
  sys::close(directory);
  return threads == 1 ? 1 : kManyThreads;
}

}  // namespace libfprobe::detail
