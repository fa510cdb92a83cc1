/* Trust ratios: You, Gitman & Ginsburg 2017 (arXiv 1708.03888), section 4. Parameters are independent, so batching
 * does not change results. */

#include "trust.h"

#include "base/alloc.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

/* Most elements of a batch (a single parameter may exceed it): 8 MiB of f32. */
static const int64_t batch_elements = (int64_t)1 << 21;

/* --- Batched kernels --- */

lt_view lt_trust_update_view(const lt_trust *t, size_t i)
{
    const lt_view scratch = lt_tensor_view(t->scratch);
    lt_view v = lt_tensor_view(t->due[i]->param->value);
    v.data = (char *)scratch.data + (size_t)t->at[i] * lt_dtype_size(scratch.dtype);
    v.version = 0;
    return v;
}

/* Lists the jobs of due[i]; returns their number. */
static size_t list_jobs(const lt_trust *t, size_t i, lt_trust_rule *const *rule, size_t rules,
                        lt_vec_job *job)
{
    size_t count = 0;
    for (size_t k = 0; k < rules; k++) {
        job[count] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1};
        count += rule[k](t, i, &job[count]);
    }
    return count;
}

lt_status lt_trust_run_rules(lt_trust *t, lt_trust_batch batch, lt_trust_rule *const *rule,
                             size_t rules)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&t->base, &ctx);
    size_t lists = 0, jobs = 0;
    LT_ASSERT(rules <= LT_TRUST_RULES);
    for (size_t i = batch.begin; i < batch.end; i++) {
        const size_t count = list_jobs(t, i, rule, rules, &t->job[jobs]);
        if (count)
            t->list[lists++] = (lt_vec_list){.job = &t->job[jobs], .count = count};
        jobs += count;
    }
    if (be->vec_lists)
        return lists ? be->vec_lists(ctx, t->list, lists, t->base.scalars) : LT_OK;
    for (size_t i = 0; i < jobs; i++)
        LT_TRY(be->vec(ctx, &t->job[i], 1, t->base.scalars));
    return LT_OK;
}

bool lt_trust_copy_gradient(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->factor.grad_scale = true;
    job->a = lt_tensor_view(t->due[i]->param->grad);
    job->y = lt_trust_update_view(t, i);
    return true;
}

bool lt_trust_add_decay(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = t->due[i]->weight_decay;
    job->beta = 1;
    job->a = lt_tensor_view(t->due[i]->param->value);
    job->y = lt_trust_update_view(t, i);
    return job->alpha != 0;
}

/* --- Ratios --- */

/* Returns count columns of a row of the table. */
static lt_view table_row(const lt_trust *t, lt_trust_row which, size_t first, int64_t count)
{
    lt_view v = lt_tensor_view(t->table);
    v.data = (double *)v.data + (size_t)which * t->base.count + first;
    v.shape = LT_SHAPE(count);
    v.stride[0] = 1;
    return v;
}

/* vec multiplies by a quotient: the ratio over the number 1, which is stored after the rows. */
void lt_trust_scale_by_ratio(const lt_trust *t, size_t i, lt_vec_job *job)
{
    if (t->column[i] < 0)
        return;
    job->factor.over = (const double *)table_row(t, LT_TRUST_RATIO, 0, 1).data + t->column[i];
    job->factor.under = table_row(t, LT_TRUST_ROWS, 0, 1).data;
}

/* Assigns table columns, from batch.begin on, to the batch's parameters that use a trust ratio; returns their number. */
static size_t assign_ratio_columns(lt_trust *t, lt_trust_batch batch)
{
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        const lt_slot *slot = t->due[i];
        t->column[i] = -1;
        if (!lt_optim_slot_decays(&t->base, slot) && !t->always_adapt)
            continue;
        t->item[count] = (lt_trust_item){slot->lr_scale, slot->weight_decay};
        t->column[i] = (int64_t)(batch.begin + count++);
    }
    return count;
}

static lt_status measure_norms(lt_trust *t, lt_trust_batch batch, lt_trust_row which,
                               bool of_gradients)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&t->base, &ctx);
    int64_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        const lt_param *param = t->due[i]->param;
        if (t->column[i] >= 0)
            t->view[count++] = which == LT_TRUST_WEIGHT ? lt_tensor_view(param->value)
                               : of_gradients           ? lt_tensor_view(param->grad)
                                                        : lt_trust_update_view(t, i);
    }
    const lt_view out = table_row(t, which, batch.begin, count);
    return be->frobenius(ctx, t->view, (size_t)count, &out);
}

lt_status lt_trust_compute_ratios(lt_trust *t, lt_trust_batch batch, bool of_gradients)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&t->base, &ctx);
    const size_t count = assign_ratio_columns(t, batch);
    if (!count)
        return LT_OK;
    LT_TRY(measure_norms(t, batch, LT_TRUST_WEIGHT, of_gradients));
    LT_TRY(measure_norms(t, batch, LT_TRUST_UPDATE, of_gradients));
    lt_view table = table_row(t, LT_TRUST_WEIGHT, batch.begin, 1);
    table.shape = LT_SHAPE(LT_TRUST_ROWS, (int64_t)count);
    table.stride[0] = (int64_t)t->base.count;
    table.stride[1] = 1;
    return be->trust_ratio(ctx, &t->kernel, t->item, count, &table, t->base.scalars);
}

/* --- A step --- */

