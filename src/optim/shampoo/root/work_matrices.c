/* Work matrices of the solvers. */

#include "optim/shampoo/root/work_matrices.h"

#include <string.h>

lt_status lt_work_open(lt_work_matrices *s, const lt_root_set *set, int buffers)
{
    int64_t elements = 0;
    *s = (lt_work_matrices){.set = set};
    LT_TRY(LT_ALLOC(&s->at, set->count));
    LT_TRY(LT_ALLOC(&s->active, set->count));
    LT_TRY(LT_ALLOC(&s->number, set->count));
    LT_TRY(LT_ALLOC(&s->scale, set->count));
    LT_TRY(LT_ALLOC(&s->error, set->count));
    LT_TRY(LT_ALLOC(&s->product, set->count));
    LT_TRY(LT_ALLOC(&s->vec, set->count));
    LT_TRY(LT_ALLOC(&s->view, set->count));
    for (size_t i = 0; i < set->count; i++) {
        s->at[i] = elements;
        s->active[i] = true;
        elements += set->item[i].n * set->item[i].n;
    }
    for (int b = 0; b < buffers; b++)
        LT_TRY(lt_tensor_new(&s->buffer[b], set->device, set->dtype, LT_SHAPE(elements)));
    LT_TRY(lt_tensor_new(&s->norms, set->device, LT_F64, LT_SHAPE((int64_t)set->count)));
    LT_TRY(lt_tensor_new(&s->one, set->device, set->dtype, LT_SHAPE(1)));
    return lt_tensor_fill(s->one, 1);
}

void lt_work_close(lt_work_matrices *s)
{
    for (int b = 0; b < LT_MAX_WORK_BUFFERS; b++)
        lt_tensor_free(&s->buffer[b]);
    lt_tensor_free(&s->norms);
    lt_tensor_free(&s->one);
    lt_free(s->at);
    lt_free(s->active);
    lt_free(s->number);
    lt_free(s->scale);
    lt_free(s->error);
    lt_free(s->product);
    lt_free(s->vec);
    lt_free(s->view);
}

lt_view lt_work_view(const lt_work_matrices *s, int buffer, size_t item)
{
    const int64_t n = s->set->item[item].n;
    return lt_root_part_view(s->buffer[buffer], s->at[item], LT_SHAPE(n, n));
}

void lt_work_swap(lt_work_matrices *s, int a, int b)
{
    lt_tensor *t = s->buffer[a];
    s->buffer[a] = s->buffer[b];
    s->buffer[b] = t;
}

bool lt_work_any_active(const lt_work_matrices *s)
{
    for (size_t i = 0; i < s->set->count; i++)
        if (s->active[i])
            return true;
    return false;
}

static lt_status run_products(lt_work_matrices *s, size_t count)
{
    return count ? s->set->be->mode_product(s->set->ctx, s->product, count, NULL) : LT_OK;
}

static lt_status run_vec(lt_work_matrices *s, size_t count)
{
    return count ? s->set->be->vec(s->set->ctx, s->vec, count, NULL) : LT_OK;
}

lt_status lt_work_product(lt_work_matrices *s, int to, int left, int right, bool transpose)
{
    size_t count = 0;
    for (size_t i = 0; i < s->set->count; i++)
        if (s->active[i])
            s->product[count++] = (lt_mode_product_job){.g = lt_work_view(s, right, i),
                                                        .y = lt_work_view(s, to, i),
                                                        .m = lt_work_view(s, left, i),
                                                        .transpose = transpose};
    return run_products(s, count);
}

lt_status lt_work_combine(lt_work_matrices *s, int to, double a, const double *scale, int from,
                          double b)
{
    size_t count = 0;
    for (size_t i = 0; i < s->set->count; i++)
        if (s->active[i])
            s->vec[count++] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                           .alpha = scale ? a * scale[i] : a,
                                           .beta = b,
                                           .a = lt_work_view(s, from, i),
                                           .y = lt_work_view(s, to, i)};
    return run_vec(s, count);
}

