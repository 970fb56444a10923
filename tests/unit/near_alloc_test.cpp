// Memory near a module, and slabs of thunks.
#include "patch/near_alloc.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/syscalls.h"
#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
using namespace libfprobe::detail;

constexpr std::uintptr_t kGiB = std::uintptr_t{1} << 30;

// Disarms a fault when the test ends.
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

NearRange range_of(const CodeArea& area) {
  return {area.address(0), area.address(area.size())};
}

bool is_in_reach(std::uintptr_t a, std::uintptr_t b) {
  return (a > b ? a - b : b - a) < std::uintptr_t{1} << 31;
}

TEST(MapNear, GivesWritableMemoryWithinReachOfBothEnds) {
  CodeArea module;
  const NearRange range = range_of(module);
  auto memory = map_near(range, 65536);
  ASSERT_TRUE(memory.ok()) << memory.error().sentence;
  EXPECT_TRUE(is_in_reach(*memory, range.high));
  EXPECT_TRUE(is_in_reach(*memory + 65536, range.low));
  EXPECT_EQ(page_rights(*memory, *memory + 65536), std::vector<std::string>(16, "rw-p"));
  ::munmap(reinterpret_cast<void*>(*memory), 65536);
}

TEST(MapNear, RefusesAHoleOfTheModuleItselfEvenWhenItIsTheOnlyPlace) {
  constexpr std::size_t kReserved = 6 * kGiB;
  void* reserved = ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const std::uintptr_t low = reinterpret_cast<std::uintptr_t>(reserved) + kReserved / 2;
  ::munmap(reinterpret_cast<void*>(low + 4096), 4096);
  EXPECT_EQ(map_near({low, low + 3 * 4096}, 4096).error().code, ENOSPC);  // unloading the module would unmap it
  ::munmap(reserved, kReserved);
}

TEST(MapNear, LeavesTheHeapAGibibyteToGrow) {
  const auto heap = reinterpret_cast<std::uintptr_t>(::sbrk(0)) & ~std::uintptr_t{4095};
  const std::uintptr_t amid = heap + kGiB / 2;  // nothing is mapped here: the nearest free place is what we ask for
  auto memory = map_near({amid, amid + 4096}, 4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(*memory + 4096 <= heap || *memory >= heap + kGiB) << std::hex << *memory;
  EXPECT_TRUE(is_in_reach(*memory, amid));
  ::munmap(reinterpret_cast<void*>(*memory), 4096);
}

TEST(MapNear, LeavesTheStackItsRoomToGrow) {
  int local = 0;
  const auto stack = reinterpret_cast<std::uintptr_t>(&local) & ~std::uintptr_t{4095};
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_STACK, &limit), 0);
  const std::uintptr_t room = std::min<std::uintptr_t>(limit.rlim_cur, 64 * kGiB);
  auto memory = map_near({stack, stack + 4096}, 4096);
  if (!memory.ok()) {
    EXPECT_EQ(memory.error().code, ENOSPC);  // unlimited: the whole reach is the stack's
    return;
  }
  EXPECT_TRUE(*memory < stack - room + (std::size_t{1} << 20)) << std::hex << *memory << " " << stack;
  ::munmap(reinterpret_cast<void*>(*memory), 4096);
}

TEST(MapNear, ReportsNoRoomWhenNoPlaceReachesBothEnds) {
  auto memory = map_near({0x10000000, 0x10000000 + 5 * kGiB}, 4096);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ENOSPC);
  EXPECT_NE(std::string(memory.error().sentence).find("jump range"), std::string::npos);
}

TEST(MapNear, FindsTheOneHoleInReachAndReportsNoRoomAfterIt) {
  constexpr std::size_t kReserved = 6 * kGiB, kHole = 65536;
  void* reserved = ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const NearRange module{start + kReserved / 2, start + kReserved / 2 + 4096};
  EXPECT_EQ(map_near(module, kHole).error().code, ENOSPC);
  for (const std::uintptr_t hole : {module.low - kGiB, module.high + kGiB}) {
    ::munmap(reinterpret_cast<void*>(hole), kHole);
    EXPECT_EQ(map_near(module, kHole + 4096).error().code, ENOSPC);
    auto memory = map_near(module, kHole);
    ASSERT_TRUE(memory.ok()) << memory.error().sentence;
    EXPECT_EQ(*memory, hole);
    EXPECT_EQ(map_near(module, kHole).error().code, ENOSPC);
  }
  ::munmap(reserved, kReserved);
}

