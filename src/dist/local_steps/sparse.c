/* Compressed outer step, which sends the largest elements only. Computed in host memory, as it is rare. */

#include "base/alloc.h"
#include "dist/comm/element.h"
#include "dist/local_steps/state.h"
#include "tensor/backend/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lt_status compression_error(const char *text)
{
    return lt_fail(LT_E_ARG,
                   "invalid outer compression '%s', want off or topk:DENSITY[,bf16|,2bit] with a "
                   "density in (0,1]",
                   text);
}

lt_status lt_outer_compression_parse(lt_outer_compression *out, const char *text)
{
    static const char kind[] = "topk:";
    static const char *const values[] = {
        [LT_OUTER_F32] = ",f32", [LT_OUTER_BF16] = ",bf16", [LT_OUTER_2BIT] = ",2bit"};
    *out = (lt_outer_compression){.density = 0};
    if (!text || !strcmp(text, "off"))
        return LT_OK;
    if (strncmp(text, kind, strlen(kind)) != 0)
        return compression_error(text);
    const char *number = text + strlen(kind);
    char *end;
    const double density = strtod(number, &end);
    if (end == number || !(density > 0 && density <= 1))
        return compression_error(text);
    for (int i = 0; *end && i < (int)(sizeof values / sizeof *values); i++)
        if (!strcmp(end, values[i])) {
            *out = (lt_outer_compression){density, (lt_outer_values)i};
            return LT_OK;
        }
    if (*end)
        return compression_error(text);
    out->density = density;
    return LT_OK;
}

/* Returns the layout of a message for `elements`. */
static lt_sparse message_layout(const lt_outer_compression *compression, int64_t elements)
{
    const int64_t count = lt_sparse_count_selected(compression->density, elements);
    if (compression->values == LT_OUTER_2BIT)
        return lt_sparse_layout_2bit(elements, count);
    return lt_sparse_layout(elements, count,
                            compression->values == LT_OUTER_BF16 ? LT_BF16 : LT_F32);
}

/* --- Workspace --- */

typedef struct sparse_outer {
    lt_sparse pack;
    void *master;          /* error feedback in the device's master dtype, later the change */
    float *x;              /* error feedback + change */
    double *sum;           /* sum of all groups' messages */
    uint32_t *index;       /* indices that this group sends */
    void *workspace;       /* for the selection */
    char *all, *sent;      /* all messages, in the order of groups; this group's */
    int64_t *message_size; /* [groups] */
} sparse_outer;

static void free_workspace(sparse_outer *x)
{
    lt_free(x->master);
    lt_free(x->x);
    lt_free(x->sum);
    lt_free(x->index);
    lt_free(x->workspace);
    lt_free(x->all);
    lt_free(x->sent);
    lt_free(x->message_size);
}

static lt_status allocate_workspace(const lt_local_steps *l, sparse_outer *x)
{
    const int64_t n = l->count[l->local];
    *x = (sparse_outer){.pack = message_layout(&l->compression, n)};
    const size_t bytes = (size_t)x->pack.bytes;
    x->master = lt_alloc(1, lt_tensor_bytes(l->residual));
    x->x = lt_alloc((size_t)n, sizeof *x->x);
    x->sum = lt_alloc((size_t)n, sizeof *x->sum);
    x->index = lt_alloc((size_t)x->pack.count, sizeof *x->index);
    x->workspace = lt_alloc(1, lt_select_workspace(n));
    x->all = lt_alloc((size_t)l->groups, bytes);
    x->sent = lt_alloc(1, bytes);
    x->message_size = lt_alloc((size_t)l->groups, sizeof *x->message_size);
    return x->master && x->x && x->sum && x->index && x->workspace && x->all && x->sent
                   && x->message_size
               ? LT_OK
               : LT_E_NOMEM;
}

/* --- Between tensors and host memory --- */

static lt_status non_finite_error(const lt_local_steps *l, int64_t index)
{
    size_t i = 0;
    while (l->begin[i + 1] <= l->first + index)
        i++;
    return lt_fail(LT_E_ARG, "local steps: the change of %s in group %d is not finite",
                   l->param[i]->name, l->group);
}

/* Reads the error feedback, which includes the change; fails if an element is not finite. */
static lt_status read_residual(const lt_local_steps *l, sparse_outer *x)
{
    LT_TRY(lt_tensor_read(l->residual, x->master, lt_tensor_bytes(l->residual)));
    for (int64_t i = 0; i < x->pack.elements; i++) {
        x->x[i] = (float)lt_element(lt_tensor_dtype(l->residual), x->master, i);
        if (!isfinite(x->x[i]))
            return non_finite_error(l, i);
    }
    return LT_OK;
}

static lt_status exchange_largest(lt_local_steps *l, sparse_outer *x)
{
    const lt_sparse *p = &x->pack;
    const lt_dtype master = lt_tensor_dtype(l->residual);
    LT_TRY(read_residual(l, x));
    LT_TRY(lt_select_topk(x->x, p->elements, p->count, x->index, x->workspace));
    lt_sparse_encode(p, x->x, x->index, x->sent);
    for (int g = 0; g < l->groups; g++)
        x->message_size[g] = p->bytes;
    LT_TRY(lt_comm_allgather_host(l->peers, x->sent, x->message_size, x->all));
    for (int g = 0; g < l->groups; g++)
        LT_TRY(lt_sparse_add_message(p, x->all + (size_t)(g * p->bytes), 1, x->sum, LT_F64));
    LT_TRY(lt_sparse_add_message(p, x->sent, -1, x->master, master));
    LT_TRY(lt_tensor_write(l->residual, x->master, lt_tensor_bytes(l->residual)));
    for (int64_t i = 0; i < p->elements; i++)
        lt_element_set(master, x->master, i, x->sum[i] / l->groups);
    return lt_tensor_write(l->change, x->master, lt_tensor_bytes(l->change));
}

lt_status lt_local_allreduce_sparse(lt_local_steps *l)
{
    sparse_outer x;
    const double decay = l->config.decay > 0 ? l->config.decay : 1;
    lt_status st = allocate_workspace(l, &x);
    if (!st)
        st = lt_local_axpby(l, 1, lt_tensor_view(l->change), decay, lt_tensor_view(l->residual));
    if (!st)
        st = exchange_largest(l, &x);
    free_workspace(&x);
    return st;
}
