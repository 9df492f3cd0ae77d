// A wall clock that can be put forward and back, for programs in Go that are started with LD_PRELOAD. These ask no library for
// the time but the kernel's vDSO, which they find by a pointer behind their environment: it is bent to one of ours.
//
//   BUS_TEST_VDSO           a file with the image that takes its place, made of `vdso.c`
//   BUS_TEST_CLOCK_OFFSET   a file that begins with a number of 8 bytes: by how many seconds the clock is ahead; it is mapped,
//                           so that whatever is written into it counts at once

#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vdso.h"

static void *map(const char *variable, void *at, int protection, int flags)
{
    const char *path = getenv(variable);
    struct stat file;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &file)) abort();
    void *mapped = mmap(at, (size_t)file.st_size, protection, flags, fd, 0);
    if (mapped == MAP_FAILED) abort();
    close(fd);
    return mapped;
}

__attribute__((constructor)) static void bend(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    map("BUS_TEST_CLOCK_OFFSET", (void *)OFFSET, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE);
    void *image = map("BUS_TEST_VDSO", NULL, PROT_READ | PROT_EXEC, MAP_PRIVATE);
    while (*environment) environment++;
    for (Elf64_auxv_t *entry = (Elf64_auxv_t *)(environment + 1); entry->a_type != AT_NULL; entry++)
        if (entry->a_type == AT_SYSINFO_EHDR) entry->a_un.a_val = (uint64_t)image;
}
