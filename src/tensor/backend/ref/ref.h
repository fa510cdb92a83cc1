/* Kernels of the reference backend, and their helpers. A kernel gathers its inputs from views of any strides
 * and dtype into row-major arrays, computes with plain loops, and scatters the result: only array.c handles
 * strides and 16-bit types. */
#ifndef LT_REF_REF_H
#define LT_REF_REF_H

#include "base/alloc.h"

#include "lather/detail/backend.h"

/* Returns the number of elements. */
static inline int64_t lt_ref_element_count(const lt_view *view)
{
    int64_t count = 1;
    for (int d = 0; d < view->shape.ndim; d++)
        count *= view->shape.dim[d];
    return count;
}

/* Returns true if an optional view is present. */
static inline bool lt_ref_has_data(const lt_view *view)
{
    return view && view->data;
}

/* Load and store elements first .. first + count - 1 in row-major order; rounding as in scatter. */
void lt_ref_load_f32(const lt_view *view, int64_t first, int64_t count, float *values);
void lt_ref_load_f64(const lt_view *view, int64_t first, int64_t count, double *values);
void lt_ref_store_f32(const lt_view *view, int64_t first, int64_t count, const float *values);
void lt_ref_store_f64(const lt_view *view, int64_t first, int64_t count, const double *values);

/* Arrays of one call of a kernel, freed together, and its status; initialise with {0}. */
typedef struct lt_ref_call {
    struct lt_ref_memory *last;
    lt_status status;
} lt_ref_call;

/* Returns a zeroed array, or NULL with call->status LT_E_NOMEM. */
void *lt_ref_array(lt_ref_call *call, int64_t count, size_t size);
/* Frees the arrays. Returns call->status. */
LT_MUST_CHECK lt_status lt_ref_finish(lt_ref_call *call);

/* Return the elements as a row-major array; NULL if the view is absent, or as lt_ref_array(). */
float *lt_ref_gather_f32(lt_ref_call *call, const lt_view *view);
double *lt_ref_gather_f64(lt_ref_call *call, const lt_view *view);
/* Set all elements from a row-major array, rounded to nearest even. Integers: towards zero, saturating, NaN
 * to 0. */
void lt_ref_scatter_f32(const float *values, const lt_view *view);
void lt_ref_scatter_f64(const double *values, const lt_view *view);

/* Gather with rounding to dtype if that has 16 bits: a weight as a 16-bit pass reads it. */
float *lt_ref_gather_rounded_f32(lt_ref_call *call, const lt_view *view, lt_dtype dtype);
double *lt_ref_gather_rounded_f64(lt_ref_call *call, const lt_view *view, lt_dtype dtype);

/* Gather dy[0] + dy[1], or dy[0] if there is only one addend. */
float *lt_ref_gather_pair_f32(lt_ref_call *call, const lt_view dy[2]);
double *lt_ref_gather_pair_f64(lt_ref_call *call, const lt_view dy[2]);

/* All basic kernels. Those in files that include real.h have a second build for f64 data; the others compute
 * in double and round on store. */
#define LT_REF_BASIC(name) lt_##name##_fn lt_ref_##name, lt_ref_##name##_f64;
#define LT_REF_HOST(name)  LT_REF_BASIC(name)
#define LT_REF_FUSED(name)
#define LT_REF_ENTRY(name, kind, cpu) LT_REF_##kind(name)
LT_BACKEND_ENTRIES(LT_REF_ENTRY)

#endif
