// See near_alloc.h; map_near is in map_near.cpp.
//
// Bytes of a slab belong to one head or tail for ever, so a place once found taken stays taken: searches go on where
// the last one for the same low bits ended.
//
// No barrier is needed for what is added to a slab in which threads run.  Only free bytes are written, and no thread
// can have fetched them as instructions to be executed: the only way to a new head is its site's jump, which poke_text
// writes later (stores of one CPU become visible in order, and a thread that fetches the new jump fetches the head
// after it, from caches that are coherent); the only way to a new tail is the Site, which that head names.  CPUs whose
// instruction caches are not coherent get their flush in `seal`, before poke_text's barriers.
#include "patch/near_alloc.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/attributes.h"
#include "base/syscalls.h"
#include "patch/text_file.h"
#include "patch/text_writer.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kFirstSlabSize = std::size_t{64} << 10;
constexpr std::size_t kLargestSlabSize = std::size_t{1} << 20;
constexpr std::size_t kFirstDataSize = std::size_t{64} << 10;
constexpr std::size_t kLargestDataSize = std::size_t{1} << 20;
constexpr std::size_t kDataAlignment = 64;
constexpr std::size_t kNowhere = SIZE_MAX;
constexpr std::size_t kLowBits = 256;

std::size_t round_up(std::size_t value, std::size_t alignment) noexcept {
  return (value + alignment - 1) / alignment * alignment;
}

// Text that other threads may be running next to: bytes go in past the sanitizers.
FPROBE_UNSANITIZED void copy_code(std::uintptr_t to, const std::uint8_t* from, std::size_t size) noexcept {
  for (std::size_t i = 0; i < size; ++i) reinterpret_cast<volatile std::uint8_t*>(to)[i] = from[i];
}

Error no_memory() noexcept {
  return make_error(ENOMEM, "no memory to list the thunks of a module");
}

// Room for one element more, so that adding it cannot fail.
template <class T>
Result<void> reserve_one(std::vector<T>& vector) noexcept {
  if (!sys::allocation_allowed()) return no_memory();
  try {
    if (vector.size() == vector.capacity()) vector.reserve(std::max<std::size_t>(4, 2 * vector.size()));
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  return {};
}

Error refused(const char* what, int result) noexcept {
  if (result == -ENOMEM) return make_error(ENOMEM, "no memory to make thunks %s", what);
  return make_error(
      result == -EPERM ? EPERM : EACCES,
      "cannot make thunks %s: mprotect gave errno %d, and /proc/self/mem is of no help; a seccomp filter, SELinux "
      "(execmem) or another policy forbids new code, allow it for this program",
      what, -result);
}

// Which bytes of a slab are taken, one bit each.
class ByteMap {
 public:
  explicit ByteMap(std::size_t size) : words_(size / kWordBits + 1) {}  // one word more: `is_free` reads pairs

  // `size` is at most 16.
  [[nodiscard]] bool is_free(std::size_t offset, std::size_t size) const noexcept {
    const std::size_t word = offset / kWordBits, shift = offset % kWordBits;
    std::uint64_t bits = words_[word] >> shift;
    if (shift != 0) bits |= words_[word + 1] << (kWordBits - shift);
    return (bits & ((std::uint64_t{1} << size) - 1)) == 0;
  }
  void take(std::size_t offset, std::size_t size) noexcept {
    for (std::size_t i = offset; i < offset + size; ++i) words_[i / kWordBits] |= std::uint64_t{1} << (i % kWordBits);
  }

 private:
  static constexpr std::size_t kWordBits = 64;
  std::vector<std::uint64_t> words_;
};

}  // namespace

// One mapping of thunks: where there is room, and whether it may be written or executed now.
class ThunkArena::Slab {
 public:
  Slab(std::uintptr_t start, std::size_t size) : start_(start), size_(size), taken_(size), tail_limit_(size) {
    taken_.take(0, arch::kEntryJumpSize);
  }

