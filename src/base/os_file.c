/* Files, descriptors, random numbers, memory and sorting. */

#include "base/os.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if LT_LINUX
#include <sys/random.h>
#include <sys/syscall.h>
#endif

int lt_os_pipe(int ends[2])
{
#if LT_LINUX
    return pipe2(ends, O_CLOEXEC);
#else
    return pipe(ends) || fcntl(ends[0], F_SETFD, FD_CLOEXEC) || fcntl(ends[1], F_SETFD, FD_CLOEXEC)
               ? -1
               : 0;
#endif
}

void lt_os_close_from(int first)
{
#if LT_LINUX
    syscall(SYS_close_range, first, ~0U, 0);
#else
    for (long fd = first; fd < sysconf(_SC_OPEN_MAX); fd++)
        close((int)fd);
#endif
}

int lt_os_memory_file(const char *name)
{
#if LT_LINUX
    return memfd_create(name, MFD_CLOEXEC);
#else
    char path[PATH_MAX];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s-XXXXXX", folder && *folder ? folder : "/tmp", name);
    const int fd = mkstemp(path);
    if (fd >= 0) {
        unlink(path);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
#endif
}

int lt_os_exchange(const char *one, const char *other)
{
#if LT_LINUX
    return renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
#else
    (void)one;
    (void)other;
    errno = ENOTSUP;
    return -1;
#endif
}

void lt_os_read_ahead(int fd, uint64_t offset, uint64_t size)
{
#if LT_LINUX
    (void)posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
#else
    (void)fd;
    (void)offset;
    (void)size;
#endif
}

bool lt_os_random(void *bytes, size_t size)
{
#if LT_LINUX
    return getrandom(bytes, size, 0) == (ssize_t)size;
#else
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const bool whole = fd >= 0 && read(fd, bytes, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return whole;
#endif
}

void *lt_os_map(size_t bytes)
{
#if LT_LINUX
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED)
        madvise(memory, bytes, MADV_HUGEPAGE); /* only a hint: failure is harmless */
#else
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
#endif
    return memory == MAP_FAILED ? NULL : memory;
}

#if LT_LINUX
void lt_os_sort(void *base, size_t count, size_t size,
                int (*compare)(const void *a, const void *b, void *context), void *context)
{
    qsort_r(base, count, size, compare, context);
}
#else
static _Thread_local struct {
    int (*compare)(const void *a, const void *b, void *context);
    void *context;
} sorting;

static int compare_in_context(const void *a, const void *b)
{
    return sorting.compare(a, b, sorting.context);
}

void lt_os_sort(void *base, size_t count, size_t size,
                int (*compare)(const void *a, const void *b, void *context), void *context)
{
    sorting.compare = compare;
    sorting.context = context;
    qsort(base, count, size, compare_in_context);
}
#endif
