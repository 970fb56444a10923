// Batches of changes to live text: what is written, what is not, and what the kernel is asked for.
#include "patch/text_poke.h"

#include <errno.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "base/syscalls.h"
#include "patch/text_writer.h"
#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
using namespace libfprobe::detail;

constexpr std::size_t kPage = 4096;
constexpr int kText = PROT_READ | PROT_EXEC;
enum class Form { kOriginal, kIdle, kArmed };

class InjectedFault {
 public:
  InjectedFault(sys::Call call, int error, long after = 0) : fault_(sys::fault(call)) {
    fault_.fail_after = after;
    fault_.error = error;
  }
  ~InjectedFault() { fault_.error = 0; }

 private:
  sys::Fault& fault_;
};

unsigned long calls(sys::Call call) {
  return sys::fault(call).calls;
}

// A second thread, so that the process is not alone.
class Company {
 public:
  Company() : thread_([this] { leave_.wait(false); }) {}
  ~Company() {
    leave_ = true;
    leave_.notify_all();
    thread_.join();
  }

 private:
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

class Poke : public ::testing::Test {
 protected:
  static constexpr std::size_t kFunctions = CodeArea::kFirstFunction;
  static constexpr std::size_t kThunks = 0x80000;
  static constexpr std::size_t kSize = 0x100000;

  Poke() : area_(kSize) {
    area_.protect_functions(kText);
    before_ = rights();
  }

  // A function of this flavour at `offset` of the area, with its thunk.
  void add(std::size_t flavour_index, std::size_t offset) {
    const Flavour& flavour = flavours()[flavour_index];
    area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
    area_.put_function(flavour, offset);
    const std::uintptr_t low = arch::thunk_place(area_.address(offset), flavour.shape).value;
    next_thunk_ = (next_thunk_ & ~std::size_t{0xff}) + 0x100 + low;
    area_.put_thunk(next_thunk_, offset + flavour.shape.length);
    area_.protect_functions(kText);
    sites_.push_back({&flavour, offset, next_thunk_});
  }
  // One of each flavour at each place of a cache line, four functions to a page's quarter.
  void add_all() {
    std::size_t offset = kFunctions;
    for (std::size_t place = 0; place < 64; ++place) {
      for (std::size_t i = 0; i < flavours().size(); ++i, offset += 128) add(i, offset + place);
    }
  }

  struct SiteInfo {
    const Flavour* flavour;
    std::size_t offset, thunk;
  };
  void bytes(const SiteInfo& site, Form form, std::uint8_t* out) const {
    const Bytes original = area_.original(*site.flavour, site.offset);
    const std::uintptr_t ip = area_.address(site.offset);
    std::memcpy(out, original.data(), original.size());
    if (form == Form::kIdle) arch::idle_bytes(ip, site.flavour->shape, original.data(), out);
    if (form == Form::kArmed)
      arch::armed_bytes(ip, site.flavour->shape, area_.address(site.thunk), original.data(), out);
  }
  TextEdit edit(const SiteInfo& site, Form from, Form to) const {
    TextEdit result;
    result.ip = area_.address(site.offset);
    result.shape = site.flavour->shape;
    bytes(site, from, result.before);
    bytes(site, to, result.after);
    return result;
  }
  std::vector<TextEdit> edits(Form from, Form to) const {
    std::vector<TextEdit> all;
    for (const SiteInfo& site : sites_) all.push_back(edit(site, from, to));
    return all;
  }
  Result<void> poke(Form from, Form to, PokeMode mode = PokeMode::kAllOrNothing) {
    edits_ = edits(from, to);
    return poke_text(edits_, mode);
  }

