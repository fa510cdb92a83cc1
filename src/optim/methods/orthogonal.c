/* Orthogonal factors of matrices by Newton-Schulz iteration, Bernstein & Newhouse, "Old optimizer, new
 * norm", 2024, with Jordan's quintic polynomial, which is steepest at 0 and leaves singular values
 * between 0.7 and 1.2, or with the polynomials of Amsel et al., "The Polar Express", 2025 (arXiv
 * 2505.16932), a different one in each step. A batch has one job per matrix in each kernel:
 *
 *   X = X / |X|
 *   A = X X^T,  B = b A + c A A + a I,  X = B X      repeated, on the smaller dimension
 *
 * |X| has 1e-16 added where Jordan has 1e-7, as gradients may be small. Products are of the master dtype, or of bf16
 * (orthogonal_bf16.c). */

#include "orthogonal.h"

#include "base/alloc.h"
#include "optim/slots.h"
#include "orthogonal_svd.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>

enum { USUAL_ITERATIONS = 5, EXPRESS = 8 };
static const double usual[3] = {3.4445, -4.7750, 2.0315}; /* Jordan's */
/* Safety factor of |X|, and of all polynomials but the last: algorithm 1 of Amsel et al. */
static const double safety = 1.01;
static const double express[EXPRESS][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
    {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
    {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
    {1.875, -1.25, 0.375},
};

int lt_orthogonal_iterations(const lt_orthogonalization *how)
{
    return how->iterations ? how->iterations : USUAL_ITERATIONS;
}

bool lt_orthogonal_result_is_in_y(const lt_orthogonalization *how)
{
    return how->method != LT_ORTHOGONAL_SVD && !how->bf16 && lt_orthogonal_iterations(how) % 2;
}

static bool has_custom_coefficients(const lt_orthogonalization *how)
{
    return fabs(how->coefficients[0]) + fabs(how->coefficients[1]) + fabs(how->coefficients[2]) > 0;
}

/* Computes the coefficients a, b, c of the polynomial in iteration i. */
static void coefficients_of(const lt_orthogonalization *how, int i, double c[3])
{
    const bool is_express = how->method == LT_ORTHOGONAL_POLAR_EXPRESS;
    const int at = i < EXPRESS - 1 ? i : EXPRESS - 1;
    const double by = is_express && at < EXPRESS - 1 ? safety : 1;
    const double *from = is_express                     ? express[at]
                         : has_custom_coefficients(how) ? how->coefficients
                                                        : usual;
    c[0] = from[0] / by;
    c[1] = from[1] / (by * by * by);
    c[2] = from[2] / (by * by * by * by * by);
}

/* --- Memory --- */

/* Writes the norms of count views to o->norms from index `to` on. */
static lt_status measure_norms(lt_orthogonal *o, const lt_optim *optim, size_t count, size_t to)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    lt_view out = lt_tensor_view(o->norms);
    out.data = (double *)out.data + to;
    out.shape = LT_SHAPE((int64_t)count);
    out.stride[0] = 1;
    return be->frobenius(ctx, o->view, count, &out);
}

lt_status lt_orthogonal_open(lt_orthogonal *o, const lt_optim *optim,
                             const lt_orthogonalization *how, size_t matrices, int64_t elements,
                             int64_t squares)
{
    lt_device *device = optim->device;
    const lt_dtype master = lt_device_master_dtype(device);
    lt_orthogonal_close(o); /* frees allocations of a failed attempt */
    o->most = matrices;
    LT_TRY(LT_ALLOC(&o->vec, matrices));
    LT_TRY(LT_ALLOC(&o->gram, matrices));
    LT_TRY(LT_ALLOC(&o->product, matrices));
    LT_TRY(LT_ALLOC(&o->view, matrices));
    LT_TRY(LT_ALLOC(&o->at, matrices));
    LT_TRY(lt_tensor_new(&o->a, device, master, LT_SHAPE(squares)));
    LT_TRY(lt_tensor_new(&o->b, device, master, LT_SHAPE(squares)));
    LT_TRY(lt_tensor_new(&o->one, device, master, LT_SHAPE(1)));
    LT_TRY(lt_tensor_fill(o->one, 1));
    LT_TRY(lt_tensor_new(&o->norms, device, LT_F64, LT_SHAPE((int64_t)matrices + 1)));
    if (how->bf16)
        LT_TRY(lt_orthogonal_bf16_open(&o->bf16, device, matrices, elements, squares));
    o->view[0] = lt_tensor_view(o->one);
    return measure_norms(o, optim, 1, matrices);
}

void lt_orthogonal_close(lt_orthogonal *o)
{
    lt_orthogonal_bf16_close(&o->bf16);
    lt_tensor_free(&o->a);
    lt_tensor_free(&o->b);
    lt_tensor_free(&o->norms);
    lt_tensor_free(&o->one);
    lt_free(o->at);
    lt_free(o->view);
    lt_free(o->product);
    lt_free(o->gram);
    lt_free(o->vec);
    *o = (lt_orthogonal){0};
}

/* --- Batched kernels --- */

static int64_t smaller_dim_size(const lt_orthogonal_job *job)
{
    return job->x.shape.dim[job->dim];
}

static lt_view square_matrix_view(const lt_orthogonal *o, const lt_tensor *from,
                                  const lt_orthogonal_job *job, size_t i)
{
    lt_view v = lt_tensor_view(from);
    v.data = (char *)v.data + (size_t)o->at[i] * lt_dtype_size(v.dtype);
    v.version = 0;
    v.shape = LT_SHAPE(smaller_dim_size(&job[i]), smaller_dim_size(&job[i]));
    v.stride[0] = smaller_dim_size(&job[i]);
    v.stride[1] = 1;
    return v;
}

static const double *norm_at(const lt_orthogonal *o, size_t i)
{
    return (const double *)lt_tensor_view(o->norms).data + i;
}

/* X = X / (|X| * margin) */
static lt_status divide_by_norms(lt_orthogonal *o, const lt_optim *optim, double margin,
                                 const lt_orthogonal_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++)
        o->view[i] = job[i].x;
    LT_TRY(measure_norms(o, optim, count, 0));
    for (size_t i = 0; i < count; i++)
        o->vec[i] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = 1 / margin,
            .factor = {.over = norm_at(o, o->most), .under = norm_at(o, i)},
            .a = job[i].x,
            .y = job[i].x,
        };
    return lt_optim_run_vec_jobs(optim, o->vec, count);
}