/* Returns the batch of parameters from due[begin] on and sets their offsets. */
static lt_trust_batch next_batch(lt_trust *t, size_t begin, size_t count)
{
    lt_trust_batch b = {begin, begin};
    int64_t elements = 0;
    for (; b.end < count; b.end++) {
        const int64_t more = lt_tensor_count(t->due[b.end]->param->value);
        if (b.end > begin && elements + more > batch_elements)
            break;
        t->at[b.end] = elements;
        elements += more;
    }
    return b;
}

/* Returns the elements of the largest batch of this rank's parameters. */
static int64_t largest_batch_elements(const lt_trust *t)
{
    int64_t all = 0, largest = batch_elements;
    for (size_t i = 0; i < t->base.count; i++) {
        const lt_slot *slot = &t->base.slot[i];
        const int64_t count = slot->not_owned ? 0 : lt_tensor_count(slot->param->value);
        all += count;
        largest = count > largest ? count : largest;
    }
    return all < largest ? all : largest;
}

static lt_status allocate_workspace(lt_trust *t)
{
    lt_device *device = t->base.device;
    const int64_t elements = largest_batch_elements(t),
                  rows = LT_TRUST_ROWS * (int64_t)t->base.count;
    if (t->table)
        return LT_OK;
    if (!t->scratch && elements)
        LT_TRY(
            lt_tensor_new(&t->scratch, device, lt_device_master_dtype(device), LT_SHAPE(elements)));
    double *values = lt_alloc((size_t)rows + 1, sizeof *values);
    lt_tensor *table = NULL;
    lt_status st = values ? lt_tensor_new(&table, device, LT_F64, LT_SHAPE(rows + 1)) : LT_E_NOMEM;
    if (!st) {
        values[rows] = 1;
        st = lt_tensor_write(table, values, ((size_t)rows + 1) * sizeof *values);
    }
    if (st)
        lt_tensor_free(&table);
    t->table = table;
    lt_free(values);
    return st;
}

/* Appends the slots that are due to those of earlier calls of the same step; returns the index of the first. Slots of a step
 * ascend: others are of a step that is repeated after an error. */
static size_t list_due_slots(lt_trust *t)
{
    const size_t earlier = t->attempt == t->base.attempt ? t->count : 0;
    size_t first = earlier, count = earlier;
    for (size_t i = 0; i < t->base.count; i++) {
        const lt_slot *slot = &t->base.slot[i];
        if (!lt_slot_is_due(slot))
            continue;
        if (count && t->due[count - 1] >= slot)
            first = count = 0;
        t->due[count++] = slot;
    }
    t->attempt = t->base.attempt;
    t->count = count;
    return first;
}

lt_status lt_trust_step_in_batches(lt_trust *t, lt_trust_fn *update)
{
    LT_TRY(allocate_workspace(t));
    for (size_t begin = list_due_slots(t); begin < t->count;) {
        const lt_trust_batch batch = next_batch(t, begin, t->count);
        LT_TRY(update(t, batch));
        begin = batch.end;
    }
    return LT_OK;
}

lt_status lt_trust_measure_ratio(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                                 double out[LT_MAX_STATS])
{
    const lt_trust *t = (const lt_trust *)self;
    size_t i = 0;
    (void)rule;
    while (i < t->count && t->due[i] != slot)
        i++;
    out[0] = 1;
    if (i == t->count || t->column[i] < 0)
        return LT_OK;
    const lt_view ratio = table_row(t, LT_TRUST_RATIO, (size_t)t->column[i], 1);
    return lt_optim_read_device_scalar(self, &ratio, out);
}

bool lt_trust_has_workspace(const lt_optim *self)
{
    return ((const lt_trust *)self)->table != NULL;
}

/* --- Construction --- */

static lt_status check_backend(const lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    LT_TRY(lt_optim_require_kernel(o, be->vec != NULL, "vec"));
    LT_TRY(lt_optim_require_kernel(o, be->frobenius != NULL, "frobenius"));
    return lt_optim_require_kernel(o, be->trust_ratio != NULL, "trust_ratio");
}

static lt_status allocate_lists(lt_trust *t)
{
    const size_t slots = t->base.count;
    LT_TRY(check_backend(&t->base));
    t->due = lt_alloc(slots, sizeof(lt_slot *));
    t->at = lt_alloc(slots, sizeof *t->at);
    t->column = lt_alloc(slots, sizeof *t->column);
    t->item = lt_alloc(slots, sizeof *t->item);
    t->job = lt_alloc(slots * LT_TRUST_RULES, sizeof *t->job);
    t->list = lt_alloc(slots, sizeof *t->list);
    t->view = lt_alloc(slots, sizeof *t->view);
    return t->due && t->at && t->column && t->item && t->job && t->list && t->view ? LT_OK
                                                                                   : LT_E_NOMEM;
}

lt_status lt_trust_new(lt_optim **out, const lt_optim_ops *ops, const lt_params *params,
                       double weight_decay, lt_decay_scope scope)
{
    lt_optim *o = NULL;
    LT_TRY(lt_optim_new(&o, ops, params, weight_decay, scope));
    const lt_status st = allocate_lists((lt_trust *)o);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

void lt_trust_destroy(lt_optim *self)
{
    lt_trust *t = (lt_trust *)self;
    lt_tensor_free(&t->scratch);
    lt_tensor_free(&t->table);
    lt_free(t->view);
    lt_free(t->list);
    lt_free(t->job);
    lt_free(t->item);
    lt_free(t->column);
    lt_free(t->at);
    lt_free((void *)t->due);
}
