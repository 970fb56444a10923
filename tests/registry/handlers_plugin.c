/* A library of handlers, to be unloaded when its probe is. */
#include <fprobe/fprobe.h>

int plugin_on_entry(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                    void* data);
void plugin_on_exit(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                    void* data);
unsigned long plugin_hits(void);

static unsigned long g_hits;

int plugin_on_entry(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                    void* data) {
  (void)fp, (void)entry_ip, (void)ret_ip, (void)fregs, (void)data;
  ++g_hits;
  return 0;
}
void plugin_on_exit(struct fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, struct ftrace_regs* fregs,
                    void* data) {
  (void)fp, (void)entry_ip, (void)ret_ip, (void)fregs, (void)data;
  ++g_hits;
}
unsigned long plugin_hits(void) {
  return g_hits;
}
