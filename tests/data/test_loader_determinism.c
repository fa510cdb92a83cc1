/* Samples are the same for any number of threads and ranks and after resuming at any batch, with every kind of
 * augmentation. */

#include "data/loader/sampler.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"
#include "tensor/tensor.h"

#include "lather/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, IMAGES = 15, EPOCHS = 3, BATCH = 4, MOST = 40 * 40 * 3 };

typedef struct kind {
    const char *name;
    bool recoloured, sized, fast;
    int repeats;
    lt_filter filter;
    lt_augment augment;
    lt_mix mix; /* not compared between ranks, whose batches differ */
} kind;

static kind kinds[] = {
    {"random-resized-crop", .augment = LT_AUGMENT_IMAGENET},
    {"pad, crop and flip", .augment = LT_AUGMENT_SMALL},
    {"a centre crop, bicubic", .augment = LT_AUGMENT_NONE, .filter = LT_FILTER_BICUBIC},
    {"colours and erasing", .augment = LT_AUGMENT_IMAGENET, .recoloured = true},
    {"repeated augmentation", .augment = LT_AUGMENT_IMAGENET, .repeats = 3},
    {"growing inputs", .augment = LT_AUGMENT_IMAGENET, .sized = true},
    {"all of it, decoded fast", .augment = LT_AUGMENT_IMAGENET, .recoloured = true, .sized = true,
     .repeats = 2, .fast = true, .filter = LT_FILTER_BICUBIC},
    {"mixup and cutmix on growing inputs", .augment = LT_AUGMENT_IMAGENET, .sized = true,
     .mix = {.mixup_alpha = 0.5, .cutmix_alpha = 1}},
};

static lt_loader_config make_config(const kind *k)
{
    lt_loader_config c = {
        .transform = {.augment = k->augment,
                      .size = SIDE,
                      .flip = 0.5,
                      .filter = k->filter,
                      .fast = k->fast},
        .mix = k->mix,
        .batch = BATCH,
        .threads = 2,
        .seed = 11,
        .shuffle = true,
        .repeats = k->repeats,
    };
    if (k->recoloured) {
        c.transform.trivial_augment = !k->fast; /* never both */
        c.transform.rand_augment = (lt_rand_augment){k->fast ? 2 : 0, 9};
        c.transform.jitter = (lt_jitter){.brightness = 0.4, .contrast = 0.4, .hue = 0.1};
        c.transform.erase = 0.5;
        c.transform.vflip = c.transform.grayscale = c.transform.blur = 0.3;
        c.transform.rotation = 15;
    }
    if (k->sized)
        c.sizes = (lt_size_schedule){3, {{0, 8}, {1, 40}, {2, 17}}};
    return c;
}

typedef struct sample {
    int size;
    int32_t label;
    uint8_t pixels[MOST];
} sample;

/* All samples of all epochs, in the order over all ranks. */
typedef struct collection {
    sample at[EPOCHS][IMAGES];
} collection;

static void store(const lt_loader_config *c, const lt_batch *b, int64_t epoch, collection *to)
{
    lt_shape shape = lt_tensor_shape(b->inputs);
    size_t one = (size_t)(lt_tensor_count(b->inputs) / b->count);
    uint8_t *all = malloc(lt_tensor_bytes(b->inputs));
    int32_t labels[IMAGES];
    assert_ok(lt_tensor_read(b->inputs, all, lt_tensor_bytes(b->inputs)));
    assert_ok(lt_tensor_read(b->labels, labels, lt_tensor_bytes(b->labels)));
    for (int i = 0; i < b->count; i++) {
        int64_t place = (b->index * c->batch + i) * (c->size ? c->size : 1) + c->rank;
        sample *s = &to->at[epoch][place];
        assert_in_range(place, 0, IMAGES - 1);
        assert_int_equal(s->size, 0); /* no duplicate */
        s->size = (int)shape.dim[3];
        s->label = labels[i];
        memcpy(s->pixels, all + (size_t)i * one, one);
    }
    free(all);
}

