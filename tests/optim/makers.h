/* Constructors of optimizers with test settings. */
#ifndef LT_TESTS_OPTIM_MAKERS_H
#define LT_TESTS_OPTIM_MAKERS_H

#include "fixture.h"

#include "lather/adafactor.h"
#include "lather/layerwise.h"
#include "lather/lion.h"
#include "lather/muon.h"
#include "lather/prodigy.h"
#include "lather/shampoo.h"

#include <math.h>

typedef lt_status make_fn(lt_optim **out, const lt_params *params);

static inline lt_status make_sgd(lt_optim **out, const lt_params *params)
{
    const lt_sgd_config c = {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01};
    return lt_optim_sgd(out, params, &c);
}

static inline lt_status make_nesterov(lt_optim **out, const lt_params *params)
{
    const lt_sgd_config c = {.momentum = 0.9, .nesterov = true};
    return lt_optim_sgd(out, params, &c);
}

static inline lt_status make_adagrad(lt_optim **out, const lt_params *params)
{
    const lt_adagrad_config c = {.eps = 1e-10, .weight_decay = 0.01};
    return lt_optim_adagrad(out, params, &c);
}

static inline lt_status make_adam(lt_optim **out, const lt_params *params)
{
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.weight_decay = 0.01;
    return lt_optim_adam(out, params, &c);
}

static inline lt_status make_adamw(lt_optim **out, const lt_params *params)
{
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.weight_decay = 0.01;
    c.decoupled = true;
    return lt_optim_adam(out, params, &c);
}

static inline lt_status make_muon(lt_optim **out, const lt_params *params)
{
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.weight_decay = 0.01;
    c.decay_scope = LT_DECAY_ALL;
    return lt_optim_muon(out, params, &c);
}

static inline lt_status make_lars(lt_optim **out, const lt_params *params)
{
    lt_lars_config c = LT_LARS_DEFAULTS;
    c.dampening = 0.25;
    c.nesterov = true;
    c.weight_decay = 0.01;
    return lt_optim_lars(out, params, &c);
}

static inline lt_status make_lamb(lt_optim **out, const lt_params *params)
{
    return lt_optim_lamb(out, params, NULL);
}

static inline lt_status make_lion(lt_optim **out, const lt_params *params)
{
    lt_lion_config c = LT_LION_DEFAULTS;
    c.weight_decay = 0.01;
    return lt_optim_lion(out, params, &c);
}

static inline lt_status make_adafactor(lt_optim **out, const lt_params *params)
{
    lt_adafactor_config c = LT_ADAFACTOR_DEFAULTS;
    c.weight_decay = 0.01;
    return lt_optim_adafactor(out, params, &c);
}

static inline lt_status make_prodigy(lt_optim **out, const lt_params *params)
{
    lt_prodigy_config c = LT_PRODIGY_DEFAULTS;
    c.d0 = 0.01;
    c.weight_decay = 0.01;
    return lt_optim_prodigy(out, params, &c);
}

static inline lt_status make_shampoo(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 2;
    c.precondition_frequency = 2;
    c.beta2 = 0.9;
    c.momentum = 0.9;
    c.weight_decay = 0.01;
    c.grafting = LT_GRAFTING_ADAM;
    return lt_optim_shampoo(out, params, &c);
}

/* One block for each parameter. */
static inline lt_status make_whole(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = LT_NO_LIMIT;
    return lt_optim_shampoo(out, params, &c);
}

static inline lt_status make_corrected(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.precondition_frequency = 2;
    c.preconditioner = LT_PRECONDITIONER_CORRECTED;
    return lt_optim_shampoo(out, params, &c);
}

static inline lt_status make_eigendecomposed(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    return lt_optim_shampoo(out, params, &c);
}

static inline lt_status make_staggered(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 2;
    c.precondition_frequency = 4;
    c.start_preconditioning_step = 4;
    c.refresh_timing = LT_REFRESH_STAGGERED;
    return lt_optim_shampoo(out, params, &c);
}

static inline lt_status make_async(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 2;
    c.precondition_frequency = 2;
    c.refresh_timing = LT_REFRESH_ASYNC;
    c.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    return lt_optim_shampoo(out, params, &c);
}

/* Joined parts, a table of rows and a diagonal. */
static inline lt_status make_ruled(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.beta2 = 0.9;
    c.momentum = 0.9;
    c.precondition_frequency = 2;
    c.diagonal_vectors = true;
    c.split[0] = (lt_param_split){{"^(a|kernel)$", false}, -1, 2};
    c.one_sided = (lt_name_regex){"^matrix$", true};
    c.diagonal = (lt_name_regex){"^bias$", true};
    c.grafting = LT_GRAFTING_ADAM;
    return lt_optim_shampoo(out, params, &c);
}

typedef struct maker {
    const char *name;
    make_fn *make;
} maker;

static const maker makers[] = {
    {"sgd", make_sgd},
    {"nesterov", make_nesterov},
    {"adagrad", make_adagrad},
    {"adam", make_adam},
    {"adamw", make_adamw},
    {"muon", make_muon},
    {"lars", make_lars},
    {"lamb", make_lamb},
    {"lion", make_lion},
    {"adafactor", make_adafactor},
    {"prodigy", make_prodigy},
    {"shampoo", make_shampoo},
    {"corrected", make_corrected},
    {"eigendecomposed", make_eigendecomposed},
    {"staggered", make_staggered},
    {"async", make_async},
    {"ruled", make_ruled},
};
enum { MAKERS = COUNT_OF(makers) };

/* One of them by its name for rows; NULL: another function. */
static inline const char *name_of_maker(make_fn *make)
{
    for (int i = 0; i < MAKERS; i++)
        if (makers[i].make == make)
            return makers[i].name;
    return NULL;
}

/* A preset of Shampoo, in blocks of that side, with roots every three steps. */
static inline lt_status make_preset(lt_optim **out, const lt_params *params, const char *preset,
                                    int side)
{
    lt_shampoo_config c;
    const lt_status st = lt_shampoo_preset(preset, &c);
    c.max_preconditioner_dim = side;
    c.precondition_frequency = 3;
    c.start_preconditioning_step = 3;
    c.epsilon = 1e-6;
    return st ? st : lt_optim_shampoo(out, params, &c);
}

static inline void two_params(fixture *f, make_fn *make, bool f64)
{
    static const double start[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    fixture_open(f, f64);
    put(fixture_add(f, "a", LT_SHAPE(3, 4))->value, start);
    put(fixture_add(f, "b", LT_SHAPE(5))->value, start);
    assert_ok(make(&f->optim, &f->list));
}

static inline void give_gradients(fixture *f, int t, double factor)
{
    double g[12];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 12; i++)
            g[i] = factor * sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i);
        put_grad(&f->param[k], g);
    }
}

static inline void steps(fixture *f, int from, int to)
{
    for (int t = from; t <= to; t++) {
        give_gradients(f, t, 1);
        fixture_step(f, 0.05);
    }
}

#endif
