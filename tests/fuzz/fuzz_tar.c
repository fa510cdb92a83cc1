/* Tar files: any bytes give a status, or an index whose samples lie within the file. */

#include "data/datasets/tar_index.h"
#include "data/datasets/tar_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static lt_status look(void *context, const lt_tar_member *member)
{
    size_t size = *(size_t *)context;
    LT_ASSERT(member->offset <= size && member->size <= size - member->offset);
    return LT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[32];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lt_status scanned = lt_tar_scan(fd, path, look, &size);
    lt_tar_index index = {0};
    if (!lt_tar_index_build(&index, fd, path)) {
        LT_ASSERT(!scanned && index.count);
        for (size_t i = 0; i < index.count; i++)
            LT_ASSERT(index.sample[i].name < index.text_size);
    }
    lt_tar_index_clear(&index);
    close(fd);
    return 0;
}
