// Teaches ThreadSanitizer the orders it cannot see: the grace period (membarrier), code that is compiled unsanitized,
// and the dynamic linker's locks.
#ifndef FPROBE_SRC_CORE_BASE_TSAN_H_
#define FPROBE_SRC_CORE_BASE_TSAN_H_

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FPROBE_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(FPROBE_SANITIZE_THREAD)
#define FPROBE_TSAN 1  // hot files are compiled without -fsanitize=thread: the build defines FPROBE_SANITIZE_THREAD
#endif

#ifdef FPROBE_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace libfprobe::detail {

#ifdef FPROBE_TSAN
inline constexpr bool kTsanWatches = true;
#else
inline constexpr bool kTsanWatches = false;
#endif

// What happened before tsan_release(x) on one thread happened before what follows tsan_acquire(x) on another.
inline void tsan_acquire([[maybe_unused]] const void* address) noexcept {
#ifdef FPROBE_TSAN
  __tsan_acquire(const_cast<void*>(address));
#endif
}
inline void tsan_release([[maybe_unused]] const void* address) noexcept {
#ifdef FPROBE_TSAN
  __tsan_release(const_cast<void*>(address));
#endif
}

// While it lives, what the dynamic linker wrote is read under the dynamic linker's lock.  ThreadSanitizer's own
// dl_iterate_phdr forgives reads of a module's name, but not of the byte that ends it.
class TsanLoaderReads {
 public:
  TsanLoaderReads() noexcept {
#ifdef FPROBE_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
  }
  ~TsanLoaderReads() {
#ifdef FPROBE_TSAN
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  TsanLoaderReads(const TsanLoaderReads&) = delete;
  TsanLoaderReads& operator=(const TsanLoaderReads&) = delete;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_BASE_TSAN_H_
