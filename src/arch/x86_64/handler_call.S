// The frame below every handler.
//
// Its personality (unwind/personality.cpp) ends the process when a C++ exception would leave a handler, and puts the guard
// right when a forced unwinding (cancellation, pthread_exit) passes.
//     rdi rsi rdx rcx r8    the handler's arguments
//     r9                    the handler
#include "asm.h"

fprobe_function fprobe_call_handler
        .cfi_startproc
        .cfi_personality 0x1b, fprobe_handler_personality
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    *%r9
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
fprobe_end fprobe_call_handler
