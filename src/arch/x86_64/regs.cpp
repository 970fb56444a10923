// The accessors of <fprobe/ftrace_regs.h> for x86-64 (System V psABI 3.2.3: parameter passing and returning of values).
#include "regs.h"

#include <fprobe/ftrace_regs.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/attributes.h"

namespace libfprobe::detail {
namespace {

constexpr unsigned kIntegerRegisters = 6;
constexpr unsigned kVectorRegisters = 8;

bool at_exit(const ftrace_regs& regs) {
  return (regs.flags & kRegsAtExit) != 0;
}
bool has_arguments(const ftrace_regs& regs) {
  return (regs.flags & (kRegsAtExit | kRegsNoArguments)) == 0;
}

// The word of the n-th integer argument, null when there is none to read.  Stack arguments start above the return slot.
const unsigned long* argument_word(const ftrace_regs& regs, unsigned n) {
  if (!has_arguments(regs)) return nullptr;
  switch (n) {
    case 0:
      return &regs.di;
    case 1:
      return &regs.si;
    case 2:
      return &regs.dx;
    case 3:
      return &regs.cx;
    case 4:
      return &regs.r8;
    case 5:
      return &regs.r9;
    default:
      return reinterpret_cast<const unsigned long*>(regs.sp) + 1 + (n - kIntegerRegisters);
  }
}

bool has_vectors(const ftrace_regs& regs) {
  return (regs.flags & kRegsHasVectors) != 0;
}

// The place of the n-th floating-point argument: a register, or the stack as for a function of such arguments only.
const void* fp_argument_place(const ftrace_regs& regs, unsigned n) {
  if (!has_arguments(regs) || !has_vectors(regs)) return nullptr;
  if (n < kVectorRegisters) return regs.xmm[n];
  return reinterpret_cast<const unsigned long*>(regs.sp) + 1 + (n - kVectorRegisters);
}

// Where floating-point return value `n` (0, 1) is held: the register at exit, its stage at entry.
const void* fp_result_place(const ftrace_regs& regs, unsigned n) {
  if (at_exit(regs)) return has_vectors(regs) ? regs.xmm[n] : nullptr;
  const unsigned long staged = n == 0 ? kRegsStagedXmm0 : kRegsStagedXmm1;
  return (regs.flags & staged) != 0 ? regs.staged_xmm[n] : nullptr;
}

template <class T>
T load(const void* place) {
  T value{};
  if (place != nullptr) std::memcpy(&value, place, sizeof value);
  return value;
}

template <class T>
void set_fp_result(ftrace_regs& regs, unsigned n, T value) {
  unsigned char* place = regs.xmm[n];
  if (!at_exit(regs)) {
    place = regs.staged_xmm[n];
    std::memset(place, 0, sizeof regs.staged_xmm[n]);
    regs.flags |= n == 0 ? kRegsStagedXmm0 : kRegsStagedXmm1;
  }
  std::memcpy(place, &value, sizeof value);
}

struct Name {
  std::string_view name;
  int offset;
};
constexpr Name kNames[] = {{"di", REGS_DI}, {"si", REGS_SI}, {"dx", REGS_DX}, {"cx", REGS_CX},
                           {"r8", REGS_R8}, {"r9", REGS_R9}, {"ax", REGS_AX}, {"r10", REGS_R10},
                           {"bp", REGS_BP}, {"ip", REGS_IP}, {"sp", REGS_SP}};

}  // namespace

void regs_clear_results(ftrace_regs& regs) noexcept {
  regs.ax = regs.dx = 0;
  std::memset(regs.xmm[0], 0, 2 * sizeof regs.xmm[0]);
}

}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): this file is the accessors' home

