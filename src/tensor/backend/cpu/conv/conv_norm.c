/* Convolutions fused with batch norm on blocks of pixels in the cache: the fused entries of detail/kernels.h. They are
 * composed of basic entries where neither direct nor Winograd kernels are used. */

#include "direct_conv.h"
#include "tensor/backend/cpu/batchnorm.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/cpu/work_split.h"
#include "wgrad.h"
#include "winograd.h"

typedef enum conv_method { UNFUSED, DIRECT, WINOGRAD } conv_method;

/* Selects the kernels that compute the convolution and its sums. */
static conv_method choose_method(const lt_cpu *cpu, const lt_direct_conv *c, const lt_view *sums)
{
    if (cpu->fused == LT_FUSED_OFF || sums->dtype != LT_F32)
        return UNFUSED;
    if (lt_winograd_is_chosen(cpu, c))
        return WINOGRAD;
    const bool always = cpu->fused == LT_FUSED_ON && cpu->choice != LT_KERNELS_ONEDNN;
    return (always ? lt_direct_conv_supports(cpu, c) : lt_direct_conv_is_chosen(cpu, c)) ? DIRECT
                                                                                         : UNFUSED;
}

static int64_t count_stats_chunks(const lt_cpu *cpu, const lt_direct_conv *c, conv_method f)
{
    const int64_t *d = c->to->shape.dim;
    return f == WINOGRAD ? lt_winograd_chunks(cpu, c)
                         : lt_cpu_ceil_div(d[0] * d[2] * d[3], lt_direct_conv_block_pixels(c));
}

static lt_status run_with_stats(lt_cpu *cpu, lt_direct_conv c, conv_method f, const lt_view *stats)
{
    lt_cpu_moments m;
    LT_CPU_COUNT_TRAFFIC(c.from, c.w, c.to);
    LT_TRY(lt_cpu_moments_begin(cpu, c.to, count_stats_chunks(cpu, &c, f), &m));
    c.epilogue = lt_cpu_moments_chunk;
    c.context = &m;
    c.moments = &m;
    LT_TRY(f == WINOGRAD ? lt_winograd_run(cpu, &c) : lt_direct_conv_run(cpu, &c));
    lt_cpu_moments_end(&m, stats->data);
    return LT_OK;
}

lt_status lt_cpu_conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums)
{
    lt_cpu *cpu = ctx;
    lt_direct_conv c = {.config = config, .from = x, .w = w, .to = y};
    const conv_method f = choose_method(cpu, &c, stats);
    if (sums)
        *sums = false;
    if (f != UNFUSED)
        return run_with_stats(cpu, c, f, stats);
    LT_TRY(cpu->table->conv2d(ctx, config, x, w, NULL, y));
    return lt_cpu_batchnorm_stats(ctx, y, stats);
}

lt_status lt_cpu_conv2d_norm_stats(void *ctx, const lt_conv2d_config *config,
                                   const lt_batchnorm_before *norm, const lt_view *w,
                                   const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    lt_direct_conv c = {.config = config, .from = norm->x, .w = w, .to = y};
    const conv_method f = choose_method(ctx, &c, stats);
    how->sums = false;
    how->done = norm->coef->dtype == LT_F32 && f != UNFUSED && config->groups == 1;
    if (!how->done)
        return LT_OK;
    const lt_bn_apply input_norm = lt_cpu_make_input_norm(norm);
    c.input_norm = &input_norm;
    return run_with_stats(ctx, c, f, stats);
}

/* Only Winograd's form normalises the input itself, as it reads pixels for whole tiles; *done is false otherwise. */
lt_status lt_cpu_conv2d_norm_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    const lt_cpu *cpu = ctx;
    const lt_bn_apply input_norm = lt_cpu_make_input_norm(norm);
    const lt_winograd_grad g = {config, norm->x, dy, dw, &input_norm};
    *done = cpu->fused != LT_FUSED_OFF && norm->coef->dtype == LT_F32
            && lt_winograd_is_chosen_for_grad_w(cpu, &g);
    if (!*done)
        return LT_OK;
    LT_CPU_COUNT_TRAFFIC(dy, norm->x, dw);
    return lt_winograd_grad_w(ctx, &g);
}

