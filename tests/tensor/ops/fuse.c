/* Fusion across operations, on a kernel table with the fused kernels: results are bitwise those of the
 * composed operations, and each kernel is called where it may be, and nowhere else. */

#include "base/rng.h"
#include "fused_table.h"
#include "near.h"

#include "lather/ext/fail.h"
#include "lather/ext/gradcheck.h"
#include "lather/ops.h"

#include <stdlib.h>
#include <string.h>

enum { N = 2, C = 4, H = 5, W = 3, INPUTS = 7, MOST = N * C * C * H * W };

/* Variants of the program. */
typedef enum variant {
    PLAIN,
    BIAS,          /* a bias on the first convolution */
    EVAL,          /* uses running statistics */
    RESIDUAL,      /* a residual into the first batch norm */
    TWO_READERS,   /* two readers of the first batch norm */
    LATE_READER,   /* a second reader, after the convolution */
    DEAD_READER,   /* a second reader that the loss does not depend on */
    NO_RELU,       /* no relu in the first batch norm */
    GROUPS,        /* groups in both convolutions */
    TWO_NORMS,     /* two batch norms of the first convolution */
    BETWEEN,       /* an operation between convolution and batch norm */
    NORM_OF_INPUT, /* no convolution before the batch norm */
    /* The first convolution's output, through another batch norm, into the second norm. */
    SHORTCUT,
    SHORTCUT_RELU, /* with a relu in that norm */
    SHORTCUT_READ, /* and read by another operation before */
    SHORTCUT_SAME, /* with the same parameters as the second norm */
    POOL,          /* max-pooling after the second batch norm */
    POOL_PLAIN,    /* and no relu in that norm */
    POOL_READ,     /* which another operation reads too */
    OTHER_TAPE     /* nothing recorded */
} variant;

typedef struct row {
    const char *name;
    variant variant;
    int stats, sums;         /* calls of the fused kernels */
    int own_stats, own_sums; /* and of batch norm's separate kernels */
    int norms, norms_w; /* calls of kernels that read a deferred output, if the table has them */
    lt_pass pass;
} row;

/* Calls of further kernels, if the table has them: on deferred outputs, and for the backward of two nodes. */
typedef struct more_calls {
    int adds, pools, add_grads, pool_grads;
} more_calls;

static more_calls more_of(const row *r)
{
    const more_calls none = {0};
    if (!r->pass.record || !r->pass.batch_stats)
        return none;
    if (r->variant == POOL)
        return (more_calls){.pools = 1, .pool_grads = 1};
    if (r->variant == SHORTCUT)
        return (more_calls){.adds = 1, .add_grads = 1};
    return r->variant == SHORTCUT_SAME ? (more_calls){.adds = 1} : none;
}

enum { X, W1, GAMMA, BETA, W2, GAMMA2, BETA2 };

typedef struct program {
    const row *row;
    lt_tensor *mean, *var; /* running statistics of all norms */
    lt_tensor *bias;
} program;

static lt_tensor *norm_with(lt_tape *t, const program *p, lt_tensor *x, lt_tensor *gamma,
                            lt_tensor *beta, lt_tensor *residual, bool relu)
{
    const lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1, .relu = relu};
    return lt_batchnorm2d(t, x, (lt_batchnorm2d_args){gamma, beta, p->mean, p->var, residual, NULL},
                          config);
}

static lt_tensor *norm(lt_tape *t, const program *p, lt_tensor *x, lt_tensor *gamma,
                       lt_tensor *beta, lt_tensor *residual)
{
    const variant v = p->row->variant;
    return norm_with(t, p, x, gamma, beta, residual, v != NO_RELU && v != POOL_PLAIN);
}

static bool has_shortcut(variant v)
{
    return v >= SHORTCUT && v <= SHORTCUT_SAME;
}

