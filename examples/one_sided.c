/* An optimizer with matrices of your own: one-sided Shampoo. The gradient of a weight is a matrix G [rows,rest]; its
 * rows (or columns, if those are fewer) get a factor L [n,n], whose inverse root preconditions G. All other
 * parameters get the diagonal of theirs. docs/guides/matrix-optimizers.md explains each part.
 *
 *     L = beta2 L + (1 - beta2) G G^T
 *     R = (L / (1 - beta2^t) + epsilon e I)^(-1/2)    every `frequency` steps; e: the largest eigenvalue
 *     P = R G, rescaled to the length of G with --graft-to sgd
 *     M = momentum M + P + weight_decay W,  W = W - lr M
 *
 * Gupta, Koren & Singer, "Shampoo", ICML 2018, with one factor of two. It is a program, and a plugin for all others:
 *
 *     cc one_sided.c $(pkg-config --cflags --libs lather) -lm -o one_sided && ./one_sided
 *     cc -shared -fPIC one_sided.c $(pkg-config --cflags lather) -o one_sided.so
 *     train_resnet50 --plugin ./one_sided.so --optim one_sided --data synthetic */

#include "lather/ext/matrix.h"
#include "lather/ext/optim_family.h"
#include "lather/ext/vec.h"
#include "lather/layers.h"
#include "lather/optim_config.h"
#include "lather/plugin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOMENTUM, DIAGONAL, FACTOR, ROOT }; /* states of a slot */
enum { GRAFT_SGD, GRAFT_NONE };
static const double diagonal_epsilon = 1e-8;

typedef struct config {
    double beta2, epsilon, momentum, weight_decay;
    int64_t frequency;       /* steps from one inverse root to the next */
    int64_t block;           /* largest block of a factor; 0: no limit */
    int graft, epsilon_rule; /* an lt_epsilon_rule */
} config;

typedef struct one_sided {
    lt_optim base;
    config config;
    lt_matrix_root_job *job; /* workspace, one per slot */
} one_sided;

/* --- Matrices --- */

static const config *config_of(const lt_optim *self)
{
    return &((const one_sided *)self)->config;
}

static bool is_matrix(const lt_slot *slot)
{
    return slot->param->role == LT_PARAM_WEIGHT && lt_tensor_shape(slot->param->value).ndim > 1;
}

/* Returns the dimension that has the factor: the smaller one of a matrix, the first one of a filter. */
static int factor_dim(const lt_slot *slot)
{
    const lt_shape shape = lt_tensor_shape(slot->param->value);
    return shape.ndim == 2 && shape.dim[1] < shape.dim[0] ? 1 : 0;
}

static int64_t factor_size(const lt_slot *slot)
{
    return lt_tensor_shape(slot->param->value).dim[factor_dim(slot)];
}

static bool has_state(const lt_optim *self, const lt_slot *slot, int index)
{
    (void)self;
    return index == MOMENTUM || is_matrix(slot) == (index != DIAGONAL);
}

/* Factors and roots are [n,n], or of a larger n the k blocks [b,b] on the diagonal. */
static bool state_shape(const lt_optim *self, const lt_slot *slot, int index, lt_shape *shape)
{
    if (index != FACTOR && index != ROOT)
        return false;
    const int64_t n = factor_size(slot), most = config_of(self)->block;
    const int64_t k = most ? (n + most - 1) / most : 1, b = (n + k - 1) / k;
    *shape = k == 1 ? LT_SHAPE(n, n) : LT_SHAPE((n + b - 1) / b, b, b);
    return true;
}

/* --- The three phases of a step --- */

static lt_status update_factor(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    const double beta2 = config_of(self)->beta2;
    if (!is_matrix(slot))
        return lt_vec_lerp_sq(slot->state[DIAGONAL], slot->grad, 1 - beta2, s);
    return lt_matrix_gram(slot->state[FACTOR], beta2, 1 - beta2, slot->grad, factor_dim(slot), s);
}

/* Every `frequency` steps from the first one on, and in the first update of a parameter that began later. */
static bool is_refreshed_now(const lt_optim *self, const lt_slot *slot)
{
    const bool now = (self->attempt - 1) % config_of(self)->frequency == 0 || slot->updates == 0;
    return now && is_matrix(slot) && lt_slot_is_due(slot);
}

