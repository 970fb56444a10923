// How bytes get into text pages: the protection of runs of pages is widened by W, and later put back exactly as found.
//
// (The ways for systems that refuse W|X are added here.)
#ifndef FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_
#define FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace libfprobe::detail {

struct PageRun {
  std::uintptr_t start = 0, end = 0;
  int protection = 0;  // as found in /proc/self/maps
};

// RAII: pages of the given runs are writable while it lives.
class WritableText {
 public:
  // `runs`: sorted, disjoint.  On failure nothing stays changed; the Error names the errno the kernel gave (EACCES,
  // EPERM, ENOMEM) and the module.
  [[nodiscard]] static Result<WritableText> open(std::vector<PageRun> runs, const char* module);
  WritableText(WritableText&& other) noexcept;
  WritableText& operator=(WritableText&&) = delete;
  ~WritableText();

 private:
  explicit WritableText(std::vector<PageRun> runs) noexcept : runs_(std::move(runs)) {}
  std::vector<PageRun> runs_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_TEXT_WRITER_H_
