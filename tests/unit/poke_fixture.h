// Functions of every flavour to be changed in batches, and what the tests of text_poke ask about them.
#ifndef FPROBE_TESTS_UNIT_POKE_FIXTURE_H_
#define FPROBE_TESTS_UNIT_POKE_FIXTURE_H_

#include <atomic>
#include <thread>

#include "base/syscalls.h"
#include "patch/text_poke.h"
#include "unit/patch_support.h"

namespace fprobe_test {

using namespace libfprobe::detail;

inline constexpr std::size_t kPage = 4096;
inline constexpr int kText = PROT_READ | PROT_EXEC;
enum class Form { kOriginal, kIdle, kArmed };

class InjectedFault {
 public:
  InjectedFault(sys::Call call, int error, long after = 0) : fault_(sys::fault(call)) {
    fault_.fail_after = after;
    fault_.error = error;
  }
  ~InjectedFault() { fault_.error = 0; }

 private:
  sys::Fault& fault_;
};

inline unsigned long calls(sys::Call call) {
  return sys::fault(call).calls;
}

// A second thread, so that the process is not alone.
class Company {
 public:
  Company() : thread_([this] { leave_.wait(false); }) {}
  ~Company() {
    leave_ = true;
    leave_.notify_all();
    thread_.join();
  }

 private:
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

class Poke : public ::testing::Test {
 protected:
  static constexpr std::size_t kFunctions = CodeArea::kFirstFunction;
  static constexpr std::size_t kThunks = 0x80000;
  static constexpr std::size_t kSize = 0x100000;

  Poke() : area_(kSize) {
    area_.protect_functions(kText);
    before_ = rights();
  }

  // A function of this flavour at `offset` of the area, with its thunk.
  void add(std::size_t flavour_index, std::size_t offset) {
    const Flavour& flavour = flavours()[flavour_index];
    area_.protect_functions(PROT_READ | PROT_WRITE | PROT_EXEC);
    area_.put_function(flavour, offset);
    const std::uintptr_t low = arch::thunk_place(area_.address(offset), flavour.shape).value;
    next_thunk_ = (next_thunk_ & ~std::size_t{0xff}) + 0x100 + low;
    area_.put_thunk(next_thunk_, offset + flavour.shape.length);
    area_.protect_functions(kText);
    sites_.push_back({&flavour, offset, next_thunk_});
  }
  // One of each flavour at each place of a cache line, four functions to a page's quarter.
  void add_all() {
    std::size_t offset = kFunctions;
    for (std::size_t place = 0; place < 64; ++place) {
      for (std::size_t i = 0; i < flavours().size(); ++i, offset += 128) add(i, offset + place);
    }
  }

  struct SiteInfo {
    const Flavour* flavour;
    std::size_t offset, thunk;
  };
  void bytes(const SiteInfo& site, Form form, std::uint8_t* out) const {
    const Bytes original = area_.original(*site.flavour, site.offset);
    const std::uintptr_t ip = area_.address(site.offset);
    std::memcpy(out, original.data(), original.size());
    if (form == Form::kIdle) arch::idle_bytes(ip, site.flavour->shape, original.data(), out);
    if (form == Form::kArmed)
      arch::armed_bytes(ip, site.flavour->shape, area_.address(site.thunk), original.data(), out);
  }
  TextEdit edit(const SiteInfo& site, Form from, Form to) const {
    TextEdit result;
    result.ip = area_.address(site.offset);
    result.shape = site.flavour->shape;
    bytes(site, from, result.before);
    bytes(site, to, result.after);
    return result;
  }
  std::vector<TextEdit> edits(Form from, Form to) const {
    std::vector<TextEdit> all;
    for (const SiteInfo& site : sites_) all.push_back(edit(site, from, to));
    return all;
  }
  Result<void> poke(Form from, Form to, PokeMode mode = PokeMode::kAllOrNothing) {
    edits_ = edits(from, to);
    return poke_text(edits_, mode);
  }

  void expect_all(Form form) {
    for (const SiteInfo& site : sites_) {
      std::uint8_t wanted[arch::kMaxSiteLength];
      bytes(site, form, wanted);
      EXPECT_EQ(hex(area_.at(site.offset), site.flavour->shape.length), hex(wanted, site.flavour->shape.length))
          << site.flavour->name << " at +" << site.offset % 64;
      const unsigned long hits = area_.hits();
      EXPECT_TRUE(area_.runs(site.offset));
      EXPECT_EQ(area_.hits() - hits, form == Form::kArmed ? 1U : 0U);
    }
  }
  std::vector<std::string> rights() const { return page_rights(area_.address(0), area_.address(kSize)); }
  std::string text() const {
    return std::string(reinterpret_cast<const char*>(area_.at(0)) + kFunctions, kSize - kFunctions);
  }

  CodeArea area_;
  std::size_t next_thunk_ = kThunks;
  std::vector<SiteInfo> sites_;
  std::vector<TextEdit> edits_;
  std::vector<std::string> before_;
};

}  // namespace fprobe_test

#endif  // FPROBE_TESTS_UNIT_POKE_FIXTURE_H_
