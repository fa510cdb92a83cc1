/* Convolutions by oneDNN. Activations are channels-last; weights are reordered from Lather's channels-last storage to
 * the primitive's layout. Formula: lt_conv2d(). */

#include "base/parallel.h"
#include "conv_crop.h"
#include "conv_verify.h"
#include "onednn.h"
#include "tensor/backend/cpu/conv/conv_call.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/cpu/operands.h"

#include <stdio.h>
#include <string.h>

enum { SCALE = 2, SHIFT }; /* rows of a batch norm's coefficients */

typedef struct call {
    lt_conv_kind kind;
    const lt_conv2d_config *config;
    const lt_view *x, *w, *b, *y; /* or the gradients of x, w, y */
    bool cropped;                 /* w is a view of part of a filter */
    lt_conv_epilogue
        *after; /* fused batch norm: b is its shift, w is multiplied by its scale; or NULL */
} call;

static lt_conv_form get_conv_form(const call *c)
{
    return (lt_conv_form){c->kind, *c->config, c->x->shape, c->w->shape, c->y->shape};
}

static dnnl_data_type_t dnnl_dtype(lt_dtype dtype)
{
    return dtype == LT_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Returns true if the primitive's reorder reads a cropped filter in place. */
static bool reads_cropped_weight_in_place(const call *c, lt_dtype dtype, lt_dtype w_dtype)
{
    return c->cropped && !c->after && c->x->dtype == dtype && c->w->dtype == w_dtype;
}

/* Writes the cache key: everything that distinguishes primitives. */
static void make_key(const call *c, lt_dtype dtype, lt_dtype w_dtype, int64_t key[LT_PRIMITIVE_KEY])
{
    const lt_conv2d_config *g = c->config;
    const bool in_place = reads_cropped_weight_in_place(c, dtype, w_dtype);
    const int64_t all[LT_PRIMITIVE_KEY] = {
        1 + c->kind,
        dtype,
        w_dtype,
        lt_cpu_has_data(c->b),
        c->x->shape.dim[0],
        c->x->shape.dim[1],
        c->x->shape.dim[2],
        c->x->shape.dim[3],
        c->w->shape.dim[0],
        c->w->shape.dim[2],
        c->w->shape.dim[3],
        g->stride_h,
        g->stride_w,
        g->pad_h,
        g->pad_w,
        g->dilation_h,
        g->dilation_w,
        g->groups,
        lt_parallel_threads(),
        in_place ? c->w->stride[0] : 0,
        in_place ? c->w->stride[2] : 0,
        c->after ? 1 + c->after->relu : 0,
    };
    for (int i = 0; i < LT_PRIMITIVE_KEY; i++)
        key[i] = all[i];
}

static dnnl_status_t make_image_desc(dnnl_memory_desc_t *md, lt_shape shape, lt_dtype dtype)
{
    const int64_t n = shape.dim[0], c = shape.dim[1], h = shape.dim[2], w = shape.dim[3];
    const dnnl_dims_t dims = {n, c, h, w}, strides = {h * w * c, 1, w * c, c};
    return lt_md_make(md, 4, dims, dnnl_dtype(dtype), strides);
}

/* Makes w's memory descriptor with these strides, or with a layout of the primitive's choice if strides is NULL. */
static dnnl_status_t make_weight_desc(dnnl_memory_desc_t *md, const call *c, lt_dtype dtype,
                                      const int64_t *strides)
{
    const int64_t g = c->config->groups;
    const int64_t *w = c->w->shape.dim;
    const dnnl_dims_t grouped = {g, w[0] / g, w[1], w[2], w[3]};
    int skip = g == 1; /* one group has no group dimension */
    if (!strides)
        return lt_md_make(md, 5 - skip, grouped + skip, dnnl_dtype(dtype), NULL);
    const dnnl_dim_t all[] = {w[0] / g * strides[0], strides[0], strides[1], strides[2],
                              strides[3]};
    return lt_md_make(md, 5 - skip, grouped + skip, dnnl_dtype(dtype), all + skip);
}

static dnnl_status_t make_stored_weight_desc(dnnl_memory_desc_t *md, const call *c, lt_dtype dtype,
                                             lt_dtype w_dtype)
{
    const lt_view dense = lt_cpu_dense_view(NULL, w_dtype, c->w->shape);
    const bool in_place = reads_cropped_weight_in_place(c, dtype, w_dtype);
    return make_weight_desc(md, c, w_dtype, in_place ? c->w->stride : dense.stride);
}

typedef struct description {
    lt_conv_problem problem;
    dnnl_memory_desc_t stored; /* memory descriptor of w as Lather stores it */
    dnnl_primitive_desc_t forward, pd;
    dnnl_primitive_attr_t attr; /* attributes of the fused batch norm, or NULL */
} description;

static void free_descs(description *d)
{
    if (d->pd)
        dnnl_primitive_desc_destroy(d->pd);
    if (d->forward)
        dnnl_primitive_desc_destroy(d->forward);
    if (d->attr)
        dnnl_primitive_attr_destroy(d->attr);
    lt_md_free(&d->problem.x);
    lt_md_free(&d->problem.w);
    lt_md_free(&d->problem.b);
    lt_md_free(&d->problem.y);
    lt_md_free(&d->stored);
}

static dnnl_status_t make_operand_descs(description *d, const call *c, lt_dtype dtype,
                                        lt_dtype w_dtype)
{
    lt_conv_problem *p = &d->problem;
    /* The gradient of a weight is f32, whatever the activations are. */
    const lt_dtype own = c->kind == LT_CONV_GRAD_W ? LT_F32 : dtype;
    const dnnl_dims_t bias_dims = {c->w->shape.dim[0]}, bias_strides = {1};
    dnnl_status_t st = make_image_desc(&p->x, c->x->shape, dtype);
    if (!st)
        st = make_image_desc(&p->y, c->y->shape, dtype);
    if (!st)
        st = make_weight_desc(&p->w, c, own, NULL);
    if (!st)
        st = make_stored_weight_desc(&d->stored, c, dtype, w_dtype);
    p->has_bias = lt_cpu_has_data(c->b);
    if (!st && p->has_bias)
        st = lt_md_make(&p->b, 1, bias_dims, dnnl_f32, bias_strides);
    return st;
}

/* Creates the descriptor of the forward primitive, which oneDNN requires as a hint for gradients. It reads the weight
 * in the activations' dtype. */
static dnnl_status_t create_forward_hint_desc(description *d, lt_onednn *onednn, const call *c,
                                              lt_dtype dtype)
{
    lt_conv_problem hint = d->problem;
    dnnl_memory_desc_t w = {0};
    dnnl_status_t st = make_weight_desc(&w, c, dtype, NULL);
    hint.w = w;
    if (!st)
        st = lt_conv_describe(&d->forward, onednn->engine, LT_CONV, &hint, onednn->attr, NULL);
    lt_md_free(&w);
    return st;
}

/* Creates the descriptor of a convolution with fused epilogue; rejects oneDNN's reference implementation. */
static dnnl_status_t create_affine_primitive_desc(description *d, lt_onednn *onednn, const call *c)
{
    dnnl_status_t st = lt_attr_make(&d->attr, c->after->relu);
    if (!st)
        st = lt_conv_describe(&d->pd, onednn->engine, c->kind, &d->problem, d->attr, NULL);
    return !st && !strncmp(lt_pd_implementation_name(d->pd), "ref", 3) ? dnnl_unimplemented : st;
}

/* Creates the primitive's descriptor, and for a gradient also the forward primitive's. */
static dnnl_status_t create_primitive_desc(description *d, lt_onednn *onednn, const call *c,
                                           lt_dtype dtype, lt_dtype w_dtype)
{
    const lt_conv2d_config *g = c->config;
    lt_conv_problem *p = &d->problem;
    p->stride[0] = g->stride_h;
    p->stride[1] = g->stride_w;
    p->pad[0] = g->pad_h;
    p->pad[1] = g->pad_w;
    p->dilate[0] = g->dilation_h - 1;
    p->dilate[1] = g->dilation_w - 1;

    dnnl_status_t st = make_operand_descs(d, c, dtype, w_dtype);
    if (!st && c->kind != LT_CONV)
        st = create_forward_hint_desc(d, onednn, c, dtype);
    if (st)
        return st;
    const lt_conv_form form = get_conv_form(c);
    p->form = onednn->without_rules ? NULL : &form;
    st = c->after ? create_affine_primitive_desc(d, onednn, c)
                  : lt_conv_describe(&d->pd, onednn->engine, c->kind, p, onednn->attr, d->forward);
    p->form = NULL;
    return st;
}

/* Creates the reorder between the primitive's layout of w and ours, if they differ. */
static lt_status make_reorder(lt_onednn *onednn, lt_primitive *prim, const description *d,
                              lt_conv_kind kind, lt_md_in w)
{
    lt_md_in ours = lt_md_as_argument(&d->stored);
    LT_TRY(lt_primitive_create_memory(onednn, &prim->w_user, ours));
    if (dnnl_memory_desc_equal(w, ours))
        return LT_OK;
    const bool out = kind == LT_CONV_GRAD_W;
    dnnl_primitive_desc_t pd;
    LT_TRY(lt_dnnl_check(dnnl_reorder_primitive_desc_create(&pd, out ? w : ours, onednn->engine,
                                                            out ? ours : w, onednn->engine, NULL),
                         "reorder"));
    dnnl_status_t st = dnnl_primitive_create(&prim->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    return lt_dnnl_check(st, "reorder");
}

/* The argument of fill_primitive(). */
typedef struct request {
    const call *call;
    lt_dtype dtype, w_dtype;
} request;

static lt_status fill_primitive_from_descs(lt_onednn *onednn, lt_primitive *prim,
                                           const description *d, lt_conv_kind kind)
{
    const dnnl_query_t query =
        kind == LT_CONV_GRAD_W ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    lt_md_in w = dnnl_primitive_desc_query_md(d->pd, query, 0);
    prim->w_bytes = dnnl_memory_desc_get_size(w);
    LT_TRY(lt_primitive_create_memory(onednn, &prim->x, lt_md_as_argument(&d->problem.x)));
    LT_TRY(lt_primitive_create_memory(onednn, &prim->y, lt_md_as_argument(&d->problem.y)));
    LT_TRY(lt_primitive_create_memory(onednn, &prim->w, w));
    if (d->problem.has_bias)
        LT_TRY(lt_primitive_create_memory(onednn, &prim->b, lt_md_as_argument(&d->problem.b)));
    LT_TRY(make_reorder(onednn, prim, d, kind, w));
    LT_TRY(lt_primitive_create_scratchpad(onednn, prim, d->pd));
    prim->unverified = lt_conv_verify_is_enabled();
    snprintf(prim->implementation, sizeof prim->implementation, "%s",
             lt_pd_implementation_name(d->pd));
    return lt_dnnl_check(dnnl_primitive_create(&prim->primitive, d->pd), "convolution");
}

/* Fills a cache entry; leaves prim->primitive NULL if oneDNN has no implementation. */
static lt_status fill_primitive(lt_onednn *onednn, lt_primitive *prim, const void *problem)
{
    const request *r = problem;
    description d = {0};
    lt_status st = LT_OK;
    if (!create_primitive_desc(&d, onednn, r->call, r->dtype, r->w_dtype))
        st = fill_primitive_from_descs(onednn, prim, &d, r->call->kind);
    free_descs(&d);
    return st;
}

/* Points prim->w to w, prepacked if the layouts differ. oneDNN 2.x writes a memory's padding when its handle is set, so
 * a packed memory must never get an unpacked address: with 8 channels it would write past the end. */
static lt_status set_weight(lt_cpu *cpu, lt_primitive *prim, const call *c, void *w)
{
    if (prim->reorder)
        return lt_prepack_weight(cpu, prim, w, w == c->w->data ? c->w->version : 0);
    return lt_dnnl_check(dnnl_memory_set_data_handle(prim->w, w), "handle");
}

/* Reads the weight in w_dtype. If the primitive computes in f32 instead of the activations' dtype, the weight is
 * rounded here; otherwise the reorder rounds. */
static lt_status read_weight(lt_cpu *cpu, const call *c, lt_dtype dtype, lt_dtype w_dtype, void **w)
{
    lt_view read = *c->w;
    *w = read.data;
    if (reads_cropped_weight_in_place(c, dtype, w_dtype))
        return LT_OK;
    if (c->x->dtype != dtype)
        LT_TRY(lt_cpu_round_weight(cpu, c->x->dtype, &read));
    return lt_cpu_get_input(cpu, LT_CPU_COPY_W, &read, w_dtype, w);
}

static lt_view coef_row(const lt_view *coef, int row)
{
    const int64_t channels = coef->shape.dim[1];
    return lt_cpu_dense_view((float *)coef->data + row * channels, LT_F32, LT_SHAPE(channels));
}

static lt_status prepare_weight(lt_cpu *cpu, lt_primitive *prim, const call *c, lt_dtype dtype,
                                lt_dtype w_dtype)
{
    void *w;
    const lt_view scale = c->after ? coef_row(c->after->coef, SCALE) : (lt_view){0};
    if (c->after)
        return lt_prepack_scaled_weight(cpu, prim, c->w, &scale);
    LT_TRY(read_weight(cpu, c, dtype, w_dtype, &w));
    return set_weight(cpu, prim, c, w);
}

static lt_status run_forward(lt_cpu *cpu, lt_primitive *prim, const call *c, lt_dtype dtype,
                             lt_dtype w_dtype)
{
    void *x, *b = NULL, *y;
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_X, c->x, dtype, &x));
    LT_TRY(lt_cpu_get_output(cpu, LT_CPU_COPY_Y, c->y, dtype, &y));
    if (lt_cpu_has_data(c->b)) {
        LT_TRY(lt_cpu_get_input(cpu, LT_CPU_BIAS, c->b, LT_F32, &b));
        dnnl_memory_set_data_handle(prim->b, b);
    }
    dnnl_memory_set_data_handle(prim->x, x);
    dnnl_memory_set_data_handle(prim->y, y);
    LT_TRY(prepare_weight(cpu, prim, c, dtype, w_dtype));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, prim->x},
                                    {DNNL_ARG_WEIGHTS, prim->w},
                                    {DNNL_ARG_DST, prim->y},
                                    {DNNL_ARG_BIAS, prim->b}};
    LT_TRY(lt_primitive_run(cpu, prim, args, b ? 4 : 3));
    return lt_cpu_copy_back(cpu, c->y, dtype, y);
}