static lt_status refresh_roots(lt_optim *self)
{
    lt_matrix_root_job *job = ((one_sided *)self)->job;
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++) {
        const lt_slot *slot = &self->slot[i];
        if (is_refreshed_now(self, slot))
            job[count++] = (lt_matrix_root_job){.factor = slot->state[FACTOR],
                                                .out = slot->state[ROOT],
                                                .n = factor_size(slot),
                                                .warm = slot->updates > 0,
                                                .param = slot->param->name,
                                                .dim = factor_dim(slot)};
    }
    const lt_matrix_root_config how = {.optim = "one_sided",
                                       .exponent = 0.5,
                                       .epsilon = config_of(self)->epsilon,
                                       .epsilon_rule =
                                           (lt_epsilon_rule)config_of(self)->epsilon_rule,
                                       .beta2 = config_of(self)->beta2};
    return lt_matrix_inverse_roots(&how, job, count, self->scalars);
}

/* Sets p to the preconditioned gradient. */
static lt_status precondition(const lt_optim *self, const lt_slot *slot, lt_tensor *p,
                              const lt_scalars *s)
{
    const config *c = config_of(self);
    if (is_matrix(slot))
        return lt_matrix_mode_product(p, slot->state[ROOT], slot->grad, factor_dim(slot), s);
    LT_TRY(lt_vec_correct_bias(p, slot->state[DIAGONAL], c->beta2, s));
    return lt_vec_rsqrt(p, 1, slot->grad, 1, p, diagonal_epsilon, s);
}

static lt_status apply(const lt_optim *self, lt_slot *slot, lt_tensor *p, const lt_scalars *s)
{
    const config *c = config_of(self);
    lt_tensor *m = slot->state[MOMENTUM], *w = slot->param->value;
    if (c->graft == GRAFT_SGD)
        LT_TRY(lt_matrix_rescale(p, slot->grad, s));
    LT_TRY(lt_vec_axpby(p, slot->weight_decay, w, 1, s));
    LT_TRY(lt_vec_axpby(m, 1, p, c->momentum, s));
    return lt_vec_add_lr(w, -slot->lr_scale, m, s);
}

static lt_status update_weight(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    lt_tensor *p = NULL;
    LT_TRY(lt_tensor_new_like(&p, slot->grad, lt_tensor_dtype(slot->grad)));
    lt_status st = precondition(self, slot, p, s);
    if (!st)
        st = apply(self, slot, p, s);
    lt_tensor_free(&p);
    return st;
}

/* --- A step --- */

static bool is_refresh_due(const lt_optim *self)
{
    bool due = false;
    for (size_t i = 0; i < self->count; i++)
        due = due || is_refreshed_now(self, &self->slot[i]);
    return due;
}

/* Between refreshes every step queues the same work, which a GPU replays as one graph; the first step allocates. */
static bool is_capturable(const lt_optim *self)
{
    return self->attempt > 1 && !is_refresh_due(self);
}

static bool has_host_phase(const lt_optim *self)
{
    return self->attempt > 1 && is_refresh_due(self);
}

static lt_status first(lt_optim *self)
{
    return lt_optim_for_each_slot(self, update_factor, self->scalars);
}

static lt_status second(lt_optim *self)
{
    return lt_optim_for_each_slot(self, update_weight, self->scalars);
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    (void)s; /* self->scalars */
    LT_TRY(first(self));
    if (is_refresh_due(self))
        LT_TRY(refresh_roots(self));
    return second(self);
}

/* Modelled nanoseconds of products and, once in `frequency` updates, of the root, so that ranks get equal work. */
static double nanoseconds(const lt_optim *self, const lt_slot *slot)
{
    const double n = (double)factor_size(slot),
                 elements = (double)lt_tensor_count(slot->param->value);
    return is_matrix(slot)
               ? 0.03 * n * elements + 0.3 * n * n * n / (double)config_of(self)->frequency
               : 0;
}

/* --- What --optim-stats shows --- */

