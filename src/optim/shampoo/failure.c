/* Failure policy. A matrix whose solver failed keeps its old inverse root. A block counts consecutive refreshes in
 * which any of its matrices failed, as the reference implementation does. Above the tolerated number the policy
 * applies: the step fails, or the old roots remain in use, or the factor is replaced by its diagonal, which always
 * has an inverse root, R = (diag F / c2)^(-e). That is AdaGrad along one dimension: Duchi, Hazan & Singer, JMLR
 * 2011. */

#include "base/alloc.h"
#include "optim/shampoo/root/work_matrices.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/state_store.h"
#include "optim/slots.h"

#include "lather/log.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* --- Inverse root of a factor's diagonal --- */

typedef struct entry {
    double value;
    int64_t at;
} entry;

static int by_value(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    return (a->value > b->value) - (a->value < b->value);
}

/* Replaces a diagonal matrix's entries, which are its eigenvalues, by their damped powers. Returns false if one has
 * no power, or one beyond the root's dtype. */
static bool replace_by_inverse_powers(const lt_shampoo *s, double exponent, double *value,
                                      int64_t n, entry *entries)
{
    const lt_shampoo_config *c = &s->config;
    const bool wide = lt_device_master_dtype(s->base.device) == LT_F64;
    double trace = 0, scale = 1, add = c->epsilon_rule == LT_EPSILON_BEFORE ? c->epsilon : 0;
    for (int64_t i = 0; i < n; i++)
        trace += value[i];
    if (c->trace_scaling > 0)
        scale = lt_root_trace_scale(c, trace);
    for (int64_t i = 0; i < n; i++)
        entries[i] = (entry){value[i] * scale + add, i};
    qsort(entries, (size_t)n, sizeof *entries, by_value);
    for (int64_t i = 0; i < n; i++)
        value[i] = entries[i].value;
    if (!lt_inverse_powers(c, exponent, wide ? DBL_EPSILON : (double)FLT_EPSILON, value, n))
        return false;
    for (int64_t i = 0; i < n; i++) {
        if (!wide && fabs(value[i]) > (double)FLT_MAX)
            return false;
        entries[i].value = value[i];
    }
    for (int64_t i = 0; i < n; i++)
        value[entries[i].at] = entries[i].value;
    return true;
}

/* Copies a vector, times factor, to or from the diagonal of a square matrix. */
static lt_status copy_diagonal(const lt_shampoo *s, lt_view x, lt_view y, lt_vec_factor factor)
{
    const lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .factor = factor, .a = x, .y = y};
    return lt_optim_run_vec_jobs(&s->base, &job, 1);
}

/* Reads diag F / c2 to the host. fresh: F includes this step's gradient. */
static lt_status read_diagonal(const lt_shampoo *s, const lt_block *b, int d, bool fresh,
                               lt_tensor *vector, double *host)
{
    const lt_view gram = lt_tensor_view(b->factor[d].gram);
    lt_vec_factor factor = lt_shampoo_factor_bias(s, b);
    factor.lag += fresh ? 0 : 1;
    const lt_view to = lt_tensor_view(vector);
    LT_TRY(copy_diagonal(s, lt_root_diagonal_view(&gram), to, factor));
    return lt_root_read_vector(s->base.device, &to, host);
}

static lt_status write_diagonal_root(const lt_shampoo *s, const lt_factor *f, lt_tensor *vector,
                                     double *host, int64_t n)
{
    const bool basis = !f->power && lt_shampoo_is_corrected(&s->config);
    const lt_view root = lt_tensor_view(f->root), diagonal = lt_tensor_view(vector);
    LT_TRY(lt_tensor_fill(f->root, 0));
    if (f->power) {
        const lt_view power = lt_tensor_view(f->power);
        LT_TRY(lt_root_write_vector(s->base.device, host, &power));
    }
    for (int64_t i = 0; i < n && (f->power || basis); i++)
        host[i] = 1; /* the standard basis */
    LT_TRY(lt_root_write_vector(s->base.device, host, &diagonal));
    lt_tensor_bump_version(f->root);
    return copy_diagonal(s, diagonal, lt_root_diagonal_view(&root), (lt_vec_factor){0});
}

