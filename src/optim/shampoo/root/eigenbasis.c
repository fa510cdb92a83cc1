/* Eigenbases by orthogonal iteration from the last refresh: B = Q^T A Q = Q' R', Q <- Q Q' (Golub & Van Loan,
 * section 8.2.4). Columns are not sorted, so that the second moments in the basis remain valid; the QR
 * decomposition orthogonalizes the columns with the largest eigenvalues first. */

#include "optim/shampoo/root/work_matrices.h"

#include "lather/ext/elementary.h"

#include <float.h>
#include <math.h>

enum { Q, S, K, TEMP, BUFFERS };

typedef struct basis {
    lt_work_matrices work;
    const lt_root_set *set;
    lt_qr_job *qr;
} basis;

/* S = Q^T A Q. */
static lt_status project_onto_basis(basis *b)
{
    lt_work_matrices *s = &b->work;
    size_t count = 0;
    for (size_t i = 0; i < b->set->count; i++)
        if (s->active[i])
            s->product[count++] = (lt_mode_product_job){
                .g = lt_work_view(s, Q, i), .y = lt_work_view(s, TEMP, i), .m = b->set->item[i].a};
    if (!count)
        return LT_OK;
    LT_TRY(b->set->be->mode_product(b->set->ctx, s->product, count, NULL));
    return lt_work_product(s, S, Q, TEMP, true);
}

/* Sets the jobs' residuals |offdiagonal of S| / |S|; those within the tolerance become inactive. */
static lt_status measure_residuals(basis *b, double tolerance)
{
    lt_work_matrices *s = &b->work;
    const lt_root_set *set = b->set;
    LT_TRY(lt_work_read_norms(s, S));
    for (size_t i = 0; i < set->count; i++)
        s->error[i] = s->number[i]; /* norms of S */
    const lt_view out = lt_tensor_view(s->norms);
    for (size_t i = 0; i < set->count; i++) {
        const lt_view square = lt_work_view(s, S, i);
        s->view[i] = lt_root_diagonal_view(&square);
    }
    LT_TRY(set->be->frobenius(set->ctx, s->view, set->count, &out));
    LT_TRY(lt_tensor_read(s->norms, s->number, set->count * sizeof *s->number));
    for (size_t i = 0; i < set->count; i++) {
        if (!s->active[i])
            continue;
        const double all = s->error[i] * s->error[i], own = s->number[i] * s->number[i];
        const double residual = all > 0 ? sqrt(fmax(all - own, 0) / all) : 0;
        set->item[i].job->residual = isfinite(all) ? residual : HUGE_VAL;
        s->active[i] = !(residual <= tolerance);
    }
    return LT_OK;
}

/* Replaces each active basis Q by Q times the orthogonal factor of S = Q^T A Q. */
static lt_status qr_step(basis *b)
{
    lt_work_matrices *s = &b->work;
    size_t count = 0;
    for (size_t i = 0; i < b->set->count; i++)
        if (s->active[i])
            b->qr[count++] = (lt_qr_job){.a = lt_work_view(s, S, i), .q = lt_work_view(s, K, i)};
    LT_TRY(b->set->be->qr(b->set->ctx, b->qr, count));
    LT_TRY(lt_work_product(s, TEMP, Q, K, false));
    return lt_work_combine(s, Q, 1, NULL, TEMP, 0);
}

/* Computes an item's powers from the diagonal of S. */
static lt_status compute_item_powers(basis *b, size_t i)
{
    const lt_root_set *set = b->set;
    lt_root_item *t = &set->item[i];
    const lt_view square = lt_work_view(&b->work, S, i), from = lt_root_diagonal_view(&square);
    LT_TRY(lt_root_read_vector(set->device, &from, t->power));
    for (int64_t k = 0; k < t->n; k++) /* unsorted: each is raised to epsilon */
        t->power[k] = lt_f64_pow(fmax(t->power[k], fmax(t->epsilon, DBL_MIN)), -t->job->exponent);
    return LT_OK;
}

static void activate_all(basis *b)
{
    for (size_t i = 0; i < b->set->count; i++)
        b->work.active[i] = true;
}

static lt_status store_bases_and_powers(basis *b)
{
    activate_all(b);
    LT_TRY(lt_work_store_results(&b->work, NULL, Q));
    for (size_t i = 0; b->set->output == LT_OUTPUT_POWERS && i < b->set->count; i++)
        LT_TRY(compute_item_powers(b, i));
    return LT_OK;
}

/* Iterates from the old basis; without powers, residuals are those before the last iteration. A basis within
 * solver_tolerance is kept without an iteration. */
static lt_status run_orthogonal_iteration(basis *b)
{
    const int steps = b->set->config->solver_iterations ? b->set->config->solver_iterations : 1;
    const double tolerance = b->set->config->solver_tolerance;
    LT_TRY(lt_work_load_old(&b->work, Q));
    LT_TRY(project_onto_basis(b));
    LT_TRY(measure_residuals(b, tolerance > 0 ? tolerance : 0));
    for (int step = 1; step <= steps && lt_work_any_active(&b->work); step++) {
        for (size_t i = 0; i < b->set->count; i++)
            b->set->item[i].job->iterations += b->work.active[i];
        LT_TRY(qr_step(b));
        if (step == steps && b->set->output == LT_OUTPUT_BASIS)
            break; /* a projection costs more than the decomposition, and has no other reader */
        LT_TRY(project_onto_basis(b));
        LT_TRY(measure_residuals(b, tolerance > 0 ? tolerance : 0));
    }
    return store_bases_and_powers(b);
}

lt_status lt_root_qr(const lt_root_set *set)
{
    basis b = {.set = set};
    lt_status st = lt_work_open(&b.work, set, BUFFERS);
    b.qr = lt_alloc(set->count, sizeof *b.qr);
    if (!st)
        st = b.qr ? run_orthogonal_iteration(&b) : LT_E_NOMEM;
    lt_free(b.qr);
    lt_work_close(&b.work);
    return st;
}