/* Returns the second residual, from the first convolution's output; or NULL. */
static lt_tensor *shortcut_of(lt_tape *t, const program *p, lt_tensor *const *in, lt_tensor *c)
{
    const variant v = p->row->variant;
    const bool same = v == SHORTCUT_SAME;
    if (!has_shortcut(v))
        return NULL;
    return norm_with(t, p, c, in[same ? GAMMA2 : GAMMA], in[same ? BETA2 : BETA], NULL,
                     v == SHORTCUT_RELU);
}

/* The second batch norm, and the operations after it. */
static lt_tensor *finish(lt_tape *t, const program *p, lt_tensor *const *in, lt_tensor *c,
                         lt_tensor *shortcut)
{
    const variant v = p->row->variant;
    lt_tensor *z = norm(t, p, c, in[GAMMA2], in[BETA2], shortcut);
    if (shortcut)
        lt_tape_drop(t, shortcut);
    if (v < POOL || v > POOL_READ)
        return z;
    const lt_pool2d_config pool = {.kernel_h = 3, .kernel_w = 2, .pad_h = 1};
    lt_tensor *half = v == POOL_READ ? lt_maxpool2d(t, lt_scale(t, z, 0.5), pool) : NULL;
    z = lt_maxpool2d(t, z, pool);
    return half ? lt_add(t, z, half) : z;
}

/* conv2d, batch norm + relu, conv2d, batch norm + relu. */
static lt_tensor *run(lt_tape *t, lt_tensor *const *in, void *context)
{
    const program *p = context;
    const variant v = p->row->variant;
    const lt_conv2d_config same = {.pad_h = 1, .pad_w = 1, .groups = v == GROUPS ? 2 : 1};
    lt_tensor *c = lt_conv2d(t, in[X], in[W1], v == BIAS ? p->bias : NULL, same);
    if (v == BETWEEN)
        c = lt_scale(t, c, 1.5);
    if (v == NORM_OF_INPUT)
        c = in[X];
    lt_tensor *y = norm(t, p, c, in[GAMMA], in[BETA], v == RESIDUAL ? in[X] : NULL);
    lt_tensor *more = v == TWO_READERS || v == DEAD_READER ? lt_scale(t, y, 0.5) : NULL;
    if (v == TWO_NORMS)
        more = norm(t, p, c, in[GAMMA2], in[BETA2], NULL);
    lt_tensor *shortcut = shortcut_of(t, p, in, c);
    if (v == SHORTCUT_READ)
        more = lt_scale(t, shortcut, 0.5);
    lt_tape_drop(t, c);
    lt_tensor *c2 = lt_conv2d(t, y, in[W2], NULL, same);
    if (v == LATE_READER)
        more = lt_scale(t, y, 0.5);
    lt_tape_drop(t, y);
    lt_tensor *z = finish(t, p, in, c2, shortcut);
    return more && v != DEAD_READER ? lt_add(t, z, more) : z;
}

static void fill(lt_tensor *t, double low, double high, const char *name)
{
    lt_rng rng = {.key = lt_rng_name_key(4, LT_STREAM_INIT, name)};
    double value[MOST];
    const int64_t count = lt_tensor_count(t);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        value[i] = low + (high - low) * lt_rng_uniform(&rng);
    assert_ok(lt_tensor_write(t, value, lt_tensor_bytes(t)));
}

typedef struct scene {
    lt_backend table;
    lt_device *device;
    lt_tensor *in[INPUTS];
    program program;
} scene;

