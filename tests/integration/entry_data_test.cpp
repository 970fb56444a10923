// Entry data: who gets it, how much, and that nothing takes it away.
#include <cerrno>
#include <cstring>
#include <memory>

#include "integration/support.h"

namespace contract {
namespace {

constexpr std::size_t kLongs = MAX_FPROBE_DATA_SIZE / sizeof(long);

TEST(EntryData, FortyProbesOnOneFunctionHaveFifteenLongsEach) {
  static_assert(kLongs == 15);
  constexpr int kProbes = 40;
  static std::vector<void*> at_entry, at_exit;
  static int wrong;
  std::vector<std::unique_ptr<Probe>> probes;
  for (int i = 0; i < kProbes; ++i) {
    auto probe = std::make_unique<Probe>();
    probe->entry_data_size = MAX_FPROBE_DATA_SIZE;
    probe->on_entry = [i](const Hit& hit) {
      auto* words = static_cast<long*>(hit.data);
      at_entry.push_back(words);
      for (std::size_t w = 0; w < kLongs; ++w) {
        wrong += words[w] != 0;
        words[w] = i * 100 + static_cast<long>(w);
      }
      return 0;
    };
    probe->on_exit = [i](const Hit& hit) {
      auto* words = static_cast<long*>(hit.data);
      at_exit.push_back(words);
      for (std::size_t w = 0; w < kLongs; ++w) wrong += words[w] != i * 100 + static_cast<long>(w);
    };
    ATTACH(*probe, "deep");
    probes.push_back(std::move(probe));
  }
  EXPECT_EQ(deep(0), 0);
  EXPECT_EQ(at_entry.size(), 40u);
  EXPECT_EQ(at_exit, at_entry);  // the same pointers at both ends
  EXPECT_EQ(wrong, 0);
  // And for frames within frames.
  at_entry.clear();
  at_exit.clear();
  EXPECT_EQ(deep(50), 50);
  EXPECT_EQ(at_exit.size(), 40u * 51u);
  EXPECT_EQ(wrong, 0);
  for (const auto& probe : probes) EXPECT_EQ(probe->nmissed, 0u);
}

TEST(EntryData, OfEverySizeIsAlignedZeroedAndItsOwn) {
  for (std::size_t size = 1; size <= MAX_FPROBE_DATA_SIZE; ++size) {
    Probe probe, neighbour;
    probe.entry_data_size = size;
    neighbour.entry_data_size = MAX_FPROBE_DATA_SIZE;
    int wrong = 0;
    unsigned long fill = 0;
    probe.on_entry = [&, size](const Hit& hit) {
      wrong += reinterpret_cast<unsigned long>(hit.data) % alignof(long) != 0;
      for (std::size_t i = 0; i < size; ++i) wrong += static_cast<unsigned char*>(hit.data)[i] != 0;
      std::memset(hit.data, static_cast<int>(++fill), size);
      return 0;
    };
    neighbour.on_entry = [](const Hit& hit) {
      std::memset(hit.data, 0xee, MAX_FPROBE_DATA_SIZE);
      return 0;
    };
    probe.on_exit = [&, size](const Hit& hit) {
      for (std::size_t i = 0; i < size; ++i) wrong += static_cast<unsigned char*>(hit.data)[i] != fill;
    };
    ATTACH(neighbour, "twice");
    ATTACH(probe, "twice");
    for (int call = 0; call < 3; ++call) twice(1);
    ASSERT_EQ(probe.exits, 3u);
    ASSERT_EQ(wrong, 0) << size;
  }
}

void* const kNotSeen = reinterpret_cast<void*>(~0UL);

// What the handlers get as entry data for these settings.
struct Given {
  void *at_entry = kNotSeen, *at_exit = kNotSeen;
};
Given data_given(Ends ends, std::size_t size) {
  Given given;
  Probe probe(ends);
  probe.entry_data_size = size;
  probe.on_entry = [&](const Hit& hit) {
    given.at_entry = hit.data;
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { given.at_exit = hit.data; };
  EXPECT_EQ(probe.attach({"twice"}), 0);
  twice(1);
  return given;
}

TEST(EntryData, IsNullWithoutAnExitHandler) {
  EXPECT_EQ(data_given(kEntry, 8).at_entry, nullptr);
}
TEST(EntryData, IsNullWithoutASize) {
  const Given given = data_given(kBoth, 0);
  EXPECT_EQ(given.at_entry, nullptr);
  EXPECT_EQ(given.at_exit, nullptr);
}
TEST(EntryData, IsGivenToAnExitHandlerAlone) {
  const Given given = data_given(kExit, 8);
  ASSERT_NE(given.at_exit, kNotSeen);
  ASSERT_NE(given.at_exit, nullptr);
  EXPECT_EQ(given.at_entry, kNotSeen);
}
TEST(EntryData, IsTheSamePointerAtBothEnds) {
  const Given given = data_given(kBoth, 8);
  EXPECT_NE(given.at_entry, nullptr);
  EXPECT_EQ(given.at_entry, given.at_exit);
}

TEST(EntryData, ZeroedForAnExitHandlerAlone) {
  Probe dirty, clean(kExit);
  dirty.entry_data_size = clean.entry_data_size = MAX_FPROBE_DATA_SIZE;
  dirty.on_entry = [](const Hit& hit) {
    std::memset(hit.data, 0xee, MAX_FPROBE_DATA_SIZE);
    return 0;
  };
  ATTACH(dirty, "twice");
  twice(1);
  ASSERT_EQ(unregister_fprobe(&dirty), 0);
  int wrong = 0;
  clean.on_exit = [&](const Hit& hit) {
    for (std::size_t w = 0; w < kLongs; ++w) wrong += static_cast<long*>(hit.data)[w] != 0;
  };
  ATTACH(clean, "twice");
  twice(1);
  EXPECT_EQ(clean.exits, 1u);
  EXPECT_EQ(wrong, 0);
}

TEST(EntryData, OverTheLimitIsRefusedWhateverTheHandlers) {
  for (const Ends ends : {kEntry, kExit, kBoth}) {
    Probe probe(ends);
    probe.entry_data_size = MAX_FPROBE_DATA_SIZE + 1;
    EXPECT_EQ(probe.attach({"twice"}), -E2BIG);
    EXPECT_STRNE(fprobe_last_error(), "");
    probe.entry_data_size = MAX_FPROBE_DATA_SIZE;
    EXPECT_EQ(probe.attach({"twice"}), 0);
  }
  fprobe empty{};
  empty.entry_data_size = ~std::size_t{0};
  const char* names[] = {"twice"};
  EXPECT_EQ(register_fprobe_syms(&empty, names, 1), -E2BIG);
}

TEST(EntryData, OfADisabledNeighbourTakesNothingAway) {
  Probe first, disabled, third;
  int wrong = 0;
  for (Probe* probe : {&first, &disabled, &third}) {
    probe->entry_data_size = MAX_FPROBE_DATA_SIZE;
    probe->on_entry = [](const Hit& hit) {
      for (std::size_t w = 0; w < kLongs; ++w) static_cast<long*>(hit.data)[w] = reinterpret_cast<long>(hit.probe);
      return 0;
    };
    probe->on_exit = [&wrong](const Hit& hit) {
      for (std::size_t w = 0; w < kLongs; ++w)
        wrong += static_cast<long*>(hit.data)[w] != reinterpret_cast<long>(hit.probe);
    };
  }
  for (Probe* probe : {&first, &disabled, &third}) ATTACH(*probe, "twice");
  disable_fprobe(&disabled);
  twice(1);
  EXPECT_EQ(first.exits, 1u);
  EXPECT_EQ(disabled.exits, 0u);
  EXPECT_EQ(third.exits, 1u);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace contract
