/* SPDX-License-Identifier: MIT */
/*
 * fprobe.h - probe the entry and the exit of functions in the running process.
 *
 * Names and meanings are those of the Linux kernel's fprobe (Documentation/trace/fprobe.rst), carried over to
 * userspace; additions have the prefix `fprobe_` or `FPROBE_`. The functions to be probed are compiled with
 * `-pg -mfentry`, `-fpatchable-function-entry` or `-pg` alone (CMake: fprobe_instrument()).
 *
 * Unless a comment says otherwise a function may be called from any thread at any time, is not async-signal-safe, and
 * returns 0 or a negative errno value; after a failure nothing has been patched, the struct may be used again, and
 * fprobe_last_error() names the culprit.
 */
#ifndef FPROBE_FPROBE_H
#define FPROBE_FPROBE_H

#include <fprobe/ftrace_regs.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fprobe;

/*
 * Entry handler: called before the first instruction of the function's body, on the thread that called it.
 *
 * @fp          the probe, as registered; embed it in a larger struct and use container_of() to find your own data
 * @entry_ip    address of the patched location, the same at both ends
 * @ret_ip      true return address in the caller, the same at both ends
 * @fregs       the call's registers, valid until the handler returns
 * @entry_data  entry_data_size bytes shared with the exit handler of this very call: zeroed, aligned to `long`;
 *              NULL when there is no exit handler or entry_data_size is 0
 *
 * Returns 0, or non-zero to cancel this probe's exit handler for this call. The handler may call anything; functions
 * probed by anyone that it calls run unprobed (FPROBE_MISS_RECURSION). No C++ exception may leave it, and it must not
 * be left by longjmp.
 */
typedef int (*fprobe_entry_cb)(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip,
                               struct ftrace_regs* fregs, void* entry_data);

/*
 * Exit handler: called when the function has returned, or while it is left by an exception, pthread_exit() or
 * pthread_cancel() (see fprobe_exit_reason()). Parameters and rules as for the entry handler.
 */
typedef void (*fprobe_exit_cb)(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip,
                               struct ftrace_regs* fregs, void* entry_data);

/* Only the two flags below matter here: with either, recursion misses are not counted, as the kernel documents. */
struct ftrace_ops {
  unsigned long flags;
};

#define FTRACE_OPS_FL_RECURSION (1UL << 4)
#define FTRACE_OPS_FL_RCU (1UL << 14)

/* fprobe.flags. Set them before registering; DISABLED changes through disable_fprobe() and enable_fprobe() later. */
#define FPROBE_FL_DISABLED 1U      /* no handler runs */
#define FPROBE_FL_KPROBE_SHARED 2U /* does not fire while kprobe_running() (fprobe/kprobes.h) */
#define FPROBE_FL_NEW_MODULES 4U   /* a filter also covers modules loaded later, see register_fprobe() */
#define FPROBE_FL_GENERAL_REGS 8U  /* handlers are compiled with -mgeneral-regs-only: vector registers are not saved */
#define FPROBE_FL_SAVE_FPENV 16U   /* sticky floating-point exception flags are restored too (costs tens of ns) */
/* What a hit keeps without these two: every register that the psABI lets a caller rely on (vectors in their full width in
 * modules that use wide ones; for gcc's patchable sites every register, since -fipa-ra may be on), rounding modes, control
 * bits, errno. FPROBE_SAVE_ALL=1 in the environment, read at load: the CPU's whole state, for code with calling
 * conventions of its own (preserve_most, regcall, ms_abi); costs some hundred ns. */

/* Largest entry_data_size, in bytes, however many probes share the function. */
#define MAX_FPROBE_DATA_SIZE (15 * sizeof(long))

/*
 * A probe. Zero-initialise it, fill in what is wanted, register it, and keep it alive until unregister_fprobe() has
 * returned. Handlers, entry_data_size and flags other than DISABLED must not change while it is registered.
 *
 *   struct fprobe probe = {0};                                               // C; then probe.entry_handler = entered;
 *   struct fprobe probe = {.entry_handler = entered, .exit_handler = left};  // C
 *   fprobe probe{};                                                          // C++
 */
struct fprobe {
  unsigned long nmissed;         /* all misses since registration; see fprobe_missed() for the reasons */
  unsigned int flags;            /* FPROBE_FL_* */
  size_t entry_data_size;        /* bytes, at most MAX_FPROBE_DATA_SIZE */
  fprobe_entry_cb entry_handler; /* may be NULL */
  fprobe_exit_cb exit_handler;   /* may be NULL */
  struct ftrace_ops ops;         /* ops.flags: FTRACE_OPS_FL_* */

  /* private: the library's own, never read or written by the user */
  unsigned long missed_by_reason[5];
  void* handle;
};

