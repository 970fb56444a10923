// The registers around one call: as the caller set them, as the function found them, as it returned them, and as they came
// back to the caller.
#ifndef FPROBE_TESTS_INTEGRATION_FIDELITY_MACHINE_H_
#define FPROBE_TESTS_INTEGRATION_FIDELITY_MACHINE_H_

#include <cstddef>
#include <cstdint>

#include "layout.h"  // from the CPU's folder

namespace fidelity {

struct alignas(64) Machine {
  unsigned char vector[32][64];
  std::uint64_t mask[8];
  std::uint64_t general[15];
  std::uint32_t mxcsr;
  std::uint16_t x87_control, unused;
  std::uint64_t flags;
};
static_assert(offsetof(Machine, mask) == MACHINE_MASK && offsetof(Machine, general) == MACHINE_GENERAL);
static_assert(offsetof(Machine, mxcsr) == MACHINE_MXCSR && offsetof(Machine, flags) == MACHINE_FLAGS);
static_assert(sizeof(Machine) == MACHINE_SIZE);

extern "C" {
extern Machine machine_before, machine_inside, machine_result, machine_after;
extern void (*machine_callee)();
extern unsigned char machine_width;  // bytes of a vector register: 16, 32, 64
void machine_call();
void machine_body();
}

void clobber_general();
void clobber_everything(unsigned width);
[[nodiscard]] unsigned widest_vector();

struct StickyFlags {
  unsigned vector, x87;
};
void raise_sticky_flags();
[[nodiscard]] StickyFlags sticky_flags();
void clear_sticky_flags();

}  // namespace fidelity

#endif  // FPROBE_TESTS_INTEGRATION_FIDELITY_MACHINE_H_
