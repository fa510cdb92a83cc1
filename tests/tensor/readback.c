/* Readback from a device whose copies to the host arrive as late as possible. */

#include "lather/detail/readback.h"

#include "near.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"

#include <string.h>

enum { MOST = 16, BYTES = 64 };

/* A copy in flight, with the memory as it was when the device reached it. */
typedef struct late_copy {
    void *to;
    char data[BYTES];
    size_t bytes;
} late_copy;

static late_copy late[MOST];
static uint64_t queued, arrived, recorded;
static bool skips_wait; /* control: event_synchronize does not wait */
static bool broken;

static lt_status host_alloc(void *ctx, size_t bytes, void **out)
{
    return lt_backend_ref()->alloc(ctx, bytes, out);
}

static void host_free(void *ctx, void *data)
{
    lt_backend_ref()->free(ctx, data, 0);
}

static lt_status copy(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    if (kind != LT_COPY_OUT)
        return lt_backend_ref()->copy(ctx, dst, src, bytes, kind);
    late_copy *l = &late[queued++];
    assert_true(queued <= MOST && bytes <= BYTES);
    l->to = dst;
    l->bytes = bytes;
    memcpy(l->data, src, bytes);
    return LT_OK;
}

static lt_status event_record(void *ctx, uint64_t *event)
{
    (void)ctx;
    recorded++;
    *event = queued;
    return LT_OK;
}

static lt_status event_synchronize(void *ctx, uint64_t event)
{
    (void)ctx;
    if (broken)
        return lt_fail(LT_E_DEVICE, "event_synchronize: it is broken");
    for (; arrived < event && !skips_wait; arrived++)
        memcpy(late[arrived].to, late[arrived].data, late[arrived].bytes);
    return LT_OK;
}

static const lt_upload_ops ops = {.host_alloc = host_alloc,
                                  .host_free = host_free,
                                  .event_record = event_record,
                                  .event_synchronize = event_synchronize};

typedef struct side {
    lt_device *device;
    lt_backend table;
    lt_tensor *a, *b;
    lt_readback *first, *second;
} side;

static void open_side(side *s, bool far)
{
    *s = (side){0};
    queued = arrived = recorded = 0;
    skips_wait = broken = false;
    assert_ok(lt_device_open(&s->device, "ref", NULL));
    s->table = *s->device->backend;
    if (far) {
        s->table.host_memory = false;
        s->table.copy = copy;
        s->table.uploads = &ops;
        s->device->backend = &s->table;
    }
    assert_ok(lt_tensor_new(&s->a, s->device, LT_F32, LT_SHAPE(2)));
    assert_ok(lt_tensor_new(&s->b, s->device, LT_I64, LT_SCALAR));
    assert_ok(lt_readback_new(&s->first, s->device, 2 * sizeof(float) + sizeof(int64_t)));
    assert_ok(lt_readback_new(&s->second, s->device, sizeof(int64_t)));
}

static void close_side(side *s)
{
    lt_readback_free(&s->first);
    lt_readback_free(&s->second);
    lt_tensor_free(&s->a);
    lt_tensor_free(&s->b);
    lt_device_close(&s->device);
}

static void put(const side *s, double a, double b)
{
    assert_ok(lt_tensor_fill(s->a, a));
    assert_ok(lt_tensor_fill(s->b, b));
}

static void check_first(const side *s, float a, int64_t b)
{
    const void *data;
    float x[2];
    int64_t n;
    assert_ok(lt_readback_wait(s->first, &data));
    memcpy(x, data, sizeof x);
    memcpy(&n, (const char *)data + sizeof x, sizeof n);
    assert_near((double)x[0], (double)a, 0);
    assert_near((double)x[1], (double)a, 0);
    assert_int_equal(n, b);
}

static void send_both(const side *s)
{
    lt_readback_begin(s->first);
    assert_ok(lt_readback_add(s->first, s->a));
    assert_ok(lt_readback_add(s->first, s->b));
    assert_ok(lt_readback_send(s->first));
}

static void values_are_those_at_the_time_of_sending(void **state)
{
    for (int far = 0; far < 2; far++) {
        side s;
        const void *data;
        int64_t second;
        open_side(&s, far);
        put(&s, 3, 4);
        send_both(&s);
        put(&s, 5, 6); /* the next step */
        lt_readback_begin(s.second);
        assert_ok(lt_readback_add(s.second, s.b));
        assert_ok(lt_readback_send(s.second));
        check_first(&s, 3, 4);
        assert_int_equal(arrived, far ? 2 : 0); /* the second is not waited for */
        assert_ok(lt_readback_wait(s.second, &data));
        memcpy(&second, data, sizeof second);
        assert_int_equal(second, 6);
        assert_int_equal(recorded, far ? 2 : 0);
        check_first(&s, 3, 4); /* still there */
        send_both(&s);
        check_first(&s, 5, 6);
        close_side(&s);
    }
    (void)state;
}

static void without_the_wait_the_copy_is_incomplete(void **state)
{
    side s;
    const void *data;
    (void)state;
    open_side(&s, true);
    put(&s, 3, 4);
    skips_wait = true;
    send_both(&s);
    assert_ok(lt_readback_wait(s.first, &data));
    float x;
    memcpy(&x, data, sizeof x);
    assert_true(x < 3 || x > 3);
    close_side(&s);
}

static void inputs_that_do_not_fit_are_errors(void **state)
{
    side s;
    (void)state;
    open_side(&s, true);
    lt_device *other = NULL;
    lt_tensor *foreign = NULL;
    assert_ok(lt_device_open(&other, "ref", NULL));
    assert_ok(lt_tensor_new(&foreign, other, LT_F32, LT_SHAPE(1)));
    lt_readback_begin(s.second);
    assert_fails(lt_readback_add(s.second, foreign), LT_E_ARG,
                 "readback: needs contiguous tensors of its device");
    lt_tensor_free(&foreign);
    lt_device_close(&other);
    assert_ok(lt_readback_add(s.second, s.a)); /* exactly its capacity */
    assert_status(lt_readback_add(s.second, s.b), LT_E_ARG);
    assert_ok(lt_readback_send(s.second));
    send_both(&s);
    assert_status(lt_readback_add(s.first, s.b), LT_E_ARG); /* already sent */
    close_side(&s);
    assert_int_equal(arrived, queued); /* freeing waited */
}

static void the_first_error_is_kept(void **state)
{
    side s;
    (void)state;
    open_side(&s, true);
    put(&s, 3, 4);
    send_both(&s);
    broken = true;
    (void)lt_fail(LT_E_ARG, "the first failure");
    lt_readback_free(&s.first);
    assert_string_equal(lt_error_message(), "the first failure");
    close_side(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_at_the_time_of_sending),
        cmocka_unit_test(without_the_wait_the_copy_is_incomplete),
        cmocka_unit_test(inputs_that_do_not_fit_are_errors),
        cmocka_unit_test(the_first_error_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
