/* Matrix functions for optimizers outside of the library: checks of shapes, and the kernels and root solvers that
 * Shampoo uses. A factor [k,b,b] is block-diagonal: each function makes one job per block. */

#include "lather/ext/matrix.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/roots.h"

#include <math.h>

/* --- Factors and their blocks --- */

static int64_t block_size(const lt_tensor *factor)
{
    return factor->shape.ndim ? factor->shape.dim[factor->shape.ndim - 1] : 0;
}

static int64_t count_blocks(const lt_tensor *factor)
{
    return factor->shape.ndim == 3 ? factor->shape.dim[0] : 1;
}

static lt_view view_from(const lt_tensor *x, int64_t element)
{
    lt_view v = lt_tensor_view(x);
    v.data = (char *)v.data + (size_t)element * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

/* Returns the block of rows from `at` on, of a factor of n rows. */
static lt_view block_at(const lt_tensor *factor, int64_t n, int64_t at)
{
    const int64_t b = block_size(factor), rows = n - at < b ? n - at : b;
    lt_view v = view_from(factor, at * b);
    v.shape = LT_SHAPE(rows, rows);
    v.stride[0] = rows;
    v.stride[1] = 1;
    return v;
}

/* Returns the slices of x along dim from `at` on, as many as the block has rows. */
static lt_view slices_at(const lt_tensor *x, int dim, int64_t at, const lt_view *block)
{
    lt_view v = view_from(x, at * x->stride[dim]);
    v.shape.dim[dim] = block->shape.dim[0];
    return v;
}

/* --- Checks --- */

static lt_status check(const char *what, bool has_kernel, const lt_tensor *x, const lt_tensor *y)
{
    const lt_dtype dtype = lt_device_master_dtype(x->device);
    if (x->device != y->device || x->dtype != y->dtype || x->dtype != dtype)
        return lt_fail(LT_E_ARG, "%s: tensors of %s and %s: both must be %s, on one device", what,
                       lt_dtype_name(x->dtype), lt_dtype_name(y->dtype), lt_dtype_name(dtype));
    return has_kernel ? LT_OK
                      : lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel", what,
                                x->device->backend->name);
}

static bool is_factor_of(const lt_tensor *f, int64_t n)
{
    const lt_shape s = f->shape;
    const int64_t b = block_size(f), k = count_blocks(f);
    const lt_view v = lt_tensor_view(f);
    return (s.ndim == 2 ? s.dim[0] == n : s.ndim == 3) && s.dim[s.ndim - 2] == b && k * b >= n
           && (k - 1) * b < n && lt_view_is_contiguous(&v);
}

static lt_status check_factor(const char *what, const lt_tensor *f, const lt_tensor *x, int dim)
{
    char of_f[LT_SHAPE_TEXT], of_x[LT_SHAPE_TEXT];
    if (dim >= 0 && dim < x->shape.ndim && is_factor_of(f, x->shape.dim[dim]))
        return LT_OK;
    return lt_fail(LT_E_SHAPE, "%s: factor %s does not fit dimension %d of %s", what,
                   lt_shape_text(f->shape, of_f), dim, lt_shape_text(x->shape, of_x));
}

static lt_status check_same_shape(const char *what, const lt_tensor *x, const lt_tensor *y)
{
    char of_x[LT_SHAPE_TEXT], of_y[LT_SHAPE_TEXT];
    return lt_shape_equal(x->shape, y->shape)
               ? LT_OK
               : lt_fail(LT_E_SHAPE, "%s: shapes %s and %s differ", what,
                         lt_shape_text(x->shape, of_x), lt_shape_text(y->shape, of_y));
}

/* --- Products --- */

lt_status lt_matrix_gram(lt_tensor *f, double decay, double weight, const lt_tensor *x, int dim,
                         const lt_scalars *s)
{
    const lt_device *d = f->device;
    LT_TRY(check("gram", d->backend->gram, f, x));
    LT_TRY(check_factor("gram", f, x, dim));
    for (int64_t at = 0, n = x->shape.dim[dim]; at < n; at += block_size(f)) {
        lt_gram_job job = {.f = block_at(f, n, at), .dim = dim, .alpha = weight, .beta = decay};
        job.g = slices_at(x, dim, at, &job.f);
        LT_TRY(d->backend->gram(d->ctx, &job, 1, s));
    }
    return LT_OK;
}

