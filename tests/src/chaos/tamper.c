/*
 * Loaded into a process under test before the C library: its wall clock jumps, and its syncs fail, when
 * the file named by CHAOS_TAMPER says so. The file is mapped, so what is written to it holds at once.
 *
 * Only the wall clock: the clocks that measure durations go on as they do when an administrator sets the
 * time. Waiting for a moment of the wall clock is set back by the jump, as the kernel would do it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct orders {
  int64_t clock_offset_seconds;
  int64_t syncs_fail;
};

static const struct orders none;
static const volatile struct orders *orders = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  /* Without its version one may get the one for programs older than this kind of condition variable. */
  real_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real_timedwait) real_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  const char *path = getenv("CHAOS_TAMPER");
  if (!path) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(struct orders), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) orders = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = real_clock_gettime ? real_clock_gettime(clock, now)
                                  : (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += orders->clock_offset_seconds;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec moment;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &moment)) return -1;
  now->tv_sec = moment.tv_sec;
  now->tv_usec = moment.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec moment;
  if (clock_gettime(CLOCK_REALTIME, &moment)) return (time_t)-1;
  if (now) *now = moment.tv_sec;
  return moment.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  struct timespec moment = *until;
  /* A moment of the clock that counts from the start of the machine is far below this. */
  if (moment.tv_sec > 500000000) moment.tv_sec -= orders->clock_offset_seconds;
  return real_timedwait(condition, mutex, &moment);
}

static int sync_with(long call, int file) {
  if (orders->syncs_fail) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(call, file);
}

int fsync(int file) { return sync_with(SYS_fsync, file); }

int fdatasync(int file) { return sync_with(SYS_fdatasync, file); }
