// Where a module's functions start: unwind tables (in memory, also of stripped modules) united with the file's symbols.
//
// Sites are tied to starts: only they tell a call at a function's entry from the same bytes elsewhere.
#ifndef FPROBE_SRC_CORE_IMAGE_FUNCTION_STARTS_H_
#define FPROBE_SRC_CORE_IMAGE_FUNCTION_STARTS_H_

#include <cstdint>
#include <vector>

#include "image/elf_image.h"
#include "image/image_list.h"
#include "image/image_memory.h"

namespace libfprobe::detail {

struct FunctionRange {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;  // start when the size is unknown
};

// Appends what the unwind tables describe, in any order.  `file` may be null: then only modules with a binary search
// table (.eh_frame_hdr) tell something.
void collect_unwind_ranges(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file,
                           std::vector<FunctionRange>& out);

class FunctionStarts {
 public:
  // `debug`: the module's debug file, may be null; its symbols in place of the file's.
  [[nodiscard]] static FunctionStarts collect(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file,
                                              const ElfImage* debug = nullptr);

  // By address, unique, all in readable text.  `end` is the farthest end of this and all earlier functions.
  [[nodiscard]] const std::vector<FunctionRange>& all() const noexcept { return ranges_; }
  [[nodiscard]] bool is_start(std::uintptr_t address) const noexcept;
  // The last start at or before `address` resp. the first behind it, 0 if none.
  [[nodiscard]] std::uintptr_t last_before(std::uintptr_t address) const noexcept;
  [[nodiscard]] std::uintptr_t next_after(std::uintptr_t address) const noexcept;
  // Whether a function of known size contains the address.
  [[nodiscard]] bool covers(std::uintptr_t address) const noexcept;
  // The file told every function: an address that is no start, starts none.
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }

 private:
  [[nodiscard]] std::vector<FunctionRange>::const_iterator behind(std::uintptr_t address) const noexcept;

  std::vector<FunctionRange> ranges_;
  bool is_complete_ = false;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_FUNCTION_STARTS_H_