extern "C" {

bool ftrace_regs_has_argument(const ftrace_regs* regs, unsigned int n) {
  return argument_word(*regs, n) != nullptr;
}

unsigned long ftrace_regs_get_argument(const ftrace_regs* regs, unsigned int n) {
  const unsigned long* word = argument_word(*regs, n);
  return word != nullptr ? *word : 0;
}

void ftrace_regs_set_argument(ftrace_regs* regs, unsigned int n, unsigned long value) {
  if (const unsigned long* word = argument_word(*regs, n)) *const_cast<unsigned long*>(word) = value;
}

unsigned long ftrace_regs_get_return_value(const ftrace_regs* regs) {
  if (at_exit(*regs)) return regs->ax;
  return (regs->flags & kRegsStagedAx) != 0 ? regs->staged_ax : 0;
}

void ftrace_regs_set_return_value(ftrace_regs* regs, unsigned long value) {
  if (at_exit(*regs)) {
    regs->ax = value;
    return;
  }
  regs->staged_ax = value;
  regs->flags |= kRegsStagedAx;
}

unsigned long ftrace_regs_get_return_value2(const ftrace_regs* regs) {
  if (at_exit(*regs)) return regs->dx;
  return (regs->flags & kRegsStagedDx) != 0 ? regs->staged_dx : 0;
}

void ftrace_regs_set_return_value2(ftrace_regs* regs, unsigned long value) {
  if (at_exit(*regs)) {
    regs->dx = value;
    return;
  }
  regs->staged_dx = value;
  regs->flags |= kRegsStagedDx;
}

double ftrace_regs_get_fp_argument(const ftrace_regs* regs, unsigned int n) {
  return load<double>(fp_argument_place(*regs, n));
}

void ftrace_regs_set_fp_argument(ftrace_regs* regs, unsigned int n, double value) {
  if (const void* place = fp_argument_place(*regs, n)) std::memcpy(const_cast<void*>(place), &value, sizeof value);
}

float ftrace_regs_get_fp_argument_float(const ftrace_regs* regs, unsigned int n) {
  return load<float>(fp_argument_place(*regs, n));
}

void ftrace_regs_set_fp_argument_float(ftrace_regs* regs, unsigned int n, float value) {
  if (const void* place = fp_argument_place(*regs, n)) std::memcpy(const_cast<void*>(place), &value, sizeof value);
}

double ftrace_regs_get_fp_return_value(const ftrace_regs* regs) {
  return load<double>(fp_result_place(*regs, 0));
}
void ftrace_regs_set_fp_return_value(ftrace_regs* regs, double value) {
  set_fp_result(*regs, 0, value);
}
float ftrace_regs_get_fp_return_value_float(const ftrace_regs* regs) {
  return load<float>(fp_result_place(*regs, 0));
}
void ftrace_regs_set_fp_return_value_float(ftrace_regs* regs, float value) {
  set_fp_result(*regs, 0, value);
}
double ftrace_regs_get_fp_return_value2(const ftrace_regs* regs) {
  return load<double>(fp_result_place(*regs, 1));
}
void ftrace_regs_set_fp_return_value2(ftrace_regs* regs, double value) {
  set_fp_result(*regs, 1, value);
}

unsigned long ftrace_regs_get_instruction_pointer(const ftrace_regs* regs) {
  return regs->ip;
}

void ftrace_regs_set_instruction_pointer(ftrace_regs* regs, unsigned long ip) {
  if (!at_exit(*regs)) regs->ip = ip;
}

unsigned long ftrace_regs_get_stack_pointer(const ftrace_regs* regs) {
  return regs->sp;
}
unsigned long ftrace_regs_get_frame_pointer(const ftrace_regs* regs) {
  return regs->bp;
}
unsigned long ftrace_regs_get_return_address(const ftrace_regs* regs) {
  return regs->return_address;
}

int ftrace_regs_query_register_offset(const char* name) {
  if (name == nullptr) return -EINVAL;
  const std::string_view wanted = name;
  const bool is_wide = wanted.size() == 3 && wanted[0] == 'r';  // "rdi" is "di"; "r10" has no other name
  for (const Name& known : kNames) {
    const bool is_legacy = known.name[0] != 'r';
    if (known.name == wanted || (is_wide && is_legacy && known.name == wanted.substr(1))) return known.offset;
  }
  return -EINVAL;
}

void ftrace_override_function_with_return(ftrace_regs* regs) {
  if (!at_exit(*regs)) regs->flags |= kRegsSkip;
}

}  // extern "C"