static lt_status replace_root_by_diagonal(const lt_shampoo *s, const lt_block *b, int d, bool fresh)
{
    const lt_factor *f = &b->factor[d];
    const double exponent = lt_shampoo_root_exponent(&s->config, f->exponent);
    const int64_t n = b->region.shape.dim[d];
    lt_device *device = s->base.device;
    lt_tensor *vector = NULL;
    double *host = lt_alloc((size_t)n, sizeof *host);
    entry *entries = lt_alloc((size_t)n, sizeof *entries);
    lt_status st = host && entries ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = lt_tensor_new(&vector, device, lt_device_master_dtype(device), LT_SHAPE(n));
    if (!st)
        st = read_diagonal(s, b, d, fresh, vector, host);
    if (!st && !replace_by_inverse_powers(s, exponent, host, n, entries))
        st = lt_fail(LT_E_ARG,
                     "shampoo: %s block %d, dimension %d: the factor's diagonal has no power %g "
                     "at step %" PRId64,
                     b->slot->param->name, b->index, d, -exponent, s->base.attempt);
    if (!st)
        st = write_diagonal_root(s, f, vector, host, n);
    lt_tensor_free(&vector);
    lt_free(entries);
    lt_free(host);
    return st;
}

/* --- Counting --- */

static void count_matrix_failures(lt_shampoo *s, const lt_root_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tasks[i].block->refreshed = tasks[i].block->failed = false;
    for (size_t i = 0; i < count; i++) {
        const lt_root_task *t = &tasks[i];
        lt_factor *f = &t->block->factor[t->dim];
        f->failures = t->status ? f->failures + 1 : 0;
        if (!t->status && f->root)
            lt_tensor_bump_version(f->root);
        t->block->failed |= t->status != LT_OK;
        s->stats.roots++;
        s->stats.retries += t->retried;
        s->stats.failures += t->status != LT_OK;
    }
}

static void count_block_failures(const lt_root_task *tasks, size_t count, int64_t step)
{
    for (size_t i = 0; i < count; i++) {
        lt_block *b = tasks[i].block;
        if (b->refreshed)
            continue;
        b->refreshed = true;
        b->failures = b->failed ? b->failures + 1 : 0;
        b->root_step = b->failed ? b->root_step : step;
    }
}

enum { MESSAGE = 512 };

static void format_failure(const lt_shampoo *s, const lt_root_task *t, int64_t step,
                           char text[MESSAGE])
{
    snprintf(text, MESSAGE,
             "shampoo: %s block %d, dimension %d (%" PRId64 " x %" PRId64
             "): no root at step %" PRId64 ": %s returned %s%s",
             t->block->slot->param->name, t->block->index, t->dim, t->n, t->n, step,
             lt_root_solver_name((int)s->config.root_solver), lt_status_name(t->status),
             t->retried ? ", in double precision too" : "");
}

static void warn_about_failure(const lt_shampoo *s, const lt_root_task *t, int64_t step,
                               const char *outcome)
{
    char text[MESSAGE];
    format_failure(s, t, step, text);
    lt_log(LT_LOG_WARN, "optim", "%s; %s (%" PRId64 " in a row, %d tolerated)", text, outcome,
           t->block->failures, s->config.tolerated_failures);
}

static lt_status fail_untolerated(const lt_shampoo *s, const lt_root_task *t, int64_t step)
{
    char text[MESSAGE];
    format_failure(s, t, step, text);
    return lt_fail(LT_E_ARG,
                   "%s; the block's roots failed %" PRId64 " times in a row, %d tolerated", text,
                   t->block->failures, s->config.tolerated_failures);
}

static lt_status apply_policy_to_matrix(lt_shampoo *s, const lt_root_task *t, int64_t step)
{
    const bool beyond = t->block->failures > s->config.tolerated_failures;
    if (beyond && s->config.on_failure == LT_ON_FAILURE_ABORT)
        return fail_untolerated(s, t, step);
    if (beyond && s->config.on_failure == LT_ON_FAILURE_DIAGONAL) {
        lt_root_task one = {.block = t->block, .dim = t->dim, .n = t->n};
        warn_about_failure(s, t, step, "its diagonal is used instead");
        LT_TRY(lt_shampoo_dequantize_tasks(&one, 1));
        LT_TRY(replace_root_by_diagonal(s, t->block, t->dim, step == s->base.attempt));
        lt_shampoo_requantize_tasks(&one, 1);
        return LT_OK;
    }
    warn_about_failure(s, t, step, "the old root is kept");
    return LT_OK;
}

lt_status lt_shampoo_handle_failures(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                     int64_t step)
{
    count_matrix_failures(s, tasks, count);
    count_block_failures(tasks, count, step);
    for (size_t i = 0; i < count; i++)
        if (tasks[i].status)
            LT_TRY(apply_policy_to_matrix(s, &tasks[i], step));
    return LT_OK;
}
