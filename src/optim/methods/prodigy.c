/* Prodigy: Mishchenko & Defazio 2023 (arXiv 2306.06101), algorithm 4; the formulas are in lather/prodigy.h. Sums are in
 * double: of chunks of one size, then of chunks and of parameters in their order, so that results depend on neither threads
 * nor ranks. */

#include "lather/prodigy.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "optim/host_values.h"
#include "optim/registry/registry.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

enum { M, V, S, START };
enum { DOT, ABS, SUMS };     /* <g, x0 - x> lr and the sum of |s| */
enum { ELEMENTS = 1 << 14 }; /* elements of a chunk */

typedef struct prodigy {
    lt_optim base;
    lt_prodigy_config config;
    double d, r;
    double *sum;       /* SUMS of each chunk of the largest parameter */
    lt_tensor *totals; /* f64 [slots, SUMS] */
} prodigy;

/* Inputs of the update of a slot. */
typedef struct pass {
    const prodigy *p;
    lt_view x, g, state[START + 1];
    double lr, scale, decay; /* learning rate; factor of the gradient; weight decay */
    bool has_grad;
} pass;

static void update_element(const pass *u, int64_t i, double sum[SUMS])
{
    const lt_prodigy_config *c = &u->p->config;
    const double d = u->p->d, b3 = sqrt(c->beta2),
                 g = u->has_grad ? u->scale * lt_value_at(&u->g, i) : 0;
    const double x = lt_value_at(&u->x, i), rate = u->lr * d;
    const double m = c->beta1 * lt_value_at(&u->state[M], i) + (1 - c->beta1) * d * g;
    const double v = c->beta2 * lt_value_at(&u->state[V], i) + (1 - c->beta2) * d * d * g * g;
    const double s = b3 * lt_value_at(&u->state[S], i) + (1 - b3) * rate * d * g;
    lt_set_value_at(&u->state[S], i, s);
    sum[ABS] += fabs(s);
    if (!u->has_grad)
        return;
    sum[DOT] += u->lr * g * (lt_value_at(&u->state[START], i) - x);
    lt_set_value_at(&u->state[M], i, m);
    lt_set_value_at(&u->state[V], i, v);
    lt_set_value_at(&u->x, i, x - rate * u->decay * x - rate * m / (sqrt(v) + d * c->eps));
}

static void update_chunk(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const pass *u = context;
    double *sum = u->p->sum + SUMS * chunk;
    sum[DOT] = sum[ABS] = 0;
    for (int64_t i = begin; i < end; i++)
        update_element(u, i, sum);
}

static lt_status update_slot(const prodigy *p, const lt_slot *slot, const lt_scalars *scalars,
                             double sum[SUMS])
{
    const lt_param *param = slot->param;
    const int64_t count = lt_tensor_count(param->value);
    pass u = {.p = p,
              .x = lt_tensor_view(param->value),
              .g = lt_tensor_view(param->grad),
              .lr = scalars->lr * slot->lr_scale,
              .scale = scalars->grad_scale,
              .decay = slot->weight_decay,
              .has_grad = param->has_grad};
    if (u.has_grad && !slot->updates)
        LT_TRY(lt_tensor_copy(slot->state[START], param->value));
    for (int k = 0; k <= START; k++)
        u.state[k] = lt_tensor_view(slot->state[k]);
    if (memcmp(u.g.stride, u.x.stride, (size_t)u.x.shape.ndim * sizeof *u.x.stride) != 0)
        return lt_fail(LT_E_UNSUPPORTED, "prodigy: the gradient of %s has other strides than it",
                       param->name);
    lt_parallel(count, ELEMENTS, update_chunk, &u);
    for (int64_t c = 0; c * ELEMENTS < count; c++)
        for (int k = 0; k < SUMS; k++)
            sum[k] += p->sum[SUMS * c + k];
    return LT_OK;
}

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    prodigy *p = (prodigy *)self;
    double *total = lt_tensor_view(p->totals).data, sum[SUMS] = {0}, b3 = sqrt(p->config.beta2);
    memset(total, 0, SUMS * self->count * sizeof *total);
    for (size_t i = 0; i < self->count; i++)
        if (!self->slot[i].not_owned)
            LT_TRY(update_slot(p, &self->slot[i], scalars, total + SUMS * i));
    LT_TRY(lt_optim_sum_over_owners(self, p->totals)); /* the others' totals are 0 here */
    for (size_t i = 0; i < SUMS * self->count; i++)
        sum[i % SUMS] += total[i];
    p->r = b3 * p->r + (1 - b3) * p->d * p->d * sum[DOT];
    if (sum[ABS] > 0)
        p->d = fmax(p->d, p->config.d_coef * p->r / sum[ABS]);
    return LT_OK;
}

