/* The cpu backend's built-in products, and sums over positions of ids: bitwise identical for any number of
 * threads. */

#include "tensor/backend/cpu/gemm/gemm.h"

#include "near.h"

#include "lather/ops.h"

enum { N = 150, C = 70, K = 330, V = 19, TENSORS = 4 };

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *table, *weight, *bias, *ids;
} scene;

/* Fills with numbers without a pattern. */
static void fill(lt_tensor **t, lt_device *device, lt_shape shape)
{
    static float values[K * C];
    assert_ok(lt_tensor_new(t, device, LT_F32, shape));
    for (int64_t i = 0; i < lt_shape_count(shape); i++)
        values[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    assert_ok(lt_tensor_write(*t, values, lt_tensor_bytes(*t)));
}

static void open_scene(scene *s, int threads)
{
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i * 7 % V;
    assert_ok(lt_device_open(&s->device, "cpu", &(lt_device_config){.threads = threads}));
    assert_ok(lt_tape_new(&s->tape, s->device));
    fill(&s->table, s->device, LT_SHAPE(V, C));
    fill(&s->weight, s->device, LT_SHAPE(K, C));
    fill(&s->bias, s->device, LT_SHAPE(K));
    assert_ok(lt_tensor_new(&s->ids, s->device, LT_I32, LT_SHAPE(N)));
    assert_ok(lt_tensor_write(s->ids, ids, sizeof ids));
}

static void close_scene(scene *s)
{
    lt_tape_free(&s->tape);
    lt_tensor **all[] = {&s->table, &s->weight, &s->bias, &s->ids};
    for (int i = 0; i < TENSORS; i++)
        lt_tensor_free(all[i]);
    lt_device_close(&s->device);
}

typedef struct gradients {
    float table[V * C], weight[K * C], bias[K];
} gradients;

/* Computes the gradients of a net of embedding and linear. */
static void compute(int threads, lt_dtype dtype, gradients *out)
{
    scene s = {0};
    lt_pass pass = LT_PASS_TRAIN;
    open_scene(&s, threads);
    pass.dtype = dtype;
    lt_tape_reset(s.tape, pass);
    lt_tensor *e = lt_tape_variable(s.tape, s.table), *w = lt_tape_variable(s.tape, s.weight);
    lt_tensor *b = lt_tape_variable(s.tape, s.bias);
    lt_tensor *y = lt_linear(s.tape, lt_embedding(s.tape, s.ids, e), lt_cast(s.tape, w, dtype), b);
    lt_tensor *loss = lt_sum(s.tape, lt_mul(s.tape, y, y), (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(s.tape, loss, 1));
    assert_ok(lt_tensor_read(lt_tape_gradient(s.tape, e), out->table, sizeof out->table));
    assert_ok(lt_tensor_read(lt_tape_gradient(s.tape, w), out->weight, sizeof out->weight));
    assert_ok(lt_tensor_read(lt_tape_gradient(s.tape, b), out->bias, sizeof out->bias));
    close_scene(&s);
}

static void bf16_has_the_same_bits(void **state)
{
    static gradients one, other;
    lt_cpu_isa isa;
    (void)state;
    assert_ok(lt_cpu_isa_find(&isa));
    if (!lt_gemm_unit_bf16(isa)) /* oneDNN's products may depend on the number of threads */
        skip();
    compute(1, LT_BF16, &one);
    assert_true(fabs((double)one.table[0]) > 0 && fabs((double)one.weight[K * C - 1]) > 0);
    for (int threads = 2; threads <= 7; threads += 5) {
        compute(threads, LT_BF16, &other);
        assert_memory_equal(&one, &other, sizeof one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
