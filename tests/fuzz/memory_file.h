/* Files in memory, for targets that read one file by its path. */
#ifndef LT_FUZZ_MEMORY_FILE_H
#define LT_FUZZ_MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FUZZ_MEMORY_PATH = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Makes a file with a path; returns its descriptor, to be closed. */
static inline int fuzz_memory_file(const uint8_t *bytes, size_t size, char path[FUZZ_MEMORY_PATH])
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, FUZZ_MEMORY_PATH, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
