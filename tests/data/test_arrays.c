/* Array data sets: the loader returns unchanged values in the order of other data sets. */

#include "base/alloc.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/dataset.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 23, MOST = 60 };

/* Element e of record i. */
static float value_of(int64_t i, int64_t e)
{
    return (float)i * 1000 + (float)e + 0.25F;
}

typedef struct set {
    const char *name;
    lt_shape shape;
    int threads;
} set;

static set sets[] = {
    {"records [F] are unchanged", {1, {7}}, 1},
    {"records [C,H,W] are unchanged", {3, {4, 3, 5}}, 3},
    {"records [A,B] are unchanged", {2, {3, 4}}, 2},
    {"records [A,B,C,D] are unchanged", {4, {2, 3, 2, 4}}, 2},
    {"records of one number are unchanged", {1, {1}}, 4},
};

static float values[COUNT * MOST];
static int64_t labels[COUNT];

static lt_arrays fill(lt_shape shape)
{
    int64_t size = lt_shape_count(shape);
    for (int64_t i = 0; i < COUNT; i++) {
        labels[i] = i % 4;
        for (int64_t e = 0; e < size; e++)
            values[i * size + e] = value_of(i, e);
    }
    return (lt_arrays){.values = values, .labels = labels, .count = COUNT, .shape = shape};
}

/* Checks a batch and returns its records' indices, which their first numbers contain. */
static void take(const lt_batch *b, lt_shape shape, int64_t *index)
{
    int64_t size = lt_shape_count(shape);
    float *got = malloc(lt_tensor_bytes(b->inputs));
    int32_t *label = malloc(lt_tensor_bytes(b->labels));
    lt_shape full = lt_tensor_shape(b->inputs);
    assert_non_null(got);
    assert_non_null(label);
    assert_int_equal(lt_tensor_dtype(b->inputs), LT_F32);
    assert_int_equal(full.ndim, shape.ndim + 1);
    assert_int_equal(full.dim[0], b->count);
    for (int d = 0; d < shape.ndim; d++)
        assert_int_equal(full.dim[d + 1], shape.dim[d]);
    assert_ok(lt_tensor_read(b->inputs, got, lt_tensor_bytes(b->inputs)));
    assert_ok(lt_tensor_read(b->labels, label, lt_tensor_bytes(b->labels)));
    for (int n = 0; n < b->count; n++) {
        index[n] = (int64_t)(got[n * size] / 1000);
        assert_int_equal(b->row[n].sample, index[n]);
        assert_int_equal(label[n], index[n] % 4);
        for (int64_t e = 0; e < size; e++)
            assert_true(got[n * size + e] == value_of(index[n], e));
    }
    free(got);
    free(label);
}

static lt_loader_config usual(int threads)
{
    return (lt_loader_config){.batch = 5, .threads = threads, .seed = 7, .shuffle = true};
}

/* Reads the indices of an epoch's records. */
static int64_t read_epoch(lt_loader *l, lt_shape shape, int64_t *index)
{
    lt_batch b;
    int64_t count = 0;
    lt_status st;
    while (!(st = lt_loader_next(l, &b))) {
        take(&b, shape, index + count);
        count += b.count;
    }
    assert_int_equal(st, LT_END);
    return count;
}

static void check_set(void **state)
{
    const set *s = *state;
    const lt_arrays given = fill(s->shape);
    int64_t index[2][COUNT], seen[COUNT] = {0};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_loader_config c = usual(s->threads);
    assert_ok(lt_dataset_arrays(&d, &given));
    assert_int_equal(lt_dataset_classes(d), 4);
    assert_true(lt_shape_equal(lt_dataset_shape(d), s->shape));
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int epoch = 0; epoch < 2; epoch++)
        assert_int_equal(read_epoch(l, s->shape, index[epoch]), COUNT); /* the last batch has 3 */
    for (int i = 0; i < COUNT; i++)
        seen[index[0][i]]++;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
    assert_memory_not_equal(index[0], index[1], sizeof index[0]);

    lt_batch b; /* resuming in the middle of an epoch */
    int64_t part[5];
    assert_ok(lt_loader_seek(l, 1, 3));
    assert_ok(lt_loader_next(l, &b));
    take(&b, s->shape, part);
    assert_memory_equal(part, index[1] + 15, sizeof part);
    lt_loader_free(&l);
    c.cache_bytes = 1 << 20; /* the second epoch comes from the cache */
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t again[COUNT];
        assert_int_equal(read_epoch(l, s->shape, again), COUNT);
        assert_memory_equal(again, index[epoch], sizeof again);
    }
    /* Each thread may read one before another has put it there; prefetched samples count too. */
    assert_true(lt_loader_statistics(l).cache_hits >= COUNT - s->threads);
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

