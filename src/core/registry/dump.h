// The registry as text for humans: fprobe_dump().  The shape is promised to nobody.
//
//   libfprobe 0.1.0, process 4711
//   sites without a probe: nops
//   modules loaded later: announced by a jump at ld-linux-x86-64.so.2+0x2060
//
//   modules
//   /usr/bin/service: 12 sites (10 fentry, 2 patchable; 10 call through GOT, 2 single nops), 3 armed
//     refused 2: its profiling call is of -mcmodel=large; compile it without
//   (7 modules without sites)
//
//   probes
//   0x7ffd3c20: 3 sites by filter 'app::*' without 'app::test*', entry entered (service), exit left (service),
//       16 bytes of entry data, flags new_modules, 1 missed (1 recursion)
//
//   sites with probes
//   0x55d0c1a4 app::work(int) (service): armed, 0x7ffd3c20 0x7ffd3c88          newest first, as their handlers run
//
//   threads                                                                    (api/dump.cpp)
//   4711: 2 frames, in a handler of 0x7ffd3c20 at 0x55d0c1a4
//
//   waiting for readers: 1 sets of probe lists, 0 unloaded modules
#ifndef FPROBE_SRC_CORE_REGISTRY_DUMP_H_
#define FPROBE_SRC_CORE_REGISTRY_DUMP_H_

#include <string>

#include "base/result.h"

namespace libfprobe::detail::registry {

// `describe_threads` adds the layers above; called with the registry mutex held, so that no Site or list is freed.
[[nodiscard]] Result<std::string> describe(void (*describe_threads)(std::string& text));

}  // namespace libfprobe::detail::registry

#endif  // FPROBE_SRC_CORE_REGISTRY_DUMP_H_
