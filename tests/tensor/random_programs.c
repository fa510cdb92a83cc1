/* Random programs of operations: dropping tensors after their last use, with and without recomputing them in
 * backward, must not change a bit of any gradient, and memory formats must not change any value. The seed of
 * a failing program is printed; LATHER_SEED runs that one alone. */

#include "base/rng.h"
#include "near.h"

#include "lather/ops.h"
#include "lather/param.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROGRAMS = 200,
    STEPS = 14,
    N = 2,
    C = 3,
    SIDE = 4,
    COUNT = N * C * SIDE * SIDE,
    FILTER = C * C
};

/* One statement: t[i + 1] = op(t[a], t[b]); t[0] is the input. */
typedef struct statement {
    int op, a, b;
} statement;

typedef struct program {
    statement line[STEPS];
    int last_use[STEPS + 1]; /* last line that reads it; STEPS: the loss */
} program;

enum {
    ADD,
    MUL,
    SCALE,
    RELU,
    CONV,
    NORM,
    NORM_RELU,
    NORM_ADD,
    MAX,
    AVERAGE,
    DROPOUT,
    LAYER,
    RMS,
    GELU,
    SWIGLU,
    PATH,
    CAST,
    ROWS,
    LAST,
    OPS
};

static bool is_binary(int op)
{
    return op == ADD || op == MUL || op == NORM_ADD || op == SWIGLU;
}

static void write_program(program *p, uint64_t seed)
{
    lt_rng rng = {.key = seed};
    memset(p, 0, sizeof *p);
    for (int i = 0; i < STEPS; i++) {
        uint32_t reach = i < 4 ? (uint32_t)i + 1 : 4; /* mostly a chain, with short jumps */
        statement *s = &p->line[i];
        s->op = (int)lt_rng_below(&rng, OPS);
        s->a = i - (int)lt_rng_below(&rng, reach);
        s->b = i - (int)lt_rng_below(&rng, reach);
        p->last_use[s->a] = i;
        if (is_binary(s->op))
            p->last_use[s->b] = i;
    }
    p->last_use[STEPS] = STEPS;
}

/* Inputs shared by all runs. */
typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_param filter, gamma, beta, mean, var;
    lt_params params;
    lt_tensor *x;
    bool formats; /* ROWS and LAST change the memory format; else they change nothing */
} scene;

