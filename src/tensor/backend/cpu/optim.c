/* Optimizer updates of a list of parameters in one parallel pass, in f32. Tensors are split into pieces of GRAIN
 * elements. Formulas: detail/optim_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include "lather/ext/elementary.h"

#include <math.h>

enum { GRAIN = 32768 };

/* A contiguous part of one parameter and of its gradient and states. */
typedef struct piece {
    size_t item;
    int64_t begin, count;
} piece;

typedef struct pass pass;

/* Processes a piece: updates the parameter, or adds up squares. */
typedef void piece_fn(const pass *p, const lt_optim_item *item, const piece *c);

struct pass {
    piece_fn *fn;
    const lt_cpu_kernels *kernels;
    const lt_optim_item *item;
    const lt_scalars *scalars;
    const void *config;
    const bool *first;
    const piece *pieces;
    double number; /* lerp: weight; adagrad: eps */
    double *sums;
};

static bool is_absent_or_f32_like_value(const lt_optim_item *item, const lt_view *view)
{
    return !view->data || (view->dtype == LT_F32 && lt_cpu_has_same_layout(&item->value, view));
}

static bool has_fast_kernel(const lt_optim_item *item, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_absent_or_f32_like_value(&item[i], &item[i].value)
            || !is_absent_or_f32_like_value(&item[i], &item[i].grad))
            return false;
        for (int s = 0; s < LT_MAX_ITEM_STATE; s++)
            if (!is_absent_or_f32_like_value(&item[i], &item[i].state[s]))
                return false;
    }
    return true;
}

static void run_pieces(void *context, int64_t begin, int64_t end)
{
    const pass *p = context;
    for (int64_t i = begin; i < end; i++)
        p->fn(p, &p->item[p->pieces[i].item], &p->pieces[i]);
}

/* Runs p->fn on every piece of the list; p->sums holds one double per piece. */
static lt_status run_on_pieces(lt_cpu *cpu, pass *p, size_t items, int64_t *pieces)
{
    int64_t total = 0;
    for (size_t i = 0; i < items; i++)
        total += (lt_cpu_element_count(&p->item[i].value) + GRAIN - 1) / GRAIN;
    *pieces = total;
    if (!total)
        return LT_OK;
    const size_t bytes = (size_t)total * sizeof(piece);
    piece *all = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, bytes + (size_t)total * sizeof(double));
    if (!all)
        return LT_E_NOMEM;
    int64_t n = 0;
    for (size_t i = 0; i < items; i++)
        for (int64_t b = 0, count = lt_cpu_element_count(&p->item[i].value); b < count; b += GRAIN)
            all[n++] = (piece){i, b, count - b < GRAIN ? count - b : GRAIN};
    p->kernels = cpu->kernels;
    p->pieces = all;
    p->sums = (double *)(void *)((char *)all + bytes);
    lt_parallel_range(total, 1, run_pieces, p);
    return LT_OK;
}

static float *piece_address(const lt_view *view, const piece *c)
{
    return view->data ? (float *)view->data + c->begin : NULL;
}

static double item_lr(const pass *p, const lt_optim_item *item)
{
    return p->scalars->lr * item->lr_scale;
}

static void sum_squares_piece(const pass *p, const lt_optim_item *item, const piece *c)
{
    const float *g = piece_address(&item->grad, c);
    p->sums[c - p->pieces] = g ? p->kernels->square_sum(g, 1, c->count) : 0;
}

lt_status lt_cpu_grad_norm(void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars)
{
    if (!has_fast_kernel(item, count))
        return lt_backend_ref()->grad_norm(ctx, item, count, scalars);
    pass p = {.fn = sum_squares_piece, .item = item, .scalars = scalars};
    int64_t pieces;
    LT_TRY(run_on_pieces(ctx, &p, count, &pieces));
    double square = 0;
    for (int64_t i = 0; i < pieces; i++)
        square += p.sums[i];
    const double norm = sqrt(square) / scalars->loss_scale, clip = scalars->clip_norm;
    scalars->finite = isfinite(square);
    scalars->grad_norm = norm;
    scalars->grad_scale = (clip > 0 && norm > clip ? clip / norm : 1) / scalars->loss_scale;
    scalars->applied += scalars->finite;
    return LT_OK;
}

