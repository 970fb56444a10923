// See grace.h.  Runs on hits (enlist, AnonymousReader) and in writers (everything that waits).
//
// Waiting is polling: a hit must not pay for waking anybody.  The first rounds only yield, since a handler is usually
// over within a microsecond; later rounds sleep, since a handler may block for as long as it likes.
#include "registry/grace.h"

#include <algorithm>
#include <new>

#include "base/syscalls.h"

namespace libfprobe::detail {

__attribute__((tls_model("initial-exec"))) constinit thread_local Participant* tls_participant = nullptr;

namespace grace {
namespace {

constinit std::atomic<Participant*> g_participants{nullptr};
constinit std::atomic<unsigned long> g_anonymous_readers{0};
// This thread's part of the count: what is left of it in a fork child.
__attribute__((tls_model("initial-exec"))) constinit thread_local unsigned tls_anonymous_depth = 0;

// What the guard of a thread names while the library itself works on it.  Never probed, never waited for.
constinit Site g_library_site;

class Backoff {
 public:
  void pause() noexcept {
    if (rounds_++ < kYields) {
      sys::yield();
      return;
    }
    sys::sleep_nanoseconds(nanoseconds_);
    nanoseconds_ = std::min(nanoseconds_ * 2, kLongest);
  }

 private:
  static constexpr unsigned kYields = 64;
  static constexpr long kLongest = 1'000'000;
  unsigned rounds_ = 0;
  long nanoseconds_ = 20'000;
};

// Waits until the hit that `guard` holds now is over, if it is on a site that `concerns` accepts.
template <class Concerns>
void wait_for_guard(const GuardEntry& guard, const Concerns& concerns) noexcept {
  // acquire: pairs with the release in GuardEntry::close(), what the handlers did is seen by whoever waited [GRACE].
  const Site* const site = guard.site.load(std::memory_order_acquire);
  if (site != nullptr && concerns(site)) {
    // relaxed: the order against `site` does not matter. If the guard was closed and opened again between the two
    // loads, the later hit is waited for: longer than needed, never too short.
    const std::uint64_t sequence = guard.sequence.load(std::memory_order_relaxed);
    Backoff backoff;
    while (guard.site.load(std::memory_order_acquire) == site &&
           guard.sequence.load(std::memory_order_relaxed) == sequence)
      backoff.pause();
  }
  tsan_acquire(&guard);
}

// Threads without a state only count misses: they are never inside for long, and new ones are rare.
void wait_for_anonymous_readers() noexcept {
  Backoff backoff;
  // acquire: pairs with the release in ~AnonymousReader [GRACE].
  while (g_anonymous_readers.load(std::memory_order_acquire) != tls_anonymous_depth) backoff.pause();
  tsan_acquire(&g_anonymous_readers);
}

template <class Visit>
void for_each_participant(const Visit& visit) noexcept {
  // acquire: pairs with the release in enlist(), the participant's guards are constructed.
  for (Participant* participant = g_participants.load(std::memory_order_acquire); participant != nullptr;
       participant = participant->next.load(std::memory_order_acquire))
    visit(*participant);
}

template <class Concerns>
void wait_for_guards(const Concerns& concerns) noexcept {
  for_each_participant([&](const Participant& participant) {
    if (&participant == tls_participant) return;  // would wait for itself
    for (const GuardEntry& guard : participant.guards) wait_for_guard(guard, concerns);
  });
  wait_for_anonymous_readers();
}

}  // namespace

FPROBE_COLD void enlist(Participant& participant) noexcept {
  Participant* head = g_participants.load(std::memory_order_relaxed);  // only compared and linked to
  do participant.next.store(head, std::memory_order_relaxed);          // published by the exchange below
  // release: pairs with the acquire in for_each_participant(). A waiter that misses the participant is ordered before
  // its first hit by barrier_memory(): that hit loads the new list [GRACE].
  while (
      !g_participants.compare_exchange_weak(head, &participant, std::memory_order_release, std::memory_order_relaxed));
}

FPROBE_COLD AnonymousReader::AnonymousReader() noexcept {
  ++tls_anonymous_depth;
  // seq_cst on purpose: a thread without state may never have run before, so nothing else orders this addition before
  // the load of the list. With the waiter's barrier: either it sees the count, or this reader sees the new list
  // [GRACE].
  g_anonymous_readers.fetch_add(1, std::memory_order_seq_cst);
}

FPROBE_COLD AnonymousReader::~AnonymousReader() {
  tsan_release(&g_anonymous_readers);
  g_anonymous_readers.fetch_sub(1, std::memory_order_release);  // pairs with wait_for_anonymous_readers() [GRACE]
  --tls_anonymous_depth;
}

void wait_for(std::span<const Site* const> sites) noexcept {
  wait_for_guards([&](const Site* site) { return std::binary_search(sites.begin(), sites.end(), site); });
}

void wait_for_all() noexcept {
  wait_for_guards([](const Site* site) { return site != &g_library_site; });
}

bool busy_sites(std::vector<const Site*>& sites) noexcept {
  if (g_anonymous_readers.load(std::memory_order_acquire) != 0) return false;  // acquire: as in the waits [GRACE]
  tsan_acquire(&g_anonymous_readers);
  sites.clear();
  bool complete = true;
  for_each_participant([&](const Participant& participant) {
    for (const GuardEntry& guard : participant.guards) {
      const Site* const site = guard.site.load(std::memory_order_acquire);  // acquire: as in the waits [GRACE]
      tsan_acquire(&guard);
      if (site == nullptr || site == &g_library_site || !complete) continue;
      try {
        sites.push_back(site);
      } catch (const std::bad_alloc&) {
        complete = false;
      }
    }
  });
  std::sort(sites.begin(), sites.end());
  return complete;
}

LibraryScope::LibraryScope(void* frame) noexcept {
  Participant* const self = tls_participant;
  if (self == nullptr || self->context->is_open()) return;  // inside a handler its guard does the same
  guard_ = self->context;
  guard_->open(g_library_site, reinterpret_cast<std::uintptr_t>(frame));
}

LibraryScope::~LibraryScope() {
  if (guard_ != nullptr) guard_->close();
}

void reset_after_fork() noexcept {
  for_each_participant([](Participant& participant) {
    if (&participant == tls_participant) return;
    // relaxed: the child has one thread.
    for (GuardEntry& guard : participant.guards) guard.site.store(nullptr, std::memory_order_relaxed);
    participant.context = &participant.guards[0];
  });
  g_anonymous_readers.store(tls_anonymous_depth, std::memory_order_relaxed);
}

}  // namespace grace
}  // namespace libfprobe::detail
