// How bytes get into text pages: the protection of runs of pages is widened by W, and later put back exactly as found.
// Where that is refused, through a file (text_file.h).
//
// X is never dropped, and neither is R: threads run on these pages all the time.
#ifndef FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_
#define FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "patch/text_file.h"

namespace libfprobe::detail {

struct PageRun {
  std::uintptr_t start = 0, end = 0;
  int protection = 0;                                 // as found in /proc/self/maps
  std::uintptr_t mapping_start = 0, mapping_end = 0;  // the neighbourhood of the same protection
  const char* module = nullptr;                       // for the sentence, may be null
  bool is_open = false;                               // out: writable while the WritableText lives
};

enum class OnRefusal {
  kFail,  // nothing stays changed
  kSkip,  // the run stays closed, the others are opened
};

// RAII: pages of the given runs are writable while it lives.  The caller keeps the runs alive.
class WritableText {
 public:
  // `runs`: sorted, disjoint.  The Error holds the errno the kernel gave (EACCES, EPERM, ENOMEM; anything else becomes
  // EACCES) and names the module and the remedy.
  [[nodiscard]] static Result<WritableText> open(std::span<PageRun> runs, OnRefusal on_refusal);
  WritableText(WritableText&& other) noexcept : runs_(std::exchange(other.runs_, std::span<PageRun>())) {}
  WritableText& operator=(WritableText&&) = delete;
  ~WritableText();

  // Whether every byte of [start, end) lies in open runs.
  [[nodiscard]] bool covers(std::uintptr_t start, std::uintptr_t end) const noexcept;

 private:
  explicit WritableText(std::span<PageRun> runs) noexcept : runs_(runs) {}
  std::span<PageRun> runs_;
};

// Writes bytes that threads may be decoding: by stores into writable pages, or through the file.
class TextWriter {
 public:
  TextWriter() noexcept = default;  // by stores
  explicit TextWriter(TextFile&& file) noexcept : file_(std::move(file)) {}
  [[nodiscard]] bool is_file() const noexcept { return file_.is_open(); }

  // 0, or a positive errno value.  Stores of 1, 2 and, aligned, 4 bytes are single ones; the file writes byte by byte,
  // but for a lone thread (`is_alone`).  Other lengths are steps that no thread decodes, or any mixture of whose bytes
  // is right (arch/<cpu>/patch.cpp).
  [[nodiscard]] int write(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size,
                          bool is_alone) const noexcept;
  // Undoes a write; cannot be made to fail.
  void put_back(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept;

 private:
  TextFile file_;
};

// Reads text as it is now.
[[nodiscard]] bool text_holds(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) noexcept;

// Beyond so many runs, whole mappings are opened instead: one call for the many.
inline constexpr std::size_t kMaxPageRuns = 1000;
// Replaces each run by its mapping when there are more than kMaxPageRuns.
void widen_to_mappings(std::vector<PageRun>& runs) noexcept;

// Takes W away again, which no policy forbids: tried a second time when the kernel lacks memory for a moment.
void take_back_write(std::uintptr_t start, std::uintptr_t end, int protection) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_
