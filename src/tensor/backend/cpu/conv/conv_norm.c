/* Convolutions with parts of batch norm, on blocks of pixels in the cache: the fused entries of
 * ext/kernels.h. Where own kernels are not to be taken they are composed of the basic ones. */

#include "direct_conv.h"
#include "tensor/backend/cpu/batchnorm.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/cpu/work_split.h"
#include "wgrad.h"
#include "winograd.h"

static bool is_winograd(const lt_cpu *cpu, const lt_own_conv *c)
{
    return cpu->onednn && lt_winograd_wanted(cpu, c);
}

typedef enum form { APART, DIRECT, WINOGRAD } form;

/* Which own kernels do it with the sums. */
static form form_of(const lt_cpu *cpu, const lt_own_conv *c, const lt_view *sums)
{
    if (cpu->fused == LT_FUSED_OFF || sums->dtype != LT_F32)
        return APART;
    if (is_winograd(cpu, c))
        return WINOGRAD;
    const bool always = cpu->fused == LT_FUSED_ON && cpu->choice != LT_KERNELS_ONEDNN;
    return (always ? lt_own_conv_can(cpu, c) : lt_own_conv_wanted(cpu, c)) ? DIRECT : APART;
}

static int64_t chunks_of(const lt_cpu *cpu, const lt_own_conv *c, form f)
{
    const int64_t *d = c->to->shape.dim;
    return f == WINOGRAD ? lt_winograd_chunks(cpu, c)
                         : lt_cpu_pieces(d[0] * d[2] * d[3], lt_own_conv_block(c));
}

static lt_status run_with_stats(lt_cpu *cpu, lt_own_conv *c, form f, const lt_view *stats)
{
    lt_cpu_moments m;
    LT_CPU_MOVED(c->from, c->w, c->to);
    LT_TRY(lt_cpu_moments_begin(cpu, c->to, chunks_of(cpu, c, f), &m));
    c->after = lt_cpu_moments_chunk;
    c->context = &m;
    c->moments = &m;
    LT_TRY(f == WINOGRAD ? lt_winograd_run(cpu, c) : lt_own_conv_run(cpu, c));
    lt_cpu_moments_end(&m, stats->data);
    return LT_OK;
}

lt_status lt_cpu_conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums)
{
    lt_cpu *cpu = ctx;
    lt_own_conv c = {.config = config, .from = x, .w = w, .to = y};
    const form f = form_of(cpu, &c, stats);
    if (sums)
        *sums = false;
    if (f != APART)
        return run_with_stats(cpu, &c, f, stats);
    LT_TRY(cpu->table->conv2d(ctx, config, x, w, NULL, y));
    return lt_cpu_batchnorm_stats(ctx, y, stats);
}

lt_status lt_cpu_conv2d_norm_stats(void *ctx, const lt_conv2d_config *config,
                                   const lt_batchnorm_before *norm, const lt_view *w,
                                   const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    lt_own_conv c = {.config = config, .from = norm->x, .w = w, .to = y};
    const form f = form_of(ctx, &c, stats);
    how->sums = false;
    how->done = norm->coef->dtype == LT_F32 && f != APART;
    if (!how->done)
        return LT_OK;
    const lt_bn_apply before = lt_cpu_norm_before(norm);
    c.before = &before;
    return run_with_stats(ctx, &c, f, stats);
}

/* Where it is Winograd's, which reads pixels for whole tiles; else the input is made again, for kernels that pack it. */
lt_status lt_cpu_conv2d_norm_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    const lt_cpu *cpu = ctx;
    const lt_bn_apply before = lt_cpu_norm_before(norm);
    const lt_winograd_grad g = {config, norm->x, dy, dw, &before};
    *done = cpu->onednn && cpu->fused != LT_FUSED_OFF && norm->coef->dtype == LT_F32
            && lt_winograd_wanted_w(cpu, &g);
    if (!*done)
        return LT_OK;
    LT_CPU_MOVED(dy, norm->x, dw);
    return lt_winograd_grad_w(ctx, &g);
}

