// See text_poke.h.  Order of a batch, all under the loader's lock and then g_poke_mutex:
//
//   select   leave out edits whose module is gone; all-or-nothing: refuse those without a safe way    nothing changed
//   map      one reading of /proc/self/maps: the pages of all edits as runs of one protection         nothing changed
//   verify   every `before`                                                                           nothing changed
//   open     widen the runs by W; refused: open /proc/self/mem, which needs steps of single bytes    undone on failure
//   verify   again: a debugger may have come between                                                  undone on failure
//   merge    single nops become one instruction; threads that stood between them leave                undone on failure
//   write    step 1 of every edit, barrier, step 2 of every edit, barrier, ...                        undone on failure
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

#include "base/mutex.h"
#include "base/syscalls.h"
#include "patch/bystanders.h"
#include "patch/memory_map.h"
#include "patch/poke_errors.h"
#include "patch/text_writer.h"

namespace libfprobe::detail {
namespace {

// One batch at a time: two would verify each other's half-written sites.  near_alloc's lock may nest in it.
constinit RankedMutex g_poke_mutex{LockRank::kTextPoke};

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

bool is_as_before(const TextEdit& edit) noexcept {
  const std::size_t kept = edit.shape.patch_offset;
  return text_holds(edit.ip + kept, edit.before + kept, edit.shape.length - kept);
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
    if (!writable) {
      if (auto opened = open_file(writable.error()); !opened) return opened;
    } else if (is_forgiving()) {
      open_rest(*writable);
    }
    if (auto verified = verify(); !verified) return verified;
    if (auto merged = merge(); !merged) return merged;
    return write();
  }

 private:
  [[nodiscard]] bool is_forgiving() const noexcept { return mode_ == PokeMode::kBestEffort; }

  // Single nops become one instruction before anything else, unless nobody can stand between them.
  [[nodiscard]] bool is_merged(const TextEdit& edit, std::uint8_t* merged) const noexcept {
    return !is_alone_ && !edit.unentered && arch::merge_nops(edit.shape, edit.before, merged);
  }
  // What lies at the site in front of step `index`.
  void bytes_before(const TextEdit& edit, const arch::PokeSteps& steps, unsigned index,
                    std::uint8_t* out) const noexcept {
    if (!is_merged(edit, out)) std::memcpy(out, edit.before, sizeof edit.before);
    for (unsigned i = 0; i < index; ++i)
      std::memcpy(out + steps.steps[i].offset, steps.steps[i].bytes, steps.steps[i].length);
  }

  [[nodiscard]] bool plan(const TextEdit& edit, arch::PokeSteps& steps) const noexcept {
    if (is_alone_ || edit.unentered) {
      arch::plan_poke_alone(edit.shape, edit.before, edit.after, steps);
      return true;
    }
    std::uint8_t first[arch::kMaxSiteLength];
    bytes_before(edit, {}, 0, first);
    if (writer_.is_file()) return arch::plan_poke_bytewise(edit.shape, first, edit.after, steps);
    return arch::plan_poke(edit.ip, edit.shape, first, edit.after, steps);
  }

  Result<void> select(const LoaderLock& loader) noexcept {
    const LoadedImage* image = nullptr;  // of the edit before: edits are sorted, so one module's lie together
    bool is_loaded = true;
    for (TextEdit& edit : edits_) {
      edit.foreign = false;
      if (edit.image != image) is_loaded = edit.image == nullptr || loader.still_loaded(*edit.image);
      image = edit.image;
      // Nobody waits for threads to leave a site that may as well stay as it is.
      std::uint8_t merged[arch::kMaxSiteLength];
      const bool is_merging = is_merged(edit, merged);
      edit.done = is_loaded && !(is_merging && is_forgiving());
      some_merge_ = some_merge_ || (edit.done && is_merging);
    }
    if (auto planned = plan_all(); !planned) return planned;
    if (!is_alone_ && any_left(edits_) && !barriers_work()) return poke_errors::no_barriers();
    return {};
  }

  // For the way in which bytes get into the text now.
  Result<void> plan_all() noexcept {
    step_count_ = 0;
    for (TextEdit& edit : edits_) {
      if (!edit.done) continue;
      arch::PokeSteps steps;
      edit.done = plan(edit, steps);
      if (edit.done) step_count_ = std::max<unsigned>(step_count_, steps.count);
      if (!edit.done && !is_forgiving())
        return writer_.is_file() ? poke_errors::not_bytewise(edit) : poke_errors::no_safe_way(edit);
    }
    return {};
  }

