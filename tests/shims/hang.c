// A file system that hangs, for processes that are started with LD_PRELOAD: flushes of some files do not return.
//
//   BUS_TEST_HANG        what the path of such a file contains
//   BUS_TEST_HANG_ON     a file; while it exists they hang
//   BUS_TEST_HANG_SAYS   a file to which a line is added for each call that hangs

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_to_hang(int fd, const char *on)
{
    char link[64], path[4096];
    const char *files = getenv("BUS_TEST_HANG");
    if (!files || !on || access(on, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, files) != NULL;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    const char *on = getenv("BUS_TEST_HANG_ON"), *says = getenv("BUS_TEST_HANG_SAYS");
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (is_to_hang(fd, on)) {
        int out = says ? open(says, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
        if (out >= 0) {
            if (write(out, "hangs\n", 6) < 0) abort();
            close(out);
        }
        while (!access(on, F_OK)) usleep(5000);
    }
    return real(fd);
}
