#include "stress/storm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>

namespace storm {

Failures failures;
std::array<std::atomic<unsigned long>, kFunctions> entry_hits{}, exit_hits{};

namespace {

unsigned long environment_number(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoul(text, nullptr, 10) : otherwise;
}

struct Address {
  unsigned long address;
  unsigned index;
};

const std::array<Address, kFunctions> by_address = [] {
  std::array<Address, kFunctions> sorted{};
  for (unsigned i = 0; i < kFunctions; ++i) sorted[i] = {address_of(i), i};
  std::sort(sorted.begin(), sorted.end(), [](const Address& a, const Address& b) { return a.address < b.address; });
  return sorted;
}();

void add_one(std::atomic<unsigned long>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);  // read after the threads are joined
}

}  // namespace

unsigned long scale() {
  static const unsigned long value = std::max(1ul, environment_number("FPROBE_STRESS_SCALE", 1));
  return value;
}

std::uint64_t seed() {
  static const std::uint64_t value = environment_number("FPROBE_STRESS_SEED", 1);
  return value;
}

unsigned index_of(unsigned long entry_ip) {
  const auto found = std::lower_bound(by_address.begin(), by_address.end(), entry_ip,
                                      [](const Address& a, unsigned long ip) { return a.address < ip; });
  return found != by_address.end() && found->address == entry_ip ? found->index : kFunctions;
}

bool call(unsigned index, long salt) {
  const long a = salt, b = salt * 3, c = ~salt, d = salt << 20, e = -salt, f = salt ^ 0x5555;
  return storm_functions[index](a, b, c, d, e, f) == expected(index, a, b, c, d, e, f);
}

std::string signal_state() {
  std::ifstream status("/proc/self/status");
  std::string lines;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk", 0) == 0 || line.rfind("SigIgn", 0) == 0 || line.rfind("SigCgt", 0) == 0) {
      lines += line + "\n";
    }
  }
  return lines;
}

// --- Probe

Probe::Probe(Handlers handlers) {
  if (handlers != Handlers::kExit) fprobe_.entry_handler = on_entry;
  if (handlers != Handlers::kEntry) fprobe_.exit_handler = on_exit;
  if (handlers == Handlers::kBoth) fprobe_.entry_data_size = sizeof(Data);
}

Probe::~Probe() {
  if (fprobe_is_registered(&fprobe_)) std::abort();
}

int Probe::attach(std::vector<unsigned long>& addresses) {
  return register_fprobe_ips(&fprobe_, addresses.data(), static_cast<int>(addresses.size()));
}

int Probe::detach(bool in_two_steps) {
  if (!in_two_steps) return unregister_fprobe(&fprobe_);
  const int result = unregister_fprobe_async(&fprobe_);
  return result != 0 ? result : fprobe_synchronize();
}

void Probe::bury(std::unique_ptr<Probe> probe) {
  constexpr std::size_t kQuarantine = 256;
  static std::mutex mutex;  // of `graves`
  static std::deque<std::unique_ptr<Probe>> graves;

  probe->state_ = kDead;
  // A late call of the library would find handlers and sizes that crash it, or a dead mark.
  std::memset(static_cast<void*>(&probe->fprobe_), 0xa5, sizeof probe->fprobe_);
  probe->fprobe_.handle = nullptr;  // what "not registered" means to fprobe_is_registered()
  std::unique_ptr<Probe> oldest;    // freed outside the lock
  const std::lock_guard lock(mutex);
  graves.push_back(std::move(probe));
  if (graves.size() <= kQuarantine) return;
  oldest = std::move(graves.front());
  graves.pop_front();
}

Probe* Probe::alive(fprobe* probe) {
  static_assert(offsetof(Probe, fprobe_) == 0);
  auto* self = reinterpret_cast<Probe*>(probe);
  if (self->state_ == kAlive) return self;
  add_one(failures.after_unregister);
  return nullptr;
}

int Probe::on_entry(fprobe* probe, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data) {
  Probe* self = alive(probe);
  if (self == nullptr) return 0;
  add_one(self->entries_);
  const unsigned index = index_of(entry_ip);
  if (index == kFunctions) {
    add_one(failures.foreign_site);
    return 0;
  }
  add_one(entry_hits[index]);
  if ((data != nullptr) != (self->fprobe_.exit_handler != nullptr)) add_one(failures.wrong_data);
  if (data == nullptr) return 0;
  const auto argument = [&](unsigned n) { return static_cast<long>(ftrace_regs_get_argument(regs, n)); };
  auto& own = *static_cast<Data*>(data);
  if (own.entry_ip != 0 || own.ret_ip != 0 || own.argument_sum != 0) add_one(failures.wrong_data);
  own = {entry_ip, ret_ip,
         expected(index, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5))};
  return 0;
}

void Probe::on_exit(fprobe* probe, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data) {
  Probe* self = alive(probe);
  if (self == nullptr) return;
  add_one(self->exits_);
  const unsigned index = index_of(entry_ip);
  if (index == kFunctions) {
    add_one(failures.foreign_site);
    return;
  }
  add_one(exit_hits[index]);
  if (data == nullptr) return;
  const auto& own = *static_cast<const Data*>(data);
  if (own.entry_ip != entry_ip || own.ret_ip != ret_ip) add_one(failures.wrong_data);
  if (static_cast<long>(ftrace_regs_get_return_value(regs)) != own.argument_sum) add_one(failures.wrong_result);
}

}  // namespace storm
