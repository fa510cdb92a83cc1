/* Inverse roots by eigendecomposition.
 *
 *   A = Q L Q^T,  R = (Q L^(-e/2)) (Q L^(-e/2))^T
 *
 * The last form makes R exactly symmetric for half of the multiplications. */

#include "optim/shampoo/root/work_matrices.h"

#include <float.h>
#include <math.h>

/* Workspace of one call of lt_root_eigh(). */
typedef struct work {
    const lt_root_set *set;
    lt_tensor *q, *scaled; /* eigenvectors; their columns times square roots of the powers */
    lt_tensor *values;     /* eigenvalues of all items, concatenated */
    double *host;          /* eigenvalues on the host; later their powers */
    int64_t elements, rows;
    lt_eigh_job *job;
    lt_vec_job *vec;
    lt_gram_job *gram;
} work;

static lt_status allocate_workspace(work *w)
{
    const lt_root_set *s = w->set;
    int64_t at = 0, row = 0;
    for (size_t i = 0; i < s->count; i++) {
        w->elements += s->item[i].n * s->item[i].n;
        w->rows += s->item[i].n;
    }
    LT_TRY(LT_ALLOC(&w->host, w->rows));
    LT_TRY(LT_ALLOC(&w->job, s->count));
    LT_TRY(LT_ALLOC(&w->vec, s->count));
    LT_TRY(LT_ALLOC(&w->gram, s->count));
    LT_TRY(lt_tensor_new(&w->values, s->device, s->dtype, LT_SHAPE(w->rows)));
    LT_TRY(lt_tensor_new(&w->q, s->device, s->dtype, LT_SHAPE(w->elements)));
    if (s->output == LT_OUTPUT_ROOT)
        LT_TRY(lt_tensor_new(&w->scaled, s->device, s->dtype, LT_SHAPE(w->elements)));
    for (size_t i = 0; i < s->count; i++) {
        const int64_t n = s->item[i].n;
        w->job[i] = (lt_eigh_job){.a = s->item[i].a,
                                  .values = lt_root_part_view(w->values, row, LT_SHAPE(n)),
                                  .vectors = lt_root_part_view(w->q, at, LT_SHAPE(n, n))};
        at += n * n;
        row += n;
    }
    return LT_OK;
}

static bool has_succeeded(const lt_root_set *set, size_t i)
{
    return set->item[i].job->status == LT_OK;
}

/* Replaces the eigenvalues by powers, or by square roots of powers. */
static void make_powers(work *w)
{
    const lt_root_set *s = w->set;
    const double machine = s->dtype == LT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double *value = w->host;
    for (size_t i = 0; i < s->count; value += s->item[i++].n) {
        lt_root_item *t = &s->item[i];
        if (!has_succeeded(s, i))
            continue;
        lt_shampoo_config c = *s->config;
        if (t->epsilon > 0) { /* already damped by whichever rule */
            c.epsilon_rule = LT_EPSILON_BEFORE;
            c.epsilon = t->epsilon;
        }
        if (!lt_inverse_powers(&c, t->job->exponent, machine, value, t->n))
            t->job->status =
                lt_fail(LT_E_ARG, "eigh: an eigenvalue has no power %g", -t->job->exponent);
        for (int64_t k = 0; k < t->n; k++) {
            if (s->output == LT_OUTPUT_POWERS)
                t->power[k] = value[k];
            else
                value[k] = sqrt(value[k]);
        }
    }
}

static lt_status make_roots(work *w)
{
    const lt_root_set *s = w->set;
    size_t count = 0;
    int64_t at = 0;
    for (size_t i = 0; i < s->count; i++) {
        const lt_root_item *t = &s->item[i];
        lt_vec_job scale = {.op = LT_VEC_MUL,
                            .alpha = 1,
                            .a = w->job[i].vectors,
                            .b = w->job[i].values,
                            .y = lt_root_part_view(w->scaled, at, LT_SHAPE(t->n, t->n))};
        scale.b.shape = scale.y.shape;
        scale.b.stride[0] = 0;
        scale.b.stride[1] = 1;
        at += t->n * t->n;
        if (!has_succeeded(s, i))
            continue;
        w->vec[count] = scale;
        w->gram[count++] = (lt_gram_job){.g = scale.y, .f = t->result, .alpha = 1};
    }
    if (!count)
        return LT_OK;
    LT_TRY(s->be->vec(s->ctx, w->vec, count, NULL));
    return s->be->gram(s->ctx, w->gram, count, NULL);
}

static lt_status store_bases(const work *w)
{
    const lt_root_set *s = w->set;
    for (size_t i = 0; i < s->count; i++)
        if (has_succeeded(s, i))
            LT_TRY(s->be->cast(s->ctx, &w->job[i].vectors, &s->item[i].result));
    return LT_OK;
}

static lt_status decompose_and_build_roots(work *w)
{
    const lt_root_set *s = w->set;
    LT_TRY(allocate_workspace(w));
    const lt_view values = lt_tensor_view(w->values);
    LT_TRY(s->be->eigh(s->ctx, w->job, s->count));
    for (size_t i = 0; i < s->count; i++)
        s->item[i].job->status = w->job[i].status;
    if (s->output != LT_OUTPUT_BASIS) {
        LT_TRY(lt_root_read_vector(s->device, &values, w->host));
        make_powers(w);
    }
    if (s->output != LT_OUTPUT_ROOT)
        return store_bases(w);
    LT_TRY(lt_root_write_vector(s->device, w->host, &values));
    return make_roots(w);
}

lt_status lt_root_eigh(const lt_root_set *set)
{
    work w = {.set = set};
    lt_status st = decompose_and_build_roots(&w);
    lt_tensor_free(&w.q);
    lt_tensor_free(&w.scaled);
    lt_tensor_free(&w.values);
    lt_free(w.host);
    lt_free(w.job);
    lt_free(w.vec);
    lt_free(w.gram);
    return st;
}
