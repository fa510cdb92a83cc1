/* Fuzz target: the safetensors reader. A file that it accepts must be consistent. */

#include "lather/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(const lt_safetensors *file)
{
    size_t bytes = 0;
    for (size_t i = 0; i < lt_safetensors_count(file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        bytes += e->bytes;
        if (lt_safetensors_find(file, e->name) != e
            || e->bytes != (size_t)lt_shape_count(e->shape) * lt_dtype_size(e->dtype))
            abort();
        volatile unsigned char sum = 0;
        for (size_t k = 0; k < e->bytes; k++) /* all of it is mapped */
            sum = (unsigned char)(sum + ((const unsigned char *)e->data)[k]);
    }
    if (bytes > 1 << 30)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lt_safetensors *file = NULL;
    if (!lt_safetensors_open(&file, path))
        check(file);
    lt_safetensors_close(&file);
    close(fd);
    return 0;
}