  void expect_all(Form form) {
    for (const SiteInfo& site : sites_) {
      std::uint8_t wanted[arch::kMaxSiteLength];
      bytes(site, form, wanted);
      EXPECT_EQ(hex(area_.at(site.offset), site.flavour->shape.length), hex(wanted, site.flavour->shape.length))
          << site.flavour->name << " at +" << site.offset % 64;
      const unsigned long hits = area_.hits();
      EXPECT_TRUE(area_.runs(site.offset));
      EXPECT_EQ(area_.hits() - hits, form == Form::kArmed ? 1U : 0U);
    }
  }
  std::vector<std::string> rights() const { return page_rights(area_.address(0), area_.address(kSize)); }
  std::string text() const {
    return std::string(reinterpret_cast<const char*>(area_.at(0)) + kFunctions, kSize - kFunctions);
  }

  CodeArea area_;
  std::size_t next_thunk_ = kThunks;
  std::vector<SiteInfo> sites_;
  std::vector<TextEdit> edits_;
  std::vector<std::string> before_;
};

TEST_F(Poke, ChangesEveryFormThereAndBackAlone) {
  add_all();
  Form from = Form::kOriginal;
  for (const Form to : {Form::kIdle, Form::kArmed, Form::kIdle, Form::kOriginal, Form::kArmed, Form::kOriginal}) {
    const auto result = poke(from, to);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    for (const TextEdit& edit : edits_) EXPECT_TRUE(edit.done && !edit.foreign);
    expect_all(to);
    EXPECT_EQ(rights(), before_);
    from = to;
  }
}

TEST_F(Poke, ChangesBetweenIdleAndArmedInCompany) {
  add_all();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  for (int round = 0; round < 3; ++round) {
    auto result = poke(Form::kIdle, Form::kArmed);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    expect_all(Form::kArmed);
    result = poke(Form::kArmed, Form::kIdle);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    expect_all(Form::kIdle);
    EXPECT_EQ(rights(), before_);
  }
}

TEST_F(Poke, LeavesEveryOtherByteAlone) {
  add_all();
  const std::string before = text();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  std::string now = text();
  for (const SiteInfo& site : sites_) {
    now.replace(site.offset - kFunctions, site.flavour->shape.length, before, site.offset - kFunctions,
                site.flavour->shape.length);
  }
  EXPECT_TRUE(now == before);
}

TEST_F(Poke, NoBatchIsNoWork) {
  const unsigned long before = calls(sys::Call::kMprotect);
  EXPECT_TRUE(poke_text({}, PokeMode::kAllOrNothing).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect), before);
}

// --- What the kernel is asked for.

TEST_F(Poke, NeedsAtMostThreeBarriersAndTwoProtectionsForARunOfPages) {
  add_all();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  prepare_barriers();
  const Company company;
  const unsigned long barriers = calls(sys::Call::kMembarrier), protections = calls(sys::Call::kMprotect);
  const unsigned long opened = calls(sys::Call::kOpen);
  ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
  EXPECT_EQ(calls(sys::Call::kMembarrier) - barriers, 3U);
  EXPECT_EQ(calls(sys::Call::kMprotect) - protections, 2U);  // neighbouring pages are one run
  EXPECT_EQ(calls(sys::Call::kOpen) - opened, 2U);           // /proc/self/task, /proc/self/maps
}

TEST_F(Poke, NeedsNoBarrierAlone) {
  add(0, kFunctions);
  const unsigned long barriers = calls(sys::Call::kMembarrier);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  EXPECT_EQ(calls(sys::Call::kMembarrier), barriers);
}

