/* The caching allocator and the tape on a device with little memory: segments become as small as they must be, and
 * what does not fit is named, with a batch that may. */

#include "fake.h"
#include "near.h"
#include "tensor/tensor.h"

#include "lather/ops.h"
#include "lather/tape.h"

#include <string.h>

/* ref's kernels with the fake device's memory, which counts as a device's. */
typedef struct small_device {
    lt_backend backend;
    lt_device device;
} small_device;

static void small_open(small_device *s, size_t memory)
{
    const lt_device_config config = {0};
    fake_reset(memory);
    s->backend = *lt_backend_ref();
    s->backend.host_memory = false;
    s->backend.alloc = lt_cuda_alloc;
    s->backend.free = lt_cuda_free;
    s->device = (lt_device){.backend = &s->backend, .name = "small"};
    assert_ok(lt_cuda_open_with(&fake_api, &s->device.ctx, 0, &config));
    assert_ok(lt_allocator_new(&s->device.allocator, &s->backend, s->device.ctx));
}

static void small_close(small_device *s)
{
    lt_allocator_free(&s->device.allocator);
    lt_cuda_close(s->device.ctx);
    assert_int_equal(fake.blocks, 0);
}

static void segments_fit_what_is_left(void **state)
{
    (void)state;
    small_device s;
    lt_chunk *first, *second, *third = NULL;
    small_open(&s, (size_t)40 << 20);
    assert_ok(lt_allocator_alloc(s.device.allocator, 1000, &first)); /* from a segment of 16 MiB */
    assert_int_equal(fake.used, 16 << 20);
    assert_ok(
        lt_allocator_alloc(s.device.allocator, 20 << 20, &second)); /* the next would be 32 MiB */
    assert_int_equal(fake.used, 36 << 20);
    assert_status(lt_allocator_alloc(s.device.allocator, 17 << 20, &third), LT_E_NOMEM);
    assert_ok(
        lt_allocator_alloc(s.device.allocator, 10 << 20, &third)); /* from the first segment */
    assert_int_equal(fake.used, 36 << 20);
    lt_chunk_free(s.device.allocator, first);
    lt_chunk_free(s.device.allocator, second);
    lt_chunk_free(s.device.allocator, third);
    small_close(&s);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    small_device s;
    lt_tensor *x = NULL;
    lt_tape *tape = NULL;
    small_open(&s, (size_t)20 << 20);
    assert_ok(lt_tensor_new(&x, &s.device, LT_F32, LT_SHAPE(24, 3, 224, 224))); /* 13.8 MiB */
    assert_ok(lt_tape_new(&tape, &s.device));
    lt_tape_reset(tape, LT_PASS_EVAL);
    assert_null(lt_relu(tape, lt_tape_variable(tape, x)));
    assert_status(lt_tape_status(tape), LT_E_NOMEM);
    const char *const parts[] = {"no 13.8 MiB of device memory: 4.0 of 20.0 MiB are free",
                                 "f32 [24,3,224,224]", "a batch of 12 instead of 24 may fit"};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(lt_error_message(), parts[i]))
            fail_msg("\"%s\" does not say \"%s\"", lt_error_message(), parts[i]);
    lt_tape_free(&tape);
    lt_tensor_free(&x);
    small_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_fit_what_is_left),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
