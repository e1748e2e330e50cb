/* The clock of one host, moved. The file $CLOCK_SHIFT holds the seconds, as 64 bits, and may change at any time.
 *
 * Programs that preload this library read the real-time clock with the shift. The monotonic clock stays, as in the
 * kernel. Waits until a moment of the real-time clock are told in shifted time, so the library takes the shift away
 * again. A wait that has begun does not follow a later shift, and the times of files are the kernel's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_in_file;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        shift_in_file = mapped;
}

static int64_t shift(void) { return shift_in_file ? *shift_in_file : 0; }

static int is_real(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* Whether a moment is one of the real-time clock. No machine has been up for 30 years. */
static int is_date(const struct timespec *moment) { return moment && moment->tv_sec > 1000000000; }

static const struct timespec *unshifted(const struct timespec *moment, struct timespec *space) {
    if (!is_date(moment))
        return moment;
    *space = *moment;
    space->tv_sec -= shift();
    return space;
}

/* The C library's definition of a function. Conditions have an older one too, which dlsym would find. */
#define FIND(name, found)                                                                                              \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
        next = (__typeof__(&name))found;
#define NEXT(name) FIND(name, dlsym(RTLD_NEXT, #name))
#ifdef __x86_64__
#define NEXT_OF_CONDITIONS(name) FIND(name, dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2"))
#else
#define NEXT_OF_CONDITIONS(name) NEXT(name)
#endif

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime)
    int failed = next(clock, now);
    if (!failed && is_real(clock))
        now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    NEXT(gettimeofday)
    int failed = next(now, zone);
    if (!failed)
        now->tv_sec += shift();
    return failed;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept)
        *kept = now.tv_sec;
    return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *length, struct timespec *left) {
    NEXT(clock_nanosleep)
    struct timespec space;
    return next(clock, flags, flags & TIMER_ABSTIME ? unshifted(length, &space) : length, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end) {
    NEXT_OF_CONDITIONS(pthread_cond_timedwait)
    struct timespec space;
    return next(condition, mutex, unshifted(end, &space));
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *end) {
    NEXT(pthread_cond_clockwait)
    struct timespec space;
    return next(condition, mutex, clock, unshifted(end, &space));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict end) {
    NEXT(pthread_mutex_timedlock)
    struct timespec space;
    return next(mutex, unshifted(end, &space));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end) {
    NEXT(sem_timedwait)
    struct timespec space;
    return next(semaphore, unshifted(end, &space));
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict end) {
    NEXT(sem_clockwait)
    struct timespec space;
    return next(semaphore, clock, unshifted(end, &space));
}

/* Abseil waits by futexes of its own. */
long syscall(long number, ...) {
    NEXT(syscall)
    long word[6];
    va_list words;
    va_start(words, number);
    for (int i = 0; i < 6; i++)
        word[i] = va_arg(words, long);
    va_end(words);
    struct timespec space;
    if (number == SYS_futex && (word[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
        word[3] = (long)unshifted((const struct timespec *)word[3], &space);
    long result = next(number, word[0], word[1], word[2], word[3], word[4], word[5]);
    if (number == SYS_clock_gettime && !result && is_real((clockid_t)word[0]))
        ((struct timespec *)word[1])->tv_sec += shift();
    return result;
}
