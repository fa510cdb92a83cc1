/* The loader compared with samples made one by one, for any number of threads; seeking, ranks, limits, and freeing at
 * any moment. */

#include "base/alloc.h"
#include "base/clock.h"
#include "data/loader/prefetch.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, IMAGE = SIDE * SIDE * 3 };

static lt_loader_config usual(int threads)
{
    return (lt_loader_config){
        .transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE, .flip = 0.5},
        .batch = 4,
        .threads = threads,
        .seed = 11,
        .shuffle = true,
    };
}

/* Makes sample i of this rank in the epoch without the loader, and returns its label. */
static int32_t expected(lt_dataset *d, const lt_loader_config *c, int64_t epoch, int64_t i,
                        uint8_t *pixels)
{
    lt_transform t = c->transform;
    assert_ok(lt_transform_check(&t));
    lt_sampler s = {.count = d->count,
                    .rank = c->rank,
                    .size = c->size ? c->size : 1,
                    .seed = c->seed,
                    .shuffle = c->shuffle};
    int64_t index = lt_sampler_index(&s, epoch, i);
    lt_rng rng = {.key = lt_rng_key(c->seed, LT_STREAM_AUGMENT, (uint64_t)epoch, (uint64_t)index)};
    lt_sample_workspace workspace = {0};
    assert_ok(d->ops->read(d, index, &workspace.record));
    assert_ok(lt_transform_run(&t, 3, &rng, &workspace, pixels));
    int32_t label = workspace.record.label;
    lt_sample_workspace_clear(&workspace);
    return label;
}

static bool batch_is_right(lt_dataset *d, const lt_loader_config *c, const lt_batch *b,
                           int64_t epoch)
{
    lt_shape shape = lt_tensor_shape(b->inputs);
    assert_true(lt_shape_equal(shape, LT_SHAPE(b->count, 3, SIDE, SIDE)));
    assert_int_equal(lt_tensor_count(b->labels), b->count);
    lt_view view = lt_tensor_view(b->inputs);
    assert_true(lt_view_is_channels_last(&view));
    uint8_t *logical = malloc(lt_tensor_bytes(b->inputs)), want[IMAGE];
    assert_ok(lt_tensor_read(b->inputs, logical, lt_tensor_bytes(b->inputs)));
    int32_t labels[16];
    assert_ok(lt_tensor_read(b->labels, labels, (size_t)b->count * sizeof *labels));
    bool right = true;
    for (int i = 0; i < b->count; i++) {
        int32_t label = expected(d, c, epoch, b->index * c->batch + i, want);
        right = right && label == labels[i];
        for (int p = 0; p < IMAGE; p++)
            right = right && logical[i * IMAGE + p % 3 * SIDE * SIDE + p / 3] == want[p];
    }
    free(logical);
    return right;
}

static void check_threads(void **state)
{
    int threads = *(int *)*state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader *l = NULL;
    lt_loader_config c = usual(threads), other = c;
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_int_equal(lt_loader_batches(l), 4);
    lt_batch b;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        for (int64_t i = 0; i < 4; i++) {
            assert_ok(lt_loader_next(l, &b));
            assert_int_equal(b.index, i);
            assert_int_equal(b.count, i < 3 ? 4 : 3);
            assert_true(batch_is_right(d, &c, &b, epoch));
        }
        other.seed++; /* control */
        assert_false(batch_is_right(d, &other, &b, epoch));
        assert_int_equal(lt_loader_next(l, &b), LT_END);
    }
    lt_loader_stats stats = lt_loader_statistics(l);
    assert_int_equal(stats.samples, 45);
    assert_int_equal(stats.bad, 0);
    assert_true(stats.decode_seconds > 0 && stats.resize_seconds > 0 && stats.read_seconds > 0);
    lt_loader_free(&l);
    close_images(&d, root);
}

/* Returns the pixels and targets of a batch; free() it. */
static uint8_t *batch_bytes(lt_loader *l, int64_t epoch, int64_t batch, size_t *bytes)
{
    lt_batch b;
    assert_ok(lt_loader_seek(l, epoch, batch));
    assert_ok(lt_loader_next(l, &b));
    size_t images = lt_tensor_bytes(b.inputs), targets = b.targets ? lt_tensor_bytes(b.targets) : 0;
    uint8_t *all = malloc(images + targets);
    assert_ok(lt_tensor_read(b.inputs, all, images));
    if (b.targets)
        assert_ok(lt_tensor_read(b.targets, all + images, targets));
    *bytes = images + targets;
    return all;
}

