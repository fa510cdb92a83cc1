/* Shards of packs: any bytes give a status, or a table whose records and names lie within the file.
 * Checksums are made right first, so that what is behind them is reached too. */

#include "base/crc32c.h"
#include "data/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look(const uint8_t *bytes, size_t size)
{
    char path[32];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lt_pack_shard s = {0};
    if (!lt_pack_shard_open(&s, path, 0))
        for (size_t i = 0; i < s.count; i++)
            LT_ASSERT(s.entry[i].offset + s.entry[i].size <= size
                      && s.entry[i].name + strlen(s.text + s.entry[i].name) < s.text_size);
    lt_pack_shard_clear(&s);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    look(bytes, size);
    lt_pack_header h;
    if (size < sizeof h)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    memcpy(&h, bytes, sizeof h);
    if (h.table <= size)
        h.crc = lt_crc32c(0, bytes + h.table, size - h.table);
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_pack_header, self_crc));
    memcpy(copy, &h, sizeof h);
    look(copy, size);
    free(copy);
    return 0;
}