/* A = X X^T or X^T X; with of_square: B = b B + c A A. */
static lt_status compute_gram_matrices(lt_orthogonal *o, const lt_optim *optim,
                                       const double *of_square, const lt_orthogonal_job *job,
                                       size_t count)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    for (size_t i = 0; i < count; i++)
        o->gram[i] = (lt_gram_job){
            .g = of_square ? square_matrix_view(o, o->a, job, i) : job[i].x,
            .f = square_matrix_view(o, of_square ? o->b : o->a, job, i),
            .dim = of_square ? 0 : job[i].dim,
            .alpha = of_square ? of_square[2] : 1,
            .beta = of_square ? of_square[1] : 0,
        };
    return be->gram(ctx, o->gram, count, optim->scalars);
}

/* B = alpha A + beta B */
static lt_status add_gram_matrices(lt_orthogonal *o, const lt_optim *optim, double alpha,
                                   double beta, const lt_orthogonal_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++)
        o->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                 .alpha = alpha,
                                 .beta = beta,
                                 .a = square_matrix_view(o, o->a, job, i),
                                 .y = square_matrix_view(o, o->b, job, i)};
    return lt_optim_run_vec_jobs(optim, o->vec, count);
}

/* B += a I */
static lt_status add_identity(lt_orthogonal *o, const lt_optim *optim, double a,
                              const lt_orthogonal_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_vec_job *v = &o->vec[i];
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = a, .beta = 1};
        v->a = lt_tensor_view(o->one);
        v->y = square_matrix_view(o, o->b, job, i);
        v->y.stride[0] = smaller_dim_size(&job[i]) + 1;
        v->y.shape = v->a.shape = LT_SHAPE(smaller_dim_size(&job[i]));
        v->a.stride[0] = 0;
    }
    return lt_optim_run_vec_jobs(optim, o->vec, count);
}