static void check_mixing(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader *one = NULL, *many = NULL, *plain = NULL;
    lt_loader_config c = usual(1);
    assert_ok(lt_loader_new(&plain, d, device, &c));
    c.mix = (lt_mix){.mixup_alpha = 0.5, .cutmix_alpha = 1};
    assert_ok(lt_loader_new(&one, d, device, &c));
    c.threads = 5;
    assert_ok(lt_loader_new(&many, d, device, &c));
    for (int64_t i = 0; i < 8; i++) {
        size_t n, m, k;
        uint8_t *a = batch_bytes(one, i / 4, i % 4, &n), *b = batch_bytes(many, i / 4, i % 4, &m);
        uint8_t *p = batch_bytes(plain, i / 4, i % 4, &k);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        assert_true(n > k);
        assert_memory_not_equal(a, p, k);
        free(a);
        free(b);
        free(p);
    }
    lt_loader_free(&one);
    lt_loader_free(&many);
    lt_loader_free(&plain);
    close_images(&d, root);
}

/* lt_dataset_map_classes(): labels are the model's, of which there may be more. */
static void check_mixing_of_mapped_labels(void **state)
{
    (void)state;
    enum { MORE = 50 };
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader *l = NULL;
    lt_loader_config c = usual(1);
    lt_batch b;
    int32_t *map = lt_alloc((size_t)d->classes, sizeof *map);
    for (int i = 0; i < d->classes; i++)
        map[i] = MORE - 1 - i;
    d->label_map = map;
    d->map_classes = MORE;
    c.mix = (lt_mix){.mixup_alpha = 0.5};
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_ok(lt_loader_next(l, &b));
    const lt_shape shape = lt_tensor_shape(b.targets);
    float *targets = malloc(lt_tensor_bytes(b.targets)), sum = 0;
    assert_int_equal(shape.dim[1], MORE);
    assert_ok(lt_tensor_read(b.targets, targets, lt_tensor_bytes(b.targets)));
    for (int64_t i = 0; i < shape.dim[0]; i++)
        for (int64_t k = MORE - d->classes; k < MORE; k++)
            sum += targets[i * MORE + k];
    assert_near(sum, (double)shape.dim[0], 1e-5);
    free(targets);
    lt_loader_free(&l);
    d->label_map = NULL;
    d->map_classes = 0;
    lt_free(map);
    close_images(&d, root);
}

static void check_seek(void **state)
{
    (void)state;
    static const int64_t places[][2] = {{0, 2}, {5, 0}, {1, 3}, {1, 3}, {0, 0}, {2, 4}};
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader *l = NULL;
    lt_loader_config c = usual(3);
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_batch b;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        int64_t epoch = places[i][0], batch = places[i][1];
        assert_ok(lt_loader_seek(l, epoch, batch));
        if (batch == 4) {
            assert_int_equal(lt_loader_next(l, &b), LT_END);
            epoch++;
            batch = 0;
        }
        assert_ok(lt_loader_next(l, &b));
        assert_int_equal(b.index, batch);
        assert_true(batch_is_right(d, &c, &b, epoch));
    }
    assert_status(lt_loader_seek(l, 0, 5), LT_E_ARG);
    assert_status(lt_loader_seek(l, -1, 0), LT_E_ARG);
    assert_status(lt_loader_seek(l, INT64_MAX, 0), LT_E_ARG);
    assert_status(lt_loader_seek(l, INT64_MAX / 2 / lt_loader_batches(l) + 1, 0), LT_E_ARG);
    assert_ok(lt_loader_seek(l, INT64_MAX / 2 / lt_loader_batches(l), 0)); /* the control */
    assert_ok(lt_loader_next(l, &b));
    lt_loader_free(&l);
    close_images(&d, root);
}

static void check_ranks(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    for (int rank = 0; rank < 2; rank++) {
        lt_loader_config c = usual(2);
        c.rank = rank;
        c.size = 2;
        c.batch = 3;
        c.drop_last = true;
        lt_loader *l = NULL;
        assert_ok(lt_loader_new(&l, d, device, &c));
        assert_int_equal(lt_loader_batches(l), 2);
        lt_batch b;
        for (int i = 0; i < 2; i++) {
            assert_ok(lt_loader_next(l, &b));
            assert_true(batch_is_right(d, &c, &b, 0));
        }
        assert_int_equal(lt_loader_next(l, &b), LT_END);
        lt_loader_free(&l);
    }
    close_images(&d, root);
}