static void open_scene(scene *s, const row *r, level fused)
{
    static const char *const names[INPUTS] = {"x", "w1", "gamma", "beta", "w2", "gamma2", "beta2"};
    const lt_shape w = LT_SHAPE(C, r->variant == GROUPS ? C / 2 : C, 3, 3), c = LT_SHAPE(C);
    const lt_shape shape[INPUTS] = {LT_SHAPE(N, C, H, W), w, c, c, w, c, c};
    s->device = open_device(&s->table, fused);
    s->program = (program){.row = r};
    for (int i = 0; i < INPUTS; i++) {
        s->in[i] = NULL;
        assert_ok(lt_tensor_new(&s->in[i], s->device, LT_F64, shape[i]));
        fill(s->in[i], i == GAMMA || i == GAMMA2 ? 0.5 : -1, 1, names[i]);
    }
    lt_tensor **const constant[] = {&s->program.mean, &s->program.var, &s->program.bias};
    for (size_t i = 0; i < COUNT_OF(constant); i++) {
        assert_ok(lt_tensor_new(constant[i], s->device, LT_F64, c));
        fill(*constant[i], 0.5, 1, "constant");
    }
    seen = (calls){0};
}

static void close_scene(scene *s)
{
    for (int i = 0; i < INPUTS; i++)
        lt_tensor_free(&s->in[i]);
    lt_tensor_free(&s->program.mean);
    lt_tensor_free(&s->program.var);
    lt_tensor_free(&s->program.bias);
    lt_device_close(&s->device);
}

/* The result, and all gradients, concatenated. */
typedef struct outcome {
    double value[(2 + INPUTS) * MOST];
    size_t count;
} outcome;

static void take(outcome *o, const lt_tensor *t)
{
    if (!t)
        return;
    assert_ok(lt_tensor_read(t, o->value + o->count, lt_tensor_bytes(t)));
    o->count += (size_t)lt_tensor_count(t);
}

static void run_program(scene *s, const row *r, outcome *o)
{
    lt_tape *t = NULL;
    lt_tensor *handle[INPUTS];
    *o = (outcome){.count = 0};
    assert_ok(lt_tape_new(&t, s->device));
    lt_tape_reset(t, r->pass);
    for (int i = 0; i < INPUTS; i++)
        handle[i] = lt_tape_variable(t, s->in[i]);
    lt_tensor *y = run(t, handle, &s->program);
    assert_ok(lt_tape_status(t));
    lt_tape_keep(t, y);
    if (r->pass.record)
        assert_ok(
            lt_tape_backward(t, lt_sum(t, lt_mul(t, y, y), (lt_reduce_config){.dims = 0}), 1));
    take(o, y);
    take(o, s->program.mean);
    take(o, s->program.var);
    for (int i = 0; i < INPUTS; i++)
        take(o, lt_tape_gradient(t, handle[i]));
    lt_tape_free(&t);
}

#define TRAIN                               \
    {                                       \
        .record = true, .batch_stats = true \
    }
#define RECOMPUTE                                                            \
    {                                                                        \
        .record = true, .batch_stats = true, .recompute = LT_RECOMPUTE_CHEAP \
    }

