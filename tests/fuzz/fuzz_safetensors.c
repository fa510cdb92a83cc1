/* Safetensors: any bytes give an error or a consistent file. */

#include "memory_file.h"

#include "lather/safetensors.h"

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
        for (size_t k = 0; k < e->bytes; k++) /* reads every byte */
            sum = (unsigned char)(sum + ((const unsigned char *)e->data)[k]);
    }
    if (bytes > 1 << 30)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_MEMORY_PATH];
    int fd = fuzz_memory_file(data, size, path);
    lt_safetensors *file = NULL;
    if (!lt_safetensors_open(&file, path))
        check(file);
    lt_safetensors_close(&file);
    close(fd);
    return 0;
}
