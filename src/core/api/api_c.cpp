// The C functions of fprobe.h that act on the registry: arguments are checked in the order of the documented return
// codes, results become 0 or -errno, sentences are kept for fprobe_last_error(), and no exception leaves.
#include <errno.h>
#include <fprobe/fprobe.h>

#include <cstring>
#include <new>
#include <span>

#include "api/dump.h"
#include "api/lifecycle.h"
#include "base/debug_log.h"
#include "base/result.h"
#include "registry/registry.h"

namespace libfprobe::detail {
namespace {

// initial-exec: readable in a signal handler, never allocated lazily.
__attribute__((tls_model("initial-exec"))) constinit thread_local char tls_sentence[Error::kSentenceSize] = "";

int report(const Error& error) noexcept {
  std::memcpy(tls_sentence, error.sentence, sizeof tls_sentence);
  debug_log::say("refused, %d: %s", error.negative(), error.sentence);
  return error.negative();
}

int report(const Result<void>& result) noexcept {
  return result.ok() ? 0 : report(result.error());
}
template <class T>
int report(const Result<T>& result) noexcept {
  return result.ok() ? static_cast<int>(*&result.value()) : report(result.error());
}

// `work` → Result<...>
template <class Work>
int call(const Work& work) noexcept {
  if (const Result<void> entered = lifecycle::enter(); !entered.ok()) return report(entered);
  try {
    return report(work());
  } catch (const std::bad_alloc&) {
    return report(make_error(
        ENOMEM, "out of memory: nothing was changed; free some, or raise the limit of the process, and call again"));
  }
}

int refuse_null(const char* function, const char* argument) noexcept {
  return report(make_error(EINVAL, "%s: %s is NULL, pass a pointer to what it names", function, argument));
}

// What both array forms check.  0: go on.
int check_array(const char* function, const fprobe* fp, const void* array, const char* array_name, int num) noexcept {
  if (fp == nullptr) return refuse_null(function, "fp");
  if (array == nullptr) return refuse_null(function, array_name);
  if (num <= 0)
    return report(
        make_error(EINVAL, "%s: num is %d, it must be positive: the number of entries in the array", function, num));
  return 0;
}

// What both ways to unregister check before they ask whose copy of the library is at work.  0: go on.
int check_registered(const char* function, const fprobe* fp) noexcept {
  if (fp == nullptr) return refuse_null(function, "fp");
  if (!registry::is_attached(*fp))
    return report(make_error(
        EINVAL, "%s: this struct fprobe is not registered (any more): register it first, or leave the call out",
        function));
  return 0;
}

unsigned flags_of(const fprobe* fp) noexcept {
  return __atomic_load_n(&fp->flags, __ATOMIC_RELAXED);  // a switch, orders nothing
}

}  // namespace
}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): the functions below are global by contract

int register_fprobe(struct fprobe* fp, const char* filter, const char* notfilter) {
  if (fp == nullptr) return refuse_null("register_fprobe", "fp");
  if (filter == nullptr) return refuse_null("register_fprobe", "filter");
  return call([&] { return registry::attach(*fp, FilterTarget{filter, notfilter}); });
}

int register_fprobe_ips(struct fprobe* fp, unsigned long* addrs, int num) {
  if (const int error = check_array("register_fprobe_ips", fp, addrs, "addrs", num)) return error;
  return call([&] { return registry::attach(*fp, AddressesTarget(addrs, static_cast<std::size_t>(num))); });
}

int register_fprobe_syms(struct fprobe* fp, const char** syms, int num) {
  if (const int error = check_array("register_fprobe_syms", fp, syms, "syms", num)) return error;
  for (int i = 0; i < num; ++i)
    if (syms[i] == nullptr)
      return report(make_error(EINVAL, "register_fprobe_syms: syms[%d] is NULL, it must be a function's name", i));
  return call([&] { return registry::attach(*fp, SymbolsTarget(syms, static_cast<std::size_t>(num))); });
}

int unregister_fprobe(struct fprobe* fp) {
  if (const int error = check_registered("unregister_fprobe", fp)) return error;
  return call([&] { return registry::detach(*fp, registry::Waiting::kForHandlers); });
}

int unregister_fprobe_async(struct fprobe* fp) {
  if (const int error = check_registered("unregister_fprobe_async", fp)) return error;
  return call([&] { return registry::detach(*fp, registry::Waiting::kNone); });
}

bool fprobe_is_registered(struct fprobe* fp) {
  return fp != nullptr && registry::is_attached(*fp);
}

int fprobe_count_ips_from_filter(const char* filter, const char* notfilter) {
  if (filter == nullptr) return refuse_null("fprobe_count_ips_from_filter", "filter");
  return call([&] { return registry::count_matches(FilterTarget{filter, notfilter}); });
}

void disable_fprobe(struct fprobe* fp) {
  if (fp != nullptr) __atomic_fetch_or(&fp->flags, FPROBE_FL_DISABLED, __ATOMIC_RELAXED);
}

void enable_fprobe(struct fprobe* fp) {
  if (fp != nullptr) __atomic_fetch_and(&fp->flags, ~FPROBE_FL_DISABLED, __ATOMIC_RELAXED);
}

bool fprobe_disabled(struct fprobe* fp) {
  return fp != nullptr && (flags_of(fp) & FPROBE_FL_DISABLED) != 0;
}

bool fprobe_shared_with_kprobes(struct fprobe* fp) {
  return fp != nullptr && (flags_of(fp) & FPROBE_FL_KPROBE_SHARED) != 0;
}

unsigned long fprobe_missed(const struct fprobe* fp, enum fprobe_miss_reason reason) {
  if (fp == nullptr || static_cast<unsigned>(reason) > FPROBE_MISS_THREAD) return 0;
  return __atomic_load_n(&fp->missed_by_reason[reason], __ATOMIC_RELAXED);  // a counter
}

int fprobe_for_each_site(int (*cb)(const struct fprobe_site* site, void* arg), void* arg) {
  if (cb == nullptr) return refuse_null("fprobe_for_each_site", "cb");
  // Not call(): what the callback throws is the caller's own.
  if (const Result<void> entered = lifecycle::enter(); !entered.ok()) return report(entered);
  return report(registry::for_each_site(cb, arg));
}

int fprobe_restore_text(void) {
  return call([] { return registry::restore_text(); });
}

int fprobe_dump(int fd) {
  return call([fd] { return dump(fd); });
}

int fprobe_synchronize(void) {
  return call([] { return registry::synchronize(); });
}

const char* fprobe_last_error(void) {
  return tls_sentence;
}