TEST(MapNear, TakesTheNearestOfSeveralHoles) {
  constexpr std::size_t kReserved = 6 * kGiB;
  void* reserved = ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const NearRange module{start + kReserved / 2, start + kReserved / 2 + 4096};
  const std::uintptr_t nearest = module.low - kGiB / 4;
  for (const std::uintptr_t hole : {module.low - kGiB, nearest, module.high + kGiB / 2}) {
    ::munmap(reinterpret_cast<void*>(hole), 4096);
  }
  auto memory = map_near(module, 4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(*memory, nearest);
  ::munmap(reserved, kReserved);
}

TEST(MapNear, LooksHigherWhenTheKernelForbidsLowAddresses) {
  CodeArea module;
  const unsigned long before = sys::fault(sys::Call::kMmap).calls;
  const InjectedFault fault(sys::Call::kMmap, EPERM);
  EXPECT_EQ(map_near(range_of(module), 4096).error().code, ENOSPC);
  EXPECT_GT(sys::fault(sys::Call::kMmap).calls - before, 1U);
}

TEST(MapNear, ReportsNoRoomWhenOthersTakeEveryPlaceFirst) {
  CodeArea module;
  const InjectedFault fault(sys::Call::kMmap, EEXIST);
  EXPECT_EQ(map_near(range_of(module), 4096).error().code, ENOSPC);
}

TEST(MapNear, TriesAgainWhenSomebodyElseTakesThePlace) {
  CodeArea module;
  const unsigned long before = sys::fault(sys::Call::kMmap).calls;
  {
    const InjectedFault fault(sys::Call::kMmap, EEXIST);
    (void)map_near(range_of(module), 4096);
  }
  EXPECT_GT(sys::fault(sys::Call::kMmap).calls - before, 1U);
}

TEST(MapNear, ReportsThatTheKernelRefusesMemory) {
  CodeArea module;
  const InjectedFault fault(sys::Call::kMmap, ENOMEM);
  EXPECT_EQ(map_near(range_of(module), 4096).error().code, ENOMEM);
}

TEST(MapNear, ReportsThatTheMapCannotBeRead) {
  CodeArea module;
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  EXPECT_EQ(map_near(range_of(module), 4096).error().code, ENOMEM);
}

// --- Thunks. Entry code of these tests: r11 → {tail, hits}.
struct SiteData {
  std::uintptr_t tail;
  unsigned long hits;
};
extern "C" void near_test_entry();
asm(R"(
  .pushsection .text
  .globl near_test_entry
  .hidden near_test_entry
  .type near_test_entry, @function
near_test_entry:
  lock incq 8(%r11)
  jmp *(%r11)
  .size near_test_entry, .-near_test_entry
  .popsection
)");

class Arena : public ::testing::Test {
 protected:
  Arena() {
    // The body every tail goes to: mov $7,%eax; ret
    const std::uint8_t body[] = {0xb8, 7, 0, 0, 0, 0xc3};
    module_.put(kBody, body, sizeof body);
  }

  struct Entry {
    SiteData* data = nullptr;
    ThunkArena::Thunk thunk;
  };
  Entry add(ThunkArena& arena, std::uintptr_t low_byte) {
    auto data = arena.allocate_data(64);
    EXPECT_TRUE(data.ok()) << data.error().sentence;
    auto thunk = arena.add_thunk(*data, module_.address(kBody), false, {0xff, low_byte});
    EXPECT_TRUE(thunk.ok()) << thunk.error().sentence;
    if (!thunk.ok()) return {};
    EXPECT_EQ(thunk->head & 0xff, low_byte);
    auto* site = reinterpret_cast<SiteData*>(*data);
    *site = {thunk->tail, 0};
    return {site, *thunk};
  }
  static void expect_runs(const Entry& entry) {
    const unsigned long hits = entry.data->hits;
    EXPECT_EQ(reinterpret_cast<int (*)()>(entry.thunk.head)(), 7);
    EXPECT_EQ(entry.data->hits, hits + 1);
  }
  static std::string rights_at(std::uintptr_t address) {
    return page_rights(address & ~std::uintptr_t{4095}, (address & ~std::uintptr_t{4095}) + 1).at(0);
  }

  static constexpr std::size_t kBody = 0x1000;
  CodeArea module_;
  const std::uintptr_t entry_ = reinterpret_cast<std::uintptr_t>(&near_test_entry);
  ThunkArena arena_{range_of(module_), entry_};
};

TEST_F(Arena, ThunkReachesItsSiteTheEntryCodeAndTheFunction) {
  const Entry entry = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(entry);
}

TEST_F(Arena, DataIsZeroAndAlignedToACacheLine) {
  std::uintptr_t last = 0;
  for (int i = 0; i < 3000; ++i) {
    auto data = arena_.allocate_data(72);
    ASSERT_TRUE(data.ok());
    EXPECT_EQ(*data % 64, 0U);
    EXPECT_EQ(std::count(reinterpret_cast<char*>(*data), reinterpret_cast<char*>(*data) + 72, '\0'), 72);
    EXPECT_TRUE(*data >= last + 128 || *data + 128 <= last) << "overlap";
    std::memset(reinterpret_cast<void*>(*data), 0xff, 72);
    last = *data;
  }
}

TEST_F(Arena, SixteenThunksOfAlignedSitesShareARow) {
  std::set<std::uintptr_t> rows;
  for (std::uintptr_t i = 0; i < 16 * 64; ++i) rows.insert((add(arena_, (i % 16) * 16 + 8).thunk.head - 8) / 256);
  EXPECT_LE(rows.size(), 65U);  // 64, and one more because the slab's entry jump takes a place of the first
}

TEST_F(Arena, NoTwoThunksOverlapWhateverTheirLowBytes) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  unsigned random = 12345;
  std::vector<Entry> entries;
  for (int i = 0; i < 6000; ++i) {
    random = random * 1103515245 + 12345;
    entries.push_back(add(arena_, random >> 24));
    ASSERT_NE(entries.back().data, nullptr);
    const ThunkArena::Thunk& thunk = entries.back().thunk;
    ranges.emplace_back(thunk.head, thunk.head + arch::kThunkHeadSize);
    ranges.emplace_back(thunk.tail, thunk.tail + arch::kThunkTailSize);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) ASSERT_GE(ranges[i].first, ranges[i - 1].second);
  ASSERT_TRUE(arena_.seal().ok());
  for (const Entry& entry : entries) expect_runs(entry);
}

