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

/* Returns the block of rows from `at` on, of a factor of n rows. */
static lt_view block_at(const lt_tensor *factor, int64_t n, int64_t at)
{
    const int64_t b = block_size(factor), rows = n - at < b ? n - at : b;
    lt_view v = lt_tensor_view(factor);
    v.data = (char *)v.data + (size_t)(at * b) * lt_dtype_size(v.dtype);
    v.version = 0;
    v.shape = LT_SHAPE(rows, rows);
    v.stride[0] = rows;
    v.stride[1] = 1;
    return v;
}

/* Returns the slices of x along dim from `at` on that belong to a block. */
static lt_view slices_at(const lt_tensor *x, int dim, int64_t at, const lt_view *block)
{
    lt_view v = lt_tensor_view(x);
    v.data = (char *)v.data + (size_t)(at * v.stride[dim]) * lt_dtype_size(v.dtype);
    v.version = 0;
    v.shape.dim[dim] = block->shape.dim[0];
    return v;
}

/* --- Checks --- */

static lt_status check_like(const char *what, const lt_tensor *x, const lt_tensor *y)
{
    if (x->device != y->device)
        return lt_fail(LT_E_ARG, "%s: the tensors are on different devices", what);
    if (x->dtype != y->dtype || x->dtype != lt_device_master_dtype(x->device))
        return lt_fail(LT_E_ARG, "%s: dtypes %s and %s: both must be %s", what,
                       lt_dtype_name(x->dtype), lt_dtype_name(y->dtype),
                       lt_dtype_name(lt_device_master_dtype(x->device)));
    return LT_OK;
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
    LT_TRY(check_like(what, f, x));
    if (dim < 0 || dim >= x->shape.ndim)
        return lt_fail(LT_E_ARG, "%s: %s has no dimension %d", what, lt_shape_text(x->shape, of_x),
                       dim);
    if (is_factor_of(f, x->shape.dim[dim]))
        return LT_OK;
    return lt_fail(LT_E_SHAPE, "%s: factor %s does not fit dimension %d of %s", what,
                   lt_shape_text(f->shape, of_f), dim, lt_shape_text(x->shape, of_x));
}

static lt_status require_kernel(const char *what, const lt_tensor *x, bool has)
{
    return has ? LT_OK
               : lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel", what,
                         x->device->backend->name);
}

/* --- Products --- */

lt_status lt_matrix_gram(lt_tensor *f, double decay, double weight, const lt_tensor *x, int dim,
                         const lt_scalars *s)
{
    const lt_device *d = f->device;
    LT_TRY(check_factor("gram", f, x, dim));
    LT_TRY(require_kernel("gram", f, d->backend->gram));
    const int64_t n = x->shape.dim[dim], b = block_size(f);
    lt_gram_job *job = lt_alloc((size_t)count_blocks(f), sizeof *job);
    if (!job)
        return LT_E_NOMEM;
    size_t count = 0;
    for (int64_t at = 0; at < n; at += b) {
        const lt_view block = block_at(f, n, at);
        job[count++] = (lt_gram_job){.g = slices_at(x, dim, at, &block),
                                     .f = block,
                                     .dim = dim,
                                     .alpha = weight,
                                     .beta = decay};
    }
    lt_status st = d->backend->gram(d->ctx, job, count, s);
    lt_free(job);
    return st;
}

