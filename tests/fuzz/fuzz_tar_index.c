/* Saved indices of tar files: a tar file opens with any bytes as its index, and samples lie within the file. The input
 * is used unchanged and with a valid header. */

#include "base/encoding/crc32c.h"
#include "data/datasets/tar_index.h"
#include "folder.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum {
    HEADER = 72 + sizeof(lt_left_out),
    TAR = 2048,
    SAMPLES = 40,
    TEXT = 48,
    FOLDERS = 56,
    CRC = 64
}; /* as in src/data/datasets/tar_index.c */

/* Writes a tar file with one image of 3 bytes and modification time 0. */
static void write_tar(void)
{
    uint8_t tar[TAR] = {0};
    unsigned sum = 0;
    memcpy(tar, "a/1.jpg", 7);
    memcpy(tar + 100, "0000644", 7);
    memcpy(tar + 124, "00000000003", 11);
    memcpy(tar + 136, "00000000000", 11);
    memcpy(tar + 148, "        ", 8);
    tar[156] = '0';
    memcpy(tar + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += tar[i];
    snprintf((char *)tar + 148, 8, "%06o", sum);
    memcpy(tar + 512, "jpg", 3);
    fuzz_write("x.tar", tar, sizeof tar);
}

static void look(void)
{
    char path[2 * FUZZ_PATH];
    lt_tar_index index = {0};
    if (lt_tar_index_open(&index, fuzz_path(path, "x.tar")))
        abort(); /* an invalid index is rebuilt */
    LT_ASSERT(index.count);
    for (size_t i = 0; i < index.count; i++) {
        const lt_tar_sample *s = &index.sample[i];
        LT_ASSERT(s->offset <= TAR && s->size <= TAR - s->offset && s->name < index.text_size);
        LT_ASSERT(s->folder <= strlen(index.text + s->name));
    }
    LT_ASSERT(index.folders && index.folders <= index.text_size);
    lt_tar_index_clear(&index);
}

/* Writes a header that matches the rest; the input selects the size of the text and the folders' offset. */
static void write_header(uint8_t *bytes, size_t size)
{
    struct stat info;
    char path[2 * FUZZ_PATH];
    if (stat(fuzz_path(path, "x.tar"), &info))
        abort();
    uint64_t rest = size - HEADER, text = bytes[TEXT] + 1U, order = 0x0102030405060708;
    text += (rest - text) % sizeof(lt_tar_sample);
    if (text > rest)
        return;
    uint64_t samples = (rest - text) / sizeof(lt_tar_sample);
    const uint64_t fields[] = {order,
                               (uint64_t)info.st_size,
                               (uint64_t)info.st_mtim.tv_sec,
                               (uint64_t)info.st_mtim.tv_nsec,
                               samples,
                               text,
                               bytes[FOLDERS]};
    uint32_t crc = lt_crc32c(0, bytes + CRC + 8, size - CRC - 8);
    memcpy(bytes, "LTTARIX3", 8);
    memcpy(bytes + 8, fields, sizeof fields);
    memset(bytes + CRC, 0, 8);
    memcpy(bytes + CRC, &crc, sizeof crc);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool made;
    if (!made)
        write_tar();
    made = true;
    fuzz_write("x.tar.index", bytes, size);
    look();
    if (size < HEADER + 1)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    write_header(copy, size);
    fuzz_write("x.tar.index", copy, size);
    look();
    free(copy);
    return 0;
}
