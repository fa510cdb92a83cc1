/* Operations of the cpu backend: value and gradient of every input are bitwise identical for any number of
 * threads, and when repeated. Rows are functions of up to three inputs; the second and third are as wide as
 * the first's last dimension. All have ids of the first's rows as a fourth. */

#include "base/parallel.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cpu/gemm/gemm.h"

#include "lather/ops.h"

#include <string.h>

enum { MOST_INPUTS = 3, IDS = MOST_INPUTS, MOST = 1031 * 37, OUTPUTS = MOST_INPUTS + 1 };

typedef lt_tensor *function(lt_tape *tape, lt_tensor *const *in);

typedef enum row_kind {
    USUAL,
    PACKED, /* skipped without a built-in product in bf16: oneDNN's may depend on the number of threads */
    BROKEN /* control: its bits must differ */
} row_kind;

typedef struct bits_row {
    const char *name;
    function *f;
    int inputs;
    lt_dtype dtype;
    row_kind kind;
} bits_row;

#define FUNCTION(name, ...)                                  \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in) \
    {                                                        \
        return __VA_ARGS__;                                  \
    }                                                        \
    _Static_assert(1, "a semicolon follows")

FUNCTION(layernorm, lt_layernorm(t, in[0], in[1], in[2], (lt_layernorm_config){0}));
FUNCTION(rmsnorm, lt_rmsnorm(t, in[0], in[1], (lt_layernorm_config){0}));
FUNCTION(gelu, lt_gelu(t, in[0], LT_GELU_ERF));
FUNCTION(swiglu, lt_swiglu(t, in[0], lt_gelu(t, in[0], LT_GELU_TANH)));
FUNCTION(drop_path, lt_drop_path(t, in[0], 0.3));

static lt_tensor *linear_of_embedding(lt_tape *t, lt_tensor *const *in)
{
    lt_tensor *rows = lt_embedding(t, in[IDS], in[0]);
    return lt_linear(t, lt_cast(t, rows, LT_BF16), lt_slice(t, in[0], 0, 7, 37), in[1]);
}

/* One head: its keys are split into intervals. */
static lt_tensor *attention(lt_tape *t, lt_tensor *const *in)
{
    lt_tensor *x = lt_reshape(t, in[0], LT_SHAPE(1, 1031, 37));
    lt_tensor *y = lt_attention(t, x, x, x, (lt_attention_config){.heads = 1});
    return lt_reshape(t, y, LT_SHAPE(1031, 37));
}

/* One head of keys for several of queries. */
static lt_tensor *shared_attention(lt_tape *t, lt_tensor *const *in)
{
    lt_tensor *k = lt_reshape(t, lt_slice(t, in[0], 1, 5, 1), LT_SHAPE(1, 1031, 1));
    lt_tensor *q = lt_reshape(t, lt_slice(t, in[0], 0, 7, 200), LT_SHAPE(1, 200, 37));
    lt_attention_config config = {.heads = 37, .kv_heads = 1, .causal = true};
    return lt_attention(t, q, k, k, config);
}

/* A result that depends on the number of threads. */
FUNCTION(by_threads, lt_scale(t, in[0], 1 + lt_parallel_threads()));

static const bits_row rows[] = {
    {"layernorm", layernorm, 3, LT_F32, USUAL},
    {"layernorm, bf16", layernorm, 3, LT_BF16, USUAL},
    {"rmsnorm", rmsnorm, 2, LT_F32, USUAL},
    {"rmsnorm, bf16", rmsnorm, 2, LT_BF16, USUAL},
    {"gelu", gelu, 1, LT_F32, USUAL},
    {"swiglu", swiglu, 1, LT_F32, USUAL},
    {"swiglu, bf16", swiglu, 1, LT_BF16, USUAL},
    {"drop_path", drop_path, 1, LT_F32, USUAL},
    {"attention", attention, 1, LT_F32, USUAL},
    {"attention, bf16", attention, 1, LT_BF16, USUAL},
    {"attention, one head of keys", shared_attention, 1, LT_F32, USUAL},
    {"attention, one head of keys, bf16", shared_attention, 1, LT_BF16, USUAL},
    {"linear of an embedding, bf16", linear_of_embedding, 2, LT_BF16, PACKED},
    {"control: a result that depends on threads", by_threads, 1, LT_F32, BROKEN},
};

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *in[MOST_INPUTS], *ids;
} scene;

