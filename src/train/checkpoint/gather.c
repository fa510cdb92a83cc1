/* Sends tensors to the ranks that write them, while the files are written, one at a time to bound memory. */

#include "gather.h"

#include "base/alloc.h"
#include "dist/consensus.h"
#include "optim/low_precision/quantized_state.h"
#include "tensor/safetensors.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <stdio.h>

static bool is_sharded_param(const lt_param *p)
{
    return p->spec && !lt_shard_spec_is_whole(p->spec);
}

/* --- Holders of shards --- */

static lt_status check_logical(const char *name, const lt_shard_spec *first,
                               const lt_shard_spec *spec, int rank)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    return lt_shape_equal(first->logical, spec->logical)
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s is a shard of %s on rank 0, of %s on rank %d", name,
                         lt_shape_text(first->logical, a), lt_shape_text(spec->logical, b), rank);
}

/* Lists the distinct shards of parameter number index; all: [ranks, params] shards of every rank. */
static lt_status list_holders(lt_shard_gather *g, const lt_shard_spec *all, size_t index)
{
    const lt_shard_spec *spec = &all[index];
    const int64_t want = lt_shape_count(spec->logical);
    const char *name = g->params->item[index]->name;
    lt_holder *const holder = g->holder + g->first[index];
    size_t count = 0, same;
    int64_t elements = 0;
    for (int r = 0; r < g->comm->size; r++, spec += g->params->count) {
        LT_TRY(check_logical(name, &all[index], spec, r));
        for (same = 0; same < count && !lt_shard_spec_equal(&holder[same].spec, spec); same++)
            ;
        if (same < count)
            continue;
        holder[count++] = (lt_holder){r, *spec};
        elements += lt_shard_spec_count(spec);
    }
    g->first[index + 1] = g->first[index] + count;
    return elements == want ? LT_OK
                            : lt_fail(LT_E_SHAPE,
                                      "the shards of %s on all ranks have %lld elements, it has "
                                      "%lld",
                                      name, (long long)elements, (long long)want);
}

/* Gathers the shard specs of all ranks' parameters into `all`, [ranks, params]. */
static lt_status gather_shard_specs(const lt_shard_gather *g, lt_shard_spec *all)
{
    const size_t count = g->params->count;
    lt_shard_spec *own = all + (size_t)g->comm->rank * count;
    for (size_t i = 0; i < count; i++)
        own[i] = lt_param_shard_spec(g->params->item[i]);
    return lt_comm_allgather_equal(g->comm, own, count * sizeof *own, all);
}

static lt_status find_all_holders(lt_shard_gather *g)
{
    char text[32];
    const size_t count = g->params->count, most = count * (size_t)g->comm->size;
    snprintf(text, sizeof text, "%zu", count);
    LT_TRY(lt_comm_check_same(g->comm, "the number of parameters", text));
    lt_shard_spec *all = lt_alloc(most, sizeof *all);
    g->holder = lt_alloc(most, sizeof *g->holder);
    g->first = lt_alloc(count + 1, sizeof *g->first);
    lt_status st = all && g->holder && g->first ? gather_shard_specs(g, all) : LT_E_NOMEM;
    for (size_t i = 0; i < count && !st; i++)
        st = list_holders(g, all, i);
    lt_free(all);
    return st;
}

lt_status lt_gather_open(lt_shard_gather *g, lt_comm *comm, const lt_params *params)
{
    char text[LT_SHARD_SPEC_TEXT];
    const bool alone = !comm || comm->size == 1;
    bool has_spec = false;
    *g = (lt_shard_gather){.comm = comm};
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (alone && is_sharded_param(p))
            return lt_fail(LT_E_ARG, "checkpoint: %s is the shard %s: save with all ranks", p->name,
                           lt_shard_spec_text(p->spec, text));
        has_spec = has_spec || p->spec;
    }
    if (alone || !has_spec)
        return LT_OK;
    g->params = params;
    return find_all_holders(g);
}

/* --- The list --- */

/* Finds the ranks that hold the tensor's shards, which are those of a parameter. */
static lt_status find_holders(const lt_shard_gather *g, lt_gathered *t, const lt_param *param)
{
    t->holders = 1;
    if (!param || !param->spec)
        return LT_OK;
    t->shape = param->spec->logical;
    for (size_t i = 0; g->params && i < g->params->count; i++)
        if (g->params->item[i] == param) {
            t->holder = g->holder + g->first[i];
            t->holders = g->first[i + 1] - g->first[i];
            t->owner = t->holder[i % t->holders].rank; /* in turn: equal work */
            return LT_OK;
        }
    return is_sharded_param(param) ? lt_fail(
               LT_E_ARG, "checkpoint: '%s' is a shard of a parameter that is not saved", t->name)
                                   : LT_OK;
}