/* Y = B X, or X B; swaps X and Y. */
static lt_status multiply_and_swap(lt_orthogonal *o, const lt_optim *optim, lt_orthogonal_job *job,
                                   size_t count)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    for (size_t i = 0; i < count; i++) {
        const lt_view x = job[i].x;
        o->product[i] = (lt_mode_product_job){
            .g = x, .y = job[i].y, .m = square_matrix_view(o, o->b, job, i), .dim = job[i].dim};
        job[i].x = job[i].y;
        job[i].y = x;
    }
    return be->mode_product(ctx, o->product, count, optim->scalars);
}

static lt_status iterate(lt_orthogonal *o, const lt_optim *optim, const double c[3],
                         lt_orthogonal_job *job, size_t count)
{
    LT_TRY(compute_gram_matrices(o, optim, NULL, job, count));
    LT_TRY(add_gram_matrices(o, optim, 1, 0, job, count));
    LT_TRY(compute_gram_matrices(o, optim, c, job, count));
    LT_TRY(add_identity(o, optim, c[0], job, count));
    return multiply_and_swap(o, optim, job, count);
}

static lt_status iterate_in_bf16(lt_orthogonal *o, const lt_optim *optim, const double c[3],
                                 const lt_orthogonal_job *job, size_t count)
{
    LT_TRY(lt_orthogonal_bf16_square(&o->bf16, optim, o->a, o->b, count));
    LT_TRY(add_gram_matrices(o, optim, c[1], c[2], job, count));
    LT_TRY(add_identity(o, optim, c[0], job, count));
    return lt_orthogonal_bf16_multiply(&o->bf16, optim, o->b, count);
}

static lt_status run_newton_schulz(lt_orthogonal *o, const lt_optim *optim,
                                   const lt_orthogonalization *how, lt_orthogonal_job *job,
                                   size_t count)
{
    double c[3];
    const double margin = how->method == LT_ORTHOGONAL_POLAR_EXPRESS ? safety : 1;
    LT_TRY(divide_by_norms(o, optim, margin, job, count));
    if (how->bf16)
        LT_TRY(lt_orthogonal_bf16_load(&o->bf16, optim, job, count));
    for (int i = 0; i < lt_orthogonal_iterations(how); i++) {
        coefficients_of(how, i, c);
        LT_TRY(how->bf16 ? iterate_in_bf16(o, optim, c, job, count)
                         : iterate(o, optim, c, job, count));
    }
    return how->bf16 ? lt_orthogonal_bf16_store(&o->bf16, optim, job, count) : LT_OK;
}

/* --- SVD on the host --- */

/* Returns the offset in x of element i of the row-major matrix whose rows are the job's dimension. */
static int64_t offset_of(const lt_orthogonal_job *job, int64_t cols, int64_t i)
{
    const lt_view *x = &job->x;
    int64_t at = i / cols * x->stride[job->dim], rest = i % cols;
    for (int d = x->shape.ndim - 1; d >= 0; d--) {
        if (d == job->dim)
            continue;
        at += rest % x->shape.dim[d] * x->stride[d];
        rest /= x->shape.dim[d];
    }
    return at;
}

static double element_of(const lt_orthogonal_job *job, const void *host, int64_t at)
{
    return job->x.dtype == LT_F64 ? ((const double *)host)[at] : (double)((const float *)host)[at];
}

