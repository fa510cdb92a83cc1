/* Pack shards: any bytes give an error, or a table whose records and names lie within the file and records that can be
 * decoded or are errors. The input is used unchanged and with valid checksums, labels and hashes, so that the fuzzer
 * reaches the code after these checks. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "data/pack/pack.h"
#include "data/transform/transform.h"
#include "folder.h"
#include "memory_file.h"

static void check_shard(const uint8_t *bytes, size_t size)
{
    char path[FUZZ_MEMORY_PATH];
    int fd = fuzz_memory_file(bytes, size, path);
    lt_pack_shard s = {0};
    if (!lt_pack_shard_load(&s, path, 0))
        for (size_t i = 0; i < s.count; i++)
            LT_ASSERT(s.entry[i].offset + s.entry[i].size <= size
                      && s.entry[i].name + strlen(s.text + s.entry[i].name) < s.text_size);
    lt_pack_shard_clear(&s);
    close(fd);
}

enum { CLASSES = 3, MOST = 1 << 16 };

static void write_manifest(uint64_t samples)
{
    char text[256];
    int length = snprintf(text, sizeof text,
                          "{\"version\": 1, \"samples\": %llu, \"shards\": 1, \"channels\": 3, "
                          "\"classes\": 3, \"class_names\": [\"a\", \"b\", \"c\"]}",
                          (unsigned long long)samples);
    fuzz_write("manifest.json", text, (size_t)length);
}

/* Every record can be transformed or is an error. */
static void read_all(const lt_dataset *d)
{
    lt_sample_workspace s = {0};
    lt_transform t = {.augment = LT_AUGMENT_IMAGENET, .size = 8, .flip = 0.5};
    uint8_t out[8 * 8 * 3];
    if (lt_transform_check(&t))
        abort();
    for (int64_t i = 0; i < lt_dataset_count(d) && i < 16; i++) {
        lt_rng rng = {.key = (uint64_t)i};
        int32_t width = 0, height = 0;
        if (d->ops->read(d, i, &s.record))
            continue;
        if (s.record.encoding == LT_ENCODING_FILE
            && (lt_image_size(s.record.bytes, s.record.size, NULL, &width, &height)
                || (int64_t)width * height > MOST))
            continue;
        lt_status st = lt_transform_run(&t, 3, &rng, &s, out);
        LT_ASSERT(!st || st == LT_E_FORMAT || st == LT_E_UNSUPPORTED);
    }
    lt_sample_workspace_clear(&s);
}

/* Makes labels and hashes of the records within the file valid. */
static void fix_entries(uint8_t *bytes, size_t size, const lt_pack_header *h)
{
    for (uint64_t i = 0; i < h->count && i < 16; i++) {
        lt_pack_entry e;
        uint64_t at = h->table + i * sizeof e;
        if (at > size || size - at < sizeof e)
            return;
        memcpy(&e, bytes + at, sizeof e);
        e.label %= CLASSES;
        if (e.offset <= size && e.size <= size - e.offset)
            e.hash = lt_hash64(bytes + e.offset, e.size);
        memcpy(bytes + at, &e, sizeof e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    check_shard(bytes, size);
    lt_pack_header h;
    lt_dataset *d = NULL;
    if (size < sizeof h)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, LT_PACK_MAGIC, sizeof h.magic);
    h.version = LT_PACK_VERSION;
    h.order = LT_PACK_ORDER;
    fix_entries(copy, size, &h);
    if (h.table <= size)
        h.crc = lt_crc32c(0, copy + h.table, size - h.table);
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_pack_header, self_crc));
    memcpy(copy, &h, sizeof h);
    check_shard(copy, size);
    fuzz_write("shard-00000.pack", copy, size);
    write_manifest(h.count);
    if (!lt_dataset_pack(&d, fuzz_folder))
        read_all(d);
    lt_dataset_free(&d);
    free(copy);
    return 0;
}