  // The kernel refused W: the file serves the whole batch.
  Result<void> open_file(const Error& refusal) noexcept {
    refusal_ = refusal.code;
    writer_ = TextWriter(TextFile::open());
    if (!writer_.is_file()) return refusal;
    return plan_all();
  }
  // Some runs may be closed.  Without the file the others are served.
  void open_rest(const WritableText& writable) noexcept {
    const auto is_open = [](const PageRun& run) { return run.is_open; };
    if (std::all_of(runs_.begin(), runs_.end(), is_open)) return;
    writer_ = TextWriter(TextFile::open());
    if (writer_.is_file())
      (void)plan_all();  // forgiving: it drops what has no way
    else
      drop_closed(writable);
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
          if (!is_forgiving()) return poke_errors::unmapped(*edit);
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
      if (!is_forgiving())
        return map.error() != 0 ? poke_errors::unreadable_map(map.error()) : poke_errors::unmapped(*edit);
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
    runs_.push_back({start, end, mapping.protection, mapping.start, mapping.end, poke_errors::module_of(edit), false});
  }

  Result<void> verify() noexcept {
    for (TextEdit& edit : edits_) {
      if (!edit.done || is_as_before(edit)) continue;
      edit.foreign = true;
      edit.done = false;
      if (is_forgiving()) continue;
      return poke_errors::foreign(edit);
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
      if (auto written = write_step(index); !written) {
        undo_steps(index);
        return written;
      }
      if (is_alone_ || barrier_sync_core()) continue;
      // Refused since barriers_work() looked.  One step alone is undone without a barrier: each CPU sees the old
      // instruction or the step's.  Later steps may be half seen: they stay, each is whole code of no effect.
      if (index == 0) undo_steps(0);
      return poke_errors::no_barriers();
    }
    return {};
  }

  // Writes the step of every edit that has so many.
  Result<void> write_step(unsigned index) noexcept {
    arch::PokeSteps steps;
    for (const TextEdit& edit : edits_) {
      if (!edit.done || !plan(edit, steps) || index >= steps.count) continue;
      const arch::PokeSteps::Step& step = steps.steps[index];
      if (const int error = writer_.write(edit.ip + step.offset, step.bytes, step.length, is_alone_))
        return poke_errors::not_written(edit, refusal_, error);
      arch::flush_instruction_cache(edit.ip + step.offset, step.length);
    }
    return {};
  }

  // The way back from step `last`, which not every edit need have made.
  void undo_steps(unsigned last) noexcept {
    arch::PokeSteps steps;
    std::uint8_t bytes[arch::kMaxSiteLength];
    for (unsigned index = last + 1; index-- > 0;) {
      for (const TextEdit& edit : edits_) {
        if (!edit.done || !plan(edit, steps) || index >= steps.count) continue;
        const arch::PokeSteps::Step& step = steps.steps[index];
        bytes_before(edit, steps, index, bytes);
        writer_.put_back(edit.ip + step.offset, bytes + step.offset, step.length);
        arch::flush_instruction_cache(edit.ip + step.offset, step.length);
      }
      if (!is_alone_) (void)barrier_sync_core();
    }
    unmerge();
  }

  // --- Single nops

  // Bytes may arrive in any order: every mixture runs, from every place.
  Result<void> merge() noexcept {
    if (!some_merge_) return {};
    std::uint8_t merged[arch::kMaxSiteLength];
    for (const TextEdit& edit : edits_) {
      if (!edit.done || !is_merged(edit, merged)) continue;
      const int error = writer_.write(edit.ip, merged, edit.shape.length, is_alone_);
      if (error == 0) continue;
      unmerge();
      return poke_errors::not_written(edit, refusal_, error);
    }
    const bool is_seen = barrier_sync_core();
    Bystanders bystanders;
    if (is_seen && bystanders.have_left(&Batch::is_between_nops, this)) return {};
    unmerge();
    return is_seen ? not_left(bystanders.suspect()) : poke_errors::no_barriers();
  }

  // Edits are sorted.
  static bool is_between_nops(std::uintptr_t pc, const void* argument) noexcept {
    const Batch& batch = *static_cast<const Batch*>(argument);
    auto edit = std::upper_bound(batch.edits_.begin(), batch.edits_.end(), pc,
                                 [](std::uintptr_t address, const TextEdit& other) { return address < end_of(other); });
    std::uint8_t merged[arch::kMaxSiteLength];
    return edit != batch.edits_.end() && pc > edit->ip && edit->done && batch.is_merged(*edit, merged);
  }

  [[nodiscard]] Error not_left(pid_t suspect) const noexcept {
    std::uint8_t merged[arch::kMaxSiteLength];
    const auto edit = std::find_if(edits_.begin(), edits_.end(),
                                   [&](const TextEdit& other) { return other.done && is_merged(other, merged); });
    return poke_errors::not_left(*edit, suspect);
  }

  void unmerge() noexcept {
    if (!some_merge_) return;
    std::uint8_t merged[arch::kMaxSiteLength];
    for (const TextEdit& edit : edits_) {
      if (edit.done && is_merged(edit, merged)) writer_.put_back(edit.ip, edit.before, edit.shape.length);
    }
    (void)barrier_sync_core();
  }

  std::span<TextEdit> edits_;
  PokeMode mode_;
  std::vector<PageRun>& runs_;
  TextWriter writer_;
  bool is_alone_;
  bool some_merge_ = false;
  int refusal_ = EACCES;     // what mprotect gave, where the file is used instead
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

}  // namespace libfprobe::detail
