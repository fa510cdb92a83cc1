/* Gathers tensors on rank 0 while the file is written, one at a time to bound memory. */

#include "gather.h"

#include "base/alloc.h"
#include "dist/shard_transfer.h"
#include "optim/low_precision/quantized_state.h"
#include "tensor/safetensors.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

static bool is_divided(const lt_param *p)
{
    return p->place && !lt_place_is_whole(p->place);
}

static bool is_placed(const lt_param *p)
{
    return p->place;
}

static const lt_param *first_that(bool (*is)(const lt_param *p), const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (is(params->item[i]))
            return params->item[i];
    return NULL;
}

lt_status lt_gather_open(lt_gather *g, lt_comm *comm, const lt_params *params)
{
    char text[LT_PLACE_TEXT];
    const bool alone = !comm || comm->size == 1;
    const lt_param *divided = first_that(is_divided, params);
    *g = (lt_gather){.comm = comm};
    if (alone && divided)
        return lt_fail(LT_E_ARG, "checkpoint: %s is the shard %s: save with all ranks",
                       divided->name, lt_place_text(divided->place, text));
    if (alone || !first_that(is_placed, params))
        return LT_OK;
    g->params = params;
    return lt_place_map_new(&g->map, comm, params);
}

/* Returns the ranks that hold shards of a parameter; NULL if it is not sharded. */
static const lt_place_holder *holders_of(const lt_gather *g, const lt_param *param, size_t *count)
{
    for (size_t i = 0; g->map && i < g->params->count; i++)
        if (g->params->item[i] == param)
            return lt_place_map_holders(g->map, i, count);
    return NULL;
}

static lt_status find_holders(const lt_gather *g, lt_gathered *t, const lt_param *param)
{
    if (!param || !param->place)
        return LT_OK;
    t->shape = param->place->logical;
    t->holder = holders_of(g, param, &t->holders);
    return t->holder || !is_divided(param)
               ? LT_OK
               : lt_fail(LT_E_ARG, "checkpoint: '%s' is a shard of a parameter that is not saved",
                         t->name);
}

static void clear(lt_gathered *t)
{
    lt_free(t->name);
    lt_free(t->note);
    lt_tensor_free(&t->made);
}

lt_status lt_gather_add(lt_gather *g, const lt_gathered *item, const lt_param *param)
{
    lt_gathered t = *item;
    t.comm = g->comm;
    t.holders = 1;
    lt_status st = t.name ? find_holders(g, &t, param) : LT_E_NOMEM;
    lt_gathered *grown = st ? NULL : lt_grow(g->item, &g->capacity, g->count + 1, sizeof *grown);
    if (!grown) {
        clear(&t);
        return st ? st : LT_E_NOMEM;
    }
    g->item = grown;
    g->item[g->count++] = t;
    return LT_OK;
}

lt_status lt_gather_add_tensor(lt_gather *g, const char *name, const lt_tensor *tensor,
                               const lt_param *param)
{
    const lt_dtype dtype = lt_tensor_dtype(tensor);
    const lt_gathered item = {.name = lt_strdup(name),
                              .dtype = dtype,
                              .stored = dtype,
                              .shape = lt_tensor_shape(tensor),
                              .tensor = tensor};
    return lt_gather_add(g, &item, param);
}

/* --- Rank 0 --- */

static int rank_of(const lt_gathered *t, size_t holder)
{
    return t->holder ? t->holder[holder].rank : t->owner;
}

static int64_t count_of(const lt_gathered *t, size_t holder)
{
    return t->holder ? lt_place_count(&t->holder[holder].place) : lt_shape_count(t->shape);
}

/* Reads or receives the shard of the next holder, row-major; host NULL: discards it. */
static lt_status take_next(lt_gathered *t, void *host)
{
    const size_t holder = t->taken++;
    const int rank = rank_of(t, holder);
    const int64_t count = count_of(t, holder);
    const size_t bytes = (size_t)count * lt_dtype_size(t->dtype);
    if (rank)
        return lt_place_receive(t->comm, t->dtype, LT_SHAPE(count), rank, host);
    if (!host)
        return LT_OK;
    return t->quantized ? lt_quantized_read(t->quantized, host, bytes)
                        : lt_tensor_read(t->tensor, host, bytes);
}

