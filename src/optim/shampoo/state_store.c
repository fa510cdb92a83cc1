/* State stores: dequantizes and requantizes blocks. Dequantized tensors come from the caching allocator, so a batch
 * reuses the memory of the one before. */

#include "optim/shampoo/state_store.h"

#include "base/parallel.h"

/* Inverse roots and eigenbases use at least int8: int4 costs more accuracy than its bytes are worth
 * (docs/adr/0065). */
static lt_state_dtype dtype_of(const lt_shampoo *s, lt_stored_kind what)
{
    const bool inverse = what == LT_STORED_ROOT || what == LT_STORED_BASIS;
    if (what == LT_STORED_MOMENT || what == LT_STORED_NONNEGATIVE)
        return s->base.state_dtype;
    return inverse && s->config.factor_dtype == LT_STATE_INT4 ? LT_STATE_INT8
                                                              : s->config.factor_dtype;
}

bool lt_shampoo_store_format(const lt_shampoo *s, lt_stored_kind what, lt_quantized_format *out)
{
    static const lt_quantized_kind kinds[] = {
        [LT_STORED_GRAM] = LT_QUANTIZED_CHOLESKY,
        [LT_STORED_ROOT] = LT_QUANTIZED_SYMMETRIC,
        [LT_STORED_BASIS] = LT_QUANTIZED_MATRIX,
        [LT_STORED_MOMENT] = LT_QUANTIZED_MOMENT,
        [LT_STORED_NONNEGATIVE] = LT_QUANTIZED_NONNEGATIVE,
    };
    *out = (lt_quantized_format){kinds[what], dtype_of(s, what)};
    if (out->dtype != LT_STATE_F32)
        return true;
    out->kind = LT_QUANTIZED_SYMMETRIC;
    return s->config.packed_factors && (what == LT_STORED_GRAM || what == LT_STORED_ROOT);
}

int64_t lt_shampoo_dequantized_elements(const lt_shampoo *s, const lt_block *b)
{
    int64_t elements = 0;
    for (int d = 0; d < b->region.shape.ndim && lt_shampoo_compresses_factors(&s->config); d++)
        if (b->factor[d].is_matrix)
            elements += b->region.shape.dim[d] * b->region.shape.dim[d];
    return elements;
}

/* One state of a block: its store, and the tensor that it is dequantized to. */
typedef struct pair {
    lt_quantized *store;
    lt_tensor **dense;
} pair;
enum { PAIRS = 3 * LT_MAX_DIMS + 4 };

/* Lists the states of a block that have a store; returns their number. */
static int list_stored_states(lt_block *b, int sets, pair *list)
{
    const pair vectors[] = {{b->m_store, &b->m},
                            {b->graft_store, &b->graft},
                            {b->momentum_store, &b->momentum},
                            {b->corrected_store, &b->corrected}};
    int count = 0;
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        lt_factor *f = &b->factor[d];
        const pair of_factor[] = {{f->gram_store, &f->gram},
                                  {f->root_store, &f->root},
                                  {f->diagonal_store, &f->diagonal}};
        for (int k = 0; k < 3; k++)
            if (sets & 1 << k && of_factor[k].store)
                list[count++] = of_factor[k];
    }
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors && sets & LT_STORED_VECTORS; k++)
        if (vectors[k].store)
            list[count++] = vectors[k];
    return count;
}

static lt_status dequantize_pair(pair p)
{
    return *p.dense ? LT_OK : lt_quantized_dequantize(p.store, p.dense);
}

lt_status lt_shampoo_dequantize(lt_shampoo *s, lt_block_batch batch, int sets)
{
    pair list[PAIRS];
    for (size_t i = batch.begin; i < batch.end; i++) {
        const int count = s->block[i].active ? list_stored_states(&s->block[i], sets, list) : 0;
        for (int k = 0; k < count; k++)
            LT_TRY(dequantize_pair(list[k]));
    }
    return LT_OK;
}

typedef struct requantize_context {
    lt_shampoo *shampoo;
    size_t first;
    int sets;
} requantize_context;

/* A Cholesky decomposition runs on one thread, so blocks are requantized in parallel. */
static void requantize_blocks(void *context, int64_t begin, int64_t end)
{
    const requantize_context *all = context;
    pair list[PAIRS];
    for (int64_t i = begin; i < end; i++) {
        lt_block *b = &all->shampoo->block[all->first + (size_t)i];
        const int count = b->active ? list_stored_states(b, all->sets, list) : 0;
        for (int k = 0; k < count; k++)
            if (*list[k].dense)
                lt_quantized_requantize(list[k].store, *list[k].dense, all->shampoo->base.attempt);
    }
}

void lt_shampoo_requantize(lt_shampoo *s, lt_block_batch batch, int sets)
{
    requantize_context all = {s, batch.begin, sets};
    if (!lt_shampoo_compresses_factors(&s->config) && s->base.state_dtype == LT_STATE_F32)
        return;
    lt_parallel_range((int64_t)(batch.end - batch.begin), 1, requantize_blocks, &all);
    lt_shampoo_discard_dequantized(s, batch, sets);
}

void lt_shampoo_discard_dequantized(lt_shampoo *s, lt_block_batch batch, int sets)
{
    pair list[PAIRS];
    for (size_t i = batch.begin; i < batch.end; i++) {
        const int count = list_stored_states(&s->block[i], sets, list);
        for (int k = 0; k < count; k++)
            lt_tensor_free(list[k].dense);
    }
}

/* --- A refresh --- */

lt_status lt_shampoo_dequantize_tasks(const lt_root_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_factor *f = &tasks[i].block->factor[tasks[i].dim];
        if (f->gram_store)
            LT_TRY(dequantize_pair((pair){f->gram_store, &f->gram}));
        if (f->root_store)
            LT_TRY(dequantize_pair((pair){f->root_store, &f->root}));
    }
    return LT_OK;
}

void lt_shampoo_requantize_tasks(const lt_root_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_factor *f = &tasks[i].block->factor[tasks[i].dim];
        if (f->root_store && f->root && !tasks[i].status)
            lt_quantized_requantize(f->root_store, f->root, 0);
        if (f->root_store)
            lt_tensor_free(&f->root);
        if (f->gram_store)
            lt_tensor_free(&f->gram);
    }
}
