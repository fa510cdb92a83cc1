/* The small network on the cpu backend: near ref, and never with stale weights, of which a backend may keep
 * packed copies. */

#include "near.h"
#include "net.h"
#include "tensor/tensor.h"

#include <string.h>

enum { MAX_ELEMENTS = 1024 };

typedef struct device_row {
    const char *name, *device;
    lt_dtype dtype;
    double bound; /* bound of the Euclidean distance of all gradients, relative to their length */
} device_row;

static const device_row rows[] = {
    {"ref in f32 is near ref in f64", "ref", LT_F32, 1e-5},
    {"cpu in f32 is near ref in f64", "cpu", LT_F32, 1e-5},
    {"ref in bf16 is near ref in f64", "ref", LT_BF16, 0.15},
    {"cpu in bf16 is near ref in f64", "cpu", LT_BF16, 0.15},
};

/* Concatenates the gradients of all parameters as doubles; returns their number. */
static int64_t gradients(const char *device, lt_dtype dtype, bool f64, double *out)
{
    net n;
    lt_pass pass = LT_PASS_TRAIN;
    int64_t total = 0;
    pass.dtype = dtype;
    /* Its random numbers depend on the operation's ordinal, and casts count. */
    pass.dropout = false;
    assert_ok(net_open(&n, device, &(lt_device_config){.f64 = f64, .threads = 1}));
    assert_ok(net_step(&n, pass));
    for (size_t i = 0; i < n.params.count; i++) {
        float narrow[MAX_ELEMENTS];
        const lt_tensor *g = n.params.item[i]->grad;
        int64_t count = lt_tensor_count(g);
        assert_true(total + count <= MAX_ELEMENTS);
        assert_ok(lt_tensor_read(g, f64 ? (void *)(out + total) : narrow, lt_tensor_bytes(g)));
        for (int64_t j = 0; !f64 && j < count; j++)
            out[total + j] = (double)narrow[j];
        total += count;
    }
    net_close(&n);
    return total;
}

static void check_row(void **state)
{
    const device_row *row = *state;
    static double want[MAX_ELEMENTS], got[MAX_ELEMENTS];
    int64_t count = gradients("ref", LT_F32, true, want);
    assert_int_equal(gradients(row->device, row->dtype, false, got), count);
    double length = 0, distance = 0;
    for (int64_t i = 0; i < count; i++) {
        length += want[i] * want[i];
        distance += (got[i] - want[i]) * (got[i] - want[i]);
    }
    assert_near(sqrt(distance / length), 0, row->bound);
    assert_memory_not_equal(got, want, (size_t)count * sizeof *got); /* another precision */
}

/* Computes evaluation logits of a network whose filters were set to a value. */
static void logits_with(net *n, lt_dtype dtype, double filters, float *out)
{
    lt_pass pass = LT_PASS_EVAL;
    pass.dtype = dtype;
    assert_ok(lt_tensor_fill(n->conv1.value, filters));
    assert_ok(lt_tensor_fill(n->fc.value, -filters));
    net_forward(n, pass);
    assert_ok(lt_tape_status(n->tape));
    assert_ok(lt_tensor_read(n->logits, out, lt_tensor_bytes(n->logits)));
}

static void new_weights_count_at_once(void **state)
{
    const device_row *row = *state;
    net used, fresh;
    float first[16], second[16], want[16];
    lt_device_config config = {.threads = 1};
    assert_ok(net_open(&used, row->device, &config));
    assert_ok(net_open(&fresh, row->device, &config));
    logits_with(&used, row->dtype, 0.1, first);
    logits_with(&used, row->dtype, 0.2, second);
    logits_with(&fresh, row->dtype, 0.2, want);
    size_t bytes = lt_tensor_bytes(used.logits);
    assert_memory_equal(second, want, bytes);
    assert_memory_not_equal(first, second, bytes);
    net_close(&used);
    net_close(&fresh);
}

/* A tensor in the memory of a freed one must not use that one's packed copy. */
static void a_new_tensor_in_old_memory_is_new(void **state)
{
    const device_row *row = *state;
    net n;
    float first[16], second[16], want[16];
    lt_device_config config = {.threads = 1};
    assert_ok(net_open(&n, row->device, &config));
    logits_with(&n, row->dtype, 0.1, first);
    lt_tape_reset(n.tape, LT_PASS_EVAL);
    lt_param_clear(&n.conv1);
    assert_ok(lt_param_init(&n.conv1, n.device, "net", "conv1", LT_SHAPE(4, 3, 3, 3), 0));
    logits_with(&n, row->dtype, 0.2, second);
    net_close(&n);
    assert_ok(net_open(&n, row->device, &config));
    logits_with(&n, row->dtype, 0.2, want);
    size_t bytes = lt_tensor_bytes(n.logits);
    assert_memory_equal(second, want, bytes);
    assert_memory_not_equal(first, second, bytes);
    net_close(&n);
}

