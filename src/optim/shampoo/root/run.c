/* lt_root_run(): damps, solves by the chosen solver, repeats failures in double and then by eigendecomposition, and
 * stores the results. */

#include "optim/shampoo/root/work_matrices.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* State of one call of lt_root_run(). */
typedef struct run {
    const lt_root_context *context;
    lt_root_job *job;
    size_t count;
    lt_root_set set; /* items of the jobs that a solver processes */
    lt_view *view;   /* one per job */
    lt_vec_job *vec;
    lt_tensor *norms;         /* f64, one per job */
    double *host;             /* norms or traces on the host */
    double *epsilon;          /* epsilon added to each job's matrix */
    double *norm;             /* norm of each job's matrix before damping */
    lt_root_numbers *numbers; /* per item of the set, read back from the device */
    lt_tensor *one;           /* [1]: the number 1 */
    lt_tensor *result;        /* results of the set's items, concatenated */
    double *power;
} run;

static const char *name_of(const run *r)
{
    return r->context->optim ? r->context->optim : "shampoo";
}

/* --- Checks --- */

/* Reads the Frobenius norms of count views to the host; NaN and Inf propagate to them. */
static lt_status read_norms(run *r, size_t count)
{
    const lt_root_set *s = &r->set;
    lt_view out = lt_tensor_view(r->norms);
    LT_TRY(s->be->frobenius(s->ctx, r->view, count, &out));
    return lt_tensor_read(r->norms, r->host, r->count * sizeof *r->host);
}

/* Fails for a factor that is not finite: no failure policy helps, as it never becomes finite again. */
static lt_status check_factor(const run *r, const lt_root_job *job, double norm)
{
    if (isfinite(norm))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "%s: %s block %d, dimension %d: the factor is not finite at step %" PRId64,
                   name_of(r), job->param, job->block, job->dim, r->context->step);
}

static lt_status check_factors(run *r)
{
    for (size_t i = 0; i < r->count; i++)
        r->view[i] = r->job[i].a;
    LT_TRY(read_norms(r, r->count));
    for (size_t i = 0; i < r->count; i++)
        LT_TRY(check_factor(r, &r->job[i], r->host[i]));
    memcpy(r->norm, r->host, r->count * sizeof *r->norm);
    return LT_OK;
}

/* Lists the jobs that succeeded, or those that failed, as items in the master dtype. */
static void list_items(run *r, bool failed)
{
    lt_root_set *s = &r->set;
    s->dtype = lt_device_master_dtype(s->device);
    s->count = 0;
    for (size_t i = 0; i < r->count; i++) {
        lt_root_job *job = &r->job[i];
        if (failed != (job->status != LT_OK))
            continue;
        s->item[s->count++] = (lt_root_item){.job = job,
                                             .n = job->a.shape.dim[0],
                                             .a = job->a,
                                             .old = job->old,
                                             .epsilon = r->epsilon[i],
                                             .norm = r->norm[i]};
    }
}

/* --- Damping --- */

/* Reads the traces to the host array. */
static lt_status read_traces(run *r)
{
    const lt_root_set *s = &r->set;
    for (size_t i = 0; i < r->count; i++) {
        const lt_view x = lt_root_diagonal_view(&r->job[i].a);
        const lt_view y = lt_root_part_view(r->norms, (int64_t)i, LT_SHAPE(1));
        LT_TRY(s->be->sum(s->ctx, 1, &x, &y));
    }
    return lt_tensor_read(r->norms, r->host, r->count * sizeof *r->host);
}

/* Multiplies A by max(tr A, epsilon)^-x. */
static lt_status scale_by_traces(run *r)
{
    const lt_shampoo_config *c = r->set.config;
    LT_TRY(read_traces(r));
    for (size_t i = 0; i < r->count; i++) {
        const double factor = lt_root_trace_scale(c, r->host[i]);
        r->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = factor};
        r->vec[i].a = r->vec[i].y = r->job[i].a;
        r->norm[i] *= factor;
    }
    return r->set.be->vec(r->set.ctx, r->vec, r->count, NULL);
}

/* Sets the items' epsilons, relative to their largest eigenvalues if the rule is relative. */
static lt_status set_item_epsilons(run *r)
{
    const lt_shampoo_config *c = r->set.config;
    const bool relative = c->epsilon_rule == LT_EPSILON_RELATIVE;
    lt_root_set *s = &r->set;
    if (relative)
        LT_TRY(lt_root_estimate_largest(s, r->host));
    for (size_t i = 0; i < s->count; i++)
        s->item[i].epsilon = relative ? c->epsilon * r->host[i] : c->epsilon;
    return LT_OK;
}

