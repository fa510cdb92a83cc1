/* Inverse roots of a batch of factors by eigendecomposition.
 *
 *   A = F / c2,  A = Q L Q^T,  R = (Q L^(-e/2)) (Q L^(-e/2))^T
 *
 * The last form makes R exactly symmetric for half of the multiplications. What fails is tried
 * again in double; then the old root stays, and the block counts a failure. */

#include "base/alloc.h"
#include "optim/shampoo/shampoo.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

/* Tasks that are worked on at once. */
typedef struct batch {
    lt_shampoo *s;
    lt_root_task *task;
    size_t count;
    lt_tensor *a, *q, *values; /* matrices, eigenvectors, eigenvalues */
    double *host;              /* values, later powers */
    int64_t host_count;
    lt_eigh_job *job;
} batch;

static bool wants_powers(const batch *b)
{
    return b->s->config.preconditioner != LT_PRECONDITIONER_CORRECTED;
}

static lt_view part(const lt_tensor *tensor, int64_t at, lt_shape shape)
{
    lt_view v = lt_tensor_view(tensor);
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.shape = shape;
    v.stride[0] = shape.ndim == 2 ? shape.dim[1] : 1;
    v.stride[1] = 1;
    return v;
}

static lt_view matrix(const lt_tensor *tensor, const lt_root_task *t)
{
    return part(tensor, t->at, LT_SHAPE(t->n, t->n));
}

static lt_view diagonal(const lt_tensor *tensor, const lt_root_task *t)
{
    lt_view v = part(tensor, t->at, LT_SHAPE(t->n));
    v.stride[0] = t->n + 1;
    return v;
}

/* Makes the job of one task; the batch's tasks get one call. */
typedef void task_rule(const batch *b, const lt_root_task *t, lt_vec_job *job);

static lt_status vec(batch *b, task_rule *rule)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->task[i].failed)
            continue;
        lt_vec_job *job = &b->s->vec[count++];
        *job = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1};
        rule(b, &b->task[i], job);
    }
    return count ? be->vec(ctx, b->s->vec, count, b->s->base.scalars) : LT_OK;
}

static void corrected_factor(const batch *b, const lt_root_task *t, lt_vec_job *job)
{
    const lt_shampoo_config *c = &b->s->config;
    if (c->use_bias_correction && c->beta2 < 1 && !c->drop_weighting) {
        job->factor.bias = 1;
        job->factor.base = c->beta2;
    }
    job->a = lt_tensor_view(t->block->factor[t->dim].gram);
    job->y = matrix(b->a, t);
}

static void scale_by_trace(const batch *b, const lt_root_task *t, lt_vec_job *job)
{
    const lt_shampoo_config *c = &b->s->config;
    double trace = b->host[t - b->task];
    job->alpha = pow(fmax(trace, c->epsilon), -c->trace_scaling);
    job->a = job->y = matrix(b->a, t);
}

static void perturb(const batch *b, const lt_root_task *t, lt_vec_job *job)
{
    job->alpha = b->s->config.epsilon;
    job->beta = 1;
    job->a = part(b->s->one, 0, LT_SHAPE(t->n));
    job->a.stride[0] = 0;
    job->y = diagonal(b->a, t);
}

/* Columns of Q times the square roots of the powers, to A's place. */
static void scale_columns(const batch *b, const lt_root_task *t, lt_vec_job *job)
{
    job->op = LT_VEC_MUL;
    job->a = matrix(b->q, t);
    job->b = part(b->values, t->value_at, LT_SHAPE(t->n, t->n));
    job->b.stride[0] = 0;
    job->y = matrix(b->a, t);
}

static lt_status not_finite(const batch *b, const lt_root_task *t, const char *what)
{
    return lt_fail(LT_E_ARG,
                   "shampoo: %s block %d, dimension %d: the %s is not finite at step "
                   "%" PRId64,
                   t->block->slot->param->name, t->block->index, t->dim, what, b->s->base.attempt);
}

