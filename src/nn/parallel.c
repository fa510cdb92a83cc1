/* Shards of a tensor-parallel model: rows of activations, parameters, and linear layers and embeddings on
 * them. In one dimension: Shoeybi et al., "Megatron-LM", 2019, and, with sequence parallelism, Korthikanti
 * et al., "Reducing activation recomputation in large transformer models", 2022. On grids: Wang et al.,
 * "2.5-dimensional distributed model training", 2021. All ranks of a replica run the same operations, so
 * that their op counters agree. */

#include "lather/detail/sharded.h"
#include "lather/ext/op.h"
#include "lather/ops.h"
#include "lather/tensor_parallel.h"

typedef const lt_tensor_parallel parallel_t;

static bool is_grid(parallel_t *p)
{
    return p && p->column;
}

/* --- Rows --- */

/* Returns the number of shards of a grid's rows; the next function this rank's index among them. */
static int row_shard_count(parallel_t *p)
{
    return p->column->size * p->depth->size;
}

static int row_shard_index(parallel_t *p)
{
    return p->depth->rank * p->column->size + p->column->rank;
}

lt_token_rows lt_parallel_rows(parallel_t *p, int64_t samples, int64_t tokens)
{
    const int64_t least = is_grid(p) ? row_shard_count(p) : 1;
    return (lt_token_rows){samples < least ? least : samples, tokens};
}

lt_status lt_parallel_check_batch(const char *name, parallel_t *p, int64_t samples)
{
    const int64_t parts = is_grid(p) ? row_shard_count(p) : 1, below = samples / parts * parts;
    if (samples % parts == 0)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "%s: a batch of %lld is not divisible by the grid's %lld rows; use %lld", name,
                   (long long)samples, (long long)parts, (long long)(below ? below : parts));
}

bool lt_parallel_shards_rows(parallel_t *p)
{
    return p && (p->column || p->sequence);
}

static lt_row_range shard_range(int64_t whole, int parts, int index)
{
    return (lt_row_range){lt_even_shard_offset(whole, parts, index),
                          lt_even_shard_size(whole, parts, index)};
}

lt_row_range lt_parallel_local_rows(parallel_t *p, lt_token_rows rows)
{
    const int64_t all = rows.sequences * rows.tokens;
    if (!lt_parallel_shards_rows(p))
        return (lt_row_range){0, all};
    if (!is_grid(p))
        return shard_range(all, p->row->size, p->row->rank);
    const lt_row_range samples =
        shard_range(rows.sequences, row_shard_count(p), row_shard_index(p));
    return (lt_row_range){samples.first * rows.tokens, samples.count * rows.tokens};
}

lt_row_range lt_parallel_local_samples(parallel_t *p, lt_token_rows rows)
{
    const lt_row_range own = lt_parallel_local_rows(p, rows);
    const int64_t first = own.first / rows.tokens;
    return (lt_row_range){first, (own.first + own.count + rows.tokens - 1) / rows.tokens - first};
}

/* Sets the op counter, which selects dropout's random numbers, to its value on a single rank; returns x. */
static lt_tensor *set_op_counter(lt_tape *tape, lt_tensor *x, int64_t ordinal)
{
    lt_tape_set_op_counter(tape, ordinal);
    return x;
}

/* Drops x, the input of the operation that returned y; returns y. */
static lt_tensor *drop_input(lt_tape *tape, lt_tensor *x, lt_tensor *y)
{
    lt_tape_drop(tape, x);
    return y;
}

lt_tensor *lt_parallel_slice_samples(lt_tape *tape, lt_tensor *x, parallel_t *p, lt_token_rows rows,
                                     double fill)
{
    if (!lt_parallel_shards_rows(p) || !x)
        return x;
    const lt_row_range own = lt_parallel_local_samples(p, rows);
    const int64_t before = lt_tape_op_counter(tape);
    if (lt_tensor_shape(x).dim[0] == rows.sequences)
        return set_op_counter(tape, lt_slice(tape, x, 0, own.first, own.count), before);
    lt_tensor *padded = lt_pad_rows(tape, x, 0, rows.sequences, fill);
    lt_tensor *y = lt_slice(tape, padded, 0, own.first, own.count);
    return set_op_counter(tape, drop_input(tape, padded, y), before);
}

