/* The realtime clock of a process, ahead or behind by as many nanoseconds as the file says that $SHIFTED_CLOCK names.

   Nothing else is touched: waits go by the monotonic clock, as they do where an operator sets a machine's clock. The
   file is mapped, so that a test changes it under the running process. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void map_the_file(void)
{
    const char *name = getenv("SHIFTED_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        shift = mapped;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *said)
{
    int result = (int)syscall(SYS_clock_gettime, which, said);
    if (result == 0 && shift && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t nanoseconds = said->tv_nsec + *shift % 1000000000;
        said->tv_sec += *shift / 1000000000;
        if (nanoseconds < 0) {
            nanoseconds += 1000000000;
            said->tv_sec -= 1;
        } else if (nanoseconds >= 1000000000) {
            nanoseconds -= 1000000000;
            said->tv_sec += 1;
        }
        said->tv_nsec = nanoseconds;
    }
    return result;
}

int gettimeofday(struct timeval *said, void *zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    said->tv_sec = exact.tv_sec;
    said->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *said)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (said)
        *said = exact.tv_sec;
    return exact.tv_sec;
}
