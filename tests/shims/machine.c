// Another machine: a boot id of its own, for processes that are started with LD_PRELOAD.
//
//   BUS_TEST_BOOT_ID   a file with the id, read instead of the kernel's

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef int (*opens)(const char *, int, ...);

static const char *instead(const char *path)
{
    const char *id = getenv("BUS_TEST_BOOT_ID");
    return id && !strcmp(path, "/proc/sys/kernel/random/boot_id") ? id : path;
}

static int mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0;
}

int open(const char *path, int flags, ...)
{
    static opens real;
    va_list rest;
    va_start(rest, flags);
    int mode = mode_of(flags, rest);
    va_end(rest);
    if (!real) real = (opens)dlsym(RTLD_NEXT, "open");
    return real(instead(path), flags, mode);
}

int open64(const char *path, int flags, ...)
{
    static opens real;
    va_list rest;
    va_start(rest, flags);
    int mode = mode_of(flags, rest);
    va_end(rest);
    if (!real) real = (opens)dlsym(RTLD_NEXT, "open64");
    return real(instead(path), flags, mode);
}