static bool stat_block(const lt_optim *self, const lt_slot *slot, size_t block, lt_optim_block *out)
{
    lt_shape factor;
    const int d = factor_dim(slot);
    if (!is_matrix(slot) || !state_shape(self, slot, FACTOR, &factor)
        || (int64_t)block >= (factor.ndim == 3 ? factor.dim[0] : 1))
        return false;
    const int64_t n = factor_size(slot), b = factor.dim[factor.ndim - 1], at = (int64_t)block * b;
    *out = (lt_optim_block){
        .extent = lt_tensor_shape(slot->param->value), .owner = slot->owner, .rule = LT_RULE_ROOT};
    out->offset.ndim = out->extent.ndim;
    out->offset.dim[d] = at;
    out->extent.dim[d] = n - at < b ? n - at : b;
    out->shape = out->extent;
    out->has_factor[d] = true;
    out->graft_ratio = (double)NAN;
    return true;
}

static lt_status stat_factor(lt_optim *self, const lt_slot *slot, size_t block, int dim,
                             lt_optim_factor *out)
{
    const config *c = config_of(self);
    (void)dim; /* factor_dim(slot) */
    out->epsilon = c->epsilon;
    out->is_relative = c->epsilon_rule == LT_EPSILON_RELATIVE;
    out->age = (self->attempt - 1) % c->frequency;
    out->residual = (double)NAN;
    if (out->numbers_only)
        return LT_OK;
    LT_TRY(lt_matrix_copy_block(&out->temporary[0], slot->state[FACTOR], factor_size(slot), block));
    out->matrix = out->temporary[0];
    return lt_vec_correct_bias(out->temporary[0], out->matrix, c->beta2, self->scalars);
}

static lt_status stats(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                       double out[LT_MAX_STATS])
{
    (void)self, (void)out;
    *rule = is_matrix(slot) ? LT_RULE_ROOT : LT_RULE_DIAGONAL;
    return LT_OK;
}

static void destroy(lt_optim *self)
{
    free(((one_sided *)self)->job);
}

static const lt_host_phase_ops host_phase = {has_host_phase, first, refresh_roots, second};
static const lt_optim_ops ops = {
    .name = "one_sided",
    .bytes = sizeof(one_sided),
    .slot_state = {"momentum", "diagonal", "factor", "root"}, /* saved, loaded and sharded */
    .has_state = has_state,
    .state_shape = state_shape,
    .step = step,
    .is_capturable = is_capturable,
    .host_phase = &host_phase,
    .nanoseconds = nanoseconds,
    .stats = stats,
    .stat_block = stat_block,
    .stat_factor = stat_factor,
    .destroy = destroy,
};

/* --- Its flags --- */