static lt_status add_epsilons(run *r)
{
    const lt_root_set *s = &r->set;
    list_items(r, false);
    LT_TRY(set_item_epsilons(r));
    for (size_t i = 0; i < s->count; i++) {
        lt_vec_job *v = &r->vec[i];
        const lt_root_item *t = &s->item[i];
        r->epsilon[t->job - r->job] = t->epsilon;
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = t->epsilon, .beta = 1};
        v->y = lt_root_diagonal_view(&t->job->a);
        v->a = lt_root_part_view(r->one, 0, v->y.shape);
        v->a.stride[0] = 0;
    }
    return s->be->vec(s->ctx, r->vec, s->count, NULL);
}

static lt_status damp_if_needed(run *r)
{
    const lt_shampoo_config *c = r->set.config;
    const bool eigen = c->root_solver == LT_ROOT_EIGH;
    return eigen && c->epsilon_rule != LT_EPSILON_BEFORE ? LT_OK : add_epsilons(r);
}

/* --- Solving --- */

/* Allocates the results of the set's items, in the set's dtype. */
static lt_status allocate_results(run *r)
{
    lt_root_set *s = &r->set;
    int64_t elements = 0, rows = 0;
    for (size_t i = 0; i < s->count; i++) {
        elements += s->item[i].n * s->item[i].n;
        rows += s->item[i].n;
    }
    lt_tensor_free(&r->result);
    lt_free(r->power);
    LT_TRY(LT_ALLOC(&r->power, rows));
    LT_TRY(lt_tensor_new(&r->result, s->device, s->dtype, LT_SHAPE(elements)));
    elements = rows = 0;
    for (size_t i = 0; i < s->count; i++) {
        lt_root_item *t = &s->item[i];
        t->result = lt_root_part_view(r->result, elements, LT_SHAPE(t->n, t->n));
        t->power = r->power + rows;
        elements += t->n * t->n;
        rows += t->n;
    }
    return LT_OK;
}

/* Copies the results of the items that succeeded to the jobs' memory. */
static lt_status store_results(const run *r)
{
    const lt_root_set *s = &r->set;
    const bool casts = s->be->host_memory || s->dtype != lt_device_master_dtype(s->device);
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const lt_root_item *t = &s->item[i];
        if (t->job->status)
            continue;
        if (casts)
            LT_TRY(s->be->cast(s->ctx, &t->result, &t->job->out));
        else /* one launch instead of many casts */
            r->vec[count++] =
                (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = t->result, .y = t->job->out};
        if (s->output == LT_OUTPUT_POWERS)
            LT_TRY(lt_root_write_vector(s->device, t->power, &t->job->power));
    }
    return count ? s->be->vec(s->ctx, r->vec, count, NULL) : LT_OK;
}

/* Fails jobs whose measured residual is NaN or above the tolerance. */
static void check_residuals(const run *r)
{
    const double tolerance = r->set.tolerance;
    for (size_t i = 0; i < r->set.count; i++) {
        lt_root_job *job = r->set.item[i].job;
        if (!job->status && !(job->residual < 0) && !(job->residual <= tolerance))
            job->status = lt_fail(LT_E_ARG, "roots: residual %g exceeds the tolerance %g",
                                  job->residual, tolerance);
    }
}

static bool are_powers_representable(const run *r, const lt_root_item *t, double most)
{
    int64_t i = 0;
    while (r->set.output == LT_OUTPUT_POWERS && i < t->n && t->power[i] <= most) /* false for NaN */
        i++;
    return r->set.output != LT_OUTPUT_POWERS || i == t->n;
}

/* Fails a job whose result overflows the master dtype, and leaves the job's memory as it was. */
static void check_for_overflow(const run *r, const lt_root_item *t, double size)
{
    const double most = lt_device_master_dtype(r->set.device) == LT_F64 ? DBL_MAX : (double)FLT_MAX;
    if (!t->job->status && !(size <= most && are_powers_representable(r, t, most)))
        t->job->status =
            lt_fail(LT_E_ARG, "roots: result of norm %g exceeds the largest number %g", size, most);
}

static lt_status check_results_for_overflow(run *r)
{
    const lt_root_set *s = &r->set;
    for (size_t i = 0; i < s->count; i++)
        r->view[i] = s->item[i].job->status ? s->item[i].a : s->item[i].result;
    LT_TRY(read_norms(r, s->count));
    for (size_t i = 0; i < s->count; i++)
        check_for_overflow(r, &s->item[i], r->host[i]);
    return LT_OK;
}

