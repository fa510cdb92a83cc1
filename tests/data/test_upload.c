/* Uploads to a device with separate memory. The device copies as late as allowed, which exposes missing waits; its
 * batches are compared with those of a loader on the host. */

#include "near.h"
#include "tensor/tensor.h"

#include "lather/ext/dataset.h"

#include <string.h>

enum { COUNT = 22, SIDE = 8, BATCH = 4, CLASSES = 5 };

typedef struct late_copy {
    void *dst;
    const void *src;
    size_t bytes;
} late_copy;

static late_copy late[LT_UPLOAD_SLOTS];
static int begun, recorded;
static bool skip_waits; /* control: stream_wait does not wait */
static bool fail_waits;

static lt_status host_alloc(void *ctx, size_t bytes, void **out)
{
    return lt_backend_ref()->alloc(ctx, bytes, out);
}

static void host_free(void *ctx, void *data)
{
    lt_backend_ref()->free(ctx, data, 0);
}

static lt_status copy(void *ctx, int slot, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    assert_null(late[slot].dst); /* the previous copy is complete */
    late[slot] = (late_copy){dst, src, bytes};
    begun++;
    return LT_OK;
}

static lt_status finish(void *ctx, int slot)
{
    (void)ctx;
    if (fail_waits)
        return lt_fail(LT_E_DEVICE, "wait failed");
    if (late[slot].dst)
        memcpy(late[slot].dst, late[slot].src, late[slot].bytes);
    late[slot] = (late_copy){0};
    return LT_OK;
}

static lt_status stream_wait(void *ctx, int slot)
{
    return skip_waits ? LT_OK : finish(ctx, slot);
}

static lt_status record_stream(void *ctx, int slot)
{
    (void)ctx;
    (void)slot;
    recorded++;
    return LT_OK;
}

/* Copies of an incomplete batch, without an upload slot; made by sync. */
static late_copy parts[4];
static size_t copies;

static lt_status copy_part(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    if (kind != LT_COPY_IN)
        return lt_backend_ref()->copy(ctx, dst, src, bytes, kind);
    assert_true(copies < COUNT_OF(parts));
    parts[copies++] = (late_copy){dst, src, bytes};
    return LT_OK;
}

static lt_status sync_parts(void *ctx)
{
    (void)ctx;
    for (size_t i = 0; i < copies; i++)
        memcpy(parts[i].dst, parts[i].src, parts[i].bytes);
    copies = 0;
    return LT_OK;
}

static const lt_upload_ops uploads = {.host_alloc = host_alloc,
                                      .host_free = host_free,
                                      .copy = copy,
                                      .stream_wait = stream_wait,
                                      .record_stream = record_stream,
                                      .wait = finish};

typedef struct side {
    lt_device *device;
    lt_backend table;
    lt_dataset *data;
    lt_loader *loader;
} side;

static lt_status read_tokens(const lt_dataset *self, int64_t index, lt_record *record)
{
    const int64_t length = self->shape.dim[0];
    LT_TRY(lt_record_reserve(record, (size_t)(2 * length) * sizeof(int32_t)));
    int32_t *id = (int32_t *)(void *)record->bytes;
    for (int64_t i = 0; i < 2 * length; i++)
        id[i] = (int32_t)(index * 31 + i * 7) % self->classes;
    record->size = (size_t)(2 * length) * sizeof *id;
    record->encoding = LT_ENCODING_TOKENS;
    return LT_OK;
}

/* Makes samples of 5 ids and 5 labels. */
static lt_status new_tokens(lt_dataset **out)
{
    static const lt_dataset_ops ops = {
        .name = "ids", .bytes = sizeof(lt_dataset), .read = read_tokens};
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->count = COUNT;
    (*out)->classes = CLASSES;
    (*out)->shape = LT_SHAPE(5);
    (*out)->tokens = true;
    return LT_OK;
}

/* mixup < 0: tokens instead of images. */
static void open_side(side *s, bool far, double mixup)
{
    *s = (side){0};
    assert_ok(lt_device_open(&s->device, "ref", NULL));
    s->table = *s->device->backend;
    if (far) {
        s->table.host_memory = false;
        s->table.uploads = &uploads;
        s->table.copy = copy_part;
        s->table.sync = sync_parts;
        s->device->backend = &s->table;
    }
    assert_ok(mixup < 0 ? new_tokens(&s->data)
                        : lt_dataset_synthetic(&s->data, COUNT, SIDE, 3, CLASSES));
    const lt_loader_config c = {.transform = {.size = SIDE, .resize = SIDE},
                                .mix.mixup_alpha = mixup > 0 ? mixup : 0,
                                .batch = BATCH,
                                .threads = 2,
                                .slots = 3,
                                .seed = 3,
                                .shuffle = true};
    assert_ok(lt_loader_new(&s->loader, s->data, s->device, &c));
}

