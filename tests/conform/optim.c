/* Rows of first-order optimizers: lists of two parameters of different shapes. */

#include "conform.h"

#include <math.h>
#include <string.h>

enum { VALUE, GRAD, STATE, SLOT = 4, ITEMS = 2 }; /* operands of one item: value, grad, 2 states */

typedef struct optim_row {
    const char *entry, *name;
    int states; /* number of states of the kernel */
    union {
        lt_sgd_kernel sgd;
        lt_adam_kernel adam;
    } config;
    double number, weight_decay;
    bool first, skipped;
    bool rounded; /* gradients have the dtype of the run */
} optim_row;

static const optim_row rows[] = {
    {"sgd", "without momentum", 0, {.sgd = {0, 0, false}}, 0, 0.1, false, false, false},
    {"sgd", "momentum", 1, {.sgd = {0.9, 0, false}}, 0, 0, false, false, false},
    {"sgd", "momentum, first step", 1, {.sgd = {0.9, 0.5, false}}, 0, 0.1, true, false, false},
    {"sgd", "dampening", 1, {.sgd = {0.9, 0.5, false}}, 0, 0.1, false, false, false},
    {"sgd", "Nesterov, decay", 1, {.sgd = {0.9, 0, true}}, 0, 0.1, false, false, false},
    {"sgd", "a skipped step", 1, {.sgd = {0.9, 0, true}}, 0, 0.1, false, true, false},
    {"adagrad", "decay", 1, {.sgd = {0, 0, false}}, 1e-8, 0.1, false, false, false},
    {"adagrad", "a skipped step", 1, {.sgd = {0, 0, false}}, 1e-8, 0.1, false, true, false},
    {"adam", "plain", 2, {.adam = {0.9, 0.99, 1e-8, false}}, 0, 0, false, false, false},
    {"adam", "L2", 2, {.adam = {0.9, 0.99, 1e-8, false}}, 0, 0.1, false, false, false},
    {"adam", "decoupled decay", 2, {.adam = {0.9, 0.99, 1e-8, true}}, 0, 0.1, false, false, false},
    {"adam", "a skipped step", 2, {.adam = {0.9, 0.99, 1e-8, true}}, 0, 0.1, false, true, false},
    {"adam", "steps missed", 2, {.adam = {0.9, 0.99, 1e-8, true}}, 0, 0.1, false, false, false},
    {"sgd", "gradients in 16 bits", 1, {.sgd = {0.9, 0, true}}, 0, 0.1, false, false, true},
    {"adagrad", "gradients in 16 bits", 1, {.sgd = {0, 0, false}}, 1e-8, 0.1, false, false, true},
    {"adam",
     "gradients in 16 bits",
     2,
     {.adam = {0.9, 0.99, 1e-8, true}},
     0,
     0.1,
     false,
     false,
     true},
    {"lerp", "average", 1, {.sgd = {0, 0, false}}, 0.01, 0, false, false, false},
};

static const optim_row *row_of(const test *t)
{
    return &rows[(size_t)t->config.number];
}

static lt_status dispatch(const optim_row *r, const lt_backend *be, void *ctx,
                          const lt_optim_item *item, const lt_scalars *s)
{
    const bool first[ITEMS] = {r->first, r->first};
    switch (r->entry[0]) {
    case 's':
        return be->sgd(ctx, &r->config.sgd, item, first, ITEMS, s);
    case 'l':
        return be->lerp(ctx, r->number, item, ITEMS, s);
    default:
        return r->entry[2] == 'a' && r->entry[3] == 'g'
                   ? be->adagrad(ctx, r->number, item, ITEMS, s)
                   : be->adam(ctx, &r->config.adam, item, ITEMS, s);
    }
}