static lt_status multiply(lt_tensor *y, const lt_tensor *m, const lt_tensor *x, int dim,
                          bool transpose, const lt_scalars *s)
{
    const lt_device *d = y->device;
    char of_x[LT_SHAPE_TEXT], of_y[LT_SHAPE_TEXT];
    LT_TRY(check_factor("mode_product", m, x, dim));
    LT_TRY(check_like("mode_product", x, y));
    LT_TRY(require_kernel("mode_product", x, d->backend->mode_product));
    if (!lt_shape_equal(x->shape, y->shape))
        return lt_fail(LT_E_SHAPE, "mode_product: shapes %s and %s differ",
                       lt_shape_text(x->shape, of_x), lt_shape_text(y->shape, of_y));
    if (x == y)
        return lt_fail(LT_E_ARG, "mode_product: input and output are the same tensor");
    const int64_t n = x->shape.dim[dim], b = block_size(m);
    lt_mode_product_job *job = lt_alloc((size_t)count_blocks(m), sizeof *job);
    if (!job)
        return LT_E_NOMEM;
    size_t count = 0;
    for (int64_t at = 0; at < n; at += b) {
        const lt_view block = block_at(m, n, at);
        job[count++] = (lt_mode_product_job){.g = slices_at(x, dim, at, &block),
                                             .y = slices_at(y, dim, at, &block),
                                             .m = block,
                                             .dim = dim,
                                             .transpose = transpose};
    }
    lt_status st = d->backend->mode_product(d->ctx, job, count, s);
    lt_free(job);
    return st;
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

/* --- Norms --- */

lt_status lt_matrix_norm(lt_tensor *out, const lt_tensor *x)
{
    const lt_device *d = x->device;
    const lt_view from = lt_tensor_view(x), to = lt_tensor_view(out);
    char shape[LT_SHAPE_TEXT];
    if (out->dtype != LT_F64 || lt_tensor_count(out) != 1 || out->device != x->device)
        return lt_fail(LT_E_ARG, "norm: the output is %s %s: make it f64 [1] on the same device",
                       lt_dtype_name(out->dtype), lt_shape_text(out->shape, shape));
    LT_TRY(require_kernel("norm", x, d->backend->frobenius));
    return d->backend->frobenius(d->ctx, &from, 1, &to);
}

lt_status lt_matrix_rescale(lt_tensor *y, const lt_tensor *x, const lt_scalars *s)
{
    const lt_device *d = y->device;
    const lt_view both[2] = {lt_tensor_view(x), lt_tensor_view(y)};
    lt_tensor *norms = NULL;
    LT_TRY(check_like("rescale", x, y));
    LT_TRY(require_kernel("rescale", y, d->backend->frobenius && d->backend->vec));
    LT_TRY(lt_tensor_new(&norms, y->device, LT_F64, LT_SHAPE(2)));
    const lt_view out = lt_tensor_view(norms);
    const double *norm = out.data;
    const lt_vec_job job = {.op = LT_VEC_AXPBY,
                            .alpha = 1,
                            .factor = {.over = norm, .under = norm + 1},
                            .a = both[1],
                            .y = both[1]};
    lt_status st = d->backend->frobenius(d->ctx, both, 2, &out);
    if (!st)
        st = d->backend->vec(d->ctx, &job, 1, s);
    lt_tensor_free(&norms);
    return st;
}

/* --- Eigenvectors --- */

/* Reads the norm of a matrix: NaN or Inf if an element is. */
static lt_status read_norm(const lt_tensor *x, double *norm)
{
    lt_tensor *out = NULL;
    LT_TRY(lt_tensor_new(&out, x->device, LT_F64, LT_SHAPE(1)));
    lt_status st = lt_matrix_norm(out, x);
    if (!st)
        st = lt_tensor_item(out, norm);
    lt_tensor_free(&out);
    return st;
}

lt_status lt_matrix_eigh(lt_tensor *values, lt_tensor *vectors, const lt_tensor *a)
{
    const lt_device *d = a->device;
    const lt_shape n = LT_SHAPE(a->shape.dim[0]);
    char of_a[LT_SHAPE_TEXT], of_values[LT_SHAPE_TEXT], of_vectors[LT_SHAPE_TEXT];
    double norm = 0;
    LT_TRY(check_like("eigh", a, values));
    LT_TRY(check_like("eigh", a, vectors));
    LT_TRY(require_kernel("eigh", a, d->backend->eigh && d->backend->frobenius));
    lt_shape_text(a->shape, of_a);
    if (a->shape.ndim != 2 || !is_factor_of(a, n.dim[0])
        || !lt_shape_equal(vectors->shape, a->shape) || !lt_shape_equal(values->shape, n))
        return lt_fail(
            LT_E_SHAPE, "eigh: %s into values %s and vectors %s: needs [n,n], [n], [n,n]", of_a,
            lt_shape_text(values->shape, of_values), lt_shape_text(vectors->shape, of_vectors));
    LT_TRY(read_norm(a, &norm));
    if (!isfinite(norm))
        return lt_fail(LT_E_ARG, "eigh: the matrix %s is not finite", of_a);
    lt_eigh_job job = {.a = lt_tensor_view(a),
                       .values = lt_tensor_view(values),
                       .vectors = lt_tensor_view(vectors)};
    LT_TRY(d->backend->eigh(d->ctx, &job, 1));
    return job.status;
}

/* --- Inverse roots and eigenbases of lists of factors --- */

/* A matrix to solve: the rows of a job's factor from `at` on. */
typedef struct block {
    size_t job;
    int64_t at, n;
} block;

/* State of one call. */
typedef struct solve {
    const lt_matrix_root_config *config;
    lt_shampoo_config settings; /* the same as the solvers read it */
    lt_device *device;
    const lt_scalars *device_scalars;
    lt_scalars scalars; /* the same, as read from the device */
    lt_matrix_root_job *job;
    block *block; /* largest first */
    size_t blocks;
    lt_tensor *copies, *one; /* the factors, corrected for their bias; [1]: the number 1 */
    lt_tensor *norms;        /* f64, one per block */
    double *norm;            /* the same on the host */
    lt_root_job *root;
    lt_vec_job *vec;
    lt_view *view;
} solve;

static int64_t rows_of(const lt_matrix_root_job *job)
{
    return job->n ? job->n : block_size(job->factor) * count_blocks(job->factor);
}

static lt_status check_jobs(const solve *s, size_t count)
{
    const lt_matrix_root_config *c = s->config;
    char of_f[LT_SHAPE_TEXT], of_out[LT_SHAPE_TEXT];
    if (!(c->epsilon >= 0 && isfinite(c->epsilon)))
        return lt_fail(LT_E_ARG, "%s: epsilon %g is not a number >= 0", c->optim, c->epsilon);
    if (!(c->beta2 >= 0 && c->beta2 <= 1) || (c->beta2 > 0 && !s->device_scalars))
        return lt_fail(LT_E_ARG, "%s: beta2 %g is not in [0,1], or not 0 without scalars", c->optim,
                       c->beta2);
    LT_TRY(lt_root_check(&s->settings, c->exponent, c->optim));
    for (size_t i = 0; i < count; i++) {
        const lt_matrix_root_job *job = &s->job[i];
        LT_TRY(check_like(c->optim, job->factor, job->out));
        if (!is_factor_of(job->factor, rows_of(job))
            || !lt_shape_equal(job->factor->shape, job->out->shape))
            return lt_fail(LT_E_SHAPE, "%s: %s: factor %s of %lld rows into %s", c->optim,
                           job->param, lt_shape_text(job->factor->shape, of_f),
                           (long long)rows_of(job), lt_shape_text(job->out->shape, of_out));
    }
    return LT_OK;
}

/* Orders large matrices first, so that the solvers' batches have matrices of similar size. */
static int by_size(const void *x, const void *y)
{
    const block *a = x, *b = y;
    if (a->n != b->n)
        return a->n < b->n ? 1 : -1;
    if (a->job != b->job)
        return a->job < b->job ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static lt_status list_blocks(solve *s, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++)
        most += (size_t)count_blocks(s->job[i].factor);
    s->block = lt_alloc(most, sizeof *s->block);
    s->root = lt_alloc(most, sizeof *s->root);
    s->vec = lt_alloc(most, sizeof *s->vec);
    s->view = lt_alloc(most, sizeof *s->view);
    s->norm = lt_alloc(most, sizeof *s->norm);
    if (!s->block || !s->root || !s->vec || !s->view || !s->norm)
        return LT_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const int64_t n = rows_of(&s->job[i]), b = block_size(s->job[i].factor);
        for (int64_t at = 0; at < n; at += b)
            s->block[s->blocks++] = (block){i, at, n - at < b ? n - at : b};
    }
    qsort(s->block, s->blocks, sizeof *s->block, by_size);
    return LT_OK;
}