TEST_F(Arena, MapsAnotherSlabWhenALowByteIsUsedUp) {
  std::vector<Entry> entries;
  for (int i = 0; i < 2000; ++i) entries.push_back(add(arena_, 0x5c));
  ASSERT_TRUE(arena_.seal().ok());
  for (const Entry& entry : entries) expect_runs(entry);
}

TEST_F(Arena, ReportsNoRoomOnlyWhenNoSlabCanBeMapped) {
  (void)add(arena_, 0x08);
  const InjectedFault fault(sys::Call::kMmap, EEXIST);
  Result<ThunkArena::Thunk> thunk = ThunkArena::Thunk{};
  int count = 1;
  for (; thunk.ok() && count < 1000; ++count)
    thunk = arena_.add_thunk(module_.address(0), module_.address(kBody), false, {0xff, 0x08});
  EXPECT_EQ(thunk.error().code, ENOSPC);
  EXPECT_GT(count, 200);  // of 255 rows, less those that tails take
}

TEST_F(Arena, ReportsExhaustedMemoryAndGoesOnLater) {
  {
    const InjectedFault fault(sys::Call::kAllocate, ENOMEM);
    EXPECT_EQ(arena_.add_thunk(module_.address(0), module_.address(kBody), false, {0xff, 8}).error().code, ENOMEM);
    EXPECT_EQ(arena_.allocate_data(64).error().code, ENOMEM);
  }
  const Entry entry = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(entry);
}

TEST_F(Arena, SlabIsWritableFirstThenExecutableAndNeverBoth) {
  const Entry entry = add(arena_, 0x08);
  EXPECT_EQ(rights_at(entry.thunk.head), "rw-p");
  ASSERT_TRUE(arena_.seal().ok());
  EXPECT_EQ(rights_at(entry.thunk.head), "r-xp");
}

TEST_F(Arena, LaterThunkGoesIntoTheSealedSlabWhoseXIsKept) {
  const Entry first = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  const Entry second = add(arena_, 0x18);
  EXPECT_EQ(rights_at(first.thunk.head), "rwxp");
  expect_runs(first);
  ASSERT_TRUE(arena_.seal().ok());
  EXPECT_EQ(rights_at(first.thunk.head), "r-xp");
  EXPECT_EQ(first.thunk.head / 4096, second.thunk.head / 4096);
  expect_runs(first);
  expect_runs(second);
}

TEST_F(Arena, TakesANewSlabWhereWritableCodeIsForbidden) {
  const Entry first = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  Entry second;
  {
    const InjectedFault fault(sys::Call::kMprotect, EACCES);
    second = add(arena_, 0x18);
  }
  EXPECT_EQ(rights_at(first.thunk.head), "r-xp");
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(first);
  expect_runs(second);
}