/* ---- registering --------------------------------------------------------------------------------------------------
 *
 * Handlers may start to run before a register function returns. nmissed and all reasons are set to 0, flags are left
 * alone. All three may be called inside a handler. Common errors: -EINVAL (a NULL pointer, num <= 0), -EEXIST (already
 * registered), -E2BIG (entry_data_size), -EBUSY (another copy of the library is at work in this process: link it once,
 * as a shared library), -EACCES or -EPERM (the text may not be written), -ENOMEM, -ENOSPC (no room for code within jump
 * range).
 */

/*
 * Probes every function whose name matches `filter` and not `notfilter` (NULL or "": nothing excluded).
 *
 * A function answers to its linkage name (without a symbol version), its demangled name without parameters and its full
 * demangled signature. Names are read from the module's file or, if that is stripped or gone, from its debug file
 * (/usr/lib/debug/.build-id, .gnu_debuglink), else from the dynamic symbols.
 *
 * A filter is a glob over the whole name: `*`, `?`, `[a-z]`, `[!x]`, `\`. A comma outside brackets separates
 * alternatives, a leading `!` excludes, `module:pattern` restricts to a module by file name or soname. Handlers of
 * registered probes are left out. It selects among the modules that are loaded now, and succeeds when one function
 * matches: an alternative that matches nothing goes unnoticed.
 *
 * Also -ENOENT (empty pattern; nothing matches), -EINVAL (malformed: unclosed `[`, trailing `\`, empty alternative).
 *
 * With FPROBE_FL_NEW_MODULES it goes on selecting, until it is unregistered, in each module that dlopen() loads: hits
 * begin with the module's constructors. Then it succeeds though nothing matches yet. Unloaded modules drop out, and are
 * covered again when they come back. Where a module cannot be attached to (no memory, text that may not be written), all
 * of it is left out, and tried again at the next load and the next call of a register or unregister function or of
 * fprobe_synchronize(). That call is also when names that only an IFUNC gives are found, and modules with text
 * relocations; modules in namespaces of dlmopen() never are. -EOPNOTSUPP: no loader (-static), or one of an unknown
 * kind; -EBUSY: a debugger's breakpoint is where the loader announces modules.
 */
FPROBE_API int register_fprobe(struct fprobe* fp, const char* filter, const char* notfilter);

/*
 * Probes the functions at `num` addresses, each a site's entry_ip or a function's first byte. Duplicates and aliases
 * fire once. Also -ENOENT (an address is neither). The array is only read. FPROBE_FL_NEW_MODULES has no effect.
 */
FPROBE_API int register_fprobe_ips(struct fprobe* fp, unsigned long* addrs, int num);

/*
 * Probes `num` functions by exact name (no globs, blanks count; `module:name` is understood). A name with several
 * bearers, such as overloads or static functions of two files, attaches to all of them. Also -ENOENT (a name is
 * unknown, or no bearer of it can be probed: fprobe_last_error() says how to compile it). The array is only read.
 * FPROBE_FL_NEW_MODULES has no effect.
 */
FPROBE_API int register_fprobe_syms(struct fprobe* fp, const char** syms, int num);

/*
 * Takes the probe off and waits until none of its handlers runs on any thread: then the struct and the handlers' code
 * may be freed. It waits for handlers only, never for probed functions; calls in flight return to the right place
 * without an exit handler. Sites no probe uses any more are as they were before the first registration.
 *
 * -EINVAL: NULL or not registered. -EDEADLK: called inside a handler (use unregister_fprobe_async()). Otherwise it
 * cannot fail.
 */
FPROBE_API int unregister_fprobe(struct fprobe* fp);

/*
 * As above, but does not wait: no new handler starts, running ones finish. The struct may be registered again at once
 * and freed after fprobe_synchronize(). May be called inside a handler. -EINVAL: NULL or not registered.
 */
FPROBE_API int unregister_fprobe_async(struct fprobe* fp);

/* True from the moment a register function succeeds until an unregister function is called. NULL: false. */
FPROBE_API bool fprobe_is_registered(struct fprobe* fp);

/* How many functions register_fprobe() would attach to with these filters, or the negative errno it would return. */
FPROBE_API int fprobe_count_ips_from_filter(const char* filter, const char* notfilter);

/*
 * Soft switch: works at any time on any thread, inside handlers and on unregistered structs (which stay disabled when
 * registered). A call in flight when its probe is disabled has no exit handler, and that is not a miss. NULL is
 * ignored. All four are async-signal-safe.
 */
FPROBE_API void disable_fprobe(struct fprobe* fp);
FPROBE_API void enable_fprobe(struct fprobe* fp);
FPROBE_API bool fprobe_disabled(struct fprobe* fp);            /* FPROBE_FL_DISABLED is set; NULL: false */
FPROBE_API bool fprobe_shared_with_kprobes(struct fprobe* fp); /* FPROBE_FL_KPROBE_SHARED is set; NULL: false */