/* Returns LT_E_NOMEM if a job ran out of memory: no failure policy tolerates that. */
static lt_status fail_if_out_of_memory(const run *r)
{
    for (size_t i = 0; i < r->set.count; i++)
        if (r->set.item[i].job->status == LT_E_NOMEM)
            return lt_fail(LT_E_NOMEM, "%s: out of memory for a root", name_of(r));
    return LT_OK;
}

static lt_status solve_and_check(run *r, const lt_root_method *method)
{
    if (!r->set.count)
        return LT_OK;
    LT_TRY(allocate_results(r));
    LT_TRY(method->solve(&r->set));
    LT_TRY(fail_if_out_of_memory(r));
    check_residuals(r);
    LT_TRY(check_results_for_overflow(r));
    return store_results(r);
}

/* Returns true if all work is queued before the host reads anything back. */
static bool runs_on_device(const run *r)
{
    return !r->set.be->host_memory && r->set.config->root_solver == LT_ROOT_RATIONAL;
}

/* Takes the norms and epsilons that were read back, for matrices that are solved again. */
static lt_status store_read_back_numbers(run *r)
{
    const lt_root_set *s = &r->set;
    for (size_t i = 0; i < s->count && s->config->epsilon_rule == LT_EPSILON_RELATIVE; i++) {
        const lt_root_job *job = s->item[i].job;
        LT_TRY(check_factor(r, job, r->numbers[i].norm));
        r->norm[job - r->job] = r->numbers[i].norm;
        r->epsilon[job - r->job] = s->config->epsilon * r->numbers[i].largest;
    }
    return LT_OK;
}

static lt_status solve_on_device(run *r)
{
    if (!r->set.count)
        return LT_OK;
    LT_TRY(allocate_results(r));
    LT_TRY(lt_root_solve_on_device(&r->set, r->numbers));
    LT_TRY(store_read_back_numbers(r));
    check_residuals(r);
    for (size_t i = 0; i < r->set.count; i++)
        check_for_overflow(r, &r->set.item[i], r->numbers[i].size);
    return store_results(r);
}

/* Converts the set's matrices and old results to double. */
static lt_status convert_to_double(run *r, lt_tensor **wide)
{
    lt_root_set *s = &r->set;
    int64_t elements = 0, at = 0;
    for (size_t i = 0; i < s->count; i++)
        elements += 2 * s->item[i].n * s->item[i].n;
    LT_TRY(lt_tensor_new(wide, s->device, LT_F64, LT_SHAPE(elements)));
    for (size_t i = 0; i < s->count; i++) {
        lt_root_item *t = &s->item[i];
        const lt_view a = lt_root_part_view(*wide, at, LT_SHAPE(t->n, t->n));
        const lt_view old = lt_root_part_view(*wide, at + t->n * t->n, LT_SHAPE(t->n, t->n));
        LT_TRY(s->be->cast(s->ctx, &t->a, &a));
        if (t->old.data) {
            LT_TRY(s->be->cast(s->ctx, &t->old, &old));
            t->old = old;
        }
        t->a = a;
        at += 2 * t->n * t->n;
        t->job->status = LT_OK;
        t->job->retried = true;
    }
    s->dtype = LT_F64;
    return LT_OK;
}

/* Repeats failed jobs in double. */
static lt_status retry_in_double(run *r, const lt_root_method *method)
{
    lt_tensor *wide = NULL;
    list_items(r, true);
    if (!r->set.count || r->set.dtype == LT_F64)
        return LT_OK;
    lt_status st = convert_to_double(r, &wide);
    if (!st)
        st = solve_and_check(r, method);
    lt_tensor_free(&wide);
    return st;
}

/* Repeats jobs that failed again by eigendecomposition. */
static lt_status fall_back_to_eigh(run *r)
{
    const lt_root_method *eigh = lt_root_method_of(LT_ROOT_EIGH);
    list_items(r, true);
    for (size_t i = 0; i < r->set.count; i++) {
        lt_root_job *job = r->set.item[i].job;
        job->status = LT_OK;
        job->used = LT_ROOT_EIGH;
        job->retried = false;
        job->residual = -1;
    }
    LT_TRY(solve_and_check(r, eigh));
    return retry_in_double(r, eigh);
}

/* Returns true if the host needs the norms first. With a relative epsilon the device's own suffice. */
static bool needs_norms(const run *r)
{
    const lt_shampoo_config *c = r->set.config;
    return !runs_on_device(r) || c->epsilon_rule != LT_EPSILON_RELATIVE || c->trace_scaling > 0;
}

