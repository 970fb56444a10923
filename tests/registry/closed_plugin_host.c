/* A program without libfprobe closes a plugin that brought one while a thread is inside a probed function of it; the
 * thread returns and ends after that. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static sem_t inside, closed;
static long (*call)(long (*)(void));

static long wait_inside(void) {
  sem_post(&inside);
  sem_wait(&closed);
  return 41;
}

static void* run(void* result) {
  *(long*)result = call(&wait_inside);
  return NULL;
}

int main(int argc, char** argv) {
  void* const plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (plugin == NULL) return puts(dlerror()), 1;
  int (*start)(void), (*stop)(void);
  *(void**)&start = dlsym(plugin, "plugin_start");
  *(void**)&stop = dlsym(plugin, "plugin_stop");
  *(void**)&call = dlsym(plugin, "plugin_call");
  sem_init(&inside, 0, 0);
  sem_init(&closed, 0, 0);
  if (start() != 0) return puts("not registered"), 2;
  long result = 0;
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, &result) != 0) return 3;
  sem_wait(&inside);
  if (stop() != 0) return puts("not unregistered"), 4;
  dlclose(plugin);
  sem_post(&closed);
  pthread_join(thread, NULL);
  printf("%ld\n", result);
  return result == 42 ? 0 : 5;
}