static void open_scene(scene *s, const bits_row *row)
{
    static float values[MOST];
    static int32_t ids[1031];
    lt_rng rng = {.key = 11};
    memset(s, 0, sizeof *s);
    assert_ok(lt_device_open(&s->device, "cpu", &(lt_device_config){.threads = 1}));
    assert_ok(lt_tape_new(&s->tape, s->device));
    for (int i = 0; i < row->inputs; i++) {
        assert_ok(
            lt_tensor_new(&s->in[i], s->device, LT_F32, i ? LT_SHAPE(37) : LT_SHAPE(1031, 37)));
        for (int64_t k = 0; k < lt_tensor_count(s->in[i]); k++)
            values[k] = (float)(4 * lt_rng_uniform(&rng) - 2);
        assert_ok(lt_tensor_write(s->in[i], values, lt_tensor_bytes(s->in[i])));
    }
    for (int i = 0; i < (int)COUNT_OF(ids); i++)
        ids[i] = i * 7 % 19;
    assert_ok(lt_tensor_new(&s->ids, s->device, LT_I32, LT_SHAPE(COUNT_OF(ids))));
    assert_ok(lt_tensor_write(s->ids, ids, sizeof ids));
}

static void close_scene(scene *s)
{
    lt_tape_free(&s->tape);
    for (int i = 0; i < MOST_INPUTS; i++)
        lt_tensor_free(&s->in[i]);
    lt_tensor_free(&s->ids);
    lt_device_close(&s->device);
}

/* out[0]: the value, in f32; out[1 + i]: the gradient of input i. */
static void run(const scene *s, const bits_row *row, float out[OUTPUTS][MOST])
{
    lt_tensor *in[MOST_INPUTS];
    lt_tape_reset(s->tape, LT_PASS_TRAIN);
    for (int i = 0; i < row->inputs; i++)
        in[i] = lt_tape_variable(s->tape, s->in[i]);
    lt_tensor *read[] = {lt_cast(s->tape, in[0], row->dtype), in[1], in[2], s->ids};
    lt_tensor *y = lt_cast(s->tape, row->f(s->tape, read), LT_F32);
    lt_tape_keep(s->tape, y);
    lt_tensor *loss = lt_sum(s->tape, lt_mul(s->tape, y, y), (lt_reduce_config){0});
    assert_ok(lt_tape_backward(s->tape, loss, 1));
    assert_ok(lt_tensor_read(y, out[0], lt_tensor_bytes(y)));
    for (int i = 0; i < row->inputs; i++) {
        const lt_tensor *g = lt_tape_gradient(s->tape, in[i]);
        assert_non_null(g);
        assert_ok(lt_tensor_read(g, out[1 + i], lt_tensor_bytes(g)));
    }
}

static void check_row(void **state)
{
    static const int threads[] = {1, 2, 3, 7};
    static float want[OUTPUTS][MOST], got[OUTPUTS][MOST];
    const bits_row *row = *state;
    bool same = true;
    lt_cpu_isa isa;
    scene s;
    assert_ok(lt_cpu_choose_isa(&isa));
    if (row->kind == PACKED && !lt_gemm_microkernel_bf16(isa))
        skip();
    open_scene(&s, row);
    memset(want, 0, sizeof want);
    run(&s, row, want);
    for (size_t t = 0; t < COUNT_OF(threads); t++) {
        lt_parallel_set_threads(threads[t]);
        memset(got, 0, sizeof got);
        run(&s, row, got);
        same = same && !memcmp(want, got, sizeof want);
    }
    lt_parallel_set_threads(1);
    close_scene(&s);
    if (same == (row->kind == BROKEN))
        fail_msg("%s", same ? "accepted although wrong" : "other bits with other threads");
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
