/* A problem with known gradients for tests of --optim-stats. Devices are ref in f64. Records have f32, so numbers agree
 * within 1e-6. */
#ifndef LT_TESTS_OPTIM_STATS_PROBLEM_H
#define LT_TESTS_OPTIM_STATS_PROBLEM_H

#include "base/alloc.h"
#include "makers.h"
#include "optim/stats/stats.h"
#include "ranks.h"
#include "tensor/tensor.h"

#include "lather/shard.h"

enum { PARAMS = 7, MOST = 24, EVERY = 5, NUMBERS = 4096, FROZEN = 5, IDLE = 6, TABLE = 3 };
static const double lr = 0.1;

static const struct {
    const char *name;
    lt_shape shape;
    lt_param_kind role;
} shapes[PARAMS] = {
    {"matrix", {2, {4, 3}}, LT_PARAM_WEIGHT}, {"kernel", {4, {3, 1, 2, 2}}, LT_PARAM_WEIGHT},
    {"bias", {1, {4}}, LT_PARAM_BIAS},        {"wte", {2, {6, 2}}, LT_PARAM_WEIGHT},
    {"scalar", {0, {0}}, LT_PARAM_NORM},      {"frozen", {2, {2, 2}}, LT_PARAM_WEIGHT},
    {"idle", {2, {3, 2}}, LT_PARAM_WEIGHT},
};

typedef struct problem {
    test_rank at;
    make_fn *make;
    int64_t every;
    int steps, shard; /* shard: over at.comm; 2: gradients, too */
    int bad;          /* step with a gradient that is not finite; 0: none */
    bool far;         /* the device's memory is not the host's */
    double clip;
    const char *pattern[2];
    lt_param param[PARAMS];
    lt_params list;
    lt_optim *optim;
    lt_optim_stats *stats;
    double value[3][PARAMS][MOST]; /* before the last step but one, before the last, after it */
    double grad[PARAMS][MOST];
    float number[NUMBERS];
    size_t numbers;
} problem;

/* --- A problem with known gradients --- */

static inline double element(int step, int param, int64_t i)
{
    if (param == TABLE && (i / 2 == 1 || i / 2 == 4)) /* rows of zeros */
        return 0;
    return sin(1 + 3.0 * step + 7 * param + 1.3 * (double)i + 0.37 * (double)(i * i)) * (param + 1);
}

static inline void set_gradients(problem *p, int step)
{
    for (int k = 0; k < PARAMS; k++) {
        lt_tensor *grad = p->param[k].grad;
        const int64_t count = lt_shape_count(shapes[k].shape);
        for (int64_t i = 0; i < count; i++)
            p->grad[k][i] = element(step, k, i);
        if (step == p->bad)
            p->grad[0][1] = (double)NAN;
        p->param[k].has_grad = k != FROZEN && k != IDLE;
        assert_ok(lt_tensor_write(grad, p->grad[k], (size_t)count * sizeof(double)));
    }
}

static inline void read_values(problem *p, int which)
{
    for (int k = 0; k < PARAMS; k++)
        assert_ok(lt_tensor_read(p->param[k].value, p->value[which][k],
                                 lt_tensor_bytes(p->param[k].value)));
}

static inline lt_status open_problem(problem *p)
{
    double start[MOST];
    for (int k = 0; k < PARAMS; k++) {
        lt_param *param = &p->param[k];
        const lt_shape shape = shapes[k].shape;
        if (shape.ndim == 4)
            LT_TRY(lt_param_init_filter(param, p->at.device, "", shapes[k].name, shape));
        else
            LT_TRY(lt_param_init_kind(param, p->at.device, "", shapes[k].name, shape, 0,
                                      shapes[k].role));
        for (int64_t i = 0; i < lt_shape_count(shape); i++)
            start[i] = cos((double)i + k) + 0.5;
        LT_TRY(lt_tensor_write(param->value, start, lt_tensor_bytes(param->value)));
        param->frozen = k == FROZEN;
        LT_TRY(lt_params_add(&p->list, param));
    }
    LT_TRY(p->make(&p->optim, &p->list));
    const lt_shard_config shard = {.comm = p->at.comm};
    if (p->shard && p->at.comm)
        LT_TRY(lt_optim_shard(p->optim, &shard));
    const lt_optim_stats_config c = {.optim = p->optim,
                                     .params = &p->list,
                                     .every = p->every,
                                     .pattern = p->pattern,
                                     .patterns = p->pattern[0] ? 1 + (p->pattern[1] != NULL) : 0,
                                     .rank = p->at.rank};
    return p->every ? lt_optim_stats_new(&p->stats, &c) : LT_OK;
}