static lt_device_config opened; /* configuration with which a device was opened last */

static lt_status open_and_note(void **ctx, int ordinal, const lt_device_config *config)
{
    opened = *config;
    return lt_backend_ref()->open(ctx, ordinal, config);
}

/* Shampoo's root thread uses such a device: with TF32 if the others do. */
static void a_device_opened_like_another_has_its_configuration(void **state)
{
    (void)state;
    static const lt_device_config configs[] = {
        {.threads = 1, .tf32 = true},
        {.threads = 1, .deterministic = true, .fused = LT_FUSED_OFF},
        {.threads = 1, .f64 = true},
        {.threads = 1, .fused = LT_FUSED_ON},
    };
    lt_backend noting = *lt_backend_ref();
    noting.open = open_and_note;
    for (size_t i = 0; i < COUNT_OF(configs); i++) {
        const lt_device_config *want = &configs[i];
        lt_device *first, *second;
        assert_ok(lt_device_open(&first, "ref", want));
        lt_device like = *first;
        like.backend = &noting;
        assert_ok(lt_device_open_like(&second, &like, 2));
        assert_int_equal(opened.tf32, want->tf32);
        assert_int_equal(opened.deterministic, want->deterministic);
        assert_int_equal(opened.fused, want->fused);
        assert_int_equal(opened.f64, want->f64);
        assert_int_equal(opened.threads, 2);
        assert_true(opened.background);
        assert_string_equal(lt_device_name(second), lt_device_name(first));
        lt_device_close(&second);
        lt_device_close(&first);
    }
}

/* --- Refused devices --- */

typedef struct bad_device {
    const char *device;
    lt_device_config config;
    lt_status want;
    const char *message;
} bad_device;

static const bad_device bad[] = {
    {"tpu", {0}, LT_E_ARG, "device: no device 'tpu'; known: ref, cpu, cuda"},
    {"name-of-16-bytes:1",
     {0},
     LT_E_ARG,
     "device: no device 'name-of-16-bytes:1'; known: ref, cpu, cuda"},
    {"ref:x", {0}, LT_E_ARG, "device: 'ref:x' is not NAME:NUMBER"},
    {"ref:", {0}, LT_E_ARG, "device: 'ref:' is not NAME:NUMBER"},
    {"ref:0x", {0}, LT_E_ARG, "device: 'ref:0x' is not NAME:NUMBER"},
    {"ref:-1", {0}, LT_E_ARG, "device: 'ref:-1' is not NAME:NUMBER"},
    {"ref:256", {0}, LT_E_ARG, "device: 'ref:256' is not NAME:NUMBER"},
    {"ref:255", {0}, LT_E_ARG, "device: no device ref:255; only ref:0 exists"},
    {"ref:1", {0}, LT_E_ARG, "device: no device ref:1; only ref:0 exists"},
    {"ref", {.threads = -2}, LT_E_ARG, "device: got -2 threads, want 0 or more"},
    {"cuda",
     {.reproducible = true},
     LT_E_UNSUPPORTED,
     "device cuda: reproducible is of cpu only; a GPU's sums have another order"},
};

static void devices_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    lt_device *device = NULL;
    void *ctx = NULL;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(lt_device_open(&device, bad[i].device, &bad[i].config), bad[i].want,
                     bad[i].message);
        assert_null(device);
    }
    assert_fails(lt_backend_ref()->open(&ctx, 3, &(lt_device_config){0}), LT_E_ARG,
                 "ref: no device 3, only device 0 exists");
}

int main(void)
{
    enum { KINDS = 3 };
    struct CMUnitTest tests[KINDS * COUNT_OF(rows) + 2];
    static void (*const kinds[KINDS])(void **) = {check_row, new_weights_count_at_once,
                                                  a_new_tensor_in_old_memory_is_new};
    static const char *const names[KINDS] = {NULL, "new weights count at once",
                                             "a new tensor in old memory is new"};
    for (size_t i = 0; i < KINDS * COUNT_OF(rows); i++) {
        const device_row *row = &rows[i % COUNT_OF(rows)];
        const char *name = names[i / COUNT_OF(rows)];
        tests[i] = (struct CMUnitTest){name ? name : row->name, kinds[i / COUNT_OF(rows)], NULL,
                                       NULL, (void *)(uintptr_t)row};
    }
    tests[COUNT_OF(tests) - 2] =
        (struct CMUnitTest)cmocka_unit_test(devices_that_do_not_exist_are_refused);
    tests[COUNT_OF(tests) - 1] =
        (struct CMUnitTest)cmocka_unit_test(a_device_opened_like_another_has_its_configuration);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
