/* Map of the ranks that hold each shard of the parameters, made by one all-gather; whole tensors, gathered by a message
 * per shard. */

#include "dist/shard_transfer.h"

#include "base/alloc.h"
#include "dist/consensus.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <stdio.h>

struct lt_place_map {
    lt_place_holder *holder;
    size_t *first; /* [params + 1] of holder */
    size_t count, capacity;
};

static bool is_known(const lt_place_map *m, size_t from, const lt_place *place)
{
    for (size_t i = from; i < m->count; i++)
        if (lt_place_equal(&m->holder[i].place, place))
            return true;
    return false;
}

static lt_status add_holder(lt_place_map *m, size_t from, const lt_place *place, int rank)
{
    if (is_known(m, from, place))
        return LT_OK;
    lt_place_holder *grown = lt_grow(m->holder, &m->capacity, m->count + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    m->holder = grown;
    m->holder[m->count++] = (lt_place_holder){rank, *place};
    return LT_OK;
}

static lt_status check_logical(const char *name, const lt_place *first, const lt_place *place,
                               int rank)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    return lt_shape_equal(first->logical, place->logical)
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s is a shard of %s on rank 0, of %s on rank %d", name,
                         lt_shape_text(first->logical, a), lt_shape_text(place->logical, b), rank);
}

/* Adds the shards of parameter number index; all: [ranks, count] shards of every rank. */
static lt_status add_param(lt_place_map *m, const lt_place *all, int ranks, size_t index,
                           size_t count, const char *name)
{
    int64_t elements = 0;
    const size_t from = m->first[index];
    for (int r = 0; r < ranks; r++) {
        const lt_place *place = &all[(size_t)r * count + index];
        LT_TRY(check_logical(name, &all[index], place, r));
        LT_TRY(add_holder(m, from, place, r));
    }
    for (size_t i = from; i < m->count; i++)
        elements += lt_place_count(&m->holder[i].place);
    if (elements != lt_shape_count(all[index].logical))
        return lt_fail(LT_E_SHAPE, "the shards of %s on all ranks have %lld elements, it has %lld",
                       name, (long long)elements, (long long)lt_shape_count(all[index].logical));
    m->first[index + 1] = m->count;
    return LT_OK;
}

/* Gathers the shards of all ranks, [ranks, params]. */
static lt_status gather_places(lt_comm *comm, const lt_params *params, lt_place *all)
{
    lt_place *own = lt_alloc(params->count, sizeof *own);
    if (!own)
        return LT_E_NOMEM;
    for (size_t i = 0; i < params->count; i++)
        own[i] = lt_param_place(params->item[i]);
    lt_status st = lt_comm_allgather_equal(comm, own, params->count * sizeof *own, all);
    lt_free(own);
    return st;
}

static lt_status fill_map(lt_place_map *m, lt_comm *comm, const lt_params *params)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", params->count);
    LT_TRY(lt_comm_same(comm, "the number of parameters", text));
    lt_place *all = lt_alloc(params->count * (size_t)comm->size, sizeof *all);
    m->first = lt_alloc(params->count + 1, sizeof *m->first);
    lt_status st = all && m->first ? gather_places(comm, params, all) : LT_E_NOMEM;
    for (size_t i = 0; i < params->count && !st; i++)
        st = add_param(m, all, comm->size, i, params->count, params->item[i]->name);
    lt_free(all);
    return st;
}

lt_status lt_place_map_new(lt_place_map **out, lt_comm *comm, const lt_params *params)
{
    lt_place_map *m = lt_alloc(1, sizeof *m);
    lt_status st = m ? fill_map(m, comm, params) : LT_E_NOMEM;
    if (st)
        lt_place_map_free(&m);
    else
        *out = m;
    return st;
}

void lt_place_map_free(lt_place_map **map)
{
    if (*map) {
        lt_free((*map)->holder);
        lt_free((*map)->first);
    }
    lt_free(*map);
    *map = NULL;
}

const lt_place_holder *lt_place_map_holders(const lt_place_map *map, size_t index, size_t *count)
{
    *count = map->first[index + 1] - map->first[index];
    return map->holder + map->first[index];
}

lt_status lt_place_send(lt_comm *comm, const lt_tensor *tensor, int to)
{
    lt_tensor *rows = NULL;
    lt_request *request = NULL;
    lt_status st =
        lt_tensor_new(&rows, comm->device, lt_tensor_dtype(tensor), lt_tensor_shape(tensor));
    if (!st)
        st = lt_tensor_copy(rows, tensor);
    if (!st)
        st = lt_comm_send_begin(comm, rows, to, &request);
    if (!st)
        st = lt_request_wait(&request);
    lt_tensor_free(&rows);
    return st;
}

lt_status lt_place_receive(lt_comm *comm, lt_dtype dtype, lt_shape shape, int from, void *host)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    lt_status st = lt_tensor_new(&t, comm->device, dtype, shape);
    if (!st)
        st = lt_comm_recv_begin(comm, t, from, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (st)
        lt_comm_abort(comm);
    if (!st && host)
        st = lt_tensor_read(t, host, lt_tensor_bytes(t));
    lt_tensor_free(&t);
    return st;
}

/* Writes a shard, own or received, into the whole tensor. */
static lt_status take_shard(lt_comm *comm, const lt_place_holder *h, const lt_tensor *own,
                            void *logical)
{
    const lt_dtype dtype = lt_tensor_dtype(own);
    const size_t bytes = lt_dtype_size(dtype);
    void *shard = lt_alloc_aligned(64, (size_t)lt_place_count(&h->place) * bytes);
    lt_status st = LT_E_NOMEM;
    if (shard && h->rank == comm->rank)
        st = lt_tensor_read(own, shard, lt_tensor_bytes(own));
    else if (shard)
        st = lt_place_receive(comm, dtype, LT_SHAPE(lt_place_count(&h->place)), h->rank, shard);
    if (!st)
        lt_place_write(&h->place, shard, logical, bytes);
    lt_free(shard);
    return st;
}

lt_status lt_place_gather(lt_comm *comm, lt_param *param, const lt_tensor *own, int root,
                          void *logical)
{
    lt_place_map *map = NULL;
    const lt_params one = {.item = &param, .count = 1};
    LT_TRY(lt_place_map_new(&map, comm, &one));
    size_t count;
    lt_status st = LT_OK;
    const lt_place_holder *h = lt_place_map_holders(map, 0, &count);
    for (size_t i = 0; i < count && !st; i++) {
        if (comm->rank == root)
            st = take_shard(comm, &h[i], own, logical);
        else if (h[i].rank == comm->rank)
            st = lt_place_send(comm, own, root);
    }
    lt_place_map_free(&map);
    return st;
}