static lt_status multiply(lt_tensor *y, const lt_tensor *m, const lt_tensor *x, int dim,
                          bool transpose, const lt_scalars *s)
{
    const lt_device *d = y->device;
    LT_TRY(check("mode_product", d->backend->mode_product, m, x));
    LT_TRY(check("mode_product", true, x, y));
    LT_TRY(check_factor("mode_product", m, x, dim));
    LT_TRY(check_same_shape("mode_product", x, y));
    if (x == y)
        return lt_fail(LT_E_ARG, "mode_product: input and output are the same tensor");
    for (int64_t at = 0, n = x->shape.dim[dim]; at < n; at += block_size(m)) {
        lt_mode_product_job job = {.m = block_at(m, n, at), .dim = dim, .transpose = transpose};
        job.g = slices_at(x, dim, at, &job.m);
        job.y = slices_at(y, dim, at, &job.m);
        LT_TRY(d->backend->mode_product(d->ctx, &job, 1, s));
    }
    return LT_OK;
}

lt_status lt_matrix_mode_product(lt_tensor *y, const lt_tensor *m, const lt_tensor *x, int dim,
                                 const lt_scalars *s)
{
    return multiply(y, m, x, dim, false, s);
}

lt_status lt_matrix_mode_product_transposed(lt_tensor *y, const lt_tensor *m, const lt_tensor *x,
                                            int dim, const lt_scalars *s)
{
    return multiply(y, m, x, dim, true, s);
}

lt_status lt_matrix_copy_block(lt_tensor **out, const lt_tensor *factor, int64_t n, size_t block)
{
    lt_device *d = factor->device;
    char shape[LT_SHAPE_TEXT];
    if (!is_factor_of(factor, n) || block >= (size_t)count_blocks(factor))
        return lt_fail(LT_E_SHAPE, "copy_block: factor %s of %lld rows has no block %zu",
                       lt_shape_text(factor->shape, shape), (long long)n, block);
    const lt_view from = block_at(factor, n, (int64_t)block * block_size(factor));
    LT_TRY(lt_tensor_new(out, d, factor->dtype, from.shape));
    const lt_view to = lt_tensor_view(*out);
    lt_status st = d->backend->cast(d->ctx, &from, &to);
    if (st)
        lt_tensor_free(out);
    return st;
}

/* --- Norms --- */

lt_status lt_matrix_norm(lt_tensor *out, const lt_tensor *x)
{
    const lt_device *d = x->device;
    const lt_view from = lt_tensor_view(x), to = lt_tensor_view(out);
    char shape[LT_SHAPE_TEXT];
    LT_TRY(check("norm", d->backend->frobenius, x, x));
    if (out->dtype != LT_F64 || lt_tensor_count(out) != 1 || out->device != d)
        return lt_fail(LT_E_ARG, "norm: the output is %s %s: make it f64 [1] on the same device",
                       lt_dtype_name(out->dtype), lt_shape_text(out->shape, shape));
    return d->backend->frobenius(d->ctx, &from, 1, &to);
}

lt_status lt_matrix_rescale(lt_tensor *y, const lt_tensor *x, const lt_scalars *s)
{
    const lt_device *d = y->device;
    const lt_view both[2] = {lt_tensor_view(x), lt_tensor_view(y)};
    lt_tensor *norms = NULL;
    LT_TRY(check("rescale", d->backend->frobenius && d->backend->vec, x, y));
    LT_TRY(lt_tensor_new(&norms, y->device, LT_F64, LT_SHAPE(2)));
    const lt_view out = lt_tensor_view(norms);
    lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .a = both[1], .y = both[1]};
    job.factor.over = out.data;
    job.factor.under = job.factor.over + 1;
    lt_status st = d->backend->frobenius(d->ctx, both, 2, &out);
    if (!st)
        st = d->backend->vec(d->ctx, &job, 1, s);
    lt_tensor_free(&norms);
    return st;
}

/* --- Eigenvectors --- */

static lt_status check_finite(const char *what, const lt_tensor *x)
{
    lt_tensor *out = NULL;
    double norm = 0;
    char shape[LT_SHAPE_TEXT];
    LT_TRY(lt_tensor_new(&out, x->device, LT_F64, LT_SHAPE(1)));
    lt_status st = lt_matrix_norm(out, x);
    if (!st)
        st = lt_tensor_item(out, &norm);
    lt_tensor_free(&out);
    return st || isfinite(norm) ? st
                                : lt_fail(LT_E_ARG, "%s: the matrix %s is not finite", what,
                                          lt_shape_text(x->shape, shape));
}

lt_status lt_matrix_eigh(lt_tensor *values, lt_tensor *vectors, const lt_tensor *a)
{
    const lt_device *d = a->device;
    LT_TRY(check("eigh", d->backend->eigh, a, values));
    LT_TRY(check("eigh", true, a, vectors));
    LT_TRY(check_factor("eigh", a, values, values->shape.ndim + a->shape.ndim == 3 ? 0 : -1));
    LT_TRY(check_same_shape("eigh", a, vectors));
    LT_TRY(check_finite("eigh", a));
    lt_eigh_job job = {.a = lt_tensor_view(a),
                       .values = lt_tensor_view(values),
                       .vectors = lt_tensor_view(vectors)};
    LT_TRY(d->backend->eigh(d->ctx, &job, 1));
    return job.status;
}