static const row rows[] = {
    {"conv2d, batch norm, conv2d, batch norm", PLAIN, 2, 1, 0, 1, 1, 1, TRAIN},
    {"the same with recomputed outputs", PLAIN, 2, 1, 0, 1, 1, 1, RECOMPUTE},
    {"a bias has a reason", BIAS, 1, 1, 1, 1, 1, 1, TRAIN},
    {"running statistics: no sums are computed", EVAL, 0, 1, 0, 1, 0, 0, {.record = true}},
    {"nothing recorded, statistics of the batch",
     OTHER_TAPE,
     0,
     0,
     2,
     0,
     0,
     0,
     {.batch_stats = true}},
    {"nothing recorded, running statistics", EVAL, 0, 0, 0, 0, 0, 0, {.record = false}},
    {"a residual has a gradient too", RESIDUAL, 2, 0, 0, 2, 0, 0, TRAIN},
    {"two readers: neither has the whole gradient", TWO_READERS, 2, 0, 0, 2, 0, 0, TRAIN},
    {"a reader after it", LATE_READER, 2, 0, 0, 2, 1, 0, TRAIN},
    {"a reader before it that adds no gradient", DEAD_READER, 2, 0, 0, 2, 0, 0, TRAIN},
    {"no relu to mask", NO_RELU, 2, 0, 0, 2, 0, 0, TRAIN},
    {"groups are left alone", GROUPS, 0, 0, 2, 2, 0, 0, TRAIN},
    {"two batch norms: the first has the statistics", TWO_NORMS, 2, 1, 1, 2, 1, 1, TRAIN},
    {"something between convolution and batch norm", BETWEEN, 2, 1, 1, 1, 1, 1, TRAIN},
    {"no convolution before the batch norm", NORM_OF_INPUT, 2, 1, 1, 1, 1, 1, TRAIN},
    {"a batch norm in the shortcut", SHORTCUT, 2, 1, 1, 2, 1, 1, TRAIN},
    {"the same with recomputed outputs", SHORTCUT, 2, 1, 1, 2, 1, 1, RECOMPUTE},
    {"a shortcut with a relu", SHORTCUT_RELU, 2, 1, 1, 2, 1, 1, TRAIN},
    {"a shortcut with the same parameters", SHORTCUT_SAME, 2, 1, 1, 2, 1, 1, TRAIN},
    {"a shortcut that was read", SHORTCUT_READ, 2, 1, 1, 2, 1, 1, TRAIN},
    {"max-pooling after a batch norm", POOL, 2, 1, 0, 1, 1, 1, TRAIN},
    {"max-pooling, no relu before it", POOL_PLAIN, 2, 0, 0, 2, 0, 0, TRAIN},
    {"max-pooling of an output with another reader", POOL_READ, 2, 1, 0, 1, 1, 1, TRAIN},
    {"max-pooling, nothing recorded", POOL, 0, 0, 2, 0, 0, 0, {.batch_stats = true}},
    {"a shortcut, running statistics", SHORTCUT, 0, 1, 0, 2, 0, 0, {.record = true}},
};

static void run_level(const row *r, level l, bool declines, outcome *o)
{
    scene s;
    open_scene(&s, r, l);
    seen.declines = declines;
    run_program(&s, r, o);
    close_scene(&s);
}

static void assert_equal(const outcome *a, const outcome *b)
{
    assert_true(a->count > 0);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->value, b->value, a->count * sizeof(double));
}

static void check_row(void **state)
{
    const row *r = *state;
    static outcome composed, fused;
    run_level(r, COMPOSED, false, &composed);
    const int applies = seen.applies;
    assert_int_equal(seen.stats + seen.sums, 0);
    for (int declines = 0; declines < 2; declines++) {
        run_level(r, declines ? UNWRITTEN : FUSED, declines, &fused);
        assert_equal(&composed, &fused);
        assert_int_equal(seen.stats, r->stats);
        assert_int_equal(seen.sums, r->sums);
        assert_int_equal(seen.batchnorm_stats, r->own_stats);
        assert_int_equal(seen.batchnorm_grad_stats + 2 * seen.add_grads + seen.pool_grads,
                         r->own_sums);
        const int all = seen.applies + 2 * seen.adds + seen.pools;
        assert_true(all <= applies); /* later perhaps, but no more often */
        if (!r->pass.recompute)      /* sums that are not fused are recomputed */
            assert_int_equal(all, applies);
    }
    run_level(r, UNWRITTEN, false, &fused);
    assert_equal(&composed, &fused);
    assert_int_equal(seen.norm_stats, r->norms);
    assert_int_equal(seen.norm_grad_w, r->norms_w);
    assert_int_equal(seen.stats, r->stats - r->norms);
    assert_int_equal(seen.sums, r->sums);
    assert_int_equal(seen.adds, more_of(r).adds);
    assert_int_equal(seen.pools, more_of(r).pools);
    assert_int_equal(seen.add_grads, more_of(r).add_grads);
    assert_int_equal(seen.pool_grads, more_of(r).pool_grads);
    assert_int_equal(seen.batchnorm_grad_stats + 2 * seen.add_grads + seen.pool_grads, r->own_sums);
    if (!r->pass.recompute)
        assert_int_equal(seen.applies + 2 * seen.adds + seen.pools, applies - r->norms_w);
}

