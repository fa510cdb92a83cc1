/* A least-squares problem to compare optimizers with quantized state and with f32 state. */
#ifndef LT_TESTS_STATE_PROBLEM_H
#define LT_TESTS_STATE_PROBLEM_H

#include "makers.h"

#include <math.h>

/* --- The problem: gradients follow the parameters --- */

enum { ROWS = 24, COLS = 20, SIZE = ROWS * COLS };

typedef lt_status open_fn(lt_optim **out, const lt_params *params, lt_state_dtype dtype);

typedef struct problem {
    fixture f;
    double value[SIZE], bias[COLS];
} problem;

static inline void open_problem(problem *p, open_fn *open, lt_state_dtype dtype)
{
    double start[SIZE];
    *p = (problem){0};
    assert_ok(lt_device_open(&p->f.device, "cpu", &(lt_device_config){.threads = 1}));
    for (int i = 0; i < SIZE; i++)
        start[i] = 0.3 * sin(1.3 * i) + 0.2 * cos(0.11 * i * i);
    put(fixture_add(&p->f, "w", LT_SHAPE(ROWS, COLS))->value, start);
    put(fixture_add(&p->f, "b", LT_SHAPE(COLS))->value, start);
    assert_ok(open(&p->f.optim, &p->f.list, dtype));
}

/* Sets the gradient of 1/2 |S (W - T)|^2, with column scales S, plus noise; returns the loss without noise. */
static inline double gradient(problem *p, int t)
{
    double g[SIZE], loss = 0;
    for (int k = 0; k < 2; k++) {
        const int count = k ? COLS : SIZE;
        get(p->f.param[k].value, k ? p->bias : p->value);
        for (int i = 0; i < count; i++) {
            const double scale = 1 / (1.0 + i % COLS), target = 0.1 * cos(0.7 * i + k);
            const double apart = (k ? p->bias : p->value)[i] - target;
            loss += scale * apart * apart / 2;
            g[i] = scale * (apart + 0.05 * sin(1 + 7.0 * t + 1.7 * i + 0.9 * t * i));
        }
        put_grad(&p->f.param[k], g);
    }
    return loss;
}

static inline double run_steps(problem *p, int count, double lr)
{
    double loss = 0;
    for (int t = 0; t < count; t++) {
        loss = gradient(p, (int)p->f.attempt + 1);
        fixture_step(&p->f, lr);
    }
    return loss;
}

static inline void close_problem(problem *p)
{
    get(p->f.param[0].value, p->value);
    get(p->f.param[1].value, p->bias);
    fixture_close(&p->f);
}

static inline double furthest(const problem *a, const problem *b)
{
    double most = 0;
    for (int i = 0; i < SIZE; i++)
        most = fmax(most, fabs(a->value[i] - b->value[i]));
    return most;
}

/* --- Optimizers --- */

static inline lt_status first_order(lt_status made, lt_optim **out, lt_state_dtype dtype)
{
    return made ? made : lt_optim_set_state_dtype(*out, dtype);
}

static inline lt_status open_momentum(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    const lt_sgd_config c = {.momentum = 0.9};
    return first_order(lt_optim_sgd(out, params, &c), out, dtype);
}

static inline lt_status open_adam(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(lt_optim_adam(out, params, NULL), out, dtype);
}

static inline lt_shampoo_config shampoo(lt_state_dtype dtype)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.precondition_frequency = 5;
    c.beta2 = 0.99;
    c.max_preconditioner_dim = 16;
    c.factor_frequency = 5;
    c.factor_dtype = dtype;
    return c;
}

#endif