/* Collects the samples from a batch of an epoch to the end of the last epoch. */
static void collect(lt_dataset *d, const lt_loader_config *c, int64_t epoch, int64_t batch,
                    collection *to)
{
    lt_loader *l = NULL;
    lt_batch b;
    assert_ok(lt_loader_new(&l, d, device, c));
    assert_ok(lt_loader_seek(l, epoch, batch));
    for (; epoch < EPOCHS; epoch++) {
        lt_status st;
        while (!(st = lt_loader_next(l, &b)))
            store(c, &b, epoch, to);
        assert_int_equal(st, LT_END);
    }
    lt_loader_free(&l);
}

static collection *new_collection(void)
{
    collection *c = calloc(1, sizeof *c);
    assert_non_null(c);
    return c;
}

/* Returns true if the samples from position `first` of the epoch on are equal. */
static bool same_from(const collection *a, const collection *b, int64_t epoch, int64_t first)
{
    size_t skipped = (size_t)(epoch * IMAGES + first);
    const sample *x = &a->at[0][0] + skipped, *y = &b->at[0][0] + skipped;
    return !memcmp(x, y, (EPOCHS * IMAGES - skipped) * sizeof(sample));
}

static void check_threads(lt_dataset *d, const lt_loader_config *usual, const collection *want)
{
    static const int threads[] = {2, 7};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        lt_loader_config c = *usual;
        collection *got = new_collection();
        c.threads = threads[i];
        c.slots = 2 + (int)i;
        collect(d, &c, 0, 0, got);
        assert_true(same_from(want, got, 0, 0));
        got->at[1][3].pixels[5] ^= 1; /* control */
        assert_false(same_from(want, got, 0, 0));
        free(got);
    }
}

/* With a cache for all, some or no images, and with read-ahead. */
static void check_caches(lt_dataset *d, const lt_loader_config *usual, const collection *want)
{
    static const int64_t bytes[] = {1 << 20, 20000, 100};
    for (size_t i = 0; i < COUNT_OF(bytes); i++) {
        lt_loader_config c = *usual;
        collection *got = new_collection();
        c.threads = 3;
        c.cache_bytes = bytes[i];
        c.read_ahead = 1 + (int64_t)i * 7;
        collect(d, &c, 0, 0, got);
        assert_true(same_from(want, got, 0, 0));
        free(got);
    }
}

static void check_resume(lt_dataset *d, const lt_loader_config *c, const collection *want)
{
    int64_t batches = (IMAGES + BATCH - 1) / BATCH;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t batch = 0; batch < batches; batch++) {
            collection *got = new_collection();
            collect(d, c, epoch, batch, got);
            assert_true(same_from(want, got, epoch, batch * BATCH));
            assert_int_equal(got->at[0][0].size != 0, epoch + batch == 0);
            free(got);
        }
}

static void check_split(lt_dataset *d, const lt_loader_config *usual, const collection *want)
{
    for (int ranks = 2; ranks <= 5; ranks++) {
        collection *got = new_collection();
        for (int rank = 0; rank < ranks; rank++) {
            lt_loader_config c = *usual;
            c.rank = rank;
            c.size = ranks;
            c.batch = 1 + rank; /* irrelevant */
            collect(d, &c, 0, 0, got);
        }
        assert_true(same_from(want, got, 0, 0));
        free(got);
    }
}

static void check_kind(void **state)
{
    const kind *k = *state;
    char *root;
    lt_dataset *d = open_images(&root);
    assert_int_equal(lt_dataset_count(d), IMAGES);
    lt_loader_config c = make_config(k);
    collection *want = new_collection();
    c.threads = 1;
    collect(d, &c, 0, 0, want);
    for (int i = 0; i < EPOCHS * IMAGES; i++)
        assert_int_equal(want->at[i / IMAGES][i % IMAGES].size,
                         k->sized ? c.sizes.step[i / IMAGES].size : SIDE);
    check_threads(d, &c, want);
    check_caches(d, &c, want);
    check_resume(d, &c, want);
    if (k->mix.mixup_alpha <= 0)
        check_split(d, &c, want);
    free(want);
    close_images(&d, root);
}

/* Each image of an epoch comes `repeats` times, with different pixels. */
static void check_repeats(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader_config c = make_config(&kinds[4]);
    collection *got = new_collection();
    collect(d, &c, 0, 0, got);
    for (int first = 0; first < IMAGES; first += c.repeats)
        for (int i = 1; i < c.repeats; i++) {
            const sample *a = &got->at[0][first], *b = &got->at[0][first + i];
            assert_int_equal(a->label, b->label);
            assert_memory_not_equal(a->pixels, b->pixels, SIDE * SIDE * 3);
        }
    free(got);
    close_images(&d, root);
}