static inline lt_status run_problem(void *context)
{
    problem *p = context;
    LT_TRY(open_problem(p));
    for (int t = 1; t <= p->steps; t++) {
        const lt_step step = {.lr = lr, .attempt = t, .clip_norm = p->clip};
        if (t >= p->steps - 1)
            read_values(p, t - p->steps + 1);
        set_gradients(p, t);
        if (p->every)
            LT_TRY(lt_optim_stats_before(p->stats, t));
        LT_TRY(lt_optim_step(p->optim, &step));
        if (p->every)
            LT_TRY(lt_optim_stats_after(p->stats, t));
    }
    read_values(p, 2);
    if (!p->every)
        return LT_OK;
    p->numbers = p->stats->width;
    assert_true(p->numbers <= NUMBERS);
    if (!p->at.rank)
        lt_optim_stats_record(p->stats, p->number);
    return LT_OK;
}

static inline void end_problem(void *context)
{
    problem *p = context;
    lt_optim_stats_free(&p->stats);
    lt_optim_free(&p->optim);
    lt_params_clear(&p->list);
    for (int k = 0; k < PARAMS; k++)
        lt_param_clear(&p->param[k]);
}

/* Runs on one rank and leaves the problem open. */
static inline void play(problem *p, make_fn *make)
{
    const lt_device_config config = {.f64 = true, .threads = 1};
    p->make = make;
    p->every = p->every ? p->every : EVERY;
    p->steps = p->steps ? p->steps : EVERY;
    assert_ok(lt_device_open(&p->at.device, "ref", &config));
    if (p->far) {
        static lt_backend far;
        far = *p->at.device->backend;
        far.host_memory = false;
        p->at.device->backend = &far;
    }
    assert_ok(run_problem(p));
}

static inline void stop(problem *p)
{
    end_problem(p);
    lt_device_close(&p->at.device);
}

static inline double number(const problem *p, lt_stats_table table, size_t row, int column)
{
    const lt_stat_table *t = &p->stats->table[table];
    assert_true(row < t->rows);
    return (double)p->number[t->first + row * t->columns + (size_t)column];
}

static inline bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(b), 1e-3);
}

#define assert_close(a, b)                                            \
    do {                                                              \
        const double close_a_ = (a), close_b_ = (b);                  \
        if (!is_close(close_a_, close_b_))                            \
            fail_msg("%s = %.9g, want %.9g", #a, close_a_, close_b_); \
    } while (0)

/* --- Norms and cosines --- */

static inline double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline void check_param(const problem *p, int k, double scale)
{
    const int64_t n = lt_shape_count(shapes[k].shape);
    double u[MOST], v[MOST], g[MOST];
    for (int64_t i = 0; i < n; i++) {
        u[i] = p->value[2][k][i] - p->value[1][k][i];
        v[i] = p->value[1][k][i] - p->value[0][k][i];
        g[i] = p->grad[k][i] * scale;
    }
    const double *w = p->value[1][k];
    const double uu = sqrt(dot(u, u, n)), ww = sqrt(dot(w, w, n)), gg = sqrt(dot(g, g, n));
    const size_t row = (size_t)k;
    const lt_stats_table t = LT_TABLE_PARAMETER;
    assert_close(number(p, t, row, LT_PARAM_WEIGHT_NORM), ww);
    assert_close(number(p, t, row, LT_PARAM_GRADIENT_NORM), gg);
    assert_close(number(p, t, row, LT_PARAM_UPDATE_NORM), uu);
    assert_close(number(p, t, row, LT_PARAM_UPDATE_RATIO), uu / ww);
    assert_close(number(p, t, row, LT_PARAM_UPDATE_COSINE), -dot(u, g, n) / uu / gg);
    assert_close(number(p, t, row, LT_PARAM_CONSECUTIVE_COSINE),
                 dot(u, v, n) / uu / sqrt(dot(v, v, n)));
    assert_close(number(p, t, row, LT_PARAM_ZERO_ROWS), k == TABLE ? 2.0 / 6 : 0);
}

static inline lt_shampoo_config plain_shampoo(void)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.beta2 = 0.9;
    c.epsilon = 0.05;
    c.epsilon_rule = LT_EPSILON_BEFORE;
    c.precondition_frequency = 1;
    c.grafting = LT_GRAFTING_SGD;
    c.beta1 = 0;
    c.target_dimensionality = LT_NO_LIMIT;
    return c;
}

static inline lt_status make_plain(lt_optim **out, const lt_params *params)
{
    const lt_shampoo_config c = plain_shampoo();
    return lt_optim_shampoo(out, params, &c);
}

#endif