static lt_status orthogonalize_on_host(const lt_orthogonal_job *job, bool scales, void *host,
                                       double *matrix, int64_t count)
{
    const int64_t rows = smaller_dim_size(job), cols = count / rows;
    const bool wide = job->x.dtype == LT_F64;
    double nuclear_norm = 0; /* the inner product of X and its orthogonal factor */
    for (int64_t i = 0; i < count; i++)
        matrix[i] = element_of(job, host, offset_of(job, cols, i));
    LT_TRY(lt_orthogonal_svd(matrix, rows, cols));
    for (int64_t i = 0; i < count && scales; i++)
        nuclear_norm += matrix[i] * element_of(job, host, offset_of(job, cols, i));
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = offset_of(job, cols, i);
        const double value = matrix[i] * (scales ? nuclear_norm : 1);
        if (wide)
            ((double *)host)[at] = value;
        else
            ((float *)host)[at] = (float)value;
    }
    return LT_OK;
}

/* Replaces x, whose memory is dense, by its exact orthogonal factor; scales: times x's nuclear norm. */
static lt_status orthogonalize_by_svd(const lt_optim *optim, const lt_orthogonal_job *job,
                                      bool scales)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    const int64_t count = lt_shape_count(job->x.shape);
    const size_t bytes = (size_t)count * lt_dtype_size(job->x.dtype);
    void *host = lt_alloc(bytes, 1);
    double *matrix = lt_alloc((size_t)count, sizeof *matrix);
    lt_status st = host && matrix ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = be->copy(ctx, host, job->x.data, bytes, LT_COPY_OUT);
    if (!st)
        st = be->sync(ctx);
    if (!st)
        st = orthogonalize_on_host(job, scales, host, matrix, count);
    if (!st)
        st = be->copy(ctx, job->x.data, host, bytes, LT_COPY_IN);
    if (!st)
        st = be->sync(ctx);
    lt_free(matrix);
    lt_free(host);
    return st;
}

lt_status lt_orthogonal_run(lt_orthogonal *o, const lt_optim *optim,
                            const lt_orthogonalization *how, lt_orthogonal_job *job, size_t count)
{
    int64_t at = 0;
    LT_ASSERT(count <= o->most);
    for (size_t i = 0; i < count && how->method == LT_ORTHOGONAL_SVD; i++)
        LT_TRY(orthogonalize_by_svd(optim, &job[i], how->scale_by_nuclear_norm));
    if (!count || how->method == LT_ORTHOGONAL_SVD)
        return LT_OK;
    for (size_t i = 0; i < count; i++) {
        o->at[i] = at;
        at += smaller_dim_size(&job[i]) * smaller_dim_size(&job[i]);
    }
    return run_newton_schulz(o, optim, how, job, count);
}

/* --- Parsing of coefficients --- */

lt_status lt_orthogonal_set_coeffs(lt_orthogonalization *how, const char *text)
{
    double c[3];
    char rest;
    /* NOLINTNEXTLINE(cert-err34-c): a number out of range is infinite */
    if (sscanf(text, "%lf,%lf,%lf%c", &c[0], &c[1], &c[2], &rest) != 3)
        return lt_fail(LT_E_ARG, "--newton-schulz-coefficients: '%s' is not A,B,C", text);
    for (int i = 0; i < 3; i++)
        how->coefficients[i] = c[i];
    return LT_OK;
}

lt_status lt_orthogonal_read_coeffs(lt_orthogonalization *how, const lt_json_value *v)
{
    int count = 0;
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    for (const lt_json_value *m = v->type == LT_JSON_ARRAY ? v->child : NULL; m; m = m->next)
        if (m->type == LT_JSON_NUMBER && count++ < 3)
            how->coefficients[count - 1] = m->number;
    return v->type == LT_JSON_ARRAY && count == 3 && v->count == 3
               ? LT_OK
               : lt_fail(LT_E_ARG, "optimizer config: %s must be [a, b, c]", v->key);
}
