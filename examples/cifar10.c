/* A data set of your own, CIFAR-10's binary files: a label byte, then 32 x 32 pixels, plane by plane.
 * Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
 *
 *     cc cifar10.c $(pkg-config --cflags --libs lather) -o cifar10 && ./cifar10 data_batch_1.bin */

#include "lather/ext/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, RECORD = 1 + PIXELS, CLASSES = 10 };

typedef struct cifar10 {
    lt_dataset base;
    int fd;
} cifar10;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const cifar10 *c = (const cifar10 *)self;
    LT_TRY(lt_record_reserve(record, RECORD));

    /* pread, not read: threads must not share a file offset. */
    ssize_t got = pread(c->fd, record->bytes, RECORD, index * RECORD);
    if (got < 0)
        return lt_fail(LT_E_IO, "cifar10: sample %" PRId64 ": %s", index, strerror(errno));
    if (got != RECORD)
        return lt_fail(LT_E_FORMAT, "cifar10: the file ends inside sample %" PRId64, index);

    record->label = record->bytes[0];
    memmove(record->bytes, record->bytes + 1, PIXELS);
    record->size = PIXELS;
    record->encoding = LT_ENCODING_PLANES;
    record->width = record->height = SIDE;
    record->channels = 3;
    return LT_OK;
}

static void destroy(lt_dataset *self)
{
    close(((cifar10 *)self)->fd);
}

static const lt_dataset_ops ops = {
    .name = "cifar10",
    .bytes = sizeof(cifar10),
    .read = read_sample,
    .destroy = destroy,
};

static lt_status dataset_cifar10(lt_dataset **out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));

    lt_dataset *d = NULL;
    lt_status st = lt_dataset_new(&d, &ops);
    if (st) {
        close(fd);
        return st;
    }
    ((cifar10 *)d)->fd = fd;
    d->count = lseek(fd, 0, SEEK_END) / RECORD;
    d->classes = CLASSES;
    d->channels = 3;
    *out = d;
    return LT_OK;
}

/* The rest shows that it works: one epoch of augmented batches. */

static lt_status count_and_print_labels(lt_loader *loader)
{
    enum { MAX_BATCH = 64 };
    int64_t of_class[CLASSES] = {0}, images = 0;
    lt_batch batch;
    lt_status st;
    while (!(st = lt_loader_next(loader, &batch))) {
        int32_t label[MAX_BATCH];
        LT_TRY(lt_tensor_read(batch.labels, label, (size_t)batch.count * sizeof *label));
        for (int n = 0; n < batch.count; n++)
            of_class[label[n]]++;
        images += batch.count;
    }
    if (st != LT_END)
        return st;
    printf("%" PRId64 " images:", images);
    for (int c = 0; c < CLASSES; c++)
        printf(" %" PRId64, of_class[c]);
    printf("\n");
    return LT_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: cifar10 FILE.bin\n");
        return 2;
    }
    lt_device *device = NULL;
    lt_dataset *dataset = NULL;
    lt_loader *loader = NULL;
    const lt_loader_config config = {
        .transform = {.augment = LT_AUGMENT_SMALL, .size = SIDE, .flip = 0.5},
        .batch = 64,
        .seed = 1,
        .shuffle = true,
    };

    lt_status st = dataset_cifar10(&dataset, argv[1]);
    st = st ? st : lt_device_open(&device, "cpu", NULL);
    st = st ? st : lt_loader_new(&loader, dataset, device, &config);
    st = st ? st : count_and_print_labels(loader);
    if (st)
        fprintf(stderr, "cifar10: %s: %s\n", lt_status_name(st), lt_error_message());

    lt_loader_free(&loader);
    lt_dataset_free(&dataset);
    lt_device_close(&device);
    return st ? 1 : 0;
}
