/* Tables of labels: any bytes give an error, or rows with images and labels within the memory of the table. */

#include "data/datasets/label_table.h"
#include "memory_file.h"

static void read_table(const char *path, const char *columns)
{
    lt_label_table t = {0};
    if (!lt_label_table_read(&t, path, columns)) {
        LT_ASSERT(t.count);
        for (size_t i = 0; i < t.count; i++)
            LT_ASSERT(strlen(t.row[i].image) && strlen(t.row[i].label) && t.row[i].line > 0);
    }
    lt_label_table_clear(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[FUZZ_MEMORY_PATH];
    int fd = fuzz_memory_file(bytes, size, path);
    read_table(path, NULL);
    read_table(path, "a,b");
    close(fd);
    return 0;
}