/* ---- additions of userspace ---------------------------------------------------------------------------------------
 */

/* Before a declaration: the compiler makes no site in this function, so it can never be probed. */
#define FPROBE_NOTRACE __attribute__((no_instrument_function, patchable_function_entry(0, 0)))

/* Why a handler did not run although its function was called. */
enum fprobe_miss_reason {
  FPROBE_MISS_RECURSION, /* called from a handler in the same context */
  FPROBE_MISS_NO_FRAME,  /* the thread's shadow stack was full: entry ran, exit did not */
  FPROBE_MISS_KPROBE,    /* FPROBE_FL_KPROBE_SHARED and kprobe_running() */
  FPROBE_MISS_DROPPED,   /* the frame was left by longjmp or the like: entry ran, exit did not */
  FPROBE_MISS_THREAD     /* the thread could not be given a state of its own */
};

/* How a function was left. */
enum fprobe_exit_reason {
  FPROBE_EXIT_RETURNED, /* by its return instruction */
  FPROBE_EXIT_UNWOUND   /* by an exception, pthread_exit() or pthread_cancel(): return values read 0 */
};

/* What the compiler left at the start of a function. */
enum fprobe_site_kind {
  FPROBE_SITE_FENTRY,   /* -pg -mfentry */
  FPROBE_SITE_MCOUNT,   /* -pg: behind the prologue; an exit costs a mispredicted return there */
  FPROBE_SITE_PATCHABLE /* -fpatchable-function-entry */
};

/* A place that can be probed. Strings are never NULL and valid during the callback that receives them. */
struct fprobe_site {
  unsigned long ip;       /* the entry_ip handlers get */
  unsigned long function; /* the function's first byte */
  const char* symbol;     /* linkage name, "" when unknown */
  const char* demangled;  /* full demangled signature, or the linkage name of a C function */
  const char* module;     /* path of the executable or shared object */
  enum fprobe_site_kind kind;
};

/*
 * Misses of `fp` by reason since it was registered; nmissed is their sum. Exact once the threads concerned are joined
 * or unregister_fprobe() has returned; readable after that. 0 for NULL and for an unknown reason. Async-signal-safe.
 */
FPROBE_API unsigned long fprobe_missed(const struct fprobe* fp, enum fprobe_miss_reason reason);

/* In an exit handler: how the function was left. In an entry handler: FPROBE_EXIT_RETURNED. Async-signal-safe. */
FPROBE_API enum fprobe_exit_reason fprobe_exit_reason(const struct ftrace_regs* fregs);

/*
 * Inside a handler: writes up to `max` addresses of the call chain to `ips`, ips[0] = entry_ip, ips[1] = ret_ip, and so
 * on outward, true addresses throughout. Returns how many, or -EINVAL (a NULL pointer, max <= 0).
 */
FPROBE_API int fprobe_backtrace(const struct ftrace_regs* fregs, unsigned long* ips, int max);

/*
 * While an exit probe is on a function its return address, as seen by __builtin_return_address(0), is one of the
 * library's. This gives the true one. `cfa` is __builtin_dwarf_cfa() of that frame; NULL means the innermost one of
 * this thread. Any other address is returned unchanged. Async-signal-safe.
 */
FPROBE_API unsigned long fprobe_return_address(unsigned long addr, const void* cfa);

/*
 * Calls `cb` for every site of every loaded module until one call returns non-zero; returns that value, or 0. No lock
 * of the library is held during the call. -EINVAL: `cb` is NULL.
 */
FPROBE_API int fprobe_for_each_site(int (*cb)(const struct fprobe_site* site, void* arg), void* arg);

/* Puts the bytes of the files back everywhere, as they were before the library prepared them. -EBUSY while any probe is
 * registered. A later registration works as usual. */
FPROBE_API int fprobe_restore_text(void);

/*
 * Writes the library's state as text for humans to a file descriptor: modules and their sites, probes, sites with
 * probes, threads. The text may change with any version. May be called inside a handler; no lock of the library is held
 * while it writes. 0, or what write() gave (-EBADF, -EPIPE, ...).
 */
FPROBE_API int fprobe_dump(int fd);

/*
 * Waits until no handler of any probe unregistered before the call still runs. 0, or -EDEADLK inside a handler.
 */
FPROBE_API int fprobe_synchronize(void);

/*
 * A sentence about the calling thread's last failure; "" before the first, never NULL. Valid until this thread's next
 * failure. Async-signal-safe.
 */
FPROBE_API const char* fprobe_last_error(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FPROBE_FPROBE_H */
