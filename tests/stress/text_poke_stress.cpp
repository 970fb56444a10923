// Threads run through sites at every place of a cache line while one thread changes them: every call must come back
// with the right value, whatever form its site has at that moment.
//
// One area of code for each flavour, 64 functions in it, one per place.  Callers go round all of them; the main thread
// takes each area through original → idle → armed → idle → original (forms that cannot be left with threads alive start
// from idle).  The printed table says how often a place was called and hit: a place that was never hit while armed
// would show that the test tests nothing.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/syscalls.h"
#include "patch/near_alloc.h"
#include "patch/text_poke.h"
#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
using namespace libfprobe::detail;
using Clock = std::chrono::steady_clock;

constexpr auto kDuration = std::chrono::seconds(10);
constexpr std::size_t kPlaces = 64;
constexpr unsigned kCallers = 3;

// Entry code: r11 → {tail, hits}.
struct SiteData {
  std::uintptr_t tail;
  unsigned long hits;
};
extern "C" void stress_entry();
asm(R"(
  .pushsection .text
  .globl stress_entry
  .hidden stress_entry
  .type stress_entry, @function
stress_entry:
  lock incq 8(%r11)
  jmp *(%r11)
  .size stress_entry, .-stress_entry
  .popsection
)");

enum class Form { kOriginal, kIdle, kArmed };

// 64 functions of one flavour, with thunks as the library makes them.
class Victim {
 public:
  explicit Victim(const Flavour& flavour)
      : flavour_(flavour),
        arena_({area_.address(0), area_.address(area_.size())}, reinterpret_cast<std::uintptr_t>(&stress_entry)) {
    for (std::size_t place = 0; place < kPlaces; ++place) add(place);
    if (!arena_.seal().ok()) std::abort();
    area_.protect_functions(PROT_READ | PROT_EXEC);
    // Straddling sites of longer nops leave this form at load only, before threads run.
    leaves_original_ = flavour.shape.form != SiteForm::kNopRun || flavour.shape.length == 6;
    if (!leaves_original_) change(Form::kOriginal, Form::kIdle);
  }

  void change(Form from, Form to) {
    TextEdit edits[kPlaces];
    for (std::size_t place = 0; place < kPlaces; ++place) {
      TextEdit& edit = edits[place];
      edit.ip = area_.address(offset_of(place));
      edit.shape = flavour_.shape;
      bytes(place, from, edit.before);
      bytes(place, to, edit.after);
    }
    const auto result = poke_text(edits, PokeMode::kAllOrNothing);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    for (const TextEdit& edit : edits) ASSERT_TRUE(edit.done);
  }

  // There and back; the number of toggles.
  unsigned long toggle() {
    // Where leaving the original form waits for every caller, there are more of the others in between.
    const unsigned rounds = flavour_.shape.form == SiteForm::kNops ? 100 : 4;
    if (leaves_original_) change(Form::kOriginal, Form::kIdle);
    for (unsigned i = 0; i < rounds; ++i) {
      change(Form::kIdle, Form::kArmed);
      change(Form::kArmed, Form::kIdle);
    }
    if (leaves_original_) {
      change(Form::kIdle, Form::kOriginal);
      change(Form::kOriginal, Form::kArmed);
      change(Form::kArmed, Form::kOriginal);
    }
    return kPlaces * (2 * rounds + (leaves_original_ ? 4U : 0U));
  }

  [[nodiscard]] bool runs(std::size_t place) const { return area_.runs(offset_of(place)); }
  [[nodiscard]] unsigned long hits(std::size_t place) const {
    return __atomic_load_n(&data_[place]->hits, __ATOMIC_RELAXED);
  }
  [[nodiscard]] const char* name() const { return flavour_.name; }

 private:
  static std::size_t offset_of(std::size_t place) { return CodeArea::kFirstFunction + place * 128 + place; }

  void add(std::size_t place) {
    const std::size_t offset = offset_of(place);
    area_.put_function(flavour_, offset);
    auto data = arena_.allocate_data(64);
    if (!data.ok()) std::abort();
    auto thunk = arena_.add_thunk(*data, area_.address(offset) + flavour_.shape.length, false,
                                  arch::thunk_place(area_.address(offset), flavour_.shape));
    if (!thunk.ok()) std::abort();
    data_[place] = reinterpret_cast<SiteData*>(*data);
    *data_[place] = {thunk->tail, 0};
    heads_[place] = thunk->head;
  }

  void bytes(std::size_t place, Form form, std::uint8_t* out) const {
    const Bytes original = area_.original(flavour_, offset_of(place));
    const std::uintptr_t ip = area_.address(offset_of(place));
    std::memcpy(out, original.data(), original.size());
    if (form == Form::kIdle) arch::idle_bytes(ip, flavour_.shape, original.data(), out);
    if (form == Form::kArmed) arch::armed_bytes(ip, flavour_.shape, heads_[place], original.data(), out);
  }

  const Flavour& flavour_;
  CodeArea area_;
  ThunkArena arena_;
  SiteData* data_[kPlaces]{};
  std::uintptr_t heads_[kPlaces]{};
  bool leaves_original_ = true;
};

TEST(TextPokeStress, EveryCallReturnsRightWhileItsSiteChanges) {
  prepare_barriers();
  std::vector<std::unique_ptr<Victim>> victims;
  for (const Flavour& flavour : flavours()) victims.push_back(std::make_unique<Victim>(flavour));

  std::atomic<bool> stop{false};
  std::atomic<unsigned long> wrong{0}, rounds{0};
  std::vector<std::thread> callers;
  std::atomic<unsigned> hot{0};  // the victim being changed: callers stay with it
  for (unsigned i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const Victim& victim = *victims[hot.load(std::memory_order_relaxed)];
        for (std::size_t place = 0; place < kPlaces; ++place) {
          if (!victim.runs(place)) wrong.fetch_add(1, std::memory_order_relaxed);
        }
        rounds.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }

  unsigned long toggles = 0;
  const auto deadline = Clock::now() + kDuration;
  // Each has its turn, however slow the machine is.
  for (unsigned turn = 0; (turn < victims.size() || Clock::now() < deadline) && !HasFatalFailure(); ++turn) {
    hot = turn % static_cast<unsigned>(victims.size());
    const unsigned long seen = rounds.load();
    do {
      toggles += victims[hot]->toggle();
    } while (rounds.load() < seen + 2 * kCallers && !HasFatalFailure());  // the callers have come round meanwhile
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0U);

  std::printf("%lu toggles, %lu calls\nhits by place of the cache line:\n", toggles, rounds.load() * kPlaces);
  for (const auto& victim : victims) {
    unsigned long least = victim->hits(0), all = 0;
    std::printf("%-18s", victim->name());
    for (std::size_t place = 0; place < kPlaces; ++place) {
      least = std::min(least, victim->hits(place));
      all += victim->hits(place);
      std::printf(" %lu", victim->hits(place));
    }
    std::printf("\n");
    EXPECT_GT(all, 0U) << victim->name();
    EXPECT_GT(least, 0U) << victim->name();
  }
}

}  // namespace