static lt_status call_step(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    const optim_row *r = row_of(t);
    lt_scalars s = {.lr = absolute ? -0.1 : 0.1, .grad_scale = 0.5, .applied = 3, .loss_scale = 2};
    s.finite = !r->skipped;
    lt_optim_item item[ITEMS] = {{.lr_scale = 1}, {.lr_scale = 0.5}};
    for (int i = 0; i < ITEMS; i++) {
        item[i].value = v[i * SLOT + VALUE];
        item[i].grad = v[i * SLOT + GRAD];
        item[i].state[0] = v[i * SLOT + STATE];
        item[i].state[1] = v[i * SLOT + STATE + 1];
        item[i].weight_decay = r->weight_decay;
    }
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_scalars two = {.lr = 2}, *number = scalars_new(be, ctx, &two);
    item[1].missed = !strcmp(r->name, "steps missed") ? &number->lr : NULL;
    lt_status st = dispatch(r, be, ctx, item, device);
    scalars_free(be, ctx, device, &s);
    scalars_free(be, ctx, number, &two);
    return st;
}

static operand slot_operand(const optim_row *r, int part, lt_shape shape)
{
    operand o = {INOUT, MASTER, shape, STORAGE, PLUS, -1, 1, NULL};
    bool moment2 = r->entry[0] == 'a' && part == STATE + r->states - 1;
    if (part == GRAD && r->rounded)
        o.kind = DATA;
    if (part == GRAD || (r->entry[0] == 'l' && part == STATE))
        o.use = IN;
    if (moment2) { /* a sum of squares */
        o.low = 0.05;
        o.high = 2;
    }
    if (part >= STATE + r->states || (r->entry[0] == 'l' && part == GRAD))
        o.shape.ndim = -1;
    return o;
}

static void make_step(size_t i, test *t)
{
    static const lt_shape shapes[ITEMS] = {{4, {3, 5, 3, 3}}, {1, {1}}};
    const optim_row *r = &rows[i];
    *t = (test){.entry = r->entry, .name = r->name, .call = call_step};
    t->master = !r->rounded;
    t->rounded = r->rounded;
    t->config.number = (double)i;
    t->operands = ITEMS * SLOT;
    for (int j = 0; j < ITEMS * SLOT; j++)
        t->operand[j] = slot_operand(r, j % SLOT, shapes[j / SLOT]);
    t->terms = 16;
    t->exact = r->skipped;
}

/* --- grad_norm: its scalars as an output, in double --- */

enum { NUMBERS = 4 };

static lt_status call_norm(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    lt_scalars s = {.clip_norm = t->config.number, .loss_scale = 4, .applied = 6};
    lt_optim_item item[ITEMS] = {{.grad = v[0]}, {.grad = v[1]}};
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->grad_norm(ctx, item, v[1].data ? ITEMS : 1, device);
    scalars_free(be, ctx, device, &s);
    double out[NUMBERS] = {s.finite ? s.grad_norm : 0, s.finite ? s.grad_scale : 0,
                           (double)s.applied, s.finite};
    return st ? st : be->copy(ctx, v[2].data, out, sizeof out, LT_COPY_IN);
}

static void put_infinity(test *t)
{
    t->operand[0].value[operand_count(&t->operand[0]) - 1] = (double)INFINITY;
}

static void make_norm(const char *name, double clip, prepare_fn *prepare, test *t)
{
    *t = (test){.entry = "grad_norm", .name = name, .call = call_norm, .master = true};
    t->config.number = clip;
    t->prepare = prepare;
    t->operands = 3;
    t->operand[0] = (operand){IN, MASTER, LT_SHAPE(7, 5, 3, 3), .absolute = PLUS};
    t->operand[1] = (operand){IN, MASTER, LT_SHAPE(1237), .absolute = PLUS};
    t->operand[2] = (operand){OUT, DOUBLE, LT_SHAPE(NUMBERS), .absolute = PLUS};
    t->terms = 0x1p-24; /* summed in double: terms * u = 2^-47 */
}

static void make_rounded_norm(test *t)
{
    make_norm("of gradients in 16 bits", 0.125, NULL, t);
    t->master = false;
    t->rounded = true;
    t->operand[0].kind = DATA;
}

/* One item in double: norms of parts from several ranks; more than a block has threads. */
static void make_norm_of_norms(test *t)
{
    make_norm("of norms", 0.125, NULL, t);
    t->operand[0] = (operand){IN, DOUBLE, LT_SHAPE(600), .absolute = PLUS};
    t->operand[1].shape.ndim = -1;
}

/* --- loss_scale: changes of the scale and of the count of good steps --- */

typedef struct scale_row {
    const char *name;
    double scale;
    int good, interval;
    bool finite;
} scale_row;