static void close_side(side *s)
{
    lt_loader_free(&s->loader);
    lt_dataset_free(&s->data);
    lt_device_close(&s->device);
}

static bool same_tensor(const lt_tensor *a, const lt_tensor *b)
{
    enum { MOST = BATCH * 3 * SIDE * SIDE * 4 };
    unsigned char x[MOST], y[MOST];
    if (!a || !b)
        return a == b;
    assert_true(lt_tensor_bytes(a) <= MOST && lt_shape_equal(a->shape, b->shape));
    assert_ok(lt_tensor_read(a, x, lt_tensor_bytes(a)));
    assert_ok(lt_tensor_read(b, y, lt_tensor_bytes(b)));
    return !memcmp(x, y, lt_tensor_bytes(a));
}

static bool same_batch(const lt_batch *a, const lt_batch *b)
{
    return a->count == b->count && a->index == b->index && same_tensor(a->inputs, b->inputs)
           && same_tensor(a->labels, b->labels) && same_tensor(a->targets, b->targets);
}

/* Reads to the end of the epoch and counts different batches. */
static int count_differences(side *near, side *far)
{
    lt_batch a, b;
    const void *address = NULL;
    int different = 0;
    for (lt_status st; !(st = lt_loader_next(near->loader, &a));) {
        assert_ok(lt_loader_next(far->loader, &b));
        different += !same_batch(&a, &b);
        if (b.count < BATCH) {
            assert_int_equal(copies, 0); /* complete, its source may be overwritten */
        } else {                         /* the fixed address that a captured step reads */
            assert_true(!address || address == lt_tensor_view(b.inputs).data);
            address = lt_tensor_view(b.inputs).data;
        }
    }
    assert_status(lt_loader_next(far->loader, &b), LT_END);
    return different;
}

static void check_batches(void **state)
{
    const double *mixup = *state;
    side near, far;
    begun = recorded = 0;
    open_side(&near, false, *mixup);
    open_side(&far, true, *mixup);
    for (int64_t i = 0; i < 4; i++) { /* seeks drop copies in flight */
        lt_batch dropped;
        assert_ok(lt_loader_seek(far.loader, 1, 1));
        assert_ok(lt_loader_next(far.loader, &dropped));
        assert_ok(lt_loader_seek(near.loader, 0, i));
        assert_ok(lt_loader_seek(far.loader, 0, i));
        assert_int_equal(count_differences(&near, &far), 0);
    }
    assert_true(begun >= recorded && recorded > 0);
    close_side(&near);
    close_side(&far);
    for (int i = 0; i < LT_UPLOAD_SLOTS; i++)
        assert_null(late[i].dst);
}

static void check_missing_wait(void **state)
{
    (void)state;
    side near, far;
    open_side(&near, false, 0);
    open_side(&far, true, 0);
    skip_waits = true;
    assert_true(count_differences(&near, &far) > 0);
    skip_waits = false;
    close_side(&near);
    close_side(&far);
}

static void check_first_error(void **state)
{
    side far;
    lt_batch batch;
    (void)state;
    open_side(&far, true, 0);
    assert_ok(lt_loader_next(far.loader, &batch));
    fail_waits = true;
    (void)lt_fail(LT_E_ARG, "the first error");
    lt_loader_free(&far.loader);
    assert_string_equal(lt_error_message(), "the first error");
    fail_waits = false;
    memset(late, 0, sizeof late);
    close_side(&far);
}

int main(void)
{
    static const double plain = 0, mixed = 0.5, tokens = -1;
    const struct CMUnitTest tests[] = {
        row_test("batches arrive complete and in order", check_batches, &plain),
        row_test("mixed batches too", check_batches, &mixed),
        row_test("batches of tokens too", check_batches, &tokens),
        row_test("a missing wait is noticed", check_missing_wait, NULL),
        row_test("freeing the loader keeps the first error's message", check_first_error, NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