lt_tensor *lt_parallel_slice_rows(lt_tape *tape, lt_tensor *x, parallel_t *p, lt_token_rows rows)
{
    if (!lt_parallel_shards_rows(p) || !x)
        return x;
    const lt_row_range own = lt_parallel_local_rows(p, rows);
    const lt_row_range samples = lt_parallel_local_samples(p, rows);
    const lt_shape s = lt_tensor_shape(x);
    const int64_t before = lt_tape_op_counter(tape);
    lt_tensor *all = lt_reshape(tape, x, LT_SHAPE(-1, s.dim[s.ndim - 1]));
    const int64_t first = own.first - samples.first * rows.tokens;
    lt_tensor *y = lt_slice(tape, all, 0, first, own.count);
    return set_op_counter(tape, drop_input(tape, all, y), before);
}

lt_tensor *lt_parallel_unslice_rows(lt_tape *tape, lt_tensor *x, parallel_t *p, lt_token_rows rows)
{
    if (!lt_parallel_shards_rows(p) || !x)
        return x;
    const lt_row_range own = lt_parallel_local_rows(p, rows);
    const lt_row_range samples = lt_parallel_local_samples(p, rows);
    lt_tensor *all = lt_pad_rows(tape, x, own.first - samples.first * rows.tokens,
                                 samples.count * rows.tokens, 0);
    return drop_input(tape, all, lt_reshape(tape, all, LT_SHAPE(samples.count, rows.tokens, -1)));
}

/* In one dimension, reduce-scatters the first rows, as the rank with a sample's first row need not own the sample. */
lt_tensor *lt_parallel_first_rows(lt_tape *tape, lt_tensor *x, parallel_t *p, lt_token_rows rows)
{
    if (!x)
        return NULL;
    const lt_row_range samples = lt_parallel_local_samples(p, rows);
    const int64_t features = lt_tensor_shape(x).dim[1];
    lt_tensor *y = lt_parallel_unslice_rows(tape, x, p, rows);
    y = drop_input(tape, y, lt_slice(tape, y, 1, 0, 1));
    y = drop_input(tape, y, lt_reshape(tape, y, LT_SHAPE(samples.count, features)));
    if (is_grid(p))
        return y;
    y = drop_input(tape, y, lt_pad_rows(tape, y, samples.first, rows.sequences, 0));
    return drop_input(tape, y, lt_group_reducescatter(tape, y, p->row));
}

static lt_tensor *transpose(lt_tape *tape, lt_tensor *x)
{
    return lt_permute(tape, x, (const int[]){1, 0});
}

lt_tensor *lt_parallel_sum_samples(lt_tape *tape, lt_tensor *x, parallel_t *p, lt_token_rows rows,
                                   int64_t samples, int64_t features)
{
    if (!lt_parallel_shards_rows(p))
        return x;
    const lt_row_range own = lt_parallel_local_samples(p, rows);
    lt_tensor *y = lt_pad_rows(tape, x, own.first, rows.sequences, 0);
    if (is_grid(p)) {
        const int64_t first = lt_even_shard_offset(features, p->row->size, p->row->rank);
        y = drop_input(tape, y, transpose(tape, y));
        y = drop_input(tape, y, lt_pad_rows(tape, y, first, features, 0));
        y = drop_input(tape, y, transpose(tape, y));
    }
    y = drop_input(tape, y, lt_group_allreduce(tape, y, p->model));
    return rows.sequences == samples ? y : drop_input(tape, y, lt_slice(tape, y, 0, 0, samples));
}

/* --- Parameters --- */

lt_shard_spec lt_parallel_shard_spec(parallel_t *p, lt_shape logical, lt_shape view,
                                     lt_parallel_dims dims, lt_parallel_style division)
{
    const bool outputs = is_grid(p) || division == LT_COLUMN_PARALLEL;
    const int first = outputs ? dims.outputs : dims.inputs;
    lt_shard_spec spec = lt_shard_spec_whole(logical);
    if (!p)
        return spec;
    if (first >= 0)
        spec = lt_shard_spec_even(logical, view, first, p->row->size, p->row->rank);
    if (is_grid(p) && dims.inputs >= 0)
        lt_shard_spec_split(&spec, dims.inputs, p->column->size, p->column->rank);
    return spec;
}

lt_shard_spec lt_parallel_shard_spec_features(parallel_t *p, lt_shape logical, int dim)
{
    return is_grid(p) ? lt_shard_spec_even(logical, logical, dim, p->row->size, p->row->rank)
                      : lt_shard_spec_whole(logical);
}