static const scale_row scales[] = {
    {"a good step", 1024, 3, 5, true},
    {"the last good step of an interval", 1024, 4, 5, true},
    {"a gradient that is not finite", 1024, 4, 5, false},
    {"no more than a float holds", 0x1p127, 4, 5, true},
    {"an interval of one", 2, 0, 1, true},
};

static lt_status call_scale(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    const scale_row *r = &scales[(size_t)t->config.number];
    const lt_loss_scaling config = {.growth = 2, .backoff = 0.5, .interval = r->interval};
    lt_scalars s = {.loss_scale = r->scale, .good_steps = r->good, .finite = r->finite};
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->loss_scale(ctx, &config, device);
    scalars_free(be, ctx, device, &s);
    const double out[] = {s.loss_scale, (double)s.good_steps};
    return st ? st : be->copy(ctx, v[0].data, out, sizeof out, LT_COPY_IN);
}

static void make_scale(size_t i, test *t)
{
    *t = (test){.entry = "loss_scale", .name = scales[i].name, .call = call_scale, .master = true};
    t->config.number = (double)i;
    t->operands = 1;
    t->operand[0] = (operand){OUT, DOUBLE, LT_SHAPE(2), .absolute = PLUS};
    t->exact = true;
}

/* --- trust_ratio: a column for each case, and more than a launch of cuda has threads --- */

typedef struct trust_test {
    const char *name;
    lt_trust_kernel config;
    bool skipped;
} trust_test;

static const trust_test trusts[] = {
    {"of gradients", {0.001, 1e-8, true, LT_TRUST_NO_LIMIT}, false},
    {"of updates", {1, 0, false, LT_TRUST_NO_LIMIT}, false},
    {"at most 1", {1, 0, false, LT_TRUST_LIMIT_ONE}, false},
    {"a rate at most lr", {0.1, 1e-8, true, LT_TRUST_LIMIT_LR}, false},
    {"a skipped step", {1, 0, false, LT_TRUST_NO_LIMIT}, true},
};
enum { COLUMNS = 300 };

static lt_status call_trust(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    const trust_test *r = &trusts[(size_t)t->config.number];
    lt_scalars s = {.lr = 0.5, .grad_scale = 0.25, .finite = !r->skipped, .loss_scale = 4};
    lt_trust_item item[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        item[i] = (lt_trust_item){.lr_scale = 1 + i % 3, .weight_decay = 0.01 * (i % 5)};
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->trust_ratio(ctx, &r->config, item, COLUMNS, &v[0], device);
    scalars_free(be, ctx, device, &s);
    return st;
}

static void put_zeros(test *t)
{
    t->operand[0].value[3] = t->operand[0].value[COLUMNS + 7] = 0;
    t->operand[0].value[11] = t->operand[0].value[COLUMNS + 11] = 0;
}

static void make_trust(size_t i, test *t)
{
    *t = (test){.entry = "trust_ratio", .name = trusts[i].name, .call = call_trust, .master = true};
    t->config.number = (double)i;
    t->prepare = put_zeros;
    t->operands = 1;
    t->operand[0] = (operand){INOUT, DOUBLE, LT_SHAPE(3, COLUMNS), ROWS, PLUS, 0.1, 3, NULL};
    t->terms = 0x1p-24; /* in double */
    t->exact = trusts[i].skipped;
}

bool optim_tests(size_t i, test *t)
{
    static const struct {
        const char *name;
        double limit;
        prepare_fn *prepare;
    } norms[] = {{"without clipping", 0, NULL},
                 {"clipped", 0.125, NULL},
                 {"below the limit", 1000, NULL},
                 {"an infinite gradient", 1, put_infinity}};
    static void (*const others[])(test *) = {make_rounded_norm, make_norm_of_norms};
    if (within(&i, COUNT_OF(scales)))
        make_scale(i, t);
    else if (within(&i, COUNT_OF(trusts)))
        make_trust(i, t);
    else if (within(&i, COUNT_OF(rows)))
        make_step(i, t);
    else if (within(&i, COUNT_OF(norms)))
        make_norm(norms[i].name, norms[i].limit, norms[i].prepare, t);
    else if (within(&i, COUNT_OF(others)))
        others[i](t);
    else
        return false;
    return true;
}