static lt_status take_box(lt_gathered *t, void *whole)
{
    const lt_place *place = &t->holder[t->taken].place;
    const size_t element = lt_dtype_size(t->dtype);
    void *box = lt_alloc_aligned(64, (size_t)lt_place_count(place) * element);
    lt_status st = box ? take_next(t, box) : LT_E_NOMEM;
    if (!st)
        lt_place_write(place, box, whole, element);
    lt_free(box);
    return st;
}

static lt_status take_all(lt_gathered *t, void *whole)
{
    while (t->taken < t->holders)
        LT_TRY(t->holder ? take_box(t, whole) : take_next(t, whole));
    return LT_OK;
}

/* An lt_safetensors_source. */
static lt_status read_item(void *context, void *host, size_t bytes)
{
    lt_gathered *t = context;
    if (t->stored == t->dtype)
        return take_all(t, host);
    const size_t count = bytes / lt_dtype_size(t->stored);
    double *wide = lt_alloc_aligned(64, count * sizeof *wide);
    lt_status st = wide ? take_all(t, wide) : LT_E_NOMEM;
    for (size_t i = 0; i < count && !st; i++)
        ((float *)host)[i] = (float)wide[i];
    lt_free(wide);
    return st;
}

static lt_status add_items(lt_gather *g, const lt_gather_file *f, lt_safetensors_writer *w)
{
    if (f->is_weights)
        LT_TRY(lt_safetensors_add_metadata(w, "format", "pt"));
    for (size_t i = 0; i < f->metadata_count; i++)
        LT_TRY(lt_safetensors_add_metadata(w, f->metadata[i].key, f->metadata[i].value));
    for (size_t i = f->first; i < f->last; i++) {
        lt_gathered *t = &g->item[i];
        LT_TRY(lt_safetensors_add_source(w, t->name, t->stored, t->shape, read_item, t));
        if (t->note)
            LT_TRY(lt_safetensors_add_metadata(w, t->name, t->note));
    }
    return LT_OK;
}

lt_status lt_gather_write(lt_gather *g, const lt_gather_file *f)
{
    lt_safetensors_writer *w = NULL;
    lt_status st = lt_safetensors_create(&w, f->path);
    if (!st)
        st = add_items(g, f, w);
    if (!st)
        st = f->is_part ? lt_safetensors_finish_part(&w) : lt_safetensors_finish(&w);
    lt_safetensors_discard(&w);
    return st;
}

void lt_gather_close(lt_gather *g, bool sent)
{
    const bool drain = sent && g->comm && g->comm->rank == 0;
    lt_status st = LT_OK;
    for (size_t i = 0; i < g->count; i++) {
        lt_gathered *t = &g->item[i];
        while (drain && !st && t->taken < t->holders)
            st = take_next(t, NULL);
        clear(t);
    }
    lt_free(g->item);
    lt_place_map_free(&g->map);
    *g = (lt_gather){0};
}

/* --- The other ranks --- */

static lt_status send(const lt_gathered *t)
{
    lt_tensor *shown = NULL;
    if (!t->quantized)
        return lt_place_send(t->comm, t->tensor, 0);
    LT_TRY(lt_quantized_to_checkpoint(t->quantized, &shown));
    lt_status st = lt_place_send(t->comm, shown, 0);
    lt_tensor_free(&shown);
    return st;
}

lt_status lt_gather_send(const lt_gather *g)
{
    for (size_t i = 0; i < g->count; i++)
        for (size_t h = 0; h < g->item[i].holders; h++)
            if (rank_of(&g->item[i], h) == g->comm->rank)
                LT_TRY(send(&g->item[i]));
    return LT_OK;
}
