// The unwinder that called a personality, and the accessors that understand its contexts.
//
// A process may hold several unwinders: copies of libgcc in the executable and in shared objects, LLVM's libunwind
// beside the libgcc_s.so that glibc loads for pthread_exit and pthread_cancel.  A context belongs to the one that made
// it; the accessors our own references bind to may be another's, which would read it wrongly or abort.
#ifndef FPROBE_SRC_CORE_UNWIND_UNWINDER_H_
#define FPROBE_SRC_CORE_UNWIND_UNWINDER_H_

#include <unwind.h>

#include <cstdint>

namespace libfprobe::detail {

struct Unwinder {
  decltype(&_Unwind_GetIP) get_ip;
  decltype(&_Unwind_GetCFA) get_cfa;
  decltype(&_Unwind_SetGR) set_gr;
  decltype(&_Unwind_SetIP) set_ip;
};

// `caller`: the return address of the personality.  Takes the loader's lock the first time it sees a caller.
[[nodiscard]] Unwinder unwinder_of(std::uintptr_t caller) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_UNWIND_UNWINDER_H_