static void scene_open(scene *s)
{
    double values[COUNT];
    lt_rng rng = {.key = 17};
    memset(s, 0, sizeof *s);
    assert_ok(lt_device_open(&s->device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tape_new(&s->tape, s->device));
    assert_ok(lt_param_init(&s->filter, s->device, "", "filter", LT_SHAPE(C, C, 1, 1), 0));
    assert_ok(lt_param_init(&s->gamma, s->device, "", "gamma", LT_SHAPE(C), 1));
    assert_ok(lt_param_init(&s->beta, s->device, "", "beta", LT_SHAPE(C), 0.1));
    assert_ok(lt_param_init_kind(&s->mean, s->device, "", "m", LT_SHAPE(C), 0, LT_PARAM_STAT));
    assert_ok(lt_param_init_kind(&s->var, s->device, "", "v", LT_SHAPE(C), 1, LT_PARAM_STAT));
    assert_ok(lt_params_add(&s->params, &s->filter));
    assert_ok(lt_params_add(&s->params, &s->gamma));
    assert_ok(lt_params_add(&s->params, &s->beta));
    assert_ok(lt_tensor_new(&s->x, s->device, LT_F64, LT_SHAPE(N, C, SIDE, SIDE)));
    for (int i = 0; i < COUNT; i++)
        values[i] = lt_rng_uniform(&rng) - 0.5;
    assert_ok(lt_tensor_write(s->x, values, sizeof values));
    assert_ok(lt_tensor_write(s->filter.value, values, FILTER * sizeof *values));
}

static void scene_close(scene *s)
{
    lt_param *const all[] = {&s->filter, &s->gamma, &s->beta, &s->mean, &s->var};
    lt_tape_free(&s->tape);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        lt_param_clear(all[i]);
    lt_params_clear(&s->params);
    lt_tensor_free(&s->x);
    lt_device_close(&s->device);
}

static lt_tensor *norm(scene *s, lt_tensor *x, lt_tensor *residual, bool relu)
{
    lt_batchnorm2d_args args = {lt_tape_param(s->tape, &s->gamma),
                                lt_tape_param(s->tape, &s->beta),
                                s->mean.value,
                                s->var.value,
                                residual,
                                NULL};
    lt_batchnorm2d_config config = {.eps = 1e-3, .momentum = 0.1, .relu = relu};
    return lt_batchnorm2d(s->tape, x, args, config);
}

static lt_tensor *execute(scene *s, const statement *line, lt_tensor *a, lt_tensor *b)
{
    static const lt_pool2d_config window = {3, 3, 1, 1, 1, 1};
    lt_tape *t = s->tape;
    switch (line->op) {
    case ADD:
        return lt_add(t, a, b);
    case MUL:
        return lt_mul(t, a, b);
    case SCALE:
        return lt_scale(t, a, 0.7);
    case RELU:
        return lt_relu(t, a);
    case CONV:
        return lt_conv2d(t, a, lt_tape_param(t, &s->filter), NULL, (lt_conv2d_config){.pad_h = 0});
    case NORM:
    case NORM_RELU:
        return norm(s, a, NULL, line->op == NORM_RELU);
    case NORM_ADD:
        return norm(s, a, b, true);
    case MAX:
        return lt_maxpool2d(t, a, window);
    case AVERAGE:
        return lt_avgpool2d(t, a, window);
    case DROPOUT:
        return lt_dropout(t, a, 0.2);
    case LAYER:
        return lt_layernorm(t, a, NULL, NULL, (lt_layernorm_config){.eps = 1e-3});
    case RMS:
        return lt_rmsnorm(t, a, NULL, (lt_layernorm_config){.eps = 1e-3});
    case GELU:
        return lt_gelu(t, a, LT_GELU_ERF);
    case SWIGLU:
        return lt_swiglu(t, a, b);
    case PATH:
        return lt_drop_path(t, a, 0.3);
    case ROWS:
    case LAST:
        if (!s->formats)
            return a;
        return lt_to_format(t, a,
                            line->op == ROWS ? LT_FORMAT_CONTIGUOUS : LT_FORMAT_CHANNELS_LAST);
    default:
        return lt_cast(t, lt_cast(t, a, LT_F32), LT_F64);
    }
}

/* All results that may depend on memory management. */
typedef struct results {
    double loss, x[COUNT], filter[FILTER], gamma[C], beta[C], mean[C], var[C];
} results;

static void read_or_zero(const lt_tensor *t, bool there, double *out)
{
    if (there)
        assert_ok(lt_tensor_read(t, out, lt_tensor_bytes(t)));
}

/* Returns true if a line after i reads tensor j; not every line makes a tensor, so one may have several
 * names. */
static bool is_read_after(const program *p, lt_tensor *const *t, int j, int i)
{
    for (int k = 0; k <= i + 1; k++)
        if (t[k] == t[j] && (k > i || p->last_use[k] > i))
            return true;
    return false;
}

typedef struct run_config {
    bool drop, no_formats;
    lt_recompute recompute;
} run_config;

static void run(const program *p, run_config config, results *out)
{
    scene s;
    const bool drop = config.drop;
    lt_tensor *t[STEPS + 1];
    lt_pass pass = LT_PASS_TRAIN;
    scene_open(&s);
    s.formats = !config.no_formats;
    pass.recompute = config.recompute;
    lt_tape_reset(s.tape, pass);
    t[0] = lt_tape_variable(s.tape, s.x);
    for (int i = 0; i < STEPS; i++) {
        t[i + 1] = execute(&s, &p->line[i], t[p->line[i].a], t[p->line[i].b]);
        for (int j = 0; drop && j <= i; j++)
            if (p->last_use[j] == i && !is_read_after(p, t, j, i))
                lt_tape_drop(s.tape, t[j]);
    }
    lt_tensor *square = lt_mul(s.tape, t[STEPS], t[STEPS]);
    if (drop)
        lt_tape_drop(s.tape, t[STEPS]);
    lt_tensor *loss = lt_mean(s.tape, square, (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(s.tape, loss, 1));

    memset(out, 0, sizeof *out);
    lt_tensor *dx = lt_tape_gradient(s.tape, t[0]);
    assert_ok(lt_tensor_item(loss, &out->loss));
    read_or_zero(dx, dx != NULL, out->x);
    read_or_zero(s.filter.grad, s.filter.has_grad, out->filter);
    read_or_zero(s.gamma.grad, s.gamma.has_grad, out->gamma);
    read_or_zero(s.beta.grad, s.beta.has_grad, out->beta);
    read_or_zero(s.mean.value, true, out->mean);
    read_or_zero(s.var.value, true, out->var);
    scene_close(&s);
}

/* Memory formats change only the order of sums. */
static void check_formats(const program *p, const results *a, uint64_t seed)
{
    union {
        results named;
        double all[sizeof(results) / sizeof(double)];
    } mixed = {.named = *a}, plain;
    double most = 1;
    run(p, (run_config){.no_formats = true}, &plain.named);
    for (size_t i = 0; i < COUNT_OF(mixed.all); i++)
        most = fmax(most, fabs(plain.all[i]));
    for (size_t i = 0; i < COUNT_OF(mixed.all); i++)
        if (!(fabs(mixed.all[i] - plain.all[i]) <= 1e-12 * most))
            fail_msg("LATHER_SEED=%llu: value %zu is %.17g, without other formats %.17g",
                     (unsigned long long)seed, i, mixed.all[i], plain.all[i]);
}

static void check(uint64_t seed)
{
    program p;
    results kept, dropped, again;
    write_program(&p, seed);
    run(&p, (run_config){0}, &kept);
    run(&p, (run_config){.drop = true}, &dropped);
    run(&p, (run_config){.drop = true, .recompute = LT_RECOMPUTE_CHEAP}, &again);
    if (memcmp(&kept, &dropped, sizeof kept) != 0 || memcmp(&kept, &again, sizeof kept) != 0)
        fail_msg("LATHER_SEED=%llu: losses %.17g, %.17g (dropped), %.17g (recomputed)",
                 (unsigned long long)seed, kept.loss, dropped.loss, again.loss);
    check_formats(&p, &kept, seed);
}

static void memory_reuse_changes_no_bit_and_formats_no_value(void **state)
{
    (void)state;
    const char *seed = getenv("LATHER_SEED");
    if (seed) {
        check(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= PROGRAMS; i++)
        check(i);
}

/* Control: other programs give other results. */
static void another_program_gives_another_result(void **state)
{
    (void)state;
    program p;
    results a, b;
    write_program(&p, 1);
    run(&p, (run_config){0}, &a);
    write_program(&p, 2);
    run(&p, (run_config){0}, &b);
    assert_true(memcmp(&a, &b, sizeof a) != 0);
    assert_true(isfinite(a.loss) && a.loss > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_reuse_changes_no_bit_and_formats_no_value),
        cmocka_unit_test(another_program_gives_another_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