TEST_F(Poke, PagesApartAreRunsOfTheirOwn) {
  for (std::size_t i = 0; i < 5; ++i) add(0, kFunctions + i * 3 * kPage);
  const unsigned long protections = calls(sys::Call::kMprotect);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect) - protections, 10U);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, BeyondAThousandRunsTheWholeMappingIsOpenedAtOnce) {
  constexpr std::size_t kCount = kMaxPageRuns + 50;
  CodeArea large((2 * kCount + 2) * kPage);
  std::vector<TextEdit> batch;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t offset = kFunctions + i * 2 * kPage;
    large.put_function(flavours()[4], offset);
    TextEdit edit;
    edit.ip = large.address(offset);
    edit.shape = flavours()[4].shape;
    std::memcpy(edit.before, flavours()[4].bytes.data(), 5);
    arch::armed_bytes(edit.ip, edit.shape, large.address(offset + 0x100), edit.before, edit.after);
    batch.push_back(edit);
  }
  large.protect_functions(kText);
  const auto before = page_rights(large.address(0), large.address(large.size()));
  const unsigned long count = calls(sys::Call::kMprotect);
  ASSERT_TRUE(poke_text(batch, PokeMode::kAllOrNothing).ok());
  EXPECT_EQ(calls(sys::Call::kMprotect) - count, 2U);
  EXPECT_TRUE(page_rights(large.address(0), large.address(large.size())) == before);
  for (const TextEdit& edit : batch) ASSERT_TRUE(edit.done && *reinterpret_cast<std::uint8_t*>(edit.ip) == 0xe9);
}

TEST_F(Poke, SiteAcrossTwoMappingsOfDifferentRightsIsWritten) {
  add(0, kFunctions + kPage - 2);
  ASSERT_EQ(::mprotect(area_.at(kFunctions + kPage), kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  const auto before = rights();
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  expect_all(Form::kArmed);
  EXPECT_EQ(rights(), before);
}

// --- What makes a batch fail, and that nothing has changed then.

TEST_F(Poke, ForeignByteFailsTheBatchBeforeTheFirstStore) {
  for (std::size_t i = 0; i < 8; ++i) add(0, kFunctions + i * kPage + 16);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(sites_[7].offset) = 0xcc;  // a breakpoint
  area_.protect_functions(kText);
  const std::string before = text();
  const unsigned long protections = calls(sys::Call::kMprotect);
  const auto result = poke(Form::kIdle, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EBUSY);
  EXPECT_EQ(calls(sys::Call::kMprotect), protections);
  EXPECT_TRUE(text() == before);
  for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
  EXPECT_TRUE(edits_[7].foreign);
}

TEST_F(Poke, ForeignByteBehindTheFirstOneIsSeenToo) {
  add(0, kFunctions);
  edits_ = edits(Form::kOriginal, Form::kIdle);
  edits_[0].before[4] ^= 1;
  EXPECT_EQ(poke_text(edits_, PokeMode::kAllOrNothing).error().code, EBUSY);
}

TEST_F(Poke, BestEffortLeavesForeignSitesAloneAndDoesTheRest) {
  for (std::size_t i = 0; i < 4; ++i) add(0, kFunctions + i * 64);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(sites_[2].offset) = 0xcc;
  area_.protect_functions(kText);
  const std::string foreign = hex(area_.at(sites_[2].offset), 5);
  ASSERT_TRUE(poke(Form::kArmed, Form::kIdle, PokeMode::kBestEffort).ok());
  EXPECT_EQ(hex(area_.at(sites_[2].offset), 5), foreign);
  EXPECT_TRUE(edits_[2].foreign && !edits_[2].done);
  sites_.erase(sites_.begin() + 2);
  expect_all(Form::kIdle);
}

TEST_F(Poke, BreakpointOnAKeptPrefixIsNoObstacle) {
  add(1, kFunctions);
  area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
  *area_.at(kFunctions) = 0xcc;
  area_.protect_functions(kText);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  EXPECT_EQ(hex(area_.at(kFunctions), 6), "cc 0f 1f 44 00 00");
}

TEST_F(Poke, EveryRefusedProtectionLeavesTextAndRightsUnchanged) {
  for (std::size_t i = 0; i < 4; ++i) add(i, kFunctions + i * 3 * kPage + 16);
  const std::string before = text();
  for (const int code : {EACCES, EPERM, ENOMEM}) {
    for (long nth = 0; nth < 4; ++nth) {
      const InjectedFault fault(sys::Call::kMprotect, code, nth);
      const auto result = poke(Form::kOriginal, Form::kArmed);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, code);
      EXPECT_NE(result.error().sentence[0], '\0');
      EXPECT_TRUE(text() == before);
      EXPECT_EQ(rights(), before_);
      for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
    }
  }
  for (long nth = 4; nth < 8; ++nth) {  // while closing: the text is written, the rights come back all the same
    const InjectedFault fault(sys::Call::kMprotect, ENOMEM, nth);
    ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
    EXPECT_EQ(rights(), before_);
    expect_all(Form::kArmed);
    ASSERT_TRUE(poke_text(edits_ = edits(Form::kArmed, Form::kOriginal), PokeMode::kBestEffort).ok());
    sys::fault(sys::Call::kMprotect).error = 0;
    ASSERT_TRUE(poke_text(edits_ = edits(Form::kArmed, Form::kOriginal), PokeMode::kBestEffort).ok());
  }
}

TEST_F(Poke, BestEffortSkipsPagesThatAreRefused) {
  for (std::size_t i = 0; i < 4; ++i) add(0, kFunctions + i * 3 * kPage + 16);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kArmed).ok());
  {
    const InjectedFault fault(sys::Call::kMprotect, EACCES, 2);
    ASSERT_TRUE(poke(Form::kArmed, Form::kIdle, PokeMode::kBestEffort).ok());
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(edits_[i].done, i < 2);
  EXPECT_EQ(*area_.at(sites_[1].offset), 0x0f);
  EXPECT_EQ(*area_.at(sites_[2].offset), 0xe9);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, ExhaustedMemoryFailsTheBatchBeforeAnything) {
  add(0, kFunctions);
  const std::string before = text();
  const InjectedFault fault(sys::Call::kAllocate, ENOMEM);
  EXPECT_EQ(poke(Form::kOriginal, Form::kIdle).error().code, ENOMEM);
  EXPECT_TRUE(text() == before);
}

