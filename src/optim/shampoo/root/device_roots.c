/* Inverse roots on a device with a stream. Numbers that the host would otherwise read are kept in device memory,
 * where kernels read them: a matrix's norm, which vectors are divided by, and its largest eigenvalue, the unit of
 * epsilon and of the poles. Results are read back once, after all work is queued, so the device never waits for the
 * host. docs/adr/0054-use-gemms-for-shampoo-on-gpus.md */

#include "optim/shampoo/root/work_matrices.h"

enum { NORM, INVERSE, LARGEST, RESIDUAL, SIZE, ONE, ROWS };

typedef struct queue {
    lt_root_set set;
    lt_tensor *numbers; /* f64 [ROWS, count] */
    lt_view *view;
    lt_vec_job *vec;
    double *host;
} queue;

static lt_view numbers_row(const queue *q, int which)
{
    const int64_t count = (int64_t)q->set.count;
    return lt_root_part_view(q->numbers, which * count, LT_SHAPE(count));
}

/* Returns the device address of an item's number. */
static const double *address_of(const queue *q, int which, size_t item)
{
    return (const double *)numbers_row(q, which).data + item;
}

/* Queues the norms of the items' matrices, or of their results. */
static lt_status queue_norms(const queue *q, int which)
{
    const lt_root_set *s = &q->set;
    const lt_view out = numbers_row(q, which);
    for (size_t i = 0; i < s->count; i++)
        q->view[i] = which == SIZE ? s->item[i].result : s->item[i].a;
    return s->be->frobenius(s->ctx, q->view, s->count, &out);
}

/* Queues the norms and their reciprocals (inf for a zero matrix). */
static lt_status queue_norms_and_reciprocals(const queue *q)
{
    const lt_root_set *s = &q->set;
    const lt_vec_job invert = {.op = LT_VEC_POW,
                               .alpha = 1,
                               .beta = 1,
                               .delta = 1,
                               .a = numbers_row(q, ONE),
                               .b = numbers_row(q, NORM),
                               .y = numbers_row(q, INVERSE)};
    LT_TRY(queue_norms(q, NORM));
    for (size_t i = 0; i < s->count; i++) {
        s->item[i].norm_at = address_of(q, NORM, i);
        s->item[i].inverse_at = address_of(q, INVERSE, i);
    }
    return s->be->vec(s->ctx, &invert, 1, NULL);
}

/* Queues a += epsilon * largest eigenvalue, with the config's epsilon. */
static lt_status queue_damping(const queue *q)
{
    const lt_root_set *s = &q->set;
    const lt_view largest = numbers_row(q, LARGEST);
    LT_TRY(queue_norms_and_reciprocals(q));
    LT_TRY(lt_root_enqueue_largest(s, &largest));
    for (size_t i = 0; i < s->count; i++) {
        lt_root_item *t = &s->item[i];
        lt_vec_job *v = &q->vec[i];
        t->epsilon = s->config->epsilon;
        t->largest_at = address_of(q, LARGEST, i);
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = t->epsilon, .beta = 1};
        v->factor = (lt_vec_factor){.over = t->largest_at, .under = s->device_one};
        v->y = lt_root_diagonal_view(&t->a);
        v->a = lt_root_part_view(s->one, 0, v->y.shape);
        v->a.stride[0] = 0;
    }
    return s->be->vec(s->ctx, q->vec, s->count, NULL);
}

static lt_status queue_all(const queue *q)
{
    const lt_root_set *s = &q->set;
    const lt_view residuals = numbers_row(q, RESIDUAL);
    if (s->config->epsilon_rule == LT_EPSILON_RELATIVE)
        LT_TRY(queue_damping(q));
    LT_TRY(lt_root_enqueue_rational(s));
    LT_TRY(lt_root_enqueue_residuals(s, &residuals));
    return queue_norms(q, SIZE);
}

static lt_status solve_and_read_back(queue *q, lt_root_numbers *numbers)
{
    const size_t count = q->set.count;
    LT_TRY(lt_tensor_new(&q->numbers, q->set.device, LT_F64, LT_SHAPE(ROWS, (int64_t)count)));
    LT_TRY(lt_tensor_fill(q->numbers, 1));
    q->set.device_one = address_of(q, ONE, 0);
    LT_TRY(queue_all(q));
    LT_TRY(lt_tensor_read(q->numbers, q->host, ROWS * count * sizeof *q->host));
    lt_root_set_residuals(&q->set, q->host + RESIDUAL * count);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (lt_root_numbers){.norm = q->host[NORM * count + i],
                                       .largest = q->host[LARGEST * count + i],
                                       .size = q->host[SIZE * count + i]};
    return LT_OK;
}

lt_status lt_root_solve_on_device(const lt_root_set *set, lt_root_numbers *numbers)
{
    queue q = {.set = *set};
    q.view = lt_alloc(set->count, sizeof *q.view);
    q.vec = lt_alloc(set->count, sizeof *q.vec);
    q.host = lt_alloc(ROWS * set->count, sizeof *q.host);
    lt_status st = q.view && q.vec && q.host ? solve_and_read_back(&q, numbers) : LT_E_NOMEM;
    lt_tensor_free(&q.numbers);
    lt_free(q.view);
    lt_free(q.vec);
    lt_free(q.host);
    return st;
}