static lt_status allocate(solve *s)
{
    int64_t elements = 0;
    const lt_dtype dtype = lt_device_master_dtype(s->device);
    for (size_t i = 0; i < s->blocks; i++)
        elements += s->block[i].n * s->block[i].n;
    LT_TRY(lt_tensor_new(&s->copies, s->device, dtype, LT_SHAPE(elements)));
    LT_TRY(lt_tensor_new(&s->norms, s->device, LT_F64, LT_SHAPE((int64_t)s->blocks)));
    LT_TRY(lt_tensor_new(&s->one, s->device, dtype, LT_SHAPE(1)));
    return lt_tensor_fill(s->one, 1);
}

/* Copies the factors, which the solvers overwrite, and reads the norms of the copies. */
static lt_status copy_factors(solve *s)
{
    const lt_backend *be = s->device->backend;
    const double beta2 = s->config->beta2 < 1 ? s->config->beta2 : 0;
    const lt_view out = lt_tensor_view(s->norms);
    int64_t elements = 0;
    for (size_t i = 0; i < s->blocks; i++) {
        const block *b = &s->block[i];
        const lt_matrix_root_job *job = &s->job[b->job];
        lt_view copy = block_at(job->factor, rows_of(job), b->at);
        s->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = copy};
        s->vec[i].factor = (lt_vec_factor){.bias = beta2 > 0, .base = beta2};
        copy.data =
            (char *)lt_tensor_view(s->copies).data + (size_t)elements * lt_dtype_size(copy.dtype);
        s->vec[i].y = s->view[i] = copy;
        elements += b->n * b->n;
    }
    LT_TRY(be->vec(s->device->ctx, s->vec, s->blocks, s->device_scalars));
    LT_TRY(be->frobenius(s->device->ctx, s->view, s->blocks, &out));
    return lt_tensor_read(s->norms, s->norm, s->blocks * sizeof *s->norm);
}

