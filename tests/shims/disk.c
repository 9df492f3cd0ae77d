// A disk that fails, for a process that is started with LD_PRELOAD: flushes that answer EIO, and a power loss.
//
// It watches the files whose path contains BUS_TEST_DISK, and remembers for each page that was written since the last
// flush what the disk still has of it. The page cache is modelled as Linux has it: after a flush that failed the pages
// count as clean although the disk never got them, so that a later flush that succeeds does not save them; only a page
// that is written once more is.
//
//   BUS_TEST_DISK        what the path of a watched file contains
//   BUS_TEST_DISK_SAYS   a file to which a line is added for each fault that happened
//   BUS_TEST_DISK_EIO    a file; while it exists flushes fail: as many as the number in it says, or all of them
//   BUS_TEST_DISK_LOSS   when the power is lost: at which write or flush of a watched file, counted from 1, or the path of
//                        a file: at the first one when that exists
//   BUS_TEST_DISK_KEEPS  0: of what was not flushed nothing has reached the disk; else the seed by which some pages have
//
// Sees one process's calls of the C library; a mapped file (the -shm) is not seen, and needs no help.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define FILES 64

struct page {
    off_t number;
    int stale; // a flush of it has failed: it counts as clean
    size_t had; // how many bytes of it the disk has
    unsigned char disk[PAGE];
    struct page *next;
};

static struct file {
    dev_t device;
    ino_t inode;
    off_t size; // as the disk has it
    struct page *pages;
} files[FILES];
static int known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *watched, *says, *eio, *loss;
static long loss_at, count;
static unsigned seed;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void begin(void)
{
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    watched = getenv("BUS_TEST_DISK");
    says = getenv("BUS_TEST_DISK_SAYS");
    eio = getenv("BUS_TEST_DISK_EIO");
    loss = getenv("BUS_TEST_DISK_LOSS");
    if (loss) loss_at = atol(loss);
    if (getenv("BUS_TEST_DISK_KEEPS")) seed = (unsigned)atol(getenv("BUS_TEST_DISK_KEEPS"));
}

static void say(const char *what, long number)
{
    char line[96];
    int length = snprintf(line, sizeof line, "%s %ld\n", what, number);
    int fd = says ? open(says, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        if (real_write(fd, line, (size_t)length) < 0) abort();
        close(fd);
    }
}

// The file behind `fd`, if it is watched.
static struct file *find(int fd)
{
    char link[64], path[4096];
    if (!watched) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    // The side files that only hold locks and hints are none of the disk's business.
    if (!strstr(path, watched) || strstr(path, ".lock") || strstr(path, ".wake")) return NULL;
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) return NULL;
    for (int i = 0; i < known; i++)
        if (files[i].device == status.st_dev && files[i].inode == status.st_ino) return &files[i];
    if (known == FILES) abort();
    files[known] = (struct file){status.st_dev, status.st_ino, status.st_size, NULL};
    return &files[known++];
}

// Before the page changes: what the disk has of it. Read by the descriptor that is written by, since closing another one
// would let go of the process's locks on the file.
static void keep(int fd, struct file *file, off_t number)
{
    for (struct page *page = file->pages; page; page = page->next)
        if (page->number == number) {
            page->stale = 0;
            return;
        }
    struct page *page = calloc(1, sizeof *page);
    if (!page) abort();
    page->number = number;
    ssize_t had = pread(fd, page->disk, PAGE, number * PAGE);
    page->had = had > 0 ? (size_t)had : 0;
    page->next = file->pages;
    file->pages = page;
}

static void forget_flushed(int fd, struct file *file)
{
    struct stat status;
    struct page **next = &file->pages;
    while (*next) {
        struct page *page = *next;
        if (page->stale) {
            next = &page->next;
        } else {
            *next = page->next;
            free(page);
        }
    }
    if (!fstat(fd, &status)) file->size = status.st_size;
}

