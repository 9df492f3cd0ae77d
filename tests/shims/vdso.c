// What takes the place of the kernel's vDSO in a process of `go_clock.c`: clocks, of which the wall clock can be set. An image
// that is mapped as it is (`vdso.lds`): it may need nothing, and no relocation.

#include <sys/syscall.h>
#include <time.h>

#include "vdso.h"

int __vdso_clock_gettime(clockid_t clock, struct timespec *now)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clock_gettime), "D"(clock), "S"(now)
                     : "rcx", "r11", "memory");
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *OFFSET;
    return (int)result;
}
