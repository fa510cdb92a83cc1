/* An optimizer of your own, RMSprop: each number's step is divided by a running root mean square of
 * its gradient. Tieleman & Hinton, "Lecture 6.5", Neural Networks for Machine Learning, 2012.
 *
 *     v = alpha * v + (1 - alpha) * g * g
 *     p = p - lr * g / (sqrt(v) + eps)
 *
 *     cc rmsprop.c $(pkg-config --cflags --libs lather) -lm -o rmsprop && ./rmsprop */

#include "lather/ext/optim_family.h"
#include "lather/ext/vec.h"
#include "lather/layers.h"
#include "lather/optim_config.h"

#include <math.h>
#include <stdio.h>

enum { V, UPDATE };

typedef struct rmsprop {
    lt_optim base;
    double alpha, eps;
} rmsprop;

static lt_status update_slot(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    const rmsprop *r = (const rmsprop *)self;
    lt_tensor *v = slot->state[V], *u = slot->state[UPDATE];

    LT_TRY(lt_vec_lerp_sq(v, slot->grad, 1 - r->alpha, s));
    LT_TRY(lt_vec_rsqrt(u, 1, slot->grad, 1, v, r->eps, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, u, s);
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, update_slot, s);
}

static const lt_optim_ops ops = {
    .name = "rmsprop",
    .bytes = sizeof(rmsprop),
    .slot_state = {[V] = "v", [UPDATE] = "update"}, /* saved in checkpoints under these names */
    .step = step,
};

/* Options and descriptor of RMSprop: with these --optim rmsprop --alpha 0.95 works in a program that calls
 * lt_classifier_main(), and {"optim": "rmsprop", "lr": 0.1, "alpha": 0.95} in JSON. */

typedef struct config {
    double alpha, eps;
} config;

static const lt_optim_field fields[] = {
    {"alpha", LT_FIELD_REAL, .offset = offsetof(config, alpha), .high = 1, .below = true,
     .in_state = true, .help = "decay rate of the mean square"},
    {"epsilon", LT_FIELD_REAL, .offset = offsetof(config, eps), .high = HUGE_VAL},
};

static const lt_optim_family family;

static lt_status make(lt_optim **out, const lt_params *list, const void *settings, double lr)
{
    const config *c = settings;
    (void)lr;
    LT_TRY(lt_optim_check(&family, c)); /* "rmsprop: alpha 1 is not in [0,1)" */
    LT_TRY(lt_optim_new(out, &ops, list, 0, LT_DECAY_ALL));
    ((rmsprop *)*out)->alpha = c->alpha;
    ((rmsprop *)*out)->eps = c->eps;
    return LT_OK;
}

static const lt_optim_preset usual = {NULL, 0.01, &(config){.alpha = 0.9, .eps = 1e-8}};
static const lt_optim_family family = {
    .name = "rmsprop",
    .config_bytes = sizeof(config),
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .preset = &usual,
    .presets = 1,
    .make = make,
};

/* The rest shows that it works: a linear layer learns a linear map. */

enum { SAMPLES = 64, INPUTS = 4, STEPS = 300 };

typedef struct problem {
    lt_device *device;
    lt_module *layer;
    lt_tape *tape;
    lt_tensor *x, *minus_y;
    lt_params list;
    lt_optim *optim;
} problem;

static lt_status set_up(problem *p)
{
    float x[SAMPLES][INPUTS], minus_y[SAMPLES];
    for (int n = 0; n < SAMPLES; n++) {
        minus_y[n] = -1.0F;
        for (int c = 0; c < INPUTS; c++) {
            x[n][c] = (float)sin(1.7 * n + 2.3 * c * n + c);
            minus_y[n] -= (float)(c + 1) * x[n][c];
        }
    }
    LT_TRY(lt_device_open(&p->device, "cpu", NULL));
    LT_TRY(lt_layer_linear(&p->layer, p->device, "linear", INPUTS, 1, true));
    LT_TRY(lt_module_params(p->layer, &p->list));
    LT_TRY(lt_tape_new(&p->tape, p->device));
    LT_TRY(lt_tensor_new(&p->x, p->device, LT_F32, LT_SHAPE(SAMPLES, INPUTS)));
    LT_TRY(lt_tensor_new(&p->minus_y, p->device, LT_F32, LT_SHAPE(SAMPLES, 1)));
    LT_TRY(lt_tensor_write(p->x, x, sizeof x));
    LT_TRY(lt_tensor_write(p->minus_y, minus_y, sizeof minus_y));
    LT_TRY(lt_optim_register(&family));
    return lt_optim_open(&p->optim, "rmsprop", &p->list);
}

static lt_status train_step(problem *p, int64_t attempt, double *loss)
{
    lt_tape_reset(p->tape, LT_PASS_TRAIN);
    lt_tensor *error = lt_add(p->tape, lt_module_forward(p->layer, p->tape, p->x), p->minus_y);
    lt_tensor *mean = lt_mean(p->tape, lt_mul(p->tape, error, error), (lt_reduce_config){0});

    lt_params_zero_grad(&p->list);
    LT_TRY(lt_tape_backward(p->tape, mean, 1));
    LT_TRY(lt_tensor_item(mean, loss));
    const lt_step numbers = {.lr = 0.1 / sqrt((double)attempt), .attempt = attempt};
    return lt_optim_step(p->optim, &numbers);
}

static lt_status train_and_report(problem *p)
{
    LT_TRY(set_up(p));
    double first = 0, loss = 0;
    for (int64_t attempt = 1; attempt <= STEPS; attempt++) {
        LT_TRY(train_step(p, attempt, &loss));
        first = attempt == 1 ? loss : first;
    }
    printf("%s: loss %.4f after 1 step, %.6f after %d\n", lt_optim_name(p->optim), first, loss,
           STEPS);
    if (!(loss < first / 100))
        return lt_fail(LT_E_ARG, "rmsprop: the loss did not fall");
    return LT_OK;
}

int main(void)
{
    problem p = {0};
    lt_status st = train_and_report(&p);
    if (st)
        fprintf(stderr, "rmsprop: %s: %s\n", lt_status_name(st), lt_error_message());

    lt_optim_free(&p.optim);
    lt_params_clear(&p.list);
    lt_tensor_free(&p.minus_y);
    lt_tensor_free(&p.x);
    lt_tape_free(&p.tape);
    lt_module_free(&p.layer);
    lt_device_close(&p.device);
    return st ? 1 : 0;
}