static void free_gathered(lt_gathered *t)
{
    lt_free(t->name);
    lt_free(t->note);
    lt_tensor_free(&t->made);
}

lt_status lt_gather_add(lt_shard_gather *g, const lt_gathered *item, const lt_param *param)
{
    lt_gathered t = *item;
    t.gather = g;
    lt_status st = t.name ? find_holders(g, &t, param) : LT_E_NOMEM;
    if (!st && t.owner && (!g->comm || g->comm->size == 1))
        st = lt_fail(LT_E_ARG, "checkpoint: '%s' is on rank %d: save with all ranks", t.name,
                     t.owner);
    if (!st)
        st = LT_GROW(&g->item, &g->capacity, g->count + 1);
    if (st)
        free_gathered(&t);
    else
        g->item[g->count++] = t;
    return st;
}

lt_status lt_gather_add_param(lt_shard_gather *g, const lt_param *p, int owner)
{
    const lt_dtype dtype = lt_tensor_dtype(p->value);
    const lt_gathered item = {.name = lt_strdup(p->name),
                              .dtype = dtype,
                              .stored = dtype,
                              .shape = lt_tensor_shape(p->value),
                              .owner = owner,
                              .tensor = p->value};
    return lt_gather_add(g, &item, p);
}

/* --- A piece of a tensor: the whole, or a shard --- */

static int own_rank(const lt_shard_gather *g)
{
    return g->comm ? g->comm->rank : 0;
}

static int writer_of(const lt_gathered *t)
{
    return t->gather->in_parts ? t->owner : 0;
}

static lt_holder holder_of(const lt_gathered *t, size_t index)
{
    return t->holder ? t->holder[index] : (lt_holder){t->owner, lt_shard_spec_whole(t->shape)};
}

/* Returns this rank's shard or whole tensor. *shown: its dequantized copy, to be freed, if it is quantized. */
static lt_status get_own_shard(const lt_gathered *t, const lt_tensor **piece, lt_tensor **shown)
{
    if (t->quantized)
        LT_TRY(lt_quantized_to_checkpoint(t->quantized, shown));
    *piece = *shown ? *shown : t->tensor;
    return LT_OK;
}

static lt_status read_piece(const lt_gathered *t, void *host)
{
    const lt_tensor *piece;
    lt_tensor *shown = NULL;
    LT_TRY(get_own_shard(t, &piece, &shown));
    lt_status st = lt_tensor_read(piece, host, lt_tensor_bytes(piece));
    lt_tensor_free(&shown);
    return st;
}

/* Sends this rank's piece to the writer, row-major whatever its memory format. */
static lt_status send_piece(const lt_gathered *t)
{
    lt_comm *comm = t->gather->comm;
    const lt_tensor *piece;
    lt_tensor *shown = NULL, *rows = NULL;
    lt_request *request = NULL;
    LT_TRY(get_own_shard(t, &piece, &shown));
    lt_status st =
        lt_tensor_new(&rows, comm->device, lt_tensor_dtype(piece), lt_tensor_shape(piece));
    if (!st)
        st = lt_tensor_copy(rows, piece);
    if (!st)
        st = lt_comm_send_begin(comm, rows, writer_of(t), &request);
    if (!st)
        st = lt_request_wait(&request);
    lt_tensor_free(&rows);
    lt_tensor_free(&shown);
    return st;
}

/* Receives a piece into host memory; host NULL: discards it. A failure aborts the group, so that the sender does not
 * wait forever. */