static lt_status run_grad_x(lt_cpu *cpu, lt_primitive *prim, const call *c, lt_dtype dtype,
                            lt_dtype w_dtype)
{
    void *dx, *w, *dy;
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_Y, c->y, dtype, &dy));
    LT_TRY(read_weight(cpu, c, dtype, w_dtype, &w));
    LT_TRY(lt_cpu_get_output(cpu, LT_CPU_COPY_X, c->x, dtype, &dx));
    dnnl_memory_set_data_handle(prim->x, dx);
    dnnl_memory_set_data_handle(prim->y, dy);
    LT_TRY(set_weight(cpu, prim, c, w));
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_DIFF_DST, prim->y}, {DNNL_ARG_WEIGHTS, prim->w}, {DNNL_ARG_DIFF_SRC, prim->x}};
    LT_TRY(lt_primitive_run(cpu, prim, args, 3));
    return lt_cpu_copy_back(cpu, c->x, dtype, dx);
}

static lt_status run_grad_w(lt_cpu *cpu, lt_primitive *prim, const call *c, lt_dtype dtype)
{
    void *x, *dw, *dy;
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_Y, c->y, dtype, &dy));
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_X, c->x, dtype, &x));
    const bool in_place = reads_cropped_weight_in_place(c, dtype, LT_F32);
    dw = c->w->data;
    if (!in_place)
        LT_TRY(lt_cpu_get_output(cpu, LT_CPU_COPY_W, c->w, LT_F32, &dw));
    void *own = prim->reorder ? lt_cpu_scratch(cpu, LT_CPU_PREPACKED, prim->w_bytes) : dw;
    if (!own)
        return LT_E_NOMEM;
    dnnl_memory_set_data_handle(prim->x, x);
    dnnl_memory_set_data_handle(prim->y, dy);
    dnnl_memory_set_data_handle(prim->w, own);
    dnnl_memory_set_data_handle(prim->w_user, dw);
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_DIFF_DST, prim->y}, {DNNL_ARG_SRC, prim->x}, {DNNL_ARG_DIFF_WEIGHTS, prim->w}};
    LT_TRY(lt_primitive_run(cpu, prim, args, 3));
    if (prim->reorder) {
        const dnnl_exec_arg_t move[] = {{DNNL_ARG_FROM, prim->w}, {DNNL_ARG_TO, prim->w_user}};
        dnnl_stream_t stream = cpu->onednn->stream;
        LT_TRY(lt_dnnl_check(dnnl_primitive_execute(prim->reorder, stream, 2, move), "reorder"));
        LT_TRY(lt_dnnl_check(dnnl_stream_wait(stream), "reorder"));
    }
    return in_place ? LT_OK : lt_cpu_copy_back(cpu, c->w, LT_F32, dw);
}

