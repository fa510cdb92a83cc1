/* MNIST's idx files, plain or gzip: any bytes give an error, or a data set whose samples can all be read. The input is
 * the file of images, with valid labels, and then the file of labels. */

#include "base/alloc.h"
#include "memory_file.h"

#include "lather/ext/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2};
    char a[FUZZ_MEMORY_PATH], b[FUZZ_MEMORY_PATH];
    int images = fuzz_memory_file(bytes, size, a),
        right = fuzz_memory_file(labels, sizeof labels, b);
    lt_dataset *d = NULL;
    lt_record record = {0};
    if (!lt_dataset_idx(&d, a, b, 3))
        for (int64_t i = 0; i < lt_dataset_count(d); i++)
            LT_ASSERT(!d->ops->read(d, i, &record));
    lt_dataset_free(&d);
    LT_ASSERT(lt_dataset_idx(&d, b, a, 0) != LT_OK);
    lt_free(record.bytes);
    close(images);
    close(right);
    return 0;
}