/* Sets results that no call made yet to the identity. */
static lt_status set_identities(solve *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->blocks; i++) {
        const lt_matrix_root_job *job = &s->job[s->block[i].job];
        if (job->warm)
            continue;
        lt_vec_job *v = &s->vec[count++];
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = lt_tensor_view(s->one)};
        v->y = block_at(job->out, rows_of(job), s->block[i].at);
        v->y.stride[0]++;
        v->y.shape = v->a.shape = LT_SHAPE(s->block[i].n);
        v->a.stride[0] = 0;
    }
    return count ? s->device->backend->vec(s->device->ctx, s->vec, count, NULL) : LT_OK;
}

static lt_root_job root_job_of(const solve *s, size_t i)
{
    const block *b = &s->block[i];
    const lt_matrix_root_job *job = &s->job[b->job];
    const lt_view out = block_at(job->out, rows_of(job), b->at);
    return (lt_root_job){.a = s->view[i],
                         .exponent = s->config->exponent,
                         .old = job->warm ? out : (lt_view){0},
                         .out = out,
                         .param = job->param,
                         .block = (int)(b->at / block_size(job->out)),
                         .dim = job->dim};
}

/* Solves the matrices that are not 0. */
static lt_status solve_blocks(solve *s)
{
    size_t count = 0;
    const lt_root_context context = {.config = &s->settings,
                                     .device = s->device,
                                     .step = s->scalars.attempt,
                                     .optim = s->config->optim};
    LT_TRY(copy_factors(s));
    for (size_t i = 0; i < s->blocks; i++) {
        lt_matrix_root_job *job = &s->job[s->block[i].job];
        job->status = s->norm[i] == 0 ? LT_END : job->status;
        if (s->norm[i] == 0)
            continue;
        s->root[count] = root_job_of(s, i);
        s->block[count++] = s->block[i];
    }
    LT_TRY(lt_root_run(&context, s->root, count));
    for (size_t i = 0; i < count; i++) {
        lt_matrix_root_job *job = &s->job[s->block[i].job];
        job->status = s->root[i].status ? s->root[i].status : job->status;
        job->residual = fmax(job->residual, s->root[i].residual);
    }
    return LT_OK;
}

static lt_status check_and_solve(solve *s, size_t count)
{
    const lt_backend *be = s->device->backend;
    LT_TRY(require_kernel(s->config->optim, s->job->out, be->vec && be->frobenius && be->eigh));
    LT_TRY(check_jobs(s, count));
    for (size_t i = 0; i < count; i++) {
        s->job[i].status = LT_OK;
        s->job[i].residual = -1;
    }
    if (s->device_scalars) {
        LT_TRY(be->copy(s->device->ctx, &s->scalars, s->device_scalars, sizeof s->scalars,
                        LT_COPY_OUT));
        LT_TRY(be->sync(s->device->ctx));
    }
    LT_TRY(list_blocks(s, count));
    LT_TRY(allocate(s));
    LT_TRY(set_identities(s));
    for (size_t i = 0; i < count && !s->scalars.finite; i++)
        s->job[i].status = LT_END;
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
        .device_scalars = scalars,
        .scalars = {.finite = 1},
        .job = job,
    };
    lt_status st = check_and_solve(&s, count);
    lt_tensor_free(&s.copies);
    lt_tensor_free(&s.norms);
    lt_tensor_free(&s.one);
    lt_free(s.block);
    lt_free(s.root);
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