static lt_status verify_result(lt_primitive *prim, const call *c)
{
    const lt_conv_form form = get_conv_form(c);
    const lt_conv_ran ran = {&form, prim->implementation, c->x, c->w, c->b, c->y};
    LT_TRY(lt_conv_verify(&ran));
    prim->unverified = false;
    return LT_OK;
}

/* Runs oneDNN's primitive, which computes in dtype. *done is false if it has no correct one for this CPU. */
static lt_status run_onednn(lt_cpu *cpu, const call *c, lt_dtype dtype, bool *done)
{
    if (!lt_cpu_is_fast_dtype(dtype))
        return LT_OK;
    /* A bf16 weight is read directly only if the primitive computes in bf16. */
    lt_dtype w_dtype = c->w->dtype == LT_BF16 && dtype == LT_BF16 ? LT_BF16 : LT_F32;
    lt_primitive *prim;
    int64_t key[LT_PRIMITIVE_KEY];
    make_key(c, dtype, w_dtype, key);
    LT_TRY(lt_primitive_find_or_create(cpu->onednn, key, fill_primitive,
                                       &(request){c, dtype, w_dtype}, &prim));
    if (!prim->primitive)
        return LT_OK;
    *done = true;
    cpu->last_conv = prim->implementation;
    if (c->kind == LT_CONV)
        LT_TRY(run_forward(cpu, prim, c, dtype, w_dtype));
    else if (c->kind == LT_CONV_GRAD_X)
        LT_TRY(run_grad_x(cpu, prim, c, dtype, w_dtype));
    else
        LT_TRY(run_grad_w(cpu, prim, c, dtype));
    return prim->unverified ? verify_result(prim, c) : LT_OK;
}