static lt_status visit(lt_optim *self, lt_state_visitor *visitor)
{
    prodigy *p = (prodigy *)self;
    LT_TRY(lt_optim_visit_double(visitor, "d_bits", NULL, &p->d));
    return lt_optim_visit_double(visitor, "r_bits", NULL, &p->r);
}

/* The decay follows lr d. */
static double decay_lr(const lt_optim *self, const lt_slot *slot)
{
    (void)self, (void)slot;
    return (double)NAN;
}

static void destroy(lt_optim *self)
{
    prodigy *p = (prodigy *)self;
    lt_tensor_free(&p->totals);
    lt_free(p->sum);
}

static const lt_optim_ops ops = {
    .name = "prodigy",
    .bytes = sizeof(prodigy),
    .slot_state = {"m", "v", "s", "start"},
    .step = step,
    .visit = visit,
    .visits_numbers = true,
    .decay_lr = decay_lr,
    .destroy = destroy,
};

static lt_status make_workspace(prodigy *p)
{
    const lt_optim *o = &p->base;
    int64_t most = 1;
    if (!o->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "prodigy: device %s: sums are in host memory; use --device cpu",
                       lt_device_name(o->device));
    for (size_t i = 0; i < o->count; i++) {
        const int64_t count = lt_tensor_count(o->slot[i].param->value);
        most = count > most ? count : most;
    }
    LT_TRY(LT_ALLOC(&p->sum, (size_t)(SUMS * (1 + most / ELEMENTS))));
    return lt_tensor_new(&p->totals, o->device, LT_F64, LT_SHAPE((int64_t)o->count, SUMS));
}

lt_status lt_optim_prodigy(lt_optim **out, const lt_params *params, const lt_prodigy_config *config)
{
    const lt_prodigy_config c = config ? *config : LT_PRODIGY_DEFAULTS;
    lt_optim *o = NULL;
    LT_TRY(lt_optim_check(&lt_optim_family_prodigy, &c));
    LT_TRY(lt_optim_new(&o, &ops, params, c.weight_decay, c.decay_scope));
    ((prodigy *)o)->config = c;
    ((prodigy *)o)->d = c.d0;
    const lt_status st = make_workspace((prodigy *)o);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

/* --- Row of the registry --- */

#define AT(field) .offset = offsetof(lt_prodigy_config, field)
/* clang-format off */
static const lt_optim_field fields[] = {
{"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
{"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
{"beta1", LT_FIELD_REAL, AT(beta1), .high = 1, .below = true, .in_state = true},
{"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true, .in_state = true},
{"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
{"d0", LT_FIELD_REAL, AT(d0), .low = 1e-12, .high = HUGE_VAL, .rare = true, .in_state = true, .help = "first estimate of the distance to a solution, the first learning rate at --lr 1"},
{"d_coef", LT_FIELD_REAL, AT(d_coef), .low = 1e-6, .high = HUGE_VAL, .rare = true, .help = "factor of later estimates"},
};
/* clang-format on */
#undef AT

LT_OPTIM_MAKE(lt_optim_prodigy)

static const lt_optim_preset usual = {NULL, 1, &LT_PRODIGY_DEFAULTS};
const lt_optim_family lt_optim_family_prodigy = {LT_OPTIM_ROW("prodigy", lt_prodigy_config, usual)};
