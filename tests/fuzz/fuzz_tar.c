/* Tar files: any bytes give an error, or an index whose samples lie within the file. */

#include "data/datasets/tar_index.h"
#include "data/datasets/tar_scan.h"
#include "memory_file.h"

static lt_status check_member(void *context, const lt_tar_member *member)
{
    size_t size = *(size_t *)context;
    LT_ASSERT(member->offset <= size && member->size <= size - member->offset);
    return LT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[FUZZ_MEMORY_PATH];
    int fd = fuzz_memory_file(bytes, size, path);
    lt_status scanned = lt_tar_scan(fd, path, check_member, &size);
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
