/* Differences between oneDNN 2.6 and 3.x: memory descriptors became handles, operation descriptors were removed. oneDNN
 * developer guide, "Transition from v2.x to v3.x". */

#include "onednn_compat.h"

#if DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP && DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ
#error "oneDNN: this build does not use OpenMP threads; install one that does (gomp)"
#endif

const char *lt_pd_implementation_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) || !name ? "" : name;
}

static bool is_forbidden(const_dnnl_primitive_desc_t pd, const lt_conv_form *form)
{
    const dnnl_version_t *v = dnnl_version();
    return form
           && lt_conv_find_forbidding_rule(lt_dnnl_version_number(v->major, v->minor),
                                           lt_pd_implementation_name(pd), form);
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t lt_md_make(dnnl_memory_desc_t *out, int ndim, const dnnl_dims_t dims,
                         dnnl_data_type_t dtype, const dnnl_dim_t *strides)
{
    if (!strides)
        return dnnl_memory_desc_create_with_tag(out, ndim, dims, dtype, dnnl_format_tag_any);
    return dnnl_memory_desc_create_with_strides(out, ndim, dims, dtype, strides);
}

void lt_md_free(dnnl_memory_desc_t *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
}

lt_md_in lt_md_as_argument(const dnnl_memory_desc_t *md)
{
    return *md;
}

static dnnl_status_t create_first_primitive_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                                 lt_conv_kind kind, const lt_conv_problem *p,
                                                 const_dnnl_primitive_attr_t attr,
                                                 const_dnnl_primitive_desc_t hint)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_memory_desc_t bias = p->has_bias ? p->b : NULL;
    if (kind == LT_CONV)
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, dnnl_forward_training, alg, p->x, p->w, bias, p->y, p->stride, p->dilate,
            p->pad, p->pad, attr);
    if (kind == LT_CONV_GRAD_X)
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, alg, p->x, p->w, p->y, p->stride, p->dilate, p->pad, p->pad, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, engine, alg, p->x, p->w, NULL, p->y, p->stride, p->dilate, p->pad, p->pad, hint, attr);
}

dnnl_status_t lt_conv_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine, lt_conv_kind kind,
                               const lt_conv_problem *p, const_dnnl_primitive_attr_t attr,
                               const_dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t st = create_first_primitive_desc(&pd, engine, kind, p, attr, hint);
    if (st)
        return st;
    while (!st && is_forbidden(pd, p->form))
        st = dnnl_primitive_desc_next_impl(pd);
    if (st)
        dnnl_primitive_desc_destroy(pd);
    else
        *out = pd;
    return st;
}

dnnl_status_t lt_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const dnnl_memory_desc_t mds[3], const dnnl_memory_desc_t *bias,
                                 const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, mds[0], mds[1], bias ? *bias : NULL,
                                             mds[2], attr);
}

#else

dnnl_status_t lt_md_make(dnnl_memory_desc_t *out, int ndim, const dnnl_dims_t dims,
                         dnnl_data_type_t dtype, const dnnl_dim_t *strides)
{
    if (!strides)
        return dnnl_memory_desc_init_by_tag(out, ndim, dims, dtype, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(out, ndim, dims, dtype, strides);
}

void lt_md_free(dnnl_memory_desc_t *md)
{
    (void)md;
}

lt_md_in lt_md_as_argument(const dnnl_memory_desc_t *md)
{
    return md;
}

static dnnl_status_t find_first_allowed(dnnl_primitive_desc_t *out,
                                        dnnl_primitive_desc_iterator_t it, const lt_conv_form *form)
{
    dnnl_status_t st = dnnl_success;
    while (!st) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        if (!pd)
            return dnnl_out_of_memory;
        if (!is_forbidden(pd, form)) {
            *out = pd;
            return dnnl_success;
        }
        dnnl_primitive_desc_destroy(pd);
        st = dnnl_primitive_desc_iterator_next(it);
    }
    return st;
}

dnnl_status_t lt_conv_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine, lt_conv_kind kind,
                               const lt_conv_problem *p, const_dnnl_primitive_attr_t attr,
                               const_dnnl_primitive_desc_t hint)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_iterator_t it;
    dnnl_status_t st;
    if (kind == LT_CONV)
        st = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, alg, &p->x,
                                                        &p->w, p->has_bias ? &p->b : NULL, &p->y,
                                                        p->stride, p->dilate, p->pad, p->pad);
    else if (kind == LT_CONV_GRAD_X)
        st = dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, &p->x, &p->w, &p->y,
                                                              p->stride, p->dilate, p->pad, p->pad);
    else
        st = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, alg, &p->x, &p->w, NULL, &p->y, p->stride, p->dilate, p->pad, p->pad);
    if (!st)
        st = dnnl_primitive_desc_iterator_create(&it, &desc, attr, engine, hint);
    if (st)
        return st;
    st = find_first_allowed(out, it, p->form);
    dnnl_primitive_desc_iterator_destroy(it);
    return st;
}

dnnl_status_t lt_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const dnnl_memory_desc_t mds[3], const dnnl_memory_desc_t *bias,
                                 const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t st = dnnl_matmul_desc_init(&desc, &mds[0], &mds[1], bias, &mds[2]);
    return st ? st : dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
}

#endif

/* Appends relu as leaky relu: oneDNN's plain relu turns NaN into 0, which would hide divergence. The slope is below any
 * rounding. */
static dnnl_status_t append_relu(dnnl_post_ops_t ops)
{
    const float slope = 0x1p-100F;
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, slope, 0);
#else
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, slope, 0);
#endif
}

dnnl_status_t lt_attr_make(dnnl_primitive_attr_t *out, bool relu)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(&attr);
    if (!st)
        st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!st)
        st = dnnl_post_ops_create(&ops);
    if (!st && relu)
        st = append_relu(ops);
    if (!st)
        st = dnnl_primitive_attr_set_post_ops(attr, ops); /* copies them */
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (st && attr)
        dnnl_primitive_attr_destroy(attr);
    if (!st)
        *out = attr;
    return st;
}

void lt_dnnl_limit_isa(lt_cpu_isa isa)
{
    if (isa == LT_ISA_GENERIC)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    else if (isa == LT_ISA_AVX2)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    else if (isa == LT_ISA_AVX512)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
    else if (isa == LT_ISA_AVX512_BF16)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}