lt_shape lt_parallel_shape(const lt_shard_spec *spec)
{
    lt_shape own = spec->logical;
    for (int d = 0, v = 0; d < own.ndim; d++) {
        int64_t whole = 1, extent = 1;
        for (; whole < spec->logical.dim[d] && v < spec->view.ndim; v++) {
            whole *= spec->view.dim[v];
            extent *= spec->extent.dim[v];
        }
        own.dim[d] = extent;
    }
    return own;
}

lt_tensor *lt_parallel_param(lt_tape *tape, lt_param *param, parallel_t *p)
{
    lt_tensor *x = lt_tape_param(tape, param);
    const int64_t before = lt_tape_op_counter(tape);
    if (!lt_parallel_shards_rows(p))
        return x;
    if (!is_grid(p))
        return set_op_counter(tape, lt_group_copy(tape, x, p->row), before);
    x = lt_group_copy(tape, lt_group_copy(tape, x, p->column), p->depth);
    return set_op_counter(tape, x, before);
}

/* --- Layers --- */

static lt_tensor *run_summa_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                   const lt_parallel_linear *c)
{
    parallel_t *p = c->parallel;
    const lt_summa_config summa = {.row = p->row,
                                   .column = p->column,
                                   .depth = p->depth,
                                   .in = c->in,
                                   .out = c->out,
                                   .whole = !p->overlap};
    return lt_linear_summa(tape, x, c->in_out ? transpose(tape, w) : w, b, summa);
}

/* Runs Megatron-LM's column- or row-parallel linear layer: every rank has all rows. */
static lt_tensor *run_megatron_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                      const lt_parallel_linear *c)
{
    const lt_linear_config linear = {.in_out = c->in_out};
    parallel_t *p = c->parallel;
    if (c->division == LT_COLUMN_PARALLEL)
        return lt_linear_as(tape, lt_group_copy(tape, x, p->row), w, b, linear);
    lt_tensor *term = lt_linear_as(tape, x, w, NULL, linear);
    lt_tensor *y = drop_input(tape, term, lt_group_allreduce(tape, term, p->row));
    return b ? drop_input(tape, y, lt_add(tape, y, b)) : y;
}

static lt_tensor *run_sharded_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                     const lt_parallel_linear *c)
{
    parallel_t *p = c->parallel;
    if (is_grid(p))
        return run_summa_linear(tape, x, w, b, c);
    if (!p->sequence)
        return run_megatron_linear(tape, x, w, b, c);
    const lt_sequence_parallel_config pieces = {
        .group = p->row, .rows = c->rows, .in_out = c->in_out, .whole = !p->overlap};
    return c->division == LT_COLUMN_PARALLEL ? lt_linear_column_parallel_as(tape, x, w, b, pieces)
                                             : lt_linear_row_parallel_as(tape, x, w, b, pieces);
}

lt_tensor *lt_parallel_linear_run(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                  lt_parallel_linear config)
{
    const int64_t before = lt_tape_op_counter(tape);
    if (!config.parallel)
        return lt_linear_as(tape, x, w, b, (lt_linear_config){.in_out = config.in_out});
    return set_op_counter(tape, run_sharded_linear(tape, x, w, b, &config), before + 1);
}

/* Gathers the features of the table over the column; this rank's contribution to each row is then
 * reduce-scattered over the row to the ranks with these features. */
static lt_tensor *embed_on_grid(lt_tape *tape, lt_tensor *ids, lt_tensor *table,
                                const lt_parallel_embedding *c, lt_embedding_shard part)
{
    parallel_t *p = c->parallel;
    lt_tensor *t = transpose(tape, lt_group_copy(tape, table, p->depth));
    t = drop_input(tape, t, lt_group_allgather(tape, t, p->column, c->features));
    t = drop_input(tape, t, transpose(tape, t));
    lt_tensor *own = lt_parallel_slice_samples(tape, ids, p, c->rows, 0);
    lt_tensor *x = lt_embedding_sharded(tape, own, t, part);
    x = drop_input(tape, x, lt_reshape(tape, x, LT_SHAPE(-1, c->features)));
    x = drop_input(tape, x, transpose(tape, x));
    x = drop_input(tape, x, lt_group_reducescatter(tape, x, p->row));
    return drop_input(tape, x, transpose(tape, x));
}