TEST_F(Poke, UnreadableMapFailsTheBatchBeforeAnything) {
  add(0, kFunctions);
  const std::string before = text();
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  EXPECT_EQ(poke(Form::kOriginal, Form::kIdle).error().code, EACCES);
  EXPECT_TRUE(text() == before);
}

TEST_F(Poke, UnmappedTextIsAnErrorAndNoCrash) {
  add(0, kFunctions);
  add(0, kFunctions + 2 * kPage);
  edits_ = edits(Form::kOriginal, Form::kIdle);
  ::munmap(area_.at(kFunctions + 2 * kPage), kPage);
  EXPECT_EQ(poke_text(edits_, PokeMode::kAllOrNothing).error().code, EACCES);
  EXPECT_EQ(*area_.at(kFunctions), 0xe8);
  EXPECT_TRUE(poke_text(edits_, PokeMode::kBestEffort).ok());
  EXPECT_EQ(*area_.at(kFunctions), 0x0f);
  EXPECT_TRUE(edits_[0].done && !edits_[1].done);
}

TEST_F(Poke, EditsOfAnUnloadedImageAreLeftOut) {
  add(0, kFunctions);
  add(0, kFunctions + 64);
  LoadedImage gone;
  gone.name = "libgone.so";
  gone.program_headers = 64;
  edits_ = edits(Form::kOriginal, Form::kIdle);
  edits_[0].image = &gone;
  ASSERT_TRUE(poke_text(edits_, PokeMode::kAllOrNothing).ok());
  EXPECT_FALSE(edits_[0].done);
  EXPECT_TRUE(edits_[1].done);
  EXPECT_EQ(*area_.at(kFunctions), 0xe8);
}

TEST_F(Poke, SingleNopsAreTakenAloneAndRefusedInCompany) {
  add(6, kFunctions);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  expect_all(Form::kIdle);
  const Company company;
  ASSERT_TRUE(poke(Form::kIdle, Form::kOriginal).ok());
  expect_all(Form::kOriginal);
  const auto result = poke(Form::kOriginal, Form::kIdle);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EBUSY);
  expect_all(Form::kOriginal);
}