/* A deferred output is written when it is read: by the host, or when kept, after backward. A dropped one is
 * gone. */
static void a_deferred_output_can_be_read(void **state)
{
    double y[3][N * C * H * W], late[N * C * H * W];
    (void)state;
    for (int way = 0; way < 3; way++) { /* composed; read at once; kept, read after backward */
        scene s;
        lt_tape *t = NULL;
        open_scene(&s, &rows[0], way ? UNWRITTEN : COMPOSED);
        assert_ok(lt_tape_new(&t, s.device));
        lt_tape_reset(t, rows[0].pass);
        lt_tensor *x = lt_tape_variable(t, s.in[X]);
        lt_tensor *z = norm(t, &s.program, x, s.in[GAMMA], s.in[BETA], NULL);
        assert_non_null(z);
        assert_int_equal(seen.applies, !way);
        if (way < 2)
            assert_ok(lt_tensor_read(z, y[way], sizeof y[way]));
        else
            lt_tape_keep(t, z);
        assert_int_equal(seen.applies, 1);
        lt_tensor *flat = lt_flatten(t, z);
        assert_ok(lt_tape_backward(t, lt_sum(t, lt_mul(t, flat, flat), (lt_reduce_config){0}), 1));
        if (way == 2)
            assert_ok(lt_tensor_read(z, y[way], sizeof y[way]));
        lt_tape_reset(t, rows[0].pass);
        x = lt_tape_variable(t, s.in[X]);
        z = norm(t, &s.program, x, s.in[GAMMA], s.in[BETA], NULL);
        lt_tape_drop(t, z);
        assert_status(lt_tensor_read(z, late, sizeof late), LT_E_ARG);
        lt_tape_free(&t);
        close_scene(&s);
        if (way)
            assert_memory_equal(y[way], y[0], sizeof y[0]);
    }
}

/* A getter computes nothing; lt_tensor_materialize() returns a status. */
static void materialize_returns_a_status(void **state)
{
    (void)state;
    scene s;
    lt_tape *t = NULL;
    double y[N * C * H * W];
    open_scene(&s, &rows[0], UNWRITTEN);
    assert_ok(lt_tape_new(&t, s.device));
    lt_tape_reset(t, rows[0].pass);
    lt_tensor *z = norm(t, &s.program, lt_tape_variable(t, s.in[X]), s.in[GAMMA], s.in[BETA], NULL);
    assert_null(lt_tensor_view(z).data);
    assert_int_equal(seen.applies, 0);
    seen.refuses = true;
    assert_status(lt_tensor_materialize(z), LT_E_DEVICE);
    assert_status(lt_tensor_read(z, y, sizeof y), LT_E_DEVICE);
    seen.refuses = false;
    assert_ok(lt_tensor_materialize(z));
    assert_non_null(lt_tensor_view(z).data);
    const int applies = seen.applies;
    assert_ok(lt_tensor_materialize(z)); /* already computed */
    assert_int_equal(seen.applies, applies);

    z = norm(t, &s.program, lt_tape_variable(t, s.in[X]), s.in[GAMMA], s.in[BETA], NULL);
    seen.refuses = true;
    lt_tape_keep(t, z);
    assert_status(lt_tape_status(t), LT_E_DEVICE); /* the only place to report it */
    lt_tape_free(&t);
    close_scene(&s);
}