/* Runs without the taps that only see padding, whose gradients are zeros. */
static lt_status run_cropped(lt_cpu *cpu, const call *c, lt_dtype dtype, bool *done)
{
    const lt_conv_form form = get_conv_form(c);
    lt_conv_cropped part;
    if (cpu->onednn->without_rules || !lt_conv_crop(&form, c->w, &part))
        return run_onednn(cpu, c, dtype, done);
    call used = *c;
    used.config = &part.config;
    used.w = &part.w;
    used.cropped = true;
    if (c->kind == LT_CONV_GRAD_W)
        memset(c->w->data, 0, (size_t)lt_cpu_element_count(c->w) * lt_dtype_size(c->w->dtype));
    return run_onednn(cpu, &used, dtype, done);
}

lt_status lt_onednn_conv(lt_cpu *cpu, const lt_conv_call *c, lt_dtype dtype, bool *done)
{
    const call all = {c->kind, c->config, c->x, c->w, c->b, c->y, false, NULL};
    *done = false;
    return cpu->onednn ? run_cropped(cpu, &all, dtype, done) : LT_OK;
}

/* Returns true if oneDNN fuses this batch norm. Not with LATHER_VERIFY, which checks plain convolutions, nor with a
 * residual, which would have to be copied to y and which oneDNN 2.6 adds slowly. */
static bool supports_affine(const call *c)
{
    const lt_conv_epilogue *after = c->after;
    return !after->residual && !lt_conv_verify_is_enabled() && lt_cpu_is_fast_dtype(c->x->dtype)
           && c->y->dtype == c->x->dtype && c->w->dtype == LT_F32 && after->coef->dtype == LT_F32;
}

lt_status lt_cpu_onednn_affine(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, lt_conv_epilogue *after, const lt_view *y)
{
    const lt_view shift = coef_row(after->coef, SHIFT);
    const call c = {LT_CONV, config, x, w, &shift, y, false, after};
    after->done = false;
    if (!((lt_cpu *)ctx)->onednn || !supports_affine(&c))
        return LT_OK;
    LT_TRY(run_cropped(ctx, &c, x->dtype, &after->done));
    if (after->done)
        LT_CPU_COUNT_TRAFFIC(x, w, y);
    return LT_OK;
}
