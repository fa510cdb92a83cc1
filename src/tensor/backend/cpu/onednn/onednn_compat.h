/* oneDNN's C API, versions 2.6 and 3.x. All differences are in this file and onednn_compat.c; the rest of the backend
 * uses only calls that both have. */
#ifndef LT_BACKEND_CPU_ONEDNN_COMPAT_H
#define LT_BACKEND_CPU_ONEDNN_COMPAT_H

#include "conv_rules.h"
#include "tensor/backend/cpu/isa.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

/* A memory descriptor as input argument: a pointer to a struct (2.x), a handle (3.x). */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t lt_md_in;
#else
typedef const dnnl_memory_desc_t *lt_md_in;
#endif

/* Makes a memory descriptor; strides NULL: the primitive chooses the layout. */
dnnl_status_t lt_md_make(dnnl_memory_desc_t *out, int ndim, const dnnl_dims_t dims,
                         dnnl_data_type_t dtype, const dnnl_dim_t *strides);
void lt_md_free(dnnl_memory_desc_t *md);
lt_md_in lt_md_as_argument(const dnnl_memory_desc_t *md);

/* Arguments of a convolution primitive; dilate counts from 0 as in oneDNN. */
typedef struct lt_conv_problem {
    dnnl_memory_desc_t x, w, b, y;
    bool has_bias;
    dnnl_dims_t stride, dilate, pad;
    const lt_conv_form *form; /* form to check against the rules; NULL: not checked */
} lt_conv_problem;

/* Finds the first implementation that no rule forbids. hint: forward primitive's descriptor, for gradients. */
dnnl_status_t lt_conv_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine, lt_conv_kind kind,
                               const lt_conv_problem *problem, const_dnnl_primitive_attr_t attr,
                               const_dnnl_primitive_desc_t hint);
/* Creates attributes with a caller-provided scratchpad, and optionally relu on the result. */
dnnl_status_t lt_attr_make(dnnl_primitive_attr_t *out, bool relu);
/* Makes the descriptor of a matrix product y = a * b, plus bias if that is not NULL. */
dnnl_status_t lt_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const dnnl_memory_desc_t mds[3], const dnnl_memory_desc_t *bias,
                                 const_dnnl_primitive_attr_t attr);

/* Returns the implementation's name; valid until pd is destroyed. */
const char *lt_pd_implementation_name(const_dnnl_primitive_desc_t pd);

/* Limits oneDNN to this instruction set. Effective only before its first primitive. */
void lt_dnnl_limit_isa(lt_cpu_isa isa);

#endif
