/* Matrix functions for optimizers outside of the library: checks of shapes, and the kernels and root solvers that
 * Shampoo uses. A factor [k,b,b] is block-diagonal: each function makes one job per block. */

#include "lather/ext/matrix.h"

#include "optim/shampoo/root/work_matrices.h"

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
    return lt_root_part_view(factor, at * b, LT_SHAPE(rows, rows));
}

/* Returns the slices of x along dim from `at` on, as many as the block has rows. */
static lt_view slices_at(const lt_tensor *x, int dim, int64_t at, const lt_view *block)
{
    lt_view v = lt_tensor_view(x);
    v.data = (char *)v.data + (size_t)(at * v.stride[dim]) * lt_dtype_size(v.dtype);
    v.version = 0;
    v.shape.dim[dim] = block->shape.dim[0];
    return v;
}

/* --- Checks --- */

static lt_status check_present(const char *what, bool present)
{
    return present
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s: a tensor is NULL, as a state that has_state denies", what);
}

static lt_status check(const char *what, bool has_kernel, const lt_tensor *x, const lt_tensor *y)
{
    const lt_dtype dtype = lt_device_master_dtype(x->device);
    if (!lt_tensor_view(x).data || !lt_tensor_view(y).data)
        return lt_fail(LT_E_ARG, "%s: a tensor has no memory, as of a parameter of another rank",
                       what);
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
    LT_TRY(check_present("gram", f && x));
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
    LT_TRY(check_present("mode_product", y && m && x));
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
    char shape[LT_SHAPE_TEXT];
    LT_TRY(check_present("copy_block", factor));
    lt_device *d = factor->device;
    n = n ? n : block_size(factor) * count_blocks(factor);
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
    LT_TRY(check_present("norm", out && x));
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
    LT_TRY(check_present("rescale", y && x));
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

lt_status lt_matrix_eigh(lt_tensor *values, lt_tensor *vectors, const lt_tensor *a)
{
    LT_TRY(check_present("eigh", values && vectors && a));
    const lt_device *d = a->device;
    LT_TRY(check("eigh", d->backend->eigh, a, values));
    LT_TRY(check("eigh", true, a, vectors));
    LT_TRY(check_factor("eigh", a, values, values->shape.ndim + a->shape.ndim == 3 ? 0 : -1));
    LT_TRY(check_same_shape("eigh", a, vectors));
    lt_eigh_job job = {.a = lt_tensor_view(a),
                       .values = lt_tensor_view(values),
                       .vectors = lt_tensor_view(vectors)};
    LT_TRY(d->backend->eigh(d->ctx, &job, 1));
    return job.status;
}

/* --- Inverse roots and eigenbases of lists of factors --- */

/* State of one call. */
typedef struct solve {
    const lt_matrix_root_config *config;
    lt_shampoo_config settings; /* the same, as the solvers read it */
    lt_device *device;
    const lt_scalars *scalars;
    lt_root_job *root; /* one per block */
    size_t blocks;
    lt_tensor *copies; /* factors, which the solvers overwrite */
    int64_t used;      /* elements of copies */
    lt_tensor *norms;  /* f64, of the blocks' copies */
    double *norm;      /* the same on the host */
    lt_tensor *one;    /* [1]: the number 1 */
} solve;

static int64_t rows_of(const lt_matrix_root_job *job)
{
    return job->n ? job->n : block_size(job->factor) * count_blocks(job->factor);
}

static lt_status check_config(const solve *s)
{
    const lt_matrix_root_config *c = s->config;
    if (!(c->epsilon >= 0 && isfinite(c->epsilon)))
        return lt_fail(LT_E_ARG, "%s: epsilon %g is not a number >= 0", c->optim, c->epsilon);
    if (!(c->beta2 >= 0 && c->beta2 <= 1) || (c->beta2 > 0 && !s->scalars))
        return lt_fail(LT_E_ARG, "%s: beta2 %g is not in [0,1], or not 0 without scalars", c->optim,
                       c->beta2);
    return lt_root_check(&s->settings, c->exponent, c->optim);
}

static lt_status check_job(const char *optim, const lt_matrix_root_job *job)
{
    char shape[LT_SHAPE_TEXT];
    LT_TRY(check_present(optim, job->factor && job->out));
    const lt_backend *be = job->factor->device->backend;
    LT_TRY(check(optim, be->vec && be->frobenius && be->eigh, job->factor, job->out));
    LT_TRY(check_same_shape(job->param, job->factor, job->out));
    return is_factor_of(job->factor, rows_of(job))
               ? LT_OK
               : lt_fail(LT_E_SHAPE, "%s: %s: factor %s does not fit %lld rows", optim, job->param,
                         lt_shape_text(job->factor->shape, shape), (long long)rows_of(job));
}

static lt_status allocate(solve *s, const lt_matrix_root_job *job, size_t count)
{
    const lt_dtype dtype = lt_device_master_dtype(s->device);
    int64_t elements = 0, blocks = 0;
    for (size_t i = 0; i < count; i++) {
        blocks += count_blocks(job[i].factor);
        elements += lt_tensor_count(job[i].factor);
    }
    LT_TRY(LT_ALLOC(&s->root, blocks));
    LT_TRY(LT_ALLOC(&s->norm, blocks));
    LT_TRY(lt_tensor_new(&s->copies, s->device, dtype, LT_SHAPE(elements)));
    LT_TRY(lt_tensor_new(&s->norms, s->device, LT_F64, LT_SHAPE(blocks)));
    LT_TRY(lt_tensor_new(&s->one, s->device, dtype, LT_SHAPE(1)));
    return lt_tensor_fill(s->one, 1);
}

/* Adds block number `block` of a factor. A skipped step makes no copy: it remains 0. */
static lt_status add_block(solve *s, lt_matrix_root_job *job, int block)
{
    const lt_backend *be = s->device->backend;
    const int64_t at = block * block_size(job->factor);
    const double beta2 = s->config->beta2 < 1 ? s->config->beta2 : 0;
    const lt_view out = block_at(job->out, rows_of(job), at);
    lt_vec_job copy = {.op = LT_VEC_AXPBY,
                       .alpha = 1,
                       .factor = {.bias = beta2 > 0, .base = beta2},
                       .a = block_at(job->factor, rows_of(job), at)};
    const lt_view norm = lt_root_part_view(s->norms, (int64_t)s->blocks, LT_SHAPE(1));
    copy.y = lt_root_part_view(s->copies, s->used, out.shape);
    s->used += lt_shape_count(out.shape);
    s->root[s->blocks++] = (lt_root_job){.a = copy.y,
                                         .exponent = s->config->exponent,
                                         .old = job->warm ? out : (lt_view){0},
                                         .out = out,
                                         .param = job->param,
                                         .block = block,
                                         .dim = job->dim,
                                         .owner = job};
    if (!job->warm)
        LT_TRY(lt_root_set_identity(s->device, s->one, out));
    LT_TRY(be->vec(s->device->ctx, &copy, 1, s->scalars));
    return be->frobenius(s->device->ctx, &copy.y, 1, &norm);
}

/* Solves the matrices that are not 0; sets the status of all jobs. */
static lt_status solve_blocks(solve *s)
{
    lt_scalars scalars = {0};
    size_t count = 0;
    if (s->scalars)
        LT_TRY(s->device->backend->copy(s->device->ctx, &scalars, s->scalars, sizeof scalars,
                                        LT_COPY_OUT));
    LT_TRY(lt_tensor_read(s->norms, s->norm, s->blocks * sizeof *s->norm));
    for (size_t i = 0; i < s->blocks; i++)
        if (s->norm[i] == 0)
            ((lt_matrix_root_job *)s->root[i].owner)->status = LT_END;
        else
            s->root[count++] = s->root[i];
    const lt_root_context context = {.config = &s->settings,
                                     .device = s->device,
                                     .step = scalars.attempt,
                                     .optim = s->config->optim};
    LT_TRY(lt_root_run(&context, s->root, count));
    for (size_t i = 0; i < count; i++) {
        lt_matrix_root_job *job = s->root[i].owner;
        job->status = s->root[i].status ? s->root[i].status : job->status;
        job->residual = fmax(job->residual, s->root[i].residual);
    }
    return LT_OK;
}

static lt_status check_and_solve(solve *s, lt_matrix_root_job *job, size_t count)
{
    LT_TRY(check_config(s));
    for (size_t i = 0; i < count; i++)
        LT_TRY(check_job(s->config->optim, &job[i]));
    LT_TRY(allocate(s, job, count));
    for (size_t i = 0; i < count; i++) {
        job[i].status = LT_OK;
        job[i].residual = -1;
        for (int block = 0; block < count_blocks(job[i].factor); block++)
            LT_TRY(add_block(s, &job[i], block));
    }
    return solve_blocks(s);
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
        .device = job->out ? job->out->device : NULL,
        .scalars = scalars,
    };
    lt_status st = check_and_solve(&s, job, count);
    lt_tensor_free(&s.copies);
    lt_tensor_free(&s.norms);
    lt_tensor_free(&s.one);
    lt_free(s.root);
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