#define AT(field) .offset = offsetof(config, field)
static const lt_optim_field fields[] = {
    {"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true},
    {"epsilon", LT_FIELD_REAL, AT(epsilon), .high = HUGE_VAL},
    {"momentum", LT_FIELD_REAL, AT(momentum), .high = 1, .below = true},
    {"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL},
    {"precondition_frequency", LT_FIELD_COUNT, AT(frequency), .low = 1, .high = HUGE_VAL},
    {"max_preconditioner_dim", LT_FIELD_LIMIT, AT(block), .high = HUGE_VAL},
    {"epsilon_rule", LT_FIELD_CHOICE, AT(epsilon_rule),
     .choices = "before|after|pseudo_inverse|relative", .rare = true},
    {"graft_to", LT_FIELD_CHOICE, AT(graft), .choices = "sgd|none",
     .help = "optimizer whose length an update gets"},
};
#undef AT

static const lt_optim_family family;

static lt_status make(lt_optim **out, const lt_params *list, const void *settings, double lr)
{
    const config *c = settings;
    lt_optim *o = NULL;
    (void)lr;
    LT_TRY(lt_optim_check(&family, c)); /* "one_sided: root_frequency 0 is not at least 1" */
    LT_TRY(lt_optim_new(&o, &ops, list, c->weight_decay, LT_DECAY_WEIGHTS));
    ((one_sided *)o)->config = *c;
    ((one_sided *)o)->job = calloc(o->count, sizeof(lt_matrix_root_job));
    if (!((one_sided *)o)->job) {
        lt_optim_free(&o);
        return lt_fail(LT_E_NOMEM, "one_sided: out of memory");
    }
    *out = o;
    return LT_OK;
}

static const config usual = {.beta2 = 0.99,
                             .epsilon_rule = LT_EPSILON_RELATIVE,
                             .epsilon = 1e-4,
                             .momentum = 0.9,
                             .weight_decay = 1e-4,
                             .frequency = 10,
                             .block = 1024};
static const lt_optim_preset preset = {NULL, 0.1, &usual};
static const lt_optim_family family = {
    .name = "one_sided",
    .config_bytes = sizeof(config),
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .preset = &preset,
    .presets = 1,
    .make = make,
};

LT_PLUGIN(host)
{
    return lt_optim_register(&family);
}

/* The rest shows that it works: a linear layer learns a linear map from inputs of very different sizes. */

enum { SAMPLES = 64, INPUTS = 8, OUTPUTS = 4, STEPS = 200 };

typedef struct problem {
    lt_device *device;
    lt_module *layer;
    lt_tape *tape;
    lt_tensor *x, *minus_y;
    lt_params list;
    lt_optim *optim;
} problem;

static lt_status set_up(problem *p, int argc, char **argv)
{
    float x[SAMPLES][INPUTS], minus_y[SAMPLES][OUTPUTS] = {{0}};
    for (int i = 0; i < SAMPLES * INPUTS; i++) {
        const int n = i / INPUTS, c = i % INPUTS;
        x[n][c] = (float)(sin(1.7 * n + 2.3 * c * n + c) / (1 + 3 * c));
        for (int k = 0; k < OUTPUTS; k++)
            minus_y[n][k] -= (float)(c - 2 * k) * x[n][c];
    }
    LT_TRY(lt_device_open(&p->device, argc > 1 ? argv[1] : "cpu", NULL));
    LT_TRY(lt_layer_linear(&p->layer, p->device, "linear", INPUTS, OUTPUTS, true));
    LT_TRY(lt_module_params(p->layer, &p->list));
    LT_TRY(lt_tape_new(&p->tape, p->device));
    LT_TRY(lt_tensor_new(&p->x, p->device, LT_F32, LT_SHAPE(SAMPLES, INPUTS)));
    LT_TRY(lt_tensor_new(&p->minus_y, p->device, LT_F32, LT_SHAPE(SAMPLES, OUTPUTS)));
    LT_TRY(lt_tensor_write(p->x, x, sizeof x));
    LT_TRY(lt_tensor_write(p->minus_y, minus_y, sizeof minus_y));
    LT_TRY(lt_optim_register(&family));
    return lt_optim_open(&p->optim, "one_sided", &p->list);
}

static lt_status train_step(problem *p, int64_t attempt, double *loss)
{
    lt_tape_reset(p->tape, LT_PASS_TRAIN);
    lt_tensor *error = lt_add(p->tape, lt_module_forward(p->layer, p->tape, p->x), p->minus_y);
    lt_tensor *mean = lt_mean(p->tape, lt_mul(p->tape, error, error), (lt_reduce_config){0});
    lt_params_zero_grad(&p->list);
    LT_TRY(lt_tape_backward(p->tape, mean, 1));
    LT_TRY(lt_tensor_item(mean, loss));
    return lt_optim_step(p->optim, &(lt_step){.lr = 0.5, .attempt = attempt});
}

static lt_status train_and_report(problem *p, int argc, char **argv)
{
    LT_TRY(set_up(p, argc, argv));
    double before = 0, loss = 0;
    for (int64_t attempt = 1; attempt <= STEPS; attempt++) {
        LT_TRY(train_step(p, attempt, &loss));
        before = attempt == 1 ? loss : before;
    }
    printf("one_sided: loss %.4f after 1 step, %.6f after %d; %zu bytes of state\n", before, loss,
           STEPS, lt_optim_state_bytes(p->optim));
    return loss < before / 100 ? LT_OK : lt_fail(LT_E_ARG, "one_sided: the loss did not fall");
}

int main(int argc, char **argv)
{
    problem p = {0};
    lt_status st = train_and_report(&p, argc, argv);
    if (st)
        fprintf(stderr, "one_sided: %s: %s\n", lt_status_name(st), lt_error_message());
    lt_optim_free(&p.optim);
    lt_params_clear(&p.list);
    lt_tensor_free(&p.minus_y);
    lt_tensor_free(&p.x);
    lt_tape_free(&p.tape);
    lt_module_free(&p.layer);
    lt_device_close(&p.device);
    return st ? 1 : 0;
}
