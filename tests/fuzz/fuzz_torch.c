/* Files of torch.save(): any bytes give an error or consistent tensors, and run nothing. */

#include "memory_file.h"

#include "lather/safetensors.h"

#include <stdbool.h>

/* Returns the element size of dtypes that have no lt_dtype, or 0 for others. */
static size_t other_size(const char *dtype)
{
    if (!dtype)
        return 0;
    return !strcmp(dtype, "C64") ? 8 : !strcmp(dtype, "I16") ? 2 : 1;
}

static void check(const lt_safetensors *file, size_t size)
{
    for (size_t i = 0; i < lt_safetensors_count(file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        const size_t other = other_size(e->unsupported);
        if (lt_safetensors_find(file, e->name) != e || e->bytes > 4 * size
            || e->bytes
                   != (size_t)lt_shape_count(e->shape) * (other ? other : lt_dtype_size(e->dtype)))
            abort();
        volatile unsigned char sum = 0;
        for (size_t k = 0; k < e->bytes; k++) /* reads every byte */
            sum = (unsigned char)(sum + ((const unsigned char *)e->data)[k]);
    }
}

/* Wraps a pickle in an archive, so that mutations reach the reader of pickles. */
static size_t wrap(unsigned char *to, const uint8_t *pickle, size_t size)
{
    static const unsigned char local[] = "PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0";
    static const unsigned char entry[] = "PK\1\2\24\3\24\0\0\0\0\0\0\0\0\0\0\0\0\0";
    static const char name[] = "w/data.pklw/data/0";
    unsigned char *at = to;
    uint32_t start[2], bytes[2] = {(uint32_t)size, 64}, length[2] = {10, 8};
    for (int i = 0; i < 2; i++) {
        start[i] = (uint32_t)(at - to);
        memcpy(at, local, 18);
        memcpy(at + 18, &bytes[i], 4);
        memcpy(at + 22, &bytes[i], 4);
        memcpy(at + 26, &length[i], 4);
        memcpy(at + 30, name + (i ? 10 : 0), length[i]);
        at += 30 + length[i];
        memset(at, 1, bytes[i]);
        if (!i)
            memcpy(at, pickle, size);
        at += bytes[i];
    }
    const uint32_t directory = (uint32_t)(at - to);
    for (int i = 0; i < 2; i++) {
        memset(at, 0, 46);
        memcpy(at, entry, 20);
        memcpy(at + 20, &bytes[i], 4);
        memcpy(at + 24, &bytes[i], 4);
        memcpy(at + 28, &length[i], 4);
        memcpy(at + 42, &start[i], 4);
        memcpy(at + 46, name + (i ? 10 : 0), length[i]);
        at += 46 + length[i];
    }
    const uint32_t end[] = {0x06054b50, 0, 2 | 2 << 16, (uint32_t)(at - to) - directory, directory};
    memcpy(at, end, sizeof end);
    memset(at + sizeof end, 0, 2);
    return (size_t)(at - to) + sizeof end + 2;
}

static void read_file(const uint8_t *data, size_t size)
{
    char path[FUZZ_MEMORY_PATH];
    int fd = fuzz_memory_file(data, size, path);
    lt_safetensors *file = NULL;
    if (!lt_safetensors_open(&file, path))
        check(file, size);
    lt_safetensors_close(&file);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char wrapped[(1 << 20) + 1024];
    if (size > 1 << 20)
        return 0;
    read_file(data, size);
    if (size && data[0] == 0x80)
        read_file(wrapped, wrap(wrapped, data, size));
    return 0;
}
