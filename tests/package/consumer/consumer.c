/* A user's program, compiled as C11 and as C++20: probes one function at both ends and checks what the handlers saw. */
#include <fprobe/fprobe.h>
#include <fprobe/ftrace_regs.h>
#include <fprobe/kprobes.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C"
#endif
    __attribute__((noinline)) int
    consumer_victim(int x);
static volatile int factor = 2; /* else the compiler may call the function before or after it is probed */
int consumer_victim(int x) {
  return factor * x;
}

static int entries, exits, argument, result;

static int on_entry(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                    void* data) {
  (void)fp, (void)entry_ip, (void)ret_ip;
  *(long*)data = 42;
  argument = (int)ftrace_regs_get_argument(fregs, 0);
  ++entries;
  return 0;
}

static void on_exit_(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                     void* data) {
  (void)fp, (void)entry_ip, (void)ret_ip;
  result = (int)ftrace_regs_get_return_value(fregs);
  exits += *(long*)data == 42;
}

static struct fprobe probe;

int main(int argc, char** argv) {
  const char* names[] = {"consumer_victim"};
  (void)argv;
  probe.entry_handler = on_entry;
  probe.exit_handler = on_exit_;
  probe.entry_data_size = sizeof(long);
  if (register_fprobe_syms(&probe, names, 1) != 0) {
    printf("register_fprobe_syms: %s\n", fprobe_last_error());
    return 1;
  }
  int sum = consumer_victim(argc + 20);
  if (unregister_fprobe(&probe) != 0) return 1;
  sum += consumer_victim(argc + 30);
  printf("%d entry, %d exit, argument %d, result %d, sum %d\n", entries, exits, argument, result, sum);
  return entries == 1 && exits == 1 && argument == argc + 20 && result == 2 * argument && !kprobe_running() ? 0 : 1;
}
