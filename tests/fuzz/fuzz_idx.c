/* Files of images and labels in MNIST's format, plain or gzip: any bytes give a status or a data
 * set whose samples can all be read. The input is the file of images; the labels are right. */

#include "base/alloc.h"

#include "lather/ext/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A file in memory with a path; returns its descriptor. */
static int memory_file(const uint8_t *bytes, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2};
    char a[32], b[32];
    int images = memory_file(bytes, size, a), right = memory_file(labels, sizeof labels, b);
    lt_dataset *d = NULL;
    lt_record record = {0};
    if (!lt_dataset_idx(&d, a, b, 3))
        for (int64_t i = 0; i < lt_dataset_count(d); i++)
            LT_ASSERT(!d->ops->read(d, i, &record));
    lt_dataset_free(&d);
    if (lt_dataset_idx(&d, b, a, 0) == LT_OK) /* and as the file of labels */
        abort();
    lt_free(record.bytes);
    close(images);
    close(right);
    return 0;
}