/* Frobenius norms see every NaN and Inf. views: one per task, in s->view. */
static lt_status check_finite(batch *b, const char *what)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    lt_view out = lt_tensor_view(b->s->norms);
    out.shape = LT_SHAPE((int64_t)b->count);
    out.stride[0] = 1;
    LT_TRY(be->frobenius(ctx, b->s->view, b->count, &out));
    LT_TRY(be->copy(ctx, b->host, out.data, b->count * sizeof(double), LT_COPY_OUT));
    LT_TRY(be->sync(ctx));
    for (size_t i = 0; i < b->count; i++)
        if (!b->task[i].failed && !isfinite(b->host[i]))
            return not_finite(b, &b->task[i], what);
    return LT_OK;
}

static lt_status check_matrices(batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        b->s->view[i] = matrix(b->a, &b->task[i]);
    return check_finite(b, "factor");
}

/* A times max(tr A, epsilon)^-x. */
static lt_status scale_traces(batch *b)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    for (size_t i = 0; i < b->count; i++) {
        const lt_view x = diagonal(b->a, &b->task[i]);
        const lt_view y = part(b->values, (int64_t)i, LT_SHAPE(1));
        LT_TRY(be->sum(ctx, 1, &x, &y));
    }
    lt_tensor *wide = NULL;
    lt_device *device = b->s->base.device;
    LT_TRY(lt_tensor_new(&wide, device, LT_F64, lt_tensor_shape(b->values)));
    lt_status st = lt_tensor_copy(wide, b->values);
    if (!st)
        st = lt_tensor_read(wide, b->host, (size_t)b->host_count * sizeof *b->host);
    lt_tensor_free(&wide);
    return st ? st : vec(b, scale_by_trace);
}

static lt_status make_matrices(batch *b)
{
    const lt_shampoo_config *c = &b->s->config;
    LT_TRY(vec(b, corrected_factor));
    LT_TRY(check_matrices(b));
    if (c->trace_scaling > 0)
        LT_TRY(scale_traces(b));
    bool before = c->epsilon_rule == LT_EPSILON_BEFORE || !wants_powers(b);
    return before ? vec(b, perturb) : LT_OK;
}

/* One matrix again, in double; eigenvalues go to the host array. */
static lt_status retry(batch *b, lt_root_task *t)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    lt_tensor *wide = NULL;
    lt_view a = matrix(b->a, t), q = matrix(b->q, t);
    LT_TRY(lt_tensor_new(&wide, b->s->base.device, LT_F64, LT_SHAPE(2 * t->n + 1, t->n)));
    lt_eigh_job job = {
        .a = part(wide, 0, LT_SHAPE(t->n, t->n)),
        .vectors = part(wide, t->n * t->n, LT_SHAPE(t->n, t->n)),
        .values = part(wide, 2 * t->n * t->n, LT_SHAPE(t->n)),
    };
    lt_status st = be->cast(ctx, &a, &job.a);
    if (!st)
        st = be->eigh(ctx, &job, 1);
    t->failed = job.status != LT_OK;
    if (!st && !t->failed)
        st = be->cast(ctx, &job.vectors, &q);
    if (!st && !t->failed)
        st = be->copy(ctx, b->host + t->value_at, job.values.data, (size_t)t->n * sizeof(double),
                      LT_COPY_OUT);
    if (!st)
        st = be->sync(ctx);
    lt_tensor_free(&wide);
    return st;
}

static lt_status read_values(batch *b)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, b->s->base.device, LT_F64, lt_tensor_shape(b->values)));
    lt_status st = lt_tensor_copy(wide, b->values);
    if (!st)
        st = lt_tensor_read(wide, b->host, (size_t)b->host_count * sizeof *b->host);
    lt_tensor_free(&wide);
    return st;
}

static lt_status write_values(batch *b)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, b->s->base.device, LT_F64, lt_tensor_shape(b->values)));
    lt_status st = lt_tensor_write(wide, b->host, (size_t)b->host_count * sizeof *b->host);
    if (!st)
        st = lt_tensor_copy(b->values, wide);
    lt_tensor_free(&wide);
    return st;
}