lt_status lt_cpu_conv2d_grad_x_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_view *w, const lt_batchnorm_before *norm,
                                    const lt_view *dx, const lt_view *sums)
{
    lt_cpu *cpu = ctx;
    lt_direct_conv c = {.config = config, .from = dy, .w = w, .to = dx, .backward = true};
    const lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef, .relu = true};
    const conv_method f = choose_method(cpu, &c, sums);
    if (f == UNFUSED || norm->coef->dtype != LT_F32 || !lt_cpu_has_same_layout(dx, norm->x)
        || norm->x->dtype != dx->dtype) {
        LT_TRY(cpu->table->conv2d_grad_x(ctx, config, dy, w, dx));
        return lt_cpu_batchnorm_grad_stats(ctx, &in, NULL, sums);
    }
    LT_CPU_COUNT_TRAFFIC(dy, w, norm->x, dx);
    lt_cpu_grad_sums s;
    LT_TRY(lt_cpu_grad_sums_begin(cpu, &in, NULL, count_stats_chunks(cpu, &c, f), &s));
    c.epilogue = lt_cpu_grad_sums_chunk;
    c.context = &s;
    c.sums = &s;
    LT_TRY(f == WINOGRAD ? lt_winograd_run(cpu, &c) : lt_direct_conv_run(cpu, &c));
    lt_cpu_grad_sums_end(&s, sums->data);
    return LT_OK;
}

/* Returns true if the batch norm can be the epilogue of a built-in convolution. */
static bool supports_output_norm(const lt_direct_conv *c, const lt_conv_epilogue *after)
{
    const lt_view *r = after->residual;
    return after->coef->dtype == LT_F32
           && (!r || (r->dtype == c->to->dtype && lt_cpu_has_same_layout(c->to, r)));
}

/* Returns true if direct kernels are used with batchnorm_apply as epilogue, which is bitwise identical to two passes.
 * On AVX-512 that is 1x1 with a residual, which costs oneDNN a second pass; on AVX2 the layers for which they are
 * faster without a batch norm: docs/adr/0053. */
static bool prefers_direct_output_norm(const lt_cpu *cpu, const lt_direct_conv *c,
                                       const lt_view *residual)
{
    enum { MIN_OUT = 64, MIN_PIXELS = 1024 };
    const int64_t *to = c->to->shape.dim, *w = c->w->shape.dim;
    const bool multi_tap = w[2] * w[3] > 1;
    if (cpu->choice == LT_KERNELS_ONEDNN || !lt_direct_conv_supports(cpu, c))
        return false;
    if (lt_cpu_prefers_builtin(cpu))
        return true;
    if (cpu->isa == LT_ISA_AVX2)
        return lt_direct_conv_is_faster(cpu->isa, c);
    return residual && !multi_tap && cpu->isa >= LT_ISA_AVX512 && to[1] >= MIN_OUT
           && to[0] * to[2] * to[3] >= MIN_PIXELS;
}

lt_status lt_cpu_conv2d_affine(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, lt_conv_epilogue *after, const lt_view *y)
{
    lt_cpu *cpu = ctx;
    lt_direct_conv c = {.config = config, .from = x, .w = w, .to = y};
    const bool applicable = supports_output_norm(&c, after),
               winograd = lt_winograd_is_chosen(cpu, &c);
    after->done = false;
    if (cpu->fused == LT_FUSED_OFF || (winograd && !applicable))
        return LT_OK;
    if (!winograd && !(applicable && prefers_direct_output_norm(cpu, &c, after->residual)))
        return lt_cpu_onednn_affine(ctx, config, x, w, after, y);
    lt_cpu_apply job = lt_cpu_make_epilogue(cpu, after, y);
    after->done = true;
    LT_CPU_COUNT_TRAFFIC(x, w, after->residual, y);
    if (winograd) {
        c.output_norm = &job.in;
        return lt_winograd_run(cpu, &c);
    }
    c.epilogue = lt_cpu_apply_norm_chunk;
    c.context = &job;
    return lt_direct_conv_run(cpu, &c);
}
