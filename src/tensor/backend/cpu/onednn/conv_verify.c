/* Compares random planes of a result with the reference backend: one channel of one image, or of a weight's gradient
 * one pair of channels, computed from views of the operands. */

#include "conv_verify.h"

#include "base/rng.h"
#include "tensor/backend/cpu/internal.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool lt_conv_verify_is_enabled(void)
{
    const char *text = getenv("LATHER_VERIFY");
    return text && *text && strcmp(text, "0") != 0;
}

static lt_view slice_view(const lt_view *v, int dim, int64_t first, int64_t count)
{
    lt_view p = *v;
    p.data = (char *)v->data + first * v->stride[dim] * (int64_t)lt_dtype_size(v->dtype);
    p.shape.dim[dim] = count;
    return p;
}

/* The operands and the result of one plane. */
typedef struct plane {
    lt_view x, w, b, y;
    lt_conv2d_config config;
} plane;

static plane select_random_plane(const lt_conv_ran *ran, lt_rng *rng)
{
    const int64_t groups = ran->form->config.groups, filters = ran->w->shape.dim[0] / groups,
                  channels = ran->w->shape.dim[1];
    const lt_conv_kind kind = ran->form->kind;
    const int64_t group = lt_rng_below(rng, (uint32_t)groups);
    const int64_t n = lt_rng_below(rng, (uint32_t)ran->x->shape.dim[0]);
    const int64_t k = lt_rng_below(rng, (uint32_t)filters);
    const int64_t c = lt_rng_below(rng, (uint32_t)channels);
    const bool one_c = kind != LT_CONV, one_k = kind != LT_CONV_GRAD_X;
    const int64_t first_c = one_c ? c : 0, first_k = group * filters + (one_k ? k : 0);
    const int64_t count_c = one_c ? 1 : channels, count_k = one_k ? 1 : filters;
    plane p = {.config = ran->form->config};
    p.config.groups = 1;
    p.x = slice_view(ran->x, 1, group * channels + first_c, count_c);
    p.y = slice_view(ran->y, 1, first_k, count_k);
    p.w = slice_view(ran->w, 0, first_k, count_k);
    p.w = slice_view(&p.w, 1, first_c, count_c);
    if (lt_cpu_has_data(ran->b))
        p.b = slice_view(ran->b, 0, first_k, count_k);
    if (kind == LT_CONV_GRAD_W)
        return p;
    p.x = slice_view(&p.x, 0, n, 1);
    p.y = slice_view(&p.y, 0, n, 1);
    return p;
}

static lt_status run_reference(lt_conv_kind kind, const plane *p, const lt_view *want)
{
    const lt_backend *ref = lt_backend_ref();
    if (kind == LT_CONV)
        return ref->conv2d(NULL, &p->config, &p->x, &p->w, p->b.data ? &p->b : NULL, want);
    if (kind == LT_CONV_GRAD_X)
        return ref->conv2d_grad_x(NULL, &p->config, &p->y, &p->w, want);
    return ref->conv2d_grad_w(NULL, &p->config, &p->y, &p->x, want);
}

static lt_status fail_wrong_result(const lt_conv_ran *ran, double got, double want)
{
    static const char *const entries[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"};
    const lt_conv2d_config *c = &ran->form->config;
    const int64_t *x = ran->x->shape.dim, *w = ran->w->shape.dim;
    return lt_fail(LT_E_DEVICE,
                   "%s: oneDNN's %s is wrong: %g, want %g (x [%lld,%lld,%lld,%lld], w "
                   "[%lld,%lld,%lld,%lld], stride %d,%d, pad %d,%d, dilation %d,%d, groups %d)",
                   entries[ran->form->kind], ran->implementation, got, want, (long long)x[0],
                   (long long)x[1], (long long)x[2], (long long)x[3], (long long)w[0],
                   (long long)w[1], (long long)w[2], (long long)w[3], c->stride_h, c->stride_w,
                   c->pad_h, c->pad_w, c->dilation_h, c->dilation_w, c->groups);
}

/* Fails if a result is off by over 1/64 of the largest: bf16 rounds to 1/256, long sums in f32 err by less. */
static lt_status compare_results(const lt_conv_ran *ran, const double *got, const double *want,
                                 int64_t count)
{
    const double tolerance = 1.0 / 64;
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(want[i]))
            return LT_OK; /* training diverged: nothing to compare */
        largest = fmax(largest, fabs(want[i]));
    }
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * largest))
            return fail_wrong_result(ran, got[i], want[i]);
    return LT_OK;
}

static lt_status verify_plane(const lt_conv_ran *ran, const plane *p)
{
    const lt_conv_kind kind = ran->form->kind;
    const lt_view *made = kind == LT_CONV ? &p->y : kind == LT_CONV_GRAD_X ? &p->x : &p->w;
    const int64_t count = lt_cpu_element_count(made);
    double *memory = NULL;
    LT_TRY(LT_ALLOC(&memory, (size_t)count * 2));
    lt_view want = lt_cpu_dense_view(memory, LT_F64, made->shape);
    lt_view got = lt_cpu_dense_view(memory + count, LT_F64, made->shape);
    lt_status st = run_reference(kind, p, &want);
    if (!st)
        st = lt_backend_ref()->cast(NULL, made, &got);
    if (!st)
        st = compare_results(ran, memory + count, memory, count);
    lt_free(memory);
    return st;
}

lt_status lt_conv_verify(const lt_conv_ran *ran)
{
    enum { PLANES = 4 };
    lt_rng rng = {.key = lt_rng_key(0, LT_STREAM_DATA, ran->form->kind, 0)};
    for (int i = 0; i < PLANES; i++) {
        const plane p = select_random_plane(ran, &rng);
        LT_TRY(verify_plane(ran, &p));
    }
    return LT_OK;
}