/* Batches are copied to a fixed address on a device whose memory the host cannot write. */
static void check_copies(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader *l = NULL;
    const lt_backend *real = device->backend;
    lt_backend far = *real;
    far.host_memory = false;
    device->backend = &far;
    lt_loader_config c = usual(2);
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_batch b;
    const void *address = NULL;
    for (int i = 0; i < 3; i++) {
        assert_ok(lt_loader_next(l, &b));
        assert_true(batch_is_right(d, &c, &b, 0));
        assert_true(!address || address == lt_tensor_view(b.inputs).data);
        address = lt_tensor_view(b.inputs).data;
    }
    lt_loader_free(&l);
    device->backend = real;
    close_images(&d, root);
}

/* Frees the loader before the first batch, after some and at the end of the epoch. */
static void check_shutdown(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    for (int taken = -1; taken < 12; taken++) {
        lt_loader_config c = usual(1 + taken % 4);
        c.slots = 2 + taken % 3;
        lt_loader *l = NULL;
        lt_batch b;
        if (c.slots < 2 || c.threads < 1)
            c.slots = c.threads = 3;
        assert_ok(lt_loader_new(&l, d, device, &c));
        if (taken >= 0)
            assert_ok(lt_loader_seek(l, 0, 0));
        for (int i = 0; i < taken; i++) {
            lt_status st = lt_loader_next(l, &b);
            assert_true(st == LT_OK || st == LT_END);
        }
        lt_loader_free(&l);
        assert_null(l);
    }
    close_images(&d, root);
}

/* Reads a sample in two milliseconds. */
static lt_status read_slowly(const lt_dataset *self, int64_t index, lt_record *record)
{
    (void)self, (void)index;
    const double begin = lt_clock_seconds(), takes = 2e-3;
    LT_TRY(lt_record_reserve(record, IMAGE));
    record->size = IMAGE;
    record->encoding = LT_ENCODING_PIXELS;
    record->width = record->height = SIDE;
    record->label = 0;
    while (lt_clock_seconds() - begin < takes) {
    }
    return LT_OK;
}