TEST_F(Poke, SortsItsEditsByAddress) {
  for (std::size_t i = 0; i < 5; ++i) add(0, kFunctions + (4 - i) * kPage);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  for (std::size_t i = 1; i < 5; ++i) EXPECT_LT(edits_[i - 1].ip, edits_[i].ip);
  expect_all(Form::kIdle);
}

// --- Barriers.

TEST_F(Poke, RefusedMembarrierIsReplacedByAVisitToEveryCpu) {
  add(0, kFunctions);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const InjectedFault fault(sys::Call::kMembarrier, EPERM);
  const unsigned long moves = calls(sys::Call::kAffinity);
  EXPECT_TRUE(barrier_memory());
  EXPECT_GE(calls(sys::Call::kAffinity) - moves, static_cast<unsigned long>(CPU_COUNT(&before)) + 2);
  EXPECT_TRUE(barrier_sync_core());
  EXPECT_TRUE(barriers_work());
  ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
  expect_all(Form::kArmed);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST_F(Poke, WithoutAnyBarrierNothingIsWrittenAndTheErrorSaysWhy) {
  add(0, kFunctions);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  const Company company;
  const InjectedFault membarrier(sys::Call::kMembarrier, EPERM), affinity(sys::Call::kAffinity, EPERM);
  prepare_barriers();
  EXPECT_FALSE(barrier_memory());
  EXPECT_FALSE(barrier_sync_core());
  EXPECT_FALSE(barriers_work());
  const unsigned long protections = calls(sys::Call::kMprotect);
  const auto result = poke(Form::kIdle, Form::kArmed);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EPERM);
  EXPECT_EQ(calls(sys::Call::kMprotect), protections);
  EXPECT_NE(std::string(result.error().sentence).find("membarrier"), std::string::npos);
  expect_all(Form::kIdle);
}

TEST_F(Poke, BarriersLostAfterTheyWorkedUndoTheFirstStep) {
  add(0, kFunctions);
  add(0, kFunctions + 64 + 7);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  prepare_barriers();
  ASSERT_TRUE(barriers_work());
  const Company company;
  const InjectedFault membarrier(sys::Call::kMembarrier, ENOSYS), affinity(sys::Call::kAffinity, EPERM);
  EXPECT_EQ(poke(Form::kIdle, Form::kArmed).error().code, EPERM);
  expect_all(Form::kIdle);
  EXPECT_EQ(rights(), before_);
}

TEST_F(Poke, ProcessThatNeverRegisteredForBarriersIsRegisteredOnDemand) {
  EXPECT_TRUE(barrier_sync_core());
  EXPECT_TRUE(barrier_memory());
}

TEST(CountThreads, TellsOneFromMore) {
  EXPECT_EQ(count_threads(), 1U);
  {
    const Company company;
    EXPECT_EQ(count_threads(), 2U);
  }
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  EXPECT_EQ(count_threads(), 2U);
}

// --- X is never dropped.

TEST_F(Poke, HotLoopOnThePageBeingPatchedNeverFaults) {
  add(0, kFunctions);
  add(4, kFunctions + 64);
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle).ok());
  std::atomic<bool> stop{false}, is_right{true};
  std::atomic<unsigned long> rounds{0};
  std::thread runner([&] {
    while (!stop.load()) {
      if (!area_.runs(kFunctions) || !area_.runs(kFunctions + 64)) is_right = false;
      rounds.fetch_add(1);
    }
  });
  for (int i = 0; i < 500; ++i) {
    const unsigned long seen = rounds.load();
    ASSERT_TRUE(poke(Form::kIdle, Form::kArmed).ok());
    ASSERT_TRUE(poke(Form::kArmed, Form::kIdle).ok());
    while (i % 50 == 0 && rounds.load() == seen) std::this_thread::yield();
  }
  stop = true;
  runner.join();
  EXPECT_TRUE(is_right);
}

}  // namespace