static lt_tensor *embed_sharded(lt_tape *tape, lt_tensor *ids, lt_tensor *table,
                                const lt_parallel_embedding *c)
{
    parallel_t *p = c->parallel;
    const lt_embedding_shard part = {lt_even_shard_offset(c->count, p->row->size, p->row->rank),
                                     c->count};
    if (is_grid(p))
        return embed_on_grid(tape, ids, table, c, part);
    lt_tensor *x = lt_embedding_sharded(tape, ids, table, part);
    if (!p->sequence)
        return drop_input(tape, x, lt_group_allreduce(tape, x, p->row));
    lt_tensor *rows = lt_reshape(tape, x, LT_SHAPE(-1, c->features));
    return drop_input(tape, rows, lt_group_reducescatter(tape, rows, p->row));
}

lt_tensor *lt_parallel_embedding_run(lt_tape *tape, lt_tensor *ids, lt_tensor *table,
                                     lt_parallel_embedding config)
{
    const int64_t before = lt_tape_op_counter(tape);
    if (!config.parallel)
        return lt_embedding(tape, ids, table);
    return set_op_counter(tape, embed_sharded(tape, ids, table, &config), before + 1);
}

/* --- Noise --- */

static lt_noise_box own_noise_box(const lt_parallel_noise *w)
{
    parallel_t *p = w->parallel;
    const bool columns = is_grid(p) || w->inside, rows = is_grid(p) || !w->inside;
    return (lt_noise_box){
        .row_first = rows ? lt_parallel_local_rows(p, w->rows).first : 0,
        .column_first = columns ? lt_even_shard_offset(w->features, p->row->size, p->row->rank) : 0,
        .columns = w->features,
        .sample_rows = w->rows.tokens};
}

/* Returns true if this rank has only some of the activation's elements. */
static bool is_activation_sharded(const lt_parallel_noise *w)
{
    return w->parallel && (w->inside || lt_parallel_shards_rows(w->parallel));
}

lt_tensor *lt_parallel_dropout(lt_tape *tape, lt_tensor *x, double p, lt_parallel_noise where)
{
    return is_activation_sharded(&where) ? lt_dropout_at(tape, x, p, own_noise_box(&where))
                                         : lt_dropout(tape, x, p);
}

lt_tensor *lt_parallel_drop_path(lt_tape *tape, lt_tensor *x, double p, lt_parallel_noise where)
{
    return is_activation_sharded(&where) ? lt_drop_path_at(tape, x, p, own_noise_box(&where))
                                         : lt_drop_path(tape, x, p);
}

/* --- The loss of sharded classes --- */

static lt_sharded_xent_config xent_config(parallel_t *p, int64_t classes)
{
    return (lt_sharded_xent_config){
        .row = p->row, .column = p->column, .depth = p->depth, .classes = classes};
}

/* Makes matrices of this rank's rows: logits in the master dtype, labels. */
static void flatten_logits_and_labels(lt_tape *tape, lt_tensor **logits, lt_tensor **labels,
                                      parallel_t *p)
{
    if (!*logits || !*labels)
        return;
    const lt_shape s = lt_tensor_shape(*labels), l = lt_tensor_shape(*logits);
    const lt_token_rows rows = lt_parallel_rows(p, s.dim[0], s.ndim > 1 ? s.dim[1] : 1);
    if (is_grid(p))
        *labels = lt_parallel_slice_samples(tape, *labels, p, rows, LT_IGNORED_LABEL);
    *labels = lt_reshape(tape, *labels, LT_SHAPE(-1));
    *logits = lt_reshape(tape, *logits, LT_SHAPE(-1, l.dim[l.ndim - 1]));
    *logits = lt_cast(tape, *logits, lt_device_master_dtype(lt_tape_device(tape)));
}

lt_tensor *lt_parallel_softmax_xent(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                    parallel_t *p, int64_t classes)
{
    if (!p)
        return lt_softmax_xent(tape, logits, labels, 0);
    flatten_logits_and_labels(tape, &logits, &labels, p);
    return lt_softmax_xent_sharded(tape, logits, labels, xent_config(p, classes));
}

lt_status lt_parallel_topk_hits(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                lt_tensor *hits, parallel_t *p, int64_t classes)
{
    LT_TRY(lt_tape_status(tape));
    if (!p)
        return lt_topk_hits(logits, labels, hits);
    flatten_logits_and_labels(tape, &logits, &labels, p);
    LT_TRY(lt_tape_status(tape));
    return lt_topk_hits_sharded(logits, labels, hits, xent_config(p, classes));
}