lt_status lt_cpu_conv2d_grad_x_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_view *w, const lt_batchnorm_before *norm,
                                    const lt_view *dx, const lt_view *sums)
{
    lt_cpu *cpu = ctx;
    lt_own_conv c = {.config = config, .from = dy, .w = w, .to = dx, .backward = true};
    const lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef, .relu = true};
    const form f = form_of(cpu, &c, sums);
    if (f == APART || norm->coef->dtype != LT_F32 || !lt_cpu_same_dense(dx, norm->x)
        || norm->x->dtype != dx->dtype) {
        LT_TRY(cpu->table->conv2d_grad_x(ctx, config, dy, w, dx));
        return lt_cpu_batchnorm_grad_stats(ctx, &in, NULL, sums);
    }
    LT_CPU_MOVED(dy, w, norm->x, dx);
    lt_cpu_grad_sums s;
    LT_TRY(lt_cpu_grad_sums_begin(cpu, &in, NULL, chunks_of(cpu, &c, f), &s));
    c.after = lt_cpu_grad_sums_chunk;
    c.context = &s;
    c.sums = &s;
    LT_TRY(f == WINOGRAD ? lt_winograd_run(cpu, &c) : lt_own_conv_run(cpu, &c));
    lt_cpu_grad_sums_end(&s, sums->data);
    return LT_OK;
}

/* A batch norm that own kernels can do behind a convolution. */
static bool is_applicable(const lt_own_conv *c, const lt_conv_epilogue *after)
{
    const lt_view *r = after->residual;
    return after->coef->dtype == LT_F32
           && (!r || (r->dtype == c->to->dtype && lt_cpu_same_dense(c->to, r)));
}

/* Own kernels write what batchnorm_apply would read, and that is applied to a block in the cache: the same bits as one
 * after the other. On AVX-512 own kernels take 1x1 with a residual, which costs oneDNN a second pass; on AVX2 the layers
 * that they take without a batch norm: docs/adr/0061. */
static bool is_applied(const lt_cpu *cpu, const lt_own_conv *c, const lt_view *residual)
{
    enum { LEAST_OUT = 64, LEAST_PIXELS = 1024 };
    const int64_t *to = c->to->shape.dim, *w = c->w->shape.dim;
    const bool wide = w[2] * w[3] > 1;
    if (cpu->choice == LT_KERNELS_ONEDNN || !lt_own_conv_can(cpu, c))
        return false;
    if (cpu->choice == LT_KERNELS_OWN)
        return true;
    if (cpu->isa == LT_ISA_AVX2)
        return lt_own_conv_listed(cpu->isa, c);
    return residual && !wide && cpu->isa >= LT_ISA_AVX512 && to[1] >= LEAST_OUT
           && to[0] * to[2] * to[3] >= LEAST_PIXELS;
}

lt_status lt_cpu_conv2d_affine(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, lt_conv_epilogue *after, const lt_view *y)
{
    lt_cpu *cpu = ctx;
    lt_own_conv c = {.config = config, .from = x, .w = w, .to = y};
    const bool applicable = is_applicable(&c, after), winograd = is_winograd(cpu, &c);
    after->done = false;
    if (cpu->fused == LT_FUSED_OFF || (winograd && !applicable))
        return LT_OK;
    if (!winograd && !(applicable && is_applied(cpu, &c, after->residual)))
        return lt_cpu_onednn_affine(ctx, config, x, w, after, y);
    lt_cpu_apply job = lt_cpu_apply_after(cpu, after, y);
    after->done = true;
    LT_CPU_MOVED(x, w, after->residual, y);
    if (winograd) {
        c.normed = &job.in;
        return lt_winograd_run(cpu, &c);
    }
    c.after = lt_cpu_apply_chunk;
    c.context = &job;
    return lt_own_conv_run(cpu, &c);
}