static void check_schedules(void **state)
{
    (void)state;
    lt_size_schedule s = {0};
    assert_int_equal(lt_size_schedule_at(&s, 7), 0);
    assert_ok(lt_size_schedule_parse(&s, "0:128,30:160,60:224"));
    static const int want[][2] = {{0, 128}, {29, 128}, {30, 160}, {59, 160}, {60, 224}, {999, 224}};
    for (size_t i = 0; i < COUNT_OF(want); i++)
        assert_int_equal(lt_size_schedule_at(&s, want[i][0]), want[i][1]);
    /* clang-format off */
    static const char *const wrong[] = {
        "", "128", "0:", "0:128,", "1:128", "0:128,0:9", "0:128;30:1", "0:128,30:160x", "0:-3", "0:0",
        "0:128,5:4,5:6", " 0:128", "0:99999999999999999999", "0:2147483648", "0:1,9223372036854775808:1",
        ("0:1,1:1,2:1,3:1,4:1,5:1,6:1,7:1,8:1,9:1,10:1,11:1,12:1,13:1,14:1,15:1,16:1,"
        "17:1,18:1,19:1,20:1,21:1,22:1,23:1,24:1,25:1,26:1,27:1,28:1,29:1,30:1,31:1,32:1")};
    /* clang-format on */
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_status(lt_size_schedule_parse(&s, wrong[i]), LT_E_ARG);
    assert_int_equal(s.count, 3); /* unchanged */
    assert_ok(lt_size_schedule_parse(&s, "0:2147483647,9223372036854775807:1"));
    assert_int_equal(s.step[0].size, INT32_MAX);
    char most[512];
    snprintf(most, sizeof most, "%s", wrong[COUNT_OF(wrong) - 1]);
    *strrchr(most, ',') = 0; /* 32 steps */
    assert_ok(lt_size_schedule_parse(&s, most));
    assert_int_equal(s.count, LT_MAX_SIZES);
    s = (lt_size_schedule){.count = LT_MAX_SIZES};
    for (int i = 0; i < LT_MAX_SIZES; i++)
        s.step[i] = (lt_size_step){i, 1};
    assert_ok(lt_size_schedule_check(&s));
    s.count++;
    assert_fails(lt_size_schedule_check(&s), LT_E_ARG, "got 33 steps, want at most 32");
    s.count = -1;
    assert_fails(lt_size_schedule_check(&s), LT_E_ARG, "got -1 steps");
}

static void check_configs(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    assert_ok(lt_dataset_synthetic(&d, 100, 8, 3, 10));
    lt_loader_config wrong[4];
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        wrong[i] = make_config(&kinds[5]);
    wrong[0].transform.resize = 30;
    wrong[1].sizes.step[1].epoch = 0;
    wrong[2].sizes.step[2].size = 1 << 20;
    wrong[3].repeats = -1;
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_status(lt_loader_new(&l, d, device, &wrong[i]), LT_E_ARG);
    assert_null(l);
    lt_dataset_free(&d);
}

/* A device whose memory the host cannot write. */
static void check_far(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader_config c = make_config(&kinds[7]);
    collection *want = new_collection(), *got = new_collection();
    collect(d, &c, 0, 0, want);
    const lt_backend *real = device->backend;
    lt_backend far = *real;
    far.host_memory = false;
    device->backend = &far;
    collect(d, &c, 0, 0, got);
    device->backend = real;
    assert_true(same_from(want, got, 0, 0));
    free(want);
    free(got);
    close_images(&d, root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(kinds) + 4];
    size_t n = 0;
    for (; n < COUNT_OF(kinds); n++)
        tests[n] = row_test(kinds[n].name, check_kind, &kinds[n]);
    const struct CMUnitTest more[] = {
        {"repeats of an image differ", check_repeats, 0, 0, 0},
        {"size schedules are parsed or rejected", check_schedules, 0, 0, 0},
        {"contradictory configs are rejected", check_configs, 0, 0, 0},
        {"a device with separate memory gets growing inputs", check_far, 0, 0, 0},
    };
    memcpy(tests + n, more, sizeof more);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
