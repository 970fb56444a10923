// Result<T>: a value, or an Error {errno, sentence}.
//
// The sentence is for the user: it names the culprit, the module and the remedy, and it is kept in a buffer of fixed
// size so that an error can be reported when memory is exhausted.  Nothing below api/ stores or prints it: an Error is
// handed up, and api/ alone keeps it for fprobe_last_error().
#ifndef FPROBE_SRC_CORE_BASE_RESULT_H_
#define FPROBE_SRC_CORE_BASE_RESULT_H_

#include <cstdarg>
#include <cstdio>
#include <utility>
#include <variant>

namespace libfprobe::detail {

struct Error {
  static constexpr std::size_t kSentenceSize = 448;

  int code = 0;                    // a positive errno value
  char sentence[kSentenceSize]{};  // always terminated; long names are cut, never the code

  // The negative value the C API returns.
  [[nodiscard]] int negative() const noexcept { return -code; }
};

// Makes an Error from a printf format.
[[nodiscard]] __attribute__((format(printf, 2, 3))) inline Error make_error(int code, const char* format,
                                                                            ...) noexcept {
  Error error;
  error.code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error.sentence, sizeof error.sentence, format, arguments);
  va_end(arguments);
  return error;
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(const Error& error) : state_(std::in_place_index<1>, error) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  T& value() & noexcept { return *std::get_if<0>(&state_); }
  const T& value() const& noexcept { return *std::get_if<0>(&state_); }
  T&& value() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & noexcept { return value(); }
  T* operator->() noexcept { return &value(); }
  const T* operator->() const noexcept { return &value(); }
  [[nodiscard]] const Error& error() const noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(const Error& error) : error_(error) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return error_.code == 0; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_BASE_RESULT_H_