/* The source of a variable may be a deferred output of another tape. */
static void a_deferred_output_can_be_a_variable_of_another_tape(void **state)
{
    (void)state;
    scene s;
    lt_tape *t = NULL, *other = NULL;
    double y[2][N * C * H * W];
    open_scene(&s, &rows[0], UNWRITTEN);
    assert_ok(lt_tape_new(&t, s.device));
    assert_ok(lt_tape_new(&other, s.device));
    lt_tape_reset(t, rows[0].pass);
    lt_tape_reset(other, rows[0].pass);
    lt_tensor *z = norm(t, &s.program, lt_tape_variable(t, s.in[X]), s.in[GAMMA], s.in[BETA], NULL);
    assert_null(lt_tensor_view(z).data);
    lt_tensor *same = lt_scale(other, lt_tape_variable(other, z), 1);
    assert_ok(lt_tape_status(other));
    assert_ok(lt_tensor_read(same, y[0], sizeof y[0]));
    assert_ok(lt_tensor_read(z, y[1], sizeof y[1]));
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    lt_tape_free(&other);
    lt_tape_free(&t);
    close_scene(&s);
}

static void gradients_are_right_through_the_fused_entries(void **state)
{
    (void)state;
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        scene s;
        open_scene(&s, &rows[0], UNWRITTEN);
        seen.spoils = spoilt;
        lt_status st = lt_gradcheck(s.device, run, &s.program, s.in, INPUTS,
                                    &(lt_gradcheck_config){.pass = TRAIN});
        if (!spoilt)
            assert_ok(st);
        assert_true(seen.norm_stats == 1 && seen.norm_grad_w == 1 && seen.sums == 1);
        if (spoilt)
            assert_status(st, LT_E_ARG);
        else
            assert_ok(st);
        close_scene(&s);
    }
}

/* Merges statistics over ranks: once per batch norm, before they are used. */
static lt_status double_them(void *context, lt_norm_reduce op, lt_tensor *x)
{
    lt_view view = lt_tensor_view(x);
    (void)op;
    ++*(int *)context;
    view.shape.dim[0] = 1; /* counts, or sums of the gradient */
    return lt_backend_ref()->scale(NULL, 2, &view, &view);
}

/* Computes the gradient of x; returns the number of merges. */
static int merge(const row *r, level fused, double *dx, size_t bytes)
{
    scene s;
    lt_tape *t = NULL;
    int merges = 0;
    lt_tensor *handle[INPUTS];
    open_scene(&s, r, fused);
    assert_ok(lt_tape_new(&t, s.device));
    lt_tape_on_norm_reduce(t, double_them, &merges);
    lt_tape_reset(t, r->pass);
    for (int i = 0; i < INPUTS; i++)
        handle[i] = lt_tape_variable(t, s.in[i]);
    lt_tensor *out = run(t, handle, &s.program);
    assert_ok(lt_tape_backward(t, lt_sum(t, lt_mul(t, out, out), (lt_reduce_config){0}), 1));
    assert_ok(lt_tensor_read(lt_tape_gradient(t, handle[X]), dx, bytes));
    lt_tape_free(&t);
    close_scene(&s);
    return merges;
}

static void statistics_are_merged_once(void **state)
{
    double y[2][MOST / C];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const variant v = rows[i].variant;
        if (v != PLAIN && v != SHORTCUT && v != POOL)
            continue;
        if (!rows[i].pass.record || !rows[i].pass.batch_stats)
            continue;
        for (int fused = COMPOSED; fused <= UNWRITTEN; fused++) {
            const int merges = merge(&rows[i], (level)fused, y[fused > 0], sizeof y[0]);
            assert_int_equal(merges, v == SHORTCUT ? 6 : 4);
            assert_memory_equal(y[0], y[fused > 0], sizeof y[0]);
        }
    }
}

int main(void)
{
    enum { OTHERS = 5 };
    struct CMUnitTest tests[COUNT_OF(rows) + OTHERS] = {
        cmocka_unit_test(gradients_are_right_through_the_fused_entries),
        cmocka_unit_test(statistics_are_merged_once),
        cmocka_unit_test(a_deferred_output_can_be_read),
        cmocka_unit_test(materialize_returns_a_status),
        cmocka_unit_test(a_deferred_output_can_be_a_variable_of_another_tape),
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[OTHERS + i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