/* --- Inverse roots and eigenbases of lists of factors --- */

/* State of one call; arrays have an element per block. */
typedef struct solve {
    const lt_matrix_root_config *config;
    lt_shampoo_config settings; /* the same, as the solvers read it */
    lt_device *device;
    const lt_scalars *on_device;
    lt_scalars scalars; /* read from there */
    lt_matrix_root_job *job;
    size_t count, blocks;
    lt_root_job *root;
    size_t *of; /* index of the block's job */
    lt_vec_job *vec;
    lt_view *view;
    double *norm;
    lt_tensor *copies; /* factors, which the solvers overwrite */
    lt_tensor *norms, *one;
} solve;

static int64_t rows_of(const lt_matrix_root_job *job)
{
    return job->n ? job->n : block_size(job->factor) * count_blocks(job->factor);
}

static lt_status check_config(const lt_matrix_root_config *c, const lt_shampoo_config *settings,
                              bool has_scalars)
{
    if (!(c->epsilon >= 0 && isfinite(c->epsilon)))
        return lt_fail(LT_E_ARG, "%s: epsilon %g is not a number >= 0", c->optim, c->epsilon);
    if (!(c->beta2 >= 0 && c->beta2 <= 1) || (c->beta2 > 0 && !has_scalars))
        return lt_fail(LT_E_ARG, "%s: beta2 %g is not in [0,1], or not 0 without scalars", c->optim,
                       c->beta2);
    return lt_root_check(settings, c->exponent, c->optim);
}

static lt_status check_job(const char *optim, const lt_matrix_root_job *job)
{
    char shape[LT_SHAPE_TEXT];
    const lt_backend *be = job->factor->device->backend;
    LT_TRY(check(optim, be->vec && be->frobenius && be->eigh, job->factor, job->out));
    LT_TRY(check_same_shape(job->param, job->factor, job->out));
    return is_factor_of(job->factor, rows_of(job))
               ? LT_OK
               : lt_fail(LT_E_SHAPE, "%s: %s: factor %s does not fit %lld rows", optim, job->param,
                         lt_shape_text(job->factor->shape, shape), (long long)rows_of(job));
}

static void list_blocks(solve *s)
{
    for (size_t i = 0, k = 0; i < s->count; i++) {
        const lt_matrix_root_job *job = &s->job[i];
        const int64_t b = block_size(job->factor), n = rows_of(job);
        for (int64_t at = 0; at < n; at += b, k++) {
            const lt_view out = block_at(job->out, n, at);
            s->of[k] = i;
            s->root[k] = (lt_root_job){.a = block_at(job->factor, n, at),
                                       .exponent = s->config->exponent,
                                       .old = job->warm ? out : (lt_view){0},
                                       .out = out,
                                       .param = job->param,
                                       .block = (int)(at / b),
                                       .dim = job->dim};
        }
    }
}

static lt_status allocate(solve *s)
{
    int64_t elements = 0;
    const lt_dtype dtype = lt_device_master_dtype(s->device);
    for (size_t i = 0; i < s->count; i++) {
        s->blocks += (size_t)count_blocks(s->job[i].factor);
        elements += lt_tensor_count(s->job[i].factor);
    }
    s->root = lt_alloc(s->blocks, sizeof *s->root);
    s->of = lt_alloc(s->blocks, sizeof *s->of);
    s->vec = lt_alloc(s->blocks, sizeof *s->vec);
    s->view = lt_alloc(s->blocks, sizeof *s->view);
    s->norm = lt_alloc(s->blocks, sizeof *s->norm);
    if (!s->root || !s->of || !s->vec || !s->view || !s->norm)
        return LT_E_NOMEM;
    LT_TRY(lt_tensor_new(&s->copies, s->device, dtype, LT_SHAPE(elements)));
    LT_TRY(lt_tensor_new(&s->norms, s->device, LT_F64, LT_SHAPE((int64_t)s->blocks)));
    LT_TRY(lt_tensor_new(&s->one, s->device, dtype, LT_SHAPE(1)));
    return lt_tensor_fill(s->one, 1);
}

/* Sets results that no call made yet, which are 0, to the identity. */
static lt_status set_identities(const solve *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->blocks; i++) {
        if (s->root[i].old.data)
            continue;
        lt_vec_job *v = &s->vec[count++];
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = lt_tensor_view(s->one)};
        v->y = s->root[i].out;
        v->y.stride[0]++;
        v->y.shape = v->a.shape = LT_SHAPE(v->y.shape.dim[0]);
        v->a.stride[0] = 0;
    }
    return count ? s->device->backend->vec(s->device->ctx, s->vec, count, NULL) : LT_OK;
}