/* First the consumer is faster than the threads, then it waits until all batches are ready. */
static void check_counters(void **state)
{
    enum { BATCHES = 20, PART = 4, MILLISECONDS = 2 };
    (void)state;
    static const lt_dataset_ops slow = {
        .name = "slow", .bytes = sizeof(lt_dataset), .read = read_slowly};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    assert_ok(lt_dataset_new(&d, &slow));
    d->count = BATCHES * 4;
    d->classes = 1;
    lt_loader_config c = usual(1);
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_batch b;
    double begin = lt_clock_seconds();
    for (int i = 0; i < BATCHES; i++)
        assert_ok(lt_loader_next(l, &b));
    lt_loader_stats hurried = lt_loader_statistics(l);
    assert_int_equal(hurried.batches, BATCHES);
    assert_int_equal(hurried.capacity, 4);
    assert_in_range(hurried.ready, 0, 4 * hurried.batches);
    assert_in_range(hurried.starved, BATCHES / 2, BATCHES);
    assert_true(hurried.read_seconds >= BATCHES * 4 * MILLISECONDS * 1e-3);
    assert_true(hurried.wait_seconds > 0.03 * BATCHES * 4 * MILLISECONDS * 1e-3);
    assert_string_equal(lt_loader_bottleneck(&hurried, lt_clock_seconds() - begin), "loader-bound");

    assert_int_equal(lt_loader_next(l, &b), LT_END);
    while (lt_loader_statistics(l).queued < 4) { /* until no slot is free */
    }
    lt_loader_stats before = lt_loader_statistics(l);
    for (int i = 0; i < PART; i++)
        assert_ok(lt_loader_next(l, &b));
    lt_loader_stats now = lt_loader_statistics(l);
    lt_loader_stats t = lt_loader_stats_since(&now, &before);
    assert_int_equal(t.batches, PART);
    assert_int_equal(t.samples, PART * 4);
    assert_int_equal(t.starved, 0);
    assert_in_range(t.ready, 4 + 3 + 2 + 1, PART * 4);
    assert_string_equal(lt_loader_bottleneck(&t, 1e3 * t.wait_seconds + 1), "compute-bound");
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

static void check_limits(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    assert_ok(lt_dataset_synthetic(&d, 100, 8, 3, 10));
    lt_loader_config c = usual(2);
    c.limit = 10;
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_int_equal(lt_loader_batches(l), 3);
    int seen[10] = {0};
    lt_batch b;
    while (lt_loader_next(l, &b) == LT_OK) {
        int32_t labels[4];
        assert_ok(lt_tensor_read(b.labels, labels, (size_t)b.count * sizeof *labels));
        for (int i = 0; i < b.count; i++)
            seen[labels[i]]++;
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(seen[i], 1);
    lt_loader_free(&l);
    c.max_batches = 2;
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int i = 0; i < 6; i++)
        assert_int_equal(lt_loader_next(l, &b), i % 3 == 2 ? LT_END : LT_OK);
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

static void check_wrong_configs(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    assert_ok(lt_dataset_synthetic(&d, 100, 8, 3, 10));
    enum { WRONG = 17 };
    static const char *const says[WRONG] = {
        "batch is 0, want 1 or more",
        "rank is 1, size is 1; want 0 <= rank < size",
        "slots is 1; want 1 .. 4096 threads, 2 .. 4096 slots",
        "100 samples on 1 ranks are too few for a batch of 101",
        "size is 0, want 1 .. 4096",
        "repeats is -1, want 0 .. 4096",
        "cache_bytes is -5, read_ahead is 0; want 0 or more",
        "cache_bytes is 0, read_ahead is -6; want 0 or more",
        "limit is -7, max_batches is 0, grad_accum is 1; want",
        "max_batches is -8, grad_accum is 1; want 0 or more",
        "max_batches is 0, grad_accum is -9; want 0 or more",
        "slots is 4097; want 1 .. 4096 threads, 2 .. 4096 slots",
        "threads is 4097, slots is",
        "threads is -1, slots is",
        "rank is -1, size is 1; want 0 <= rank < size",
        "rank is 0, size is -1; want 0 <= rank < size",
        "repeats is 4097, want 0 .. 4096",
    };
    lt_loader_config wrong[WRONG];
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        wrong[i] = usual(2);
    wrong[0].batch = 0;
    wrong[1].rank = 1;
    wrong[2].slots = 1;
    wrong[3].batch = 101;
    wrong[3].drop_last = true;
    wrong[4].transform.size = 0;
    wrong[5].repeats = -1;
    wrong[6].cache_bytes = -5;
    wrong[7].read_ahead = -6;
    wrong[8].limit = -7;
    wrong[9].max_batches = -8;
    wrong[10].grad_accum = -9;
    wrong[11].slots = 4097;
    wrong[12].threads = 4097;
    wrong[13].threads = -1;
    wrong[14].rank = -1;
    wrong[15].size = -1;
    wrong[16].repeats = 4097;
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_fails(lt_loader_new(&l, d, device, &wrong[i]), LT_E_ARG, says[i]);
    assert_null(l);
    lt_loader_config most = usual(2);
    most.repeats = 4096;
    most.slots = 2;
    most.threads = most.batch = 1;
    assert_ok(lt_loader_new(&l, d, device, &most));
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

/* Without spread the first batch in index order has one class only. */
static void check_spread(void **state)
{
    (void)state;
    char *root = make_image_folder(); /* 4, 5 and 6 images of three classes */
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch b;
    assert_ok(lt_dataset_open(&d, root, false));
    for (int spread = 0; spread < 2; spread++) {
        lt_loader_config c = usual(1);
        int32_t labels[3];
        c.shuffle = false;
        c.batch = 3;
        c.max_batches = 1;
        c.spread = spread;
        assert_ok(lt_loader_new(&l, d, device, &c));
        assert_ok(lt_loader_next(l, &b));
        assert_ok(lt_tensor_read(b.labels, labels, sizeof labels));
        for (int i = 0; i < 3; i++)
            assert_int_equal(labels[i], spread ? i : 0);
        assert_int_equal(lt_loader_next(l, &b), LT_END);
        lt_loader_free(&l);
    }
    close_images(&d, root);
}

int main(void)
{
    static int one = 1, two = 2, seven = 7;
    const struct CMUnitTest tests[] = {
        {"1 thread makes the expected batches", check_threads, 0, 0, &one},
        {"2 threads make the expected batches", check_threads, 0, 0, &two},
        {"7 threads make the expected batches", check_threads, 0, 0, &seven},
        {"mixed batches are the same for any number of threads", check_mixing, 0, 0, 0},
        {"targets of mapped labels", check_mixing_of_mapped_labels, 0, 0, 0},
        {"seeking gives the batch of that number", check_seek, 0, 0, 0},
        {"two ranks divide an epoch", check_ranks, 0, 0, 0},
        {"a device with separate memory gets copies at a fixed address", check_copies, 0, 0, 0},
        {"a loader can be freed at any moment", check_shutdown, 0, 0, 0},
        {"statistics distinguish a fast consumer from a slow one", check_counters, 0, 0, 0},
        {"a limited epoch is spread over all classes", check_spread, 0, 0, 0},
        {"limits are obeyed", check_limits, 0, 0, 0},
        {"configs out of range are rejected", check_wrong_configs, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
