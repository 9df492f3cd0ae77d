// Where a process of `go_clock.c` finds by how many seconds its wall clock is ahead of the true time.

#define OFFSET ((volatile const long long *)0x100000000000)