/* Replaces the jobs' matrices by copies, corrected for their bias, and reads the norms of these. */
static lt_status copy_factors(solve *s)
{
    const lt_backend *be = s->device->backend;
    const double beta2 = s->config->beta2 < 1 ? s->config->beta2 : 0;
    const lt_view norms = lt_tensor_view(s->norms);
    char *to = lt_tensor_view(s->copies).data;
    for (size_t i = 0; i < s->blocks; i++) {
        lt_view *a = &s->root[i].a;
        s->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = *a};
        s->vec[i].factor = (lt_vec_factor){.bias = beta2 > 0, .base = beta2};
        a->data = to;
        s->vec[i].y = s->view[i] = *a;
        to += (size_t)lt_shape_count(a->shape) * lt_dtype_size(a->dtype);
    }
    LT_TRY(be->vec(s->device->ctx, s->vec, s->blocks, s->on_device));
    LT_TRY(be->frobenius(s->device->ctx, s->view, s->blocks, &norms));
    return lt_tensor_read(s->norms, s->norm, s->blocks * sizeof *s->norm);
}

/* Solves the matrices that are not 0; sets the status of all jobs. */
static lt_status solve_blocks(solve *s)
{
    size_t count = 0;
    const lt_root_context context = {.config = &s->settings,
                                     .device = s->device,
                                     .step = s->scalars.attempt,
                                     .optim = s->config->optim};
    LT_TRY(copy_factors(s));
    for (size_t i = 0; i < s->blocks; i++) {
        if (s->norm[i] == 0) {
            s->job[s->of[i]].status = LT_END;
            continue;
        }
        s->root[count] = s->root[i];
        s->of[count++] = s->of[i];
    }
    LT_TRY(lt_root_run(&context, s->root, count));
    for (size_t i = 0; i < count; i++) {
        lt_matrix_root_job *job = &s->job[s->of[i]];
        job->status = s->root[i].status ? s->root[i].status : job->status;
        job->residual = fmax(job->residual, s->root[i].residual);
    }
    return LT_OK;
}

static lt_status check_and_solve(solve *s)
{
    const lt_backend *be = s->device->backend;
    LT_TRY(check_config(s->config, &s->settings, s->on_device != NULL));
    for (size_t i = 0; i < s->count; i++)
        LT_TRY(check_job(s->config->optim, &s->job[i]));
    if (s->on_device) {
        LT_TRY(be->copy(s->device->ctx, &s->scalars, s->on_device, sizeof s->scalars, LT_COPY_OUT));
        LT_TRY(be->sync(s->device->ctx));
    }
    LT_TRY(allocate(s));
    list_blocks(s);
    LT_TRY(set_identities(s));
    for (size_t i = 0; i < s->count; i++) {
        s->job[i].status = s->scalars.finite ? LT_OK : LT_END;
        s->job[i].residual = -1;
    }
    return s->scalars.finite ? solve_blocks(s) : LT_OK;
}

static lt_status run_jobs(const lt_matrix_root_config *config, lt_preconditioner result,
                          lt_matrix_root_job *job, size_t count, const lt_scalars *scalars)
{
    if (!count)
        return LT_OK;
    solve s = {
        .config = config,
        .settings = {.epsilon = config->epsilon,
                     .epsilon_rule = config->epsilon_rule,
                     .root_solver = config->solver,
                     .solver_tolerance = config->tolerance,
                     .solver_iterations = config->iterations,
                     .preconditioner = result,
                     .rank_rtol = -1},
        .device = job->out->device,
        .on_device = scalars,
        .scalars = {.finite = 1},
        .job = job,
        .count = count,
    };
    lt_status st = check_and_solve(&s);
    lt_tensor_free(&s.copies);
    lt_tensor_free(&s.norms);
    lt_tensor_free(&s.one);
    lt_free(s.root);
    lt_free(s.of);
    lt_free(s.vec);
    lt_free(s.view);
    lt_free(s.norm);
    return st;
}

lt_status lt_matrix_inverse_roots(const lt_matrix_root_config *config, lt_matrix_root_job *job,
                                  size_t count, const lt_scalars *scalars)
{
    if (!(config->exponent > 0 && isfinite(config->exponent)))
        return lt_fail(LT_E_ARG, "%s: exponent %g is not a number above 0", config->optim,
                       config->exponent);
    return run_jobs(config, LT_PRECONDITIONER_ROOT, job, count, scalars);
}

lt_status lt_matrix_eigenbases(const lt_matrix_root_config *config, lt_matrix_root_job *job,
                               size_t count, const lt_scalars *scalars)
{
    return run_jobs(config, LT_PRECONDITIONER_CORRECTED, job, count, scalars);
}
