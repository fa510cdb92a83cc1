/* Stochastic gradient descent with momentum. Sutskever, Martens, Dahl & Hinton, "On the importance of
 * initialization and momentum in deep learning", ICML 2013, in the form where lr multiplies the momentum buffer
 * instead of the gradient, and a parameter's first update initializes the buffer with the gradient. */

#include "base/alloc.h"
#include "optim/registry/registry.h"
#include "optim/slots.h"

#include <math.h>

typedef struct sgd {
    lt_optim base;
    lt_sgd_kernel kernel;
    bool *first; /* per item: is its first update */
} sgd;

static void mark_first_updates(sgd *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->base.count; i++)
        if (lt_slot_is_due(&s->base.slot[i]))
            s->first[n++] = s->base.slot[i].updates == 0;
}

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    sgd *s = (sgd *)self;
    void *ctx;
    const lt_backend *be = lt_optim_backend(self, &ctx);
    LT_TRY(lt_optim_require_kernel(self, be->sgd != NULL, "sgd"));
    mark_first_updates(s);
    return be->sgd(ctx, &s->kernel, self->item, s->first, lt_optim_collect_items(self), scalars);
}

static bool is_capturable(const lt_optim *self)
{
    return !lt_optim_has_first_update(self);
}

static void destroy(lt_optim *self)
{
    lt_free(((sgd *)self)->first);
}

/* L2 decay is linear, as the update is: it equals a decoupled one. */
static lt_update_size update_size(const lt_optim *self, const lt_slot *slot)
{
    (void)self;
    (void)slot;
    return (lt_update_size){.scale = 1, .block = 1, .decay = LT_DECAY_DECOUPLED};
}

#define OPS(state, apart)                                                                        \
    {                                                                                            \
        .decay_is_apart = (apart), .name = "sgd", .bytes = sizeof(sgd), .slot_state = {state},   \
        .step = step, .by_entries = true, .reads_rounded = true, .is_capturable = is_capturable, \
        .destroy = destroy, .by_slots = true, .elementwise = true, .update_size = update_size,   \
    }
static const lt_optim_ops plain = OPS(NULL, true), with_momentum = OPS("momentum", false);

lt_status lt_optim_sgd(lt_optim **out, const lt_params *params, const lt_sgd_config *config)
{
    lt_sgd_config c = config ? *config : (lt_sgd_config){0};
    lt_optim *o = NULL;
    LT_TRY(lt_optim_check(&lt_optim_family_sgd, &c));
    const lt_optim_ops *ops = c.momentum > 0 ? &with_momentum : &plain;
    LT_TRY(lt_optim_new(&o, ops, params, c.weight_decay, c.decay_scope));
    sgd *s = (sgd *)o;
    s->kernel = (lt_sgd_kernel){c.momentum, c.dampening, c.nesterov && c.momentum > 0};
    s->first = lt_alloc(o->count, sizeof *s->first);
    if (!s->first) {
        lt_optim_free(&o);
        return LT_E_NOMEM;
    }
    *out = o;
    return LT_OK;
}

/* --- Row of the registry --- */

LT_OPTIM_CONDITION(has_momentum, lt_sgd_config, c->momentum > 0)

#define AT(field) .offset = offsetof(lt_sgd_config, field)
static const lt_optim_field fields[] = {
    {"momentum", LT_FIELD_REAL, AT(momentum), .high = 1, .below = true, .common = true,
     .in_state = true, .help = "momentum"},
    {"dampening", LT_FIELD_REAL, AT(dampening), .high = 1, .rare = true, .in_state = true,
     .help = "dampening of momentum"},
    {"nesterov", LT_FIELD_FLAG, AT(nesterov), .is_read = has_momentum,
     .needs = "--momentum above 0", .help = "use Nesterov momentum"},
    {"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .also = "wd",
     .common = true, .help = "weight decay"},
    {"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true,
     .help = "apply weight decay to biases and to weights and biases of norms, too"},
};
#undef AT

LT_OPTIM_MAKE(lt_optim_sgd)

static const lt_optim_preset usual = {
    NULL, 0.1, &(lt_sgd_config){.momentum = 0.9, .nesterov = true, .weight_decay = 1e-4}};
const lt_optim_family lt_optim_family_sgd = {
    LT_OPTIM_ROW("sgd", lt_sgd_config, usual),
    .published = &(lt_sgd_config){0},
};