static lt_status decompose(batch *b)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    for (size_t i = 0; i < b->count; i++)
        b->job[i] = (lt_eigh_job){
            .a = matrix(b->a, &b->task[i]),
            .values = part(b->values, b->task[i].value_at, LT_SHAPE(b->task[i].n)),
            .vectors = matrix(b->q, &b->task[i]),
        };
    LT_TRY(be->eigh(ctx, b->job, b->count));
    LT_TRY(read_values(b));
    bool wide = lt_tensor_dtype(b->values) == LT_F64;
    for (size_t i = 0; i < b->count; i++) {
        b->task[i].failed = b->job[i].status != LT_OK;
        if (b->task[i].failed && !wide)
            LT_TRY(retry(b, &b->task[i]));
    }
    return LT_OK;
}

/* Eigenvalues to what the roots want: powers, or their square roots. */
static void make_powers(batch *b)
{
    const lt_shampoo_config *c = &b->s->config;
    bool half = !lt_shampoo_is_eigendecomposed(c);
    double machine = lt_tensor_dtype(b->values) == LT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    for (size_t i = 0; i < b->count; i++) {
        lt_root_task *t = &b->task[i];
        double *value = b->host + t->value_at;
        if (t->failed)
            continue;
        t->failed = !lt_inverse_powers(c, t->block->factor[t->dim].exponent, machine, value, t->n);
        for (int64_t k = 0; k < t->n && half; k++)
            value[k] = sqrt(value[k]);
    }
}

static lt_status store_roots(batch *b)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    size_t count = 0;
    LT_TRY(vec(b, scale_columns));
    for (size_t i = 0; i < b->count; i++) {
        const lt_root_task *t = &b->task[i];
        const lt_view root = lt_tensor_view(t->block->factor[t->dim].root);
        b->s->view[i] = root;
        if (!t->failed)
            b->s->gram[count++] = (lt_gram_job){.g = matrix(b->a, t), .f = root, .alpha = 1};
    }
    if (count)
        LT_TRY(be->gram(ctx, b->s->gram, count, b->s->base.scalars));
    return check_finite(b, "inverse root");
}

static lt_status store_bases(batch *b)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&b->s->base, &ctx);
    for (size_t i = 0; i < b->count; i++) {
        const lt_root_task *t = &b->task[i];
        const lt_factor *f = &t->block->factor[t->dim];
        const lt_view q = matrix(b->q, t), root = lt_tensor_view(f->root);
        b->s->view[i] = root;
        if (t->failed)
            continue;
        LT_TRY(be->cast(ctx, &q, &root));
        if (!f->power)
            continue;
        const lt_view from = part(b->values, t->value_at, LT_SHAPE(t->n));
        const lt_view to = lt_tensor_view(f->power);
        LT_TRY(be->cast(ctx, &from, &to));
    }
    return check_finite(b, "eigenbasis");
}

static lt_status run(batch *b)
{
    lt_preconditioner kind = b->s->config.preconditioner;
    bool roots = kind == LT_PRECONDITIONER_ROOT || kind == LT_PRECONDITIONER_KL;
    LT_TRY(make_matrices(b));
    LT_TRY(decompose(b));
    if (wants_powers(b)) {
        make_powers(b);
        LT_TRY(write_values(b));
    }
    return roots ? store_roots(b) : store_bases(b);
}

lt_status lt_shampoo_run_batch(lt_shampoo *s, lt_root_task *tasks, size_t count)
{
    batch b = {.s = s, .task = tasks, .count = count};
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++) {
        tasks[i].at = elements;
        tasks[i].value_at = b.host_count;
        elements += tasks[i].n * tasks[i].n;
        b.host_count += tasks[i].n;
    }
    lt_dtype dtype = lt_device_master(s->base.device);
    b.host = lt_alloc((size_t)b.host_count, sizeof *b.host);
    b.job = lt_alloc(count, sizeof *b.job);
    lt_status st = b.host && b.job ? LT_OK : LT_E_NOMEM;
    lt_tensor **scratch[] = {&b.a, &b.q, &b.values};
    for (int i = 0; i < 3 && !st; i++)
        st = lt_tensor_new(scratch[i], s->base.device, dtype,
                           LT_SHAPE(i < 2 ? elements : b.host_count));
    if (!st)
        st = run(&b);
    for (int i = 0; i < 3; i++)
        lt_tensor_free(scratch[i]);
    lt_free(b.job);
    lt_free(b.host);
    return st;
}