lt_status lt_work_add_identity(lt_work_matrices *s, int to, double c)
{
    size_t count = 0;
    for (size_t i = 0; i < s->set->count; i++) {
        if (!s->active[i])
            continue;
        const lt_view square = lt_work_view(s, to, i);
        lt_vec_job *v = &s->vec[count++];
        *v = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = c, .beta = 1};
        v->y = lt_root_diagonal_view(&square);
        v->a = lt_root_part_view(s->one, 0, v->y.shape);
        v->a.stride[0] = 0;
    }
    return run_vec(s, count);
}

/* Copies between a buffer and the view at byte offset `end` of each item. */
static lt_status copy_to_or_from_items(lt_work_matrices *s, const double *scale, size_t end,
                                       int buffer, bool out)
{
    size_t count = 0;
    for (size_t i = 0; i < s->set->count; i++) {
        const lt_root_item *t = &s->set->item[i];
        if (!s->active[i] || t->job->status)
            continue;
        lt_view outside;
        memcpy(&outside, (const char *)t + end, sizeof outside);
        const lt_view inside = lt_work_view(s, buffer, i);
        s->vec[count++] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                       .alpha = scale ? scale[i] : 1,
                                       .a = out ? inside : outside,
                                       .y = out ? outside : inside};
    }
    return run_vec(s, count);
}

lt_status lt_work_load_scaled(lt_work_matrices *s, int to, const double *scale)
{
    return copy_to_or_from_items(s, scale, offsetof(lt_root_item, a), to, false);
}

lt_status lt_work_load_old(lt_work_matrices *s, int to)
{
    return copy_to_or_from_items(s, NULL, offsetof(lt_root_item, old), to, false);
}

lt_status lt_work_store_results(lt_work_matrices *s, const double *scale, int from)
{
    return copy_to_or_from_items(s, scale, offsetof(lt_root_item, result), from, true);
}

lt_status lt_work_read_norms(lt_work_matrices *s, int buffer)
{
    const lt_root_set *set = s->set;
    const lt_view out = lt_tensor_view(s->norms);
    for (size_t i = 0; i < set->count; i++)
        s->view[i] = buffer < 0 ? set->item[i].a : lt_work_view(s, buffer, i);
    LT_TRY(set->be->frobenius(set->ctx, s->view, set->count, &out));
    return lt_tensor_read(s->norms, s->number, set->count * sizeof *s->number);
}

lt_view lt_root_part_view(const lt_tensor *tensor, int64_t at, lt_shape shape)
{
    lt_view v = lt_tensor_view(tensor);
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.shape = shape;
    v.stride[0] = shape.ndim == 2 ? shape.dim[1] : 1;
    v.stride[1] = 1;
    return v;
}

lt_view lt_root_diagonal_view(const lt_view *square)
{
    lt_view v = *square;
    v.shape = LT_SHAPE(square->shape.dim[0]);
    v.stride[0] = square->stride[0] + square->stride[1];
    return v;
}

lt_status lt_root_set_identity(const lt_device *device, const lt_tensor *one, lt_view zeros)
{
    lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .y = lt_root_diagonal_view(&zeros)};
    job.a = lt_root_part_view(one, 0, job.y.shape);
    job.a.stride[0] = 0;
    return device->backend->vec(device->ctx, &job, 1, NULL);
}

lt_status lt_root_read_vector(lt_device *device, const lt_view *from, double *host)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, device, LT_F64, from->shape));
    const lt_view to = lt_tensor_view(wide);
    lt_status st = device->backend->cast(device->ctx, from, &to);
    if (!st)
        st = lt_tensor_read(wide, host, lt_tensor_bytes(wide));
    lt_tensor_free(&wide);
    return st;
}

lt_status lt_root_write_vector(lt_device *device, const double *host, const lt_view *to)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, device, LT_F64, to->shape));
    const lt_view from = lt_tensor_view(wide);
    lt_status st = lt_tensor_write(wide, host, lt_tensor_bytes(wide));
    if (!st)
        st = device->backend->cast(device->ctx, &from, to);
    if (!st)
        st = device->backend->sync(device->ctx);
    lt_tensor_free(&wide);
    return st;
}