  [[nodiscard]] std::uintptr_t start() const noexcept { return start_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // Offset of a free place for a head resp. a tail, kNowhere if there is none.
  [[nodiscard]] std::size_t find_head(arch::ThunkPlace place) noexcept {
    if (is_refused_) return kNowhere;
    const std::size_t stride = place.mask + 1;
    std::size_t& next = next_head_[place.value % kLowBits];
    next = std::max<std::size_t>(next, (place.value - start_) & place.mask);
    for (; next + arch::kThunkHeadSize <= size_; next += stride) {
      if (taken_.is_free(next, arch::kThunkHeadSize)) return next;
    }
    return kNowhere;
  }
  [[nodiscard]] std::size_t find_tail() noexcept {
    if (is_refused_) return kNowhere;
    for (; tail_limit_ >= arch::kThunkTailSize; tail_limit_ -= arch::kThunkTailSize) {
      const std::size_t offset = tail_limit_ - arch::kThunkTailSize;
      if (taken_.is_free(offset, arch::kThunkTailSize)) return offset;
    }
    return kNowhere;
  }
  void take(std::size_t offset, std::size_t size) noexcept { taken_.take(offset, size); }

  // Adds W to a sealed slab, or opens the file.  False when both are refused: then the slab serves no more thunks.
  [[nodiscard]] bool make_writable() noexcept {
    if (is_writable_ || file_.is_open()) return true;
    is_writable_ = sys::mprotect(start_, size_, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
    if (!is_writable_) file_ = TextFile::open();
    is_refused_ = !is_writable_ && !file_.is_open();
    return !is_refused_;
  }
  // Into free bytes of a slab made writable.  False: refused after all.
  [[nodiscard]] bool write(std::uintptr_t to, const std::uint8_t* code, std::size_t size) noexcept {
    if (!file_.is_open()) {
      copy_code(to, code, size);
      return true;
    }
    is_refused_ = file_.write(to, code, size) != 0;
    return !is_refused_;
  }
  // 0 or -errno.
  [[nodiscard]] int seal() noexcept {
    if (is_writable_ || file_.is_open()) arch::flush_instruction_cache(start_, size_);
    file_ = TextFile();
    if (!is_writable_) return 0;
    if (is_executable_) {
      take_back_write(start_, start_ + size_, PROT_READ | PROT_EXEC);
    } else if (const int result = sys::mprotect(start_, size_, PROT_READ | PROT_EXEC)) {
      if (!map_executable()) return result;
    }
    is_executable_ = true;
    is_writable_ = false;
    return 0;
  }

 private:
  // In place of the writable memory, R-X from its birth.  Nobody runs in it yet.  False: refused, nothing changed.
  [[nodiscard]] bool map_executable() noexcept {
    const TextFile file = TextFile::open();
    if (!file.is_open()) return false;
    const std::uintptr_t code = sys::mmap(0, size_, PROT_READ | PROT_EXEC, 0);
    if (sys::is_error(code)) return false;
    const bool is_filled = file.write(code, reinterpret_cast<const std::uint8_t*>(start_), size_) == 0;
    if (is_filled && sys::move_mapping(code, size_, start_) == 0) return true;
    (void)sys::munmap(code, size_);
    return false;
  }

  std::uintptr_t start_;
  std::size_t size_;
  ByteMap taken_;
  std::array<std::size_t, kLowBits> next_head_{};  // by low bits: the first offset not known to be taken
  std::size_t tail_limit_;                         // no free place for a tail ends above it
  bool is_writable_ = true, is_executable_ = false, is_refused_ = false;
  TextFile file_;  // open while the slab is written through it
};

ThunkArena::ThunkArena(const NearRange& module, std::uintptr_t entry_code, bool push_scratch) noexcept
    : module_(module), entry_code_(entry_code), push_scratch_(push_scratch) {}

ThunkArena::~ThunkArena() {
  for (const Slab& slab : slabs_) (void)sys::munmap(slab.start(), slab.size());
  for (const Data& data : data_) (void)sys::munmap(data.start, data.size);
}

Result<std::uintptr_t> ThunkArena::allocate_data(std::size_t size) {
  const MutexLock lock(mutex_);
  size = round_up(size, kDataAlignment);
  if (data_.empty() || data_.back().size - data_.back().used < size) {
    const std::size_t next = data_.empty() ? kFirstDataSize : std::min(2 * data_.back().size, kLargestDataSize);
    const std::size_t mapped = round_up(std::max(size, next), arch::kPageSize);
    if (auto room = reserve_one(data_); !room) return room.error();
    auto start = map_reachable(mapped);
    if (!start) return start;
    data_.push_back({*start, 0, mapped});
  }
  Data& data = data_.back();
  data.used += size;
  return data.start + data.used - size;
}

Result<ThunkArena::Thunk> ThunkArena::add_thunk(std::uintptr_t site_data, std::uintptr_t resume, bool nested,
                                                arch::ThunkPlace place) {
  const MutexLock lock(mutex_);
  auto head = reserve(arch::kThunkHeadSize, [place](Slab& slab) { return slab.find_head(place); });
  if (!head) return head.error();
  std::uint8_t code[std::max(arch::kThunkHeadSize, arch::kThunkTailSize)];
  arch::emit_thunk_head(code, head->address, site_data, nested, push_scratch_, head->entry_jump);
  if (!head->slab->write(head->address, code, arch::kThunkHeadSize)) return refused("writable", -EACCES);

  auto tail = reserve(arch::kThunkTailSize, [](Slab& slab) { return slab.find_tail(); });
  if (!tail) return tail.error();
  arch::emit_thunk_tail(code, tail->address, resume, nested);
  if (!tail->slab->write(tail->address, code, arch::kThunkTailSize)) return refused("writable", -EACCES);
  return Thunk{head->address, tail->address};
}

Result<void> ThunkArena::seal() {
  const MutexLock lock(mutex_);
  for (Slab& slab : slabs_) {
    if (const int result = slab.seal()) return refused("executable", result);
  }
  return {};
}

// Takes `size` bytes where `find` finds them, in a slab made writable; maps another slab when none has room.
template <class Find>
Result<ThunkArena::Place> ThunkArena::reserve(std::size_t size, Find find) {
  for (;;) {
    for (Slab& slab : slabs_) {
      const std::size_t offset = find(slab);
      if (offset == kNowhere || !slab.make_writable()) continue;
      slab.take(offset, size);
      return Place{slab.start() + offset, is_near(slab) ? entry_code_ : slab.start(), &slab};
    }
    if (auto added = add_slab(); !added) return added.error();
  }
}

Result<void> ThunkArena::add_slab() {
  const std::size_t size = slabs_.empty() ? kFirstSlabSize : std::min(slabs_.back().size() * 2, kLargestSlabSize);
  if (auto room = reserve_one(slabs_); !room) return room;
  auto start = map_reachable(size);
  if (!start) return start.error();
  try {
    slabs_.emplace_back(*start, size);
  } catch (const std::bad_alloc&) {
    (void)sys::munmap(*start, size);
    return no_memory();
  }
  std::uint8_t code[arch::kEntryJumpSize];
  arch::emit_entry_jump(code, entry_code_);
  copy_code(*start, code, sizeof code);
  return {};
}

// A slab's heads go to the entry code by one jump where that lies in reach of each of them.
bool ThunkArena::is_near(const Slab& slab) const noexcept {
  const std::uintptr_t low = std::min(entry_code_, slab.start());
  const std::uintptr_t high = std::max(entry_code_, slab.start() + slab.size());
  return high - low < arch::kThunkReach;
}

// Thunks address Sites, and Sites may lie on the module's one side and thunks on its other: so whatever is mapped must
// reach all that was mapped before.
Result<std::uintptr_t> ThunkArena::map_reachable(std::size_t size) {
  auto start = map_near(module_, size, mapped_);
  if (!start) return start;
  const bool is_first = mapped_.low == mapped_.high;
  mapped_.low = is_first ? *start : std::min(mapped_.low, *start);
  mapped_.high = is_first ? *start + size : std::max(mapped_.high, *start + size);
  return start;
}

}  // namespace libfprobe::detail