/* Later changes of the arrays are visible only if they are borrowed. */
static void check_copy(void **state)
{
    (void)state;
    for (int copy = 0; copy < 2; copy++) {
        lt_arrays given = fill(sets[0].shape);
        given.copy = copy;
        lt_dataset *d = NULL;
        lt_record r = {0};
        float first;
        assert_ok(lt_dataset_arrays(&d, &given));
        values[0] = -1;
        labels[0] = 3;
        assert_ok(d->ops->read(d, 0, &r));
        memcpy(&first, r.bytes, sizeof first);
        assert_true(first == (copy ? value_of(0, 0) : -1));
        assert_int_equal(r.label, copy ? 0 : 3);
        lt_free(r.bytes);
        lt_dataset_free(&d);
    }
}

static void check_wrong(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_arrays a = fill(sets[0].shape);
    a.classes = 3;
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "label 3 of record 3, want 0 .. 2");
    a.classes = -1;
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "got -1 classes, want 0 or more");
    a.classes = 0;
    labels[5] = -1;
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "label -1 of record 5");
    a = fill(sets[0].shape);
    a.count = 0;
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "got 0 records of shape [7]");
    a = fill((lt_shape){0});
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "of shape []");
    a.shape = LT_SHAPE(1, 1, 1, 1, 1);
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "of shape [1,1,1,1,1]");
    a.shape = LT_SHAPE(INT64_MAX / 2, 8);
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "of shape [");
    a = fill(sets[0].shape);
    a.values = NULL;
    assert_fails(lt_dataset_arrays(&d, &a), LT_E_ARG, "values or labels are NULL");

    a = fill(sets[0].shape);
    assert_ok(lt_dataset_arrays(&d, &a));
    lt_loader_config c = usual(1);
    c.mix.mixup_alpha = 1;
    assert_fails(lt_loader_new(&l, d, device, &c), LT_E_ARG, "mixup or cutmix needs images");
    c = usual(1);
    c.sizes = (lt_size_schedule){.count = 1, .step = {{0, 8}}};
    assert_fails(lt_loader_new(&l, d, device, &c), LT_E_ARG, "a size schedule needs images");
    lt_dataset_free(&d);
}

/* --- A user's data set --- */

/* Sample 2 lacks one number, sample 3 is an image. */
static lt_status read_own(const lt_dataset *self, int64_t index, lt_record *r)
{
    size_t bytes = (size_t)lt_shape_count(self->shape) * sizeof(float);
    LT_TRY(lt_record_reserve(r, bytes));
    memset(r->bytes, 0, bytes);
    r->size = bytes - (index == 2 ? sizeof(float) : 0);
    r->encoding = index == 3 ? LT_ENCODING_PIXELS : LT_ENCODING_FLOATS;
    r->label = 0;
    return LT_OK;
}

static void check_own(void **state)
{
    (void)state;
    static const lt_dataset_ops ops = {
        .name = "own", .bytes = sizeof(lt_dataset), .read = read_own};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch b;
    lt_loader_config c = {.batch = 6, .threads = 1, .max_bad = 2};
    assert_ok(lt_dataset_new(&d, &ops));
    d->count = 6;
    d->classes = 1;
    d->shape = LT_SHAPE(3, 2);
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_ok(lt_loader_next(l, &b));
    assert_int_equal(lt_loader_statistics(l).bad, 2);
    assert_non_null(strstr(lt_loader_corrupt(l, 0),
                           "sample 2: data: record of 20 bytes, want f32 of shape [3,2]"));
    lt_loader_free(&l);
    d->shape = (lt_shape){0}; /* now images are required */
    c.transform.size = 8;
    c.max_bad = 0;
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_fails(lt_loader_next(l, &b), LT_E_FORMAT, "the record has numbers");
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"a copy does not change", check_copy, 0, 0, 0},
        {"invalid arrays are rejected", check_wrong, 0, 0, 0},
        {"records of a user's data set are checked", check_own, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(sets) + COUNT_OF(more)];
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        tests[COUNT_OF(more) + i] = row_test(sets[i].name, check_set, &sets[i]);
    return _cmocka_run_group_tests("arrays", tests, COUNT_OF(tests), open_device, close_device);
}