// The power is gone: the files are as the disk has them, and so is this process.
static void lose(void)
{
    long lost = 0;
    srand(seed);
    for (int i = 0; i < known; i++) {
        char link[64];
        int other = -1;
        struct stat status;
        // Whichever of our descriptors leads there; a file that is not open any more has been flushed or removed.
        for (int candidate = 0; candidate < 1024 && other < 0; candidate++) {
            if (fstat(candidate, &status) || status.st_dev != files[i].device || status.st_ino != files[i].inode)
                continue;
            snprintf(link, sizeof link, "/proc/self/fd/%d", candidate);
            other = open(link, O_RDWR | O_CLOEXEC);
        }
        if (other < 0) continue;
        off_t size = files[i].size;
        for (struct page *page = files[i].pages; page; page = page->next) {
            if (seed && !page->stale && rand() % 2) {
                // This one was on its way already, whatever was written before or after it.
                off_t end = (page->number + 1) * PAGE;
                if (!fstat(other, &status) && end > status.st_size) end = status.st_size;
                if (end > size) size = end;
                continue;
            }
            lost++;
            unsigned char blank[PAGE] = {0};
            memcpy(blank, page->disk, page->had);
            if (real_pwrite(other, blank, PAGE, page->number * PAGE) < 0) abort();
        }
        if (real_ftruncate(other, size)) abort();
        close(other);
    }
    say("power lost, pages:", lost);
    _exit(99);
}

// Counts what is done to watched files. To be called with the lock held.
static void pass(void)
{
    count++;
    if (count == loss_at || (loss && *loss == '/' && !access(loss, F_OK))) lose();
}

static ssize_t written(int fd, const void *bytes, size_t length, off_t at, int moves)
{
    pthread_mutex_lock(&lock);
    struct file *file = find(fd);
    if (file) {
        pass();
        off_t from = moves ? lseek(fd, 0, SEEK_CUR) : at;
        for (off_t page = from / PAGE; length && page <= (off_t)(from + (off_t)length - 1) / PAGE; page++)
            keep(fd, file, page);
    }
    ssize_t result = moves ? real_write(fd, bytes, length) : real_pwrite(fd, bytes, length, at);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    if (!real_write) begin();
    return written(fd, bytes, length, 0, 1);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return written(fd, bytes, length, at, 0); }

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) { return written(fd, bytes, length, at, 0); }

static int truncated(int fd, off_t length)
{
    pthread_mutex_lock(&lock);
    struct file *file = find(fd);
    if (file) {
        struct stat status;
        pass();
        if (!fstat(fd, &status))
            for (off_t page = length / PAGE; page * PAGE < status.st_size; page++) keep(fd, file, page);
    }
    int result = real_ftruncate(fd, length);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t length) { return truncated(fd, length); }

int ftruncate64(int fd, off_t length) { return truncated(fd, length); }

// Whether this flush is to fail.
static int is_to_fail(void)
{
    char text[32] = {0};
    int fd = eio ? open(eio, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (read(fd, text, sizeof text - 1) < 0) abort();
    long left = atol(text);
    if (left == 1) unlink(eio);
    if (left > 1) {
        int length = snprintf(text, sizeof text, "%ld", left - 1);
        if (real_ftruncate(fd, 0) || real_pwrite(fd, text, (size_t)length, 0) < 0) abort();
    }
    close(fd);
    return 1;
}

static int flushed(int fd, int (*flush)(int))
{
    pthread_mutex_lock(&lock);
    struct file *file = find(fd);
    int result;
    if (file) pass();
    if (file && is_to_fail()) {
        for (struct page *page = file->pages; page; page = page->next) page->stale = 1;
        say("flush failed:", count);
        errno = EIO;
        result = -1;
    } else {
        result = flush(fd);
        if (file && !result) forget_flushed(fd, file);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return flushed(fd, real_fsync); }

int fdatasync(int fd) { return flushed(fd, real_fdatasync); }