static lt_status receive_piece(const lt_gathered *t, const lt_holder *from, void *host)
{
    lt_comm *comm = t->gather->comm;
    lt_tensor *rows = NULL;
    lt_request *request = NULL;
    lt_status st =
        lt_tensor_new(&rows, comm->device, t->dtype, LT_SHAPE(lt_shard_spec_count(&from->spec)));
    if (!st)
        st = lt_comm_recv_begin(comm, rows, from->rank, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (st)
        lt_comm_abort(comm);
    if (!st && host)
        st = lt_tensor_read(rows, host, lt_tensor_bytes(rows));
    lt_tensor_free(&rows);
    return st;
}

/* --- The walk --- */

/* Reads or receives the next piece into the whole tensor; NULL: discards it. */
static lt_status read_next_shard(lt_gathered *t, void *whole)
{
    const lt_holder from = holder_of(t, t->taken);
    const size_t element = lt_dtype_size(t->dtype);
    void *piece = whole;
    if (whole && t->holder)
        piece = lt_alloc_aligned(64, (size_t)lt_shard_spec_count(&from.spec) * element);
    if (whole && !piece)
        return LT_E_NOMEM;
    t->taken++;
    lt_status st = LT_OK;
    if (from.rank != own_rank(t->gather))
        st = receive_piece(t, &from, piece);
    else if (piece)
        st = read_piece(t, piece);
    if (piece != whole) {
        if (!st)
            lt_shard_spec_write(&from.spec, piece, whole, element);
        lt_free(piece);
    }
    return st;
}

static lt_status read_all_shards(lt_gathered *t, void *whole)
{
    while (t->taken < t->holders)
        LT_TRY(read_next_shard(t, whole));
    return LT_OK;
}

static lt_status send_own_pieces(const lt_gathered *t)
{
    for (size_t h = 0; h < t->holders; h++)
        if (holder_of(t, h).rank == own_rank(t->gather))
            LT_TRY(send_piece(t));
    return LT_OK;
}

/* Passes the tensors before index, as lt_gather_finish(). */
static lt_status walk_to(lt_shard_gather *g, size_t index)
{
    lt_status st = LT_OK;
    for (; g->next < index && !st; g->next++) {
        lt_gathered *t = &g->item[g->next];
        st = writer_of(t) == own_rank(g) ? read_all_shards(t, NULL) : send_own_pieces(t);
    }
    if (st && g->comm) /* else the other ranks wait forever */
        lt_comm_abort(g->comm);
    return st;
}

lt_status lt_gather_finish(lt_shard_gather *g)
{
    return walk_to(g, g->count);
}

/* Callback of the safetensors writer: reads or receives all shards of a tensor, converting f64 to f32 if needed. */
static lt_status read_gathered_tensor(void *context, void *host, size_t bytes)
{
    lt_gathered *t = context;
    LT_TRY(walk_to(t->gather, (size_t)(t - t->gather->item)));
    if (t->stored == t->dtype)
        return read_all_shards(t, host);
    const size_t count = bytes / lt_dtype_size(t->stored);
    double *wide = lt_alloc_aligned(64, count * sizeof *wide);
    lt_status st = wide ? read_all_shards(t, wide) : LT_E_NOMEM;
    for (size_t i = 0; i < count && !st; i++)
        ((float *)host)[i] = (float)wide[i];
    lt_free(wide);
    return st;
}

size_t lt_gather_count_own(const lt_shard_gather *g, size_t first, size_t last)
{
    size_t count = 0;
    for (size_t i = first; i < last; i++)
        count += writer_of(&g->item[i]) == own_rank(g);
    return count;
}

lt_status lt_gather_read(lt_shard_gather *g, size_t index, void **data, size_t *bytes)
{
    lt_gathered *t = &g->item[index];
    *bytes = (size_t)lt_shape_count(t->shape) * lt_dtype_size(t->stored);
    *data = lt_alloc_aligned(64, *bytes + 1);
    return *data ? read_gathered_tensor(t, *data, *bytes) : LT_E_NOMEM;
}

static lt_status add_metadata_and_tensors(lt_shard_gather *g, const lt_gather_file *f,
                                          lt_safetensors_writer *w)
{
    if (f->is_weights)
        LT_TRY(lt_safetensors_add_metadata(w, "format", "pt"));
    for (size_t i = 0; i < f->metadata_count; i++)
        LT_TRY(lt_safetensors_add_metadata(w, f->metadata[i].key, f->metadata[i].value));
    if (f->step)
        LT_TRY(lt_safetensors_add_metadata(w, LT_PART_STEP, f->step));
    if (f->run)
        LT_TRY(lt_safetensors_add_metadata(w, LT_PART_RUN, f->run));
    for (size_t i = f->first; i < f->last; i++) {
        lt_gathered *t = &g->item[i];
        if (writer_of(t) != own_rank(g))
            continue;
        LT_TRY(lt_safetensors_add_source(w, t->name, t->stored, t->shape, read_gathered_tensor, t));
        if (t->note)
            LT_TRY(lt_safetensors_add_metadata(w, t->name, t->note));
    }
    return LT_OK;
}

lt_status lt_gather_write(lt_shard_gather *g, const lt_gather_file *f)
{
    lt_safetensors_writer *w = NULL;
    lt_status st = lt_safetensors_create(&w, f->path);
    if (!st)
        st = add_metadata_and_tensors(g, f, w);
    if (!st)
        st = f->in_atomic_dir ? lt_safetensors_finish_unsynced(&w) : lt_safetensors_finish(&w);
    lt_safetensors_discard(&w);
    return st;
}

void lt_gather_close(lt_shard_gather *g)
{
    for (size_t i = 0; i < g->count; i++)
        free_gathered(&g->item[i]);
    lt_free(g->item);
    lt_free(g->holder);
    lt_free(g->first);
    *g = (lt_shard_gather){0};
}