static void sgd_piece(const pass *p, const lt_optim_item *item, const piece *c)
{
    const lt_sgd_kernel *k = p->config;
    const lt_sgd_numbers n = {.scale = (float)p->scalars->grad_scale,
                              .decay = (float)item->weight_decay,
                              .momentum = (float)k->momentum,
                              .fresh = (float)(1 - k->dampening),
                              .lr = (float)item_lr(p, item),
                              .nesterov = k->nesterov,
                              .first = p->first[c->item]};
    p->kernels->sgd(&n, piece_address(&item->value, c), piece_address(&item->grad, c),
                    piece_address(&item->state[0], c), c->count);
}

lt_status lt_cpu_sgd(void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item,
                     const bool *first, size_t count, const lt_scalars *scalars)
{
    if (!has_fast_kernel(item, count))
        return lt_backend_ref()->sgd(ctx, config, item, first, count, scalars);
    pass p = {.fn = sgd_piece, .item = item, .scalars = scalars, .config = config, .first = first};
    int64_t pieces;
    return scalars->finite ? run_on_pieces(ctx, &p, count, &pieces) : LT_OK;
}

static void adagrad_piece(const pass *p, const lt_optim_item *item, const piece *c)
{
    const lt_adam_numbers n = {.scale = (float)p->scalars->grad_scale,
                               .decay = (float)item->weight_decay,
                               .step = (float)item_lr(p, item),
                               .eps = (float)p->number};
    p->kernels->adagrad(&n, piece_address(&item->value, c), piece_address(&item->grad, c),
                        piece_address(&item->state[0], c), c->count);
}

lt_status lt_cpu_adagrad(void *ctx, double eps, const lt_optim_item *item, size_t count,
                         const lt_scalars *scalars)
{
    if (!has_fast_kernel(item, count))
        return lt_backend_ref()->adagrad(ctx, eps, item, count, scalars);
    pass p = {.fn = adagrad_piece, .item = item, .scalars = scalars, .number = eps};
    int64_t pieces;
    return scalars->finite ? run_on_pieces(ctx, &p, count, &pieces) : LT_OK;
}

static void adam_piece(const pass *p, const lt_optim_item *item, const piece *c)
{
    const lt_adam_kernel *k = p->config;
    const double lr = item_lr(p, item), decay = item->weight_decay;
    const double step = (double)p->scalars->applied - (item->missed ? *item->missed : 0);
    const double correct1 = 1 - lt_f64_pow(k->beta1, step),
                 correct2 = 1 - lt_f64_pow(k->beta2, step);
    const lt_adam_numbers n = {.scale = (float)p->scalars->grad_scale,
                               .decay = k->decoupled ? 0 : (float)decay,
                               .keep = k->decoupled ? (float)(1 - lr * decay) : 1,
                               .beta1 = (float)k->beta1,
                               .fresh1 = (float)(1 - k->beta1),
                               .beta2 = (float)k->beta2,
                               .fresh2 = (float)(1 - k->beta2),
                               .step = (float)(lr / correct1),
                               .root = (float)sqrt(1 / correct2),
                               .eps = (float)k->eps};
    p->kernels->adam(&n, piece_address(&item->value, c), piece_address(&item->grad, c),
                     piece_address(&item->state[0], c), piece_address(&item->state[1], c),
                     c->count);
}

lt_status lt_cpu_adam(void *ctx, const lt_adam_kernel *config, const lt_optim_item *item,
                      size_t count, const lt_scalars *scalars)
{
    if (!has_fast_kernel(item, count))
        return lt_backend_ref()->adam(ctx, config, item, count, scalars);
    pass p = {.fn = adam_piece, .item = item, .scalars = scalars, .config = config};
    int64_t pieces;
    return scalars->finite ? run_on_pieces(ctx, &p, count, &pieces) : LT_OK;
}

static void lerp_piece(const pass *p, const lt_optim_item *item, const piece *c)
{
    p->kernels->lerp((float)p->number, piece_address(&item->value, c),
                     piece_address(&item->state[0], c), c->count);
}

lt_status lt_cpu_lerp(void *ctx, double weight, const lt_optim_item *item, size_t count,
                      const lt_scalars *scalars)
{
    if (!has_fast_kernel(item, count))
        return lt_backend_ref()->lerp(ctx, weight, item, count, scalars);
    pass p = {.fn = lerp_piece, .item = item, .scalars = scalars, .number = weight};
    int64_t pieces;
    return scalars->finite ? run_on_pieces(ctx, &p, count, &pieces) : LT_OK;
}
