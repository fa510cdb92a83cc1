/* The exchange of an outer step that sends the largest elements alone. It is rare, and works in host memory. */

#include "base/alloc.h"
#include "dist/local_steps/state.h"
#include "tensor/backend/select.h"

#include <math.h>

typedef struct exchange {
    int64_t elements, selected, bytes;
    void *master;          /* the elements in the device's master dtype */
    float *x;              /* residual + change */
    double *sum, *own;     /* of all groups' messages; of this group's */
    uint32_t *index;       /* the places that this group sends */
    void *workspace;       /* of the selection */
    unsigned char *all;    /* all messages, in the order of groups */
    unsigned char *sent;   /* this group's */
    int64_t *message_size; /* [groups] */
} exchange;

static void close_exchange(exchange *x)
{
    lt_free(x->master);
    lt_free(x->x);
    lt_free(x->sum);
    lt_free(x->own);
    lt_free(x->index);
    lt_free(x->workspace);
    lt_free(x->all);
    lt_free(x->sent);
    lt_free(x->message_size);
}

static lt_status open_exchange(const lt_local_steps *l, exchange *x)
{
    const int64_t n = l->count[l->local];
    *x = (exchange){.elements = n,
                    .selected = lt_outer_selected(&l->code, n),
                    .bytes = lt_outer_bytes(&l->code, n)};
    x->master = lt_alloc(1, lt_tensor_bytes(l->residual));
    x->x = lt_alloc((size_t)n, sizeof *x->x);
    x->sum = lt_alloc((size_t)n, sizeof *x->sum);
    x->own = lt_alloc((size_t)n, sizeof *x->own);
    x->index = lt_alloc((size_t)x->selected, sizeof *x->index);
    x->workspace = lt_alloc(1, lt_select_workspace(n));
    x->all = lt_alloc((size_t)l->groups, (size_t)x->bytes);
    x->sent = lt_alloc(1, (size_t)x->bytes);
    x->message_size = lt_alloc((size_t)l->groups, sizeof *x->message_size);
    return x->master && x->x && x->sum && x->own && x->index && x->workspace && x->all && x->sent
                   && x->message_size
               ? LT_OK
               : LT_E_NOMEM;
}

/* --- Between tensors and host memory --- */

static double element(const lt_tensor *t, const void *master, int64_t i)
{
    return lt_tensor_dtype(t) == LT_F64 ? ((const double *)master)[i]
                                        : (double)((const float *)master)[i];
}

static void set_element(const lt_tensor *t, void *master, int64_t i, double value)
{
    if (lt_tensor_dtype(t) == LT_F64)
        ((double *)master)[i] = value;
    else
        ((float *)master)[i] = (float)value;
}

static lt_status not_finite(const lt_local_steps *l, int64_t place)
{
    size_t i = 0;
    while (l->begin[i + 1] <= l->first + place)
        i++;
    return lt_fail(LT_E_ARG, "local steps: the change of %s in group %d is not finite",
                   l->param[i]->name, l->group);
}

/* One reason for all, in front of the exchange. */
static lt_status read_residual(const lt_local_steps *l, exchange *x)
{
    LT_TRY(lt_tensor_read(l->residual, x->master, lt_tensor_bytes(l->residual)));
    for (int64_t i = 0; i < x->elements; i++) {
        x->x[i] = (float)element(l->residual, x->master, i);
        if (!isfinite(x->x[i]))
            return not_finite(l, i);
    }
    return LT_OK;
}

static lt_status add_messages(const lt_local_steps *l, exchange *x)
{
    for (int g = 0; g < l->groups; g++)
        LT_TRY(lt_outer_decode(&l->code, x->all + (size_t)(g * x->bytes), x->elements, x->sum));
    return lt_outer_decode(&l->code, x->sent, x->elements, x->own);
}

static lt_status send_selected(lt_local_steps *l, exchange *x)
{
    LT_TRY(read_residual(l, x));
    LT_TRY(lt_select_topk(x->x, x->elements, x->selected, x->index, x->workspace));
    lt_outer_encode(&l->code, x->x, x->elements, x->index, x->sent);
    for (int g = 0; g < l->groups; g++)
        x->message_size[g] = x->bytes;
    LT_TRY(lt_comm_allgather_host(l->peers, x->sent, x->message_size, x->all));
    LT_TRY(add_messages(l, x));
    for (int64_t i = 0; i < x->elements; i++)
        set_element(l->residual, x->master, i, element(l->residual, x->master, i) - x->own[i]);
    LT_TRY(lt_tensor_write(l->residual, x->master, lt_tensor_bytes(l->residual)));
    for (int64_t i = 0; i < x->elements; i++)
        set_element(l->change, x->master, i, x->sum[i] / l->groups);
    return lt_tensor_write(l->change, x->master, lt_tensor_bytes(l->change));
}

lt_status lt_local_exchange_sparse(lt_local_steps *l)
{
    exchange x;
    const double decay = l->config.decay > 0 ? l->config.decay : 1;
    lt_status st = open_exchange(l, &x);
    if (!st)
        st = lt_local_axpby(l, 1, lt_tensor_view(l->change), decay, lt_tensor_view(l->residual));
    if (!st)
        st = send_selected(l, &x);
    close_exchange(&x);
    return st;
}
