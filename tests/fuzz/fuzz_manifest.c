/* A pack's manifest next to a valid shard: any bytes give an error, or a data set whose samples can be read. */

#include "base/alloc.h"
#include "data/pack/pack.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void write_shard(void)
{
    char path[2 * FUZZ_PATH];
    lt_pack_writer w = {0};
    uint8_t pixels[12] = {1, 2, 3};
    lt_record r = {.bytes = pixels, .size = sizeof pixels, .encoding = LT_ENCODING_PIXELS};
    r.width = r.height = 2;
    r.channels = 3;
    if (lt_pack_writer_open(&w, fuzz_path(path, "shard-00000.pack")))
        abort();
    for (r.label = 0; r.label < 3; r.label++)
        if (lt_pack_writer_add(&w, &r, "name"))
            abort();
    if (lt_pack_writer_finish(&w, 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool made;
    if (!made)
        write_shard();
    made = true;
    fuzz_write("manifest.json", bytes, size);
    lt_dataset *d = NULL;
    lt_record record = {0};
    if (!lt_dataset_pack(&d, fuzz_folder)) {
        for (int64_t i = 0; i < lt_dataset_count(d); i++)
            LT_ASSERT(!d->ops->read(d, i, &record) && record.label < lt_dataset_classes(d));
        for (int i = 0; i < lt_dataset_classes(d) && i < 100; i++)
            (void)lt_dataset_class_name(d, i);
    }
    lt_dataset_free(&d);
    lt_free(record.bytes);
    return 0;
}
