/* Compares the samples that new_name reads with the formula by which their file was written. */

#include "lather/ext/dataset.h"
#include "lather/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SAMPLES = 7, SIDE = 32, PIXELS = 3 * SIDE * SIDE, CLASSES = 10 };

static int label_of(int sample)
{
    return (3 * sample + 1) % CLASSES;
}

static unsigned char pixel_of(int sample, int i)
{
    return (unsigned char)(31 * sample + 7 * i);
}

static lt_status write_file(const char *path, int last_bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return lt_fail(LT_E_IO, "%s: not written", path);
    for (int n = 0; n < SAMPLES; n++) {
        putc(label_of(n), file);
        for (int i = 0; i < (n + 1 < SAMPLES ? PIXELS : last_bytes); i++)
            putc(pixel_of(n, i), file);
    }
    return fclose(file) ? lt_fail(LT_E_IO, "%s: not written", path) : LT_OK;
}

static lt_status compare(const lt_dataset *d, lt_record *record)
{
    if (d->count != SAMPLES)
        return lt_fail(LT_E_ARG, "%lld samples, the file has %d", (long long)d->count, SAMPLES);
    for (int n = 0; n < SAMPLES; n++) {
        LT_TRY(d->ops->read(d, n, record));
        if (record->label != label_of(n) || record->size != PIXELS)
            return lt_fail(LT_E_ARG, "sample %d: label %d and %zu bytes, the file has %d and %d", n,
                           record->label, record->size, label_of(n), PIXELS);
        for (int i = 0; i < PIXELS; i++)
            if (record->bytes[i] != pixel_of(n, i))
                return lt_fail(LT_E_ARG, "sample %d: byte %d is %d, the file has %d", n, i,
                               record->bytes[i], pixel_of(n, i));
    }
    return LT_OK;
}

static lt_status check(const char *folder, const char *path)
{
    char spec[128];
    lt_dataset *d = NULL;
    lt_record record = {0};
    snprintf(spec, sizeof spec, "new_name:%s", folder);
    LT_TRY(write_file(path, PIXELS));
    LT_TRY(lt_dataset_open(&d, spec, true));
    lt_status st = compare(d, &record);
    free(record.bytes);
    lt_dataset_free(&d);
    LT_TRY(st);
    LT_TRY(write_file(path, PIXELS - 1));
    if (lt_dataset_open(&d, spec, true) != LT_E_FORMAT)
        return lt_fail(LT_E_ARG, "a truncated file is not rejected");
    return LT_OK;
}

lt_status lt_plugin(const lt_plugin_host *host); /* defined by LT_PLUGIN() */

int main(void)
{
    char folder[] = "/tmp/new_name-XXXXXX", path[sizeof folder + 16];
    lt_status st = lt_plugin(&(lt_plugin_host){sizeof(lt_plugin_host), lt_version(), "test"});
    if (!st && !mkdtemp(folder))
        st = lt_fail(LT_E_IO, "%s: not made", folder);
    if (!st) {
        snprintf(path, sizeof path, "%s/train.bin", folder);
        st = check(folder, path);
        unlink(path);
        rmdir(folder);
    }
    if (st)
        fprintf(stderr, "new_name: %s\n", lt_error_message());
    else
        printf("new_name: %d samples equal the formula\n", SAMPLES);
    return st ? 1 : 0;
}
