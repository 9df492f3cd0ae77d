// A file system without hard links, for processes that are started with LD_PRELOAD.
//
//   BUS_TEST_LINKS_SAYS   a file to which a line is added for each link that was refused

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int refuse(void)
{
    const char *says = getenv("BUS_TEST_LINKS_SAYS");
    int fd = says ? open(says, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        if (write(fd, "refused\n", 8) < 0) abort();
        close(fd);
    }
    // As Azure Files answers; others say EPERM.
    errno = EOPNOTSUPP;
    return -1;
}

int link(const char *from, const char *to)
{
    (void)from, (void)to;
    return refuse();
}

int linkat(int at, const char *from, int to_at, const char *to, int flags)
{
    (void)at, (void)from, (void)to_at, (void)to, (void)flags;
    return refuse();
}
