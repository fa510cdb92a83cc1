/* Kept state: state_store.h. Opened tensors are of the caching allocator: a batch uses the memory of the one before. */

#include "optim/shampoo/state_store.h"

#include "base/parallel.h"

/* Roots and bases in int4 cost accuracy that their bytes are not worth: docs/adr/0065. */
static lt_state_dtype dtype_of(const lt_shampoo *s, lt_kept_what what)
{
    const bool rooted = what == LT_KEPT_ROOT || what == LT_KEPT_BASIS;
    if (what == LT_KEPT_MOMENT || what == LT_KEPT_POSITIVE)
        return s->base.state_dtype;
    return rooted && s->config.factor_dtype == LT_STATE_INT4 ? LT_STATE_INT8
                                                             : s->config.factor_dtype;
}

bool lt_shampoo_kept_format(const lt_shampoo *s, lt_kept_what what, lt_quantized_format *out)
{
    static const lt_quantized_kind kinds[] = {
        [LT_KEPT_GRAM] = LT_QUANTIZED_CHOLESKY,     [LT_KEPT_ROOT] = LT_QUANTIZED_SYMMETRIC,
        [LT_KEPT_BASIS] = LT_QUANTIZED_MATRIX,      [LT_KEPT_MOMENT] = LT_QUANTIZED_MOMENT,
        [LT_KEPT_POSITIVE] = LT_QUANTIZED_POSITIVE,
    };
    *out = (lt_quantized_format){kinds[what], dtype_of(s, what)};
    if (out->dtype != LT_STATE_F32)
        return true;
    out->kind = LT_QUANTIZED_SYMMETRIC;
    return s->config.packed_factors && (what == LT_KEPT_GRAM || what == LT_KEPT_ROOT);
}

int64_t lt_shampoo_opened_elements(const lt_shampoo *s, const lt_block *b)
{
    int64_t elements = 0;
    for (int d = 0; d < b->box.shape.ndim && lt_shampoo_keeps_factors(&s->config); d++)
        if (b->factor[d].is_matrix)
            elements += b->box.shape.dim[d] * b->box.shape.dim[d];
    return elements;
}

/* One state of a block: what is kept, and the tensor that it is opened to. */
typedef struct pair {
    lt_quantized *kept;
    lt_tensor **open;
} pair;
enum { PAIRS = 3 * LT_MAX_DIMS + 4 };

/* Those of a block that are kept; returns how many. */
static int list_pairs(lt_block *b, int sets, pair *list)
{
    const pair vectors[] = {{b->kept_m, &b->m},
                            {b->kept_graft, &b->graft},
                            {b->kept_momentum, &b->momentum},
                            {b->kept_corrected, &b->corrected}};
    int count = 0;
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        lt_factor *f = &b->factor[d];
        const pair of_factor[] = {
            {f->kept_gram, &f->gram}, {f->kept_root, &f->root}, {f->kept_diagonal, &f->diagonal}};
        for (int k = 0; k < 3; k++)
            if (sets & 1 << k && of_factor[k].kept)
                list[count++] = of_factor[k];
    }
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors && sets & LT_KEPT_VECTORS; k++)
        if (vectors[k].kept)
            list[count++] = vectors[k];
    return count;
}

static lt_status open_pair(pair p)
{
    return *p.open ? LT_OK : lt_quantized_open(p.kept, p.open);
}

lt_status lt_shampoo_open_kept(lt_shampoo *s, lt_block_batch batch, int sets)
{
    pair list[PAIRS];
    for (size_t i = batch.begin; i < batch.end; i++) {
        const int count = s->block[i].active ? list_pairs(&s->block[i], sets, list) : 0;
        for (int k = 0; k < count; k++)
            LT_TRY(open_pair(list[k]));
    }
    return LT_OK;
}

typedef struct storing {
    lt_shampoo *shampoo;
    size_t first;
    int sets;
} storing;

/* A Cholesky factor is one thread's work, so blocks are stored side by side. */
static void store_blocks(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const storing *all = context;
    pair list[PAIRS];
    for (int64_t i = begin; i < end; i++) {
        lt_block *b = &all->shampoo->block[all->first + (size_t)i];
        const int count = b->active ? list_pairs(b, all->sets, list) : 0;
        for (int k = 0; k < count; k++)
            if (*list[k].open)
                lt_quantized_store(list[k].kept, *list[k].open, all->shampoo->base.attempt);
    }
}

void lt_shampoo_close_kept(lt_shampoo *s, lt_block_batch batch, int sets)
{
    storing all = {s, batch.begin, sets};
    if (!lt_shampoo_keeps_factors(&s->config) && s->base.state_dtype == LT_STATE_F32)
        return;
    lt_parallel((int64_t)(batch.end - batch.begin), 1, store_blocks, &all);
    lt_shampoo_drop_kept(s, batch, sets);
}

void lt_shampoo_drop_kept(lt_shampoo *s, lt_block_batch batch, int sets)
{
    pair list[PAIRS];
    for (size_t i = batch.begin; i < batch.end; i++) {
        const int count = list_pairs(&s->block[i], sets, list);
        for (int k = 0; k < count; k++)
            lt_tensor_free(list[k].open);
    }
}

/* --- A refresh --- */

lt_status lt_shampoo_open_tasks(const lt_root_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_factor *f = &tasks[i].block->factor[tasks[i].dim];
        if (f->kept_gram)
            LT_TRY(open_pair((pair){f->kept_gram, &f->gram}));
        if (f->kept_root)
            LT_TRY(open_pair((pair){f->kept_root, &f->root}));
    }
    return LT_OK;
}

void lt_shampoo_close_tasks(const lt_root_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_factor *f = &tasks[i].block->factor[tasks[i].dim];
        if (f->kept_root && f->root && !tasks[i].status)
            lt_quantized_store(f->kept_root, f->root, 0);
        if (f->kept_root)
            lt_tensor_free(&f->root);
        if (f->kept_gram)
            lt_tensor_free(&f->gram);
    }
}