TEST_F(Arena, SealReportsARefusalAndMayBeCalledAgain) {
  const Entry entry = add(arena_, 0x08);
  {
    const InjectedFault fault(sys::Call::kMprotect, EPERM);
    for (const sys::Call call : {sys::Call::kOpen, sys::Call::kMmap, sys::Call::kWriteAt}) {
      const InjectedFault other(call, EACCES);
      const auto sealed = arena_.seal();
      ASSERT_FALSE(sealed.ok());
      EXPECT_EQ(sealed.error().code, EPERM);
    }
    const InjectedFault move(sys::Call::kMmap, ENOMEM, 1);
    EXPECT_FALSE(arena_.seal().ok());
  }
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(entry);
}

TEST_F(Arena, IsFilledThroughTheFileWhereWrittenMemoryMayNotBecomeCode) {
  const InjectedFault fault(sys::Call::kMprotect, EACCES);
  const Entry first = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(first);
  const unsigned long mappings = sys::fault(sys::Call::kMmap).calls;
  const Entry second = add(arena_, 0x08);  // into the same slab
  EXPECT_EQ(sys::fault(sys::Call::kMmap).calls, mappings);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(first);
  expect_runs(second);
  EXPECT_EQ(page_rights(first.thunk.head & ~4095UL, (first.thunk.head & ~4095UL) + 4096),
            std::vector<std::string>(1, "r-xp"));
}

TEST_F(Arena, TellsWhenTheFileIsClosedToItAndGoesOnInAnotherSlab) {
  const Entry first = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  {
    const InjectedFault fault(sys::Call::kMprotect, EACCES), file(sys::Call::kWriteAt, sys::kSwallowed);
    const auto thunk = arena_.add_thunk(first.thunk.head, first.thunk.head, false, {0xff, 0x08});
    ASSERT_FALSE(thunk.ok());
    EXPECT_EQ(thunk.error().code, EACCES);
  }
  const Entry second = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(first);
  expect_runs(second);
}

TEST_F(Arena, ThreadInsideAThunkNeverFaultsWhileOthersAreAdded) {
  const Entry hot = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  std::atomic<bool> stop{false};
  std::atomic<unsigned long> runs{0};
  std::thread runner([&] {
    while (!stop.load()) {
      if (reinterpret_cast<int (*)()>(hot.thunk.head)() != 7) break;
      runs.fetch_add(1);
    }
  });
  while (runs.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 2000; ++i) {
    const Entry entry = add(arena_, static_cast<std::uintptr_t>(i % 16) * 16 + 8);
    ASSERT_TRUE(arena_.seal().ok());
    expect_runs(entry);
  }
  const unsigned long seen = runs.load();
  while (runs.load() == seen) std::this_thread::yield();  // still running
  stop.store(true);
  runner.join();
}

TEST_F(Arena, EntryCodeInReachIsJumpedToDirectly) {
  ThunkArena near_entry(range_of(module_), module_.address(kBody));
  auto data = near_entry.allocate_data(64);
  auto thunk = near_entry.add_thunk(*data, module_.address(kBody), false, {0xff, 8});
  ASSERT_TRUE(thunk.ok());
  std::int32_t distance = 0;
  std::memcpy(&distance, reinterpret_cast<void*>(thunk->head + 8), sizeof distance);
  EXPECT_EQ(thunk->head + 12 + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(distance)),
            module_.address(kBody));
}

TEST_F(Arena, EntryCodeOutOfReachIsReachedThroughTheSlab) {
  const std::uintptr_t far = entry_ > module_.address(0) ? entry_ - module_.address(0) : module_.address(0) - entry_;
  ASSERT_GT(far, 2 * kGiB) << "the program lies too near to its libraries for this test";
  const Entry entry = add(arena_, 0x08);
  ASSERT_TRUE(arena_.seal().ok());
  expect_runs(entry);
}

TEST(ArenaLifetime, UnmapsEverythingWithItsModule) {
  CodeArea module;
  ThunkArena::Thunk thunk;
  std::uintptr_t data = 0;
  {
    ThunkArena arena(range_of(module), module.address(0));
    data = arena.allocate_data(64).value();
    thunk = arena.add_thunk(data, module.address(0), false, {0xff, 8}).value();
    EXPECT_EQ(page_rights(thunk.head, thunk.head + 1).size(), 1U);
  }
  EXPECT_EQ(page_rights(thunk.head, thunk.head + 1).size(), 0U);
  EXPECT_EQ(page_rights(data, data + 1).size(), 0U);
}

}  // namespace
