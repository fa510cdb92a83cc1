/* An optimizer as a plugin, Signum: every number moves by the learning rate, in the direction of the sign of a mean of
 * gradients. Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018, algorithm 2.
 *
 *     m = momentum * m + (1 - momentum) * g
 *     p = p - lr * (sign(m) + weight_decay * p)
 *
 *     cc -shared -fPIC plugin_signum.c $(pkg-config --cflags lather) -o signum.so
 *     train_resnet50 --plugin ./signum.so --optim signum --data fashion-mnist --epochs 1 */

#include "lather/ext/optim_family.h"
#include "lather/ext/vec.h"
#include "lather/plugin.h"

#include <math.h>

enum { M };
static const double tiny = 1e-12; /* sign(u) is u / (|u| + tiny) */

typedef struct config {
    double momentum, weight_decay;
} config;

typedef struct signum {
    lt_optim base;
    config settings;
} signum;

static lt_status apply(const config *c, lt_slot *slot, lt_tensor *u, lt_tensor *square,
                       const lt_scalars *s)
{
    lt_tensor *m = slot->state[M];
    LT_TRY(lt_vec_lerp(m, slot->grad, 1 - c->momentum, s));
    LT_TRY(lt_vec_axpby(u, 1, m, 0, s));
    LT_TRY(lt_vec_axpby(square, 0, u, 0, s));
    LT_TRY(lt_vec_lerp_sq(square, u, 1, s));
    LT_TRY(lt_vec_rsqrt(u, 1, u, 1, square, tiny, s));
    LT_TRY(lt_vec_axpby(u, slot->weight_decay, slot->param->value, 1, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, u, s);
}

/* Updates a parameter. Workspace is freed at once: its memory is reused in the order of the device's queue. */
static lt_status update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    lt_tensor *u = NULL, *square = NULL;
    lt_status st = lt_tensor_new_like(&u, slot->state[M], lt_tensor_dtype(slot->state[M]));
    st = st ? st : lt_tensor_new_like(&square, u, lt_tensor_dtype(u));
    st = st ? st : apply(&((const signum *)self)->settings, slot, u, square, s);
    lt_tensor_free(&square);
    lt_tensor_free(&u);
    return st;
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, update, s);
}

/* A step can be captured as a graph once its workspace is in the device's cache. */
static bool is_capturable(const lt_optim *self)
{
    return self->attempt > 1;
}

/* Tells --optim-stats which rule an update follows. */
static lt_status stats(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                       double out[LT_MAX_STATS])
{
    (void)self, (void)slot, (void)out;
    *rule = LT_RULE_SIGN;
    return LT_OK;
}

static const lt_optim_ops ops = {
    .name = "signum",
    .bytes = sizeof(signum),
    .slot_state = {[M] = "m"},
    .step = step,
    .elementwise = true,
    .is_capturable = is_capturable,
    .stats = stats,
};

static const lt_optim_field fields[] = {
    {"momentum", LT_FIELD_REAL, .offset = offsetof(config, momentum), .high = 1, .below = true,
     .common = true, .in_state = true},
    {"weight_decay", LT_FIELD_REAL, .offset = offsetof(config, weight_decay), .high = HUGE_VAL,
     .common = true},
};

static const lt_optim_family family;

static lt_status make(lt_optim **out, const lt_params *params, const void *settings, double lr)
{
    const config *c = settings;
    (void)lr;
    LT_TRY(lt_optim_check(&family, c));
    LT_TRY(lt_optim_new(out, &ops, params, c->weight_decay, LT_DECAY_WEIGHTS));
    ((signum *)*out)->settings = *c;
    return LT_OK;
}

static const lt_optim_preset usual = {NULL, 1e-4, &(config){.momentum = 0.9, .weight_decay = 1}};
static const lt_optim_family family = {
    .name = "signum",
    .config_bytes = sizeof(config),
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .preset = &usual,
    .presets = 1,
    .make = make,
};

LT_PLUGIN(host)
{
    return lt_optim_register(&family);
}