static lt_status run_all_jobs(run *r)
{
    const lt_root_method *method = lt_root_method_of(r->set.config->root_solver);
    const bool on_device = runs_on_device(r);
    if (needs_norms(r))
        LT_TRY(check_factors(r));
    if (r->set.config->trace_scaling > 0)
        LT_TRY(scale_by_traces(r));
    if (!on_device || r->set.config->epsilon_rule != LT_EPSILON_RELATIVE)
        LT_TRY(damp_if_needed(r));
    for (size_t i = 0; i < r->count && method->needs_old; i++)
        if (!r->job[i].old.data)
            r->job[i].status = LT_E_ARG; /* first refresh: left to eigh */
    list_items(r, false);
    LT_TRY(on_device ? solve_on_device(r) : solve_and_check(r, method));
    if (!method->needs_old)
        LT_TRY(retry_in_double(r, method));
    return method == lt_root_method_of(LT_ROOT_EIGH) ? LT_OK : fall_back_to_eigh(r);
}

static lt_root_output output_of(lt_preconditioner kind)
{
    switch (kind) {
    case LT_PRECONDITIONER_EIGENDECOMPOSED:
    case LT_PRECONDITIONER_KL_EIGENDECOMPOSED:
    case LT_PRECONDITIONER_KL_CORRECTED:
        return LT_OUTPUT_POWERS;
    case LT_PRECONDITIONER_CORRECTED:
        return LT_OUTPUT_BASIS;
    case LT_PRECONDITIONER_ROOT:
    case LT_PRECONDITIONER_KL:
    case LT_PRECONDITIONER_SPECTRAL: /* has no factors */
    case LT_PRECONDITIONER_SIGN:
        break;
    }
    return LT_OUTPUT_ROOT;
}

static void count_results(const run *r)
{
    lt_root_stats *s = r->context->stats;
    for (size_t i = 0; s && i < r->count; i++) {
        const lt_root_job *job = &r->job[i];
        s->matrices++;
        s->retries += job->retried;
        s->fallbacks += job->used != r->set.config->root_solver;
        s->failures += job->status != LT_OK;
        if (!job->status)
            s->residual = fmax(s->residual, job->residual);
    }
}

static lt_status prepare_jobs(run *r)
{
    lt_root_set *s = &r->set;
    const lt_device *device = r->context->device;
    s->config = r->context->config;
    s->device = r->context->device;
    s->be = device->backend;
    s->ctx = device->ctx;
    s->output = output_of(s->config->preconditioner);
    s->tolerance = lt_root_tolerance(s->config);
    for (size_t i = 0; i < r->count; i++) {
        r->job[i].status = LT_OK;
        r->job[i].used = s->config->root_solver;
        r->job[i].retried = false;
        r->job[i].iterations = 0;
        r->job[i].residual = -1;
    }
    LT_TRY(LT_ALLOC(&s->item, r->count));
    LT_TRY(LT_ALLOC(&r->view, r->count));
    LT_TRY(LT_ALLOC(&r->vec, r->count));
    LT_TRY(LT_ALLOC(&r->host, r->count));
    LT_TRY(LT_ALLOC(&r->epsilon, r->count));
    LT_TRY(LT_ALLOC(&r->norm, r->count));
    LT_TRY(LT_ALLOC(&r->numbers, r->count));
    LT_TRY(lt_tensor_new(&r->norms, s->device, LT_F64, LT_SHAPE((int64_t)r->count)));
    LT_TRY(lt_tensor_new(&r->one, s->device, lt_device_master_dtype(s->device), LT_SHAPE(1)));
    s->one = r->one;
    return lt_tensor_fill(r->one, 1);
}

lt_status lt_root_run(const lt_root_context *context, lt_root_job *job, size_t count)
{
    run r = {.context = context, .job = job, .count = count};
    if (!count)
        return LT_OK;
    lt_status st = prepare_jobs(&r);
    if (!st)
        st = run_all_jobs(&r);
    if (!st)
        count_results(&r);
    lt_tensor_free(&r.norms);
    lt_tensor_free(&r.one);
    lt_tensor_free(&r.result);
    lt_free(r.set.item);
    lt_free(r.view);
    lt_free(r.vec);
    lt_free(r.host);
    lt_free(r.epsilon);
    lt_free(r.norm);
    lt_free(r.numbers);
    lt_free(r.power);
    return st;
}
