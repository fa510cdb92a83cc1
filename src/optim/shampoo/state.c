/* Shampoo's state per block, in logical order. One list defines the states of a block; making, saving, counting and
 * freeing all use it. */

#include "optim/shampoo/state.h"

#include "optim/shampoo/layout.h"
#include "optim/shampoo/root/work_matrices.h"
#include "optim/shampoo/state_store.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include "lather/log.h"

#include <stdio.h>

/* Returns the exponent of a dimension; a diagonal has that of a vector's factor. Dimensions without a factor do not
 * count in 1/(2*order), as in Anil et al. 2020, section 3; those with exponent 0 do, as in the reference
 * implementation. */
static double exponent_of(const lt_shampoo_config *c, const lt_partition *partition, int dim)
{
    const lt_exponents *e = &c->inverse_exponent;
    const int order = partition->diagonal ? 1 : partition->merged.shape.ndim,
              d = partition->diagonal ? 0 : dim;
    if (lt_shampoo_is_corrected(c)) /* one exponent for the whole block */
        return e->set[order][0] ? e->value[order][0] : 0.5;
    if (e->set[order][d])
        return e->value[order][d];
    return partition->diagonal || partition->whole[dim]
               ? 0.5
               : 1.0 / (2.0 * lt_partition_count_factor_dims(partition));
}

/* Chooses the factor of a dimension: none if its exponent is 0. With the eigenvalue correction a dimension may keep
 * its own basis, and diagonal blocks need no factor, as they have a second moment already. */
static void choose_dim_factor(const lt_shampoo_config *c, lt_block *b, int d)
{
    const lt_partition *partition = b->partition;
    const bool corrected = lt_shampoo_is_corrected(c);
    const bool ignored = c->ignored_basis_change_dims[partition->merged.shape.ndim][d];
    lt_factor *f = &b->factor[d];
    f->exponent = exponent_of(c, partition, d);
    f->residual = -1;
    if (!(f->exponent > 0) || !lt_shampoo_has_factors(c)
        || (corrected && (partition->diagonal || ignored)))
        return;
    f->is_matrix = !partition->diagonal && !partition->whole[d];
    f->is_diagonal = partition->diagonal && d == 0;
}

void lt_block_choose_factors(const lt_shampoo_config *c, lt_block *b)
{
    for (int d = 0; d < b->region.shape.ndim; d++)
        choose_dim_factor(c, b, d);
}

/* Initial values of a tensor. */
typedef enum start { ZEROS, ONES, IDENTITY } start;

enum { BLOCK_STATES = 5 * LT_MAX_DIMS + 4, NAME = 32 };

typedef struct state {
    char name[NAME];
    lt_tensor **tensor;
    lt_quantized **store; /* used if lt_shampoo_store_format() returns true */
    lt_stored_kind what;
    lt_shape extent;
    start start;
} state;

static state block_state(const char *name, lt_tensor **tensor, lt_quantized **store,
                         lt_stored_kind what, lt_shape extent)
{
    state s = {.tensor = tensor, .store = store, .what = what, .extent = extent};
    snprintf(s.name, NAME, "%s", name);
    return s;
}

static state dim_state(const char *name, int d, lt_tensor **tensor, lt_shape extent)
{
    state s = {.tensor = tensor, .extent = extent};
    snprintf(s.name, NAME, "%s.%d", name, d);
    return s;
}

static state with_store(state s, lt_quantized **store, lt_stored_kind what)
{
    s.store = store;
    s.what = what;
    return s;
}

/* Lists the pending roots of a dimension; returns their number. */
static int list_pending(lt_block *b, int d, bool power, state *list)
{
    const int64_t n = b->region.shape.dim[d];
    int count = 0;
    list[count++] = dim_state("pending", d, &b->factor[d].pending, LT_SHAPE(n, n));
    if (power)
        list[count++] = dim_state("pending_power", d, &b->factor[d].pending_power, LT_SHAPE(n));
    return count;
}

/* Lists the state of dimension d of a block; returns its number. */
static int list_factor(const lt_shampoo *s, lt_block *b, int d, state *list)
{
    const bool corrected = lt_shampoo_is_corrected(&s->config);
    const bool power = lt_shampoo_has_powers(&s->config);
    const int64_t n = b->region.shape.dim[d];
    lt_factor *f = &b->factor[d];
    int count = 0;
    if (f->is_diagonal)
        list[count++] = with_store(dim_state("diagonal", d, &f->diagonal, b->region.shape),
                                   &f->diagonal_store, LT_STORED_NONNEGATIVE);
    if (!f->is_matrix)
        return count;
    list[count++] = with_store(dim_state("factor", d, &f->gram, LT_SHAPE(n, n)), &f->gram_store,
                               LT_STORED_GRAM);
    list[count] =
        with_store(dim_state(power || corrected ? "basis" : "root", d, &f->root, LT_SHAPE(n, n)),
                   &f->root_store, power || corrected ? LT_STORED_BASIS : LT_STORED_ROOT);
    list[count++].start = IDENTITY;
    if (power) {
        list[count] = dim_state("power", d, &f->power, LT_SHAPE(n));
        list[count++].start = ONES;
    }
    return b->swap ? count + list_pending(b, d, power, list + count) : count;
}

static int list_factors(const lt_shampoo *s, lt_block *b, state *list)
{
    int count = 0;
    for (int d = 0; d < b->region.shape.ndim; d++)
        count += list_factor(s, b, d, list + count);
    return count;
}

/* Lists all states of a block in a fixed order; returns their number. */
static int list_state(const lt_shampoo *s, lt_block *b, state *list)
{
    const lt_shampoo_config *c = &s->config;
    const lt_shape shape = b->region.shape;
    int n = list_factors(s, b, list);
    if (c->beta1 > 0)
        list[n++] = block_state("m", &b->m, &b->m_store, LT_STORED_MOMENT, shape);
    if (lt_shampoo_has_graft_moment(c))
        list[n++] = block_state("graft", &b->graft, &b->graft_store, LT_STORED_NONNEGATIVE, shape);
    if (c->momentum > 0)
        list[n++] =
            block_state("momentum", &b->momentum, &b->momentum_store, LT_STORED_MOMENT, shape);
    if (lt_shampoo_is_corrected(c))
        list[n++] = block_state("corrected", &b->corrected, &b->corrected_store,
                                LT_STORED_NONNEGATIVE, shape);
    return n;
}

/* Passes a counter to the visitor as "rooted.BLOCK.PARAM" or, for one dimension, "failures.BLOCK.DIM.PARAM". */
static lt_status visit_number(const lt_block *b, const lt_state_visitor *visitor, const char *name,
                              int dim, int64_t *value)
{
    char full[3 * NAME];
    if (dim < 0)
        snprintf(full, sizeof full, "%s.%d", name, b->index);
    else
        snprintf(full, sizeof full, "%s.%d.%d", name, b->index, dim);
    return lt_optim_visit_counter(visitor, full, b->slot->param->name, value);
}

/* Returns true if the state has a store, in *format. */
static bool is_stored(const lt_shampoo *s, const state *what, lt_quantized_format *format)
{
    return what->store && lt_shampoo_store_format(s, what->what, format);
}

/* Computes the strides of a state: vectors use the block's, matrices are row-major. */
static void strides_of(const lt_block *b, const state *what, int64_t *stride)
{
    const bool vector = what->what == LT_STORED_MOMENT || what->what == LT_STORED_NONNEGATIVE;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        stride[d] = 0;
    if (vector)
        lt_block_compute_strides(b, stride);
    else
        lt_format_strides(what->extent, LT_FORMAT_CONTIGUOUS, stride);
}

static lt_status make_store(const lt_shampoo *s, const lt_block *b, const state *what,
                            lt_quantized_format format)
{
    int64_t stride[LT_MAX_DIMS];
    if (*what->store)
        return LT_OK;
    strides_of(b, what, stride);
    LT_TRY(lt_quantized_new(what->store, s->base.device, format, what->extent, stride,
                            lt_quantized_random_key(b->slot->param->name, what->name, b->index)));
    if (what->start != IDENTITY)
        return LT_OK;
    lt_tensor *dense = NULL;
    lt_status st = lt_quantized_dequantize(*what->store, &dense);
    if (!st)
        st = lt_root_set_identity(s->base.device, s->one, lt_tensor_view(dense));
    if (!st)
        lt_quantized_requantize(*what->store, dense, 0);
    lt_tensor_free(&dense);
    if (st)
        lt_quantized_free(what->store);
    return st;
}

static lt_status make_tensor_or_store(const lt_shampoo *s, const lt_block *b, const state *what)
{
    lt_quantized_format format;
    if (is_stored(s, what, &format))
        return make_store(s, b, what, format);
    if (*what->tensor)
        return LT_OK;
    lt_device *device = s->base.device;
    LT_TRY(lt_tensor_new(what->tensor, device, lt_device_master_dtype(device), what->extent));
    lt_status st = what->start == ONES ? lt_tensor_fill(*what->tensor, 1)
                   : what->start == IDENTITY
                       ? lt_root_set_identity(device, s->one, lt_tensor_view(*what->tensor))
                       : LT_OK;
    if (st)
        lt_tensor_free(what->tensor); /* an incomplete tensor must not be taken for state */
    return st;
}

lt_status lt_shampoo_make_state(lt_shampoo *s)
{
    state list[BLOCK_STATES];
    for (size_t i = 0; i < s->count; i++) {
        int count = list_state(s, &s->block[i], list);
        for (int k = 0; k < count; k++)
            LT_TRY(make_tensor_or_store(s, &s->block[i], &list[k]));
        lt_block_set_state_strides(&s->block[i]);
    }
    return LT_OK;
}

void lt_shampoo_free_state(lt_shampoo *s)
{
    state list[BLOCK_STATES];
    for (size_t i = 0; s->block && i < s->total; i++) {
        int count = list_state(s, &s->block[i], list);
        for (int k = 0; k < count; k++) {
            lt_tensor_free(list[k].tensor);
            if (list[k].store)
                lt_quantized_free(list[k].store);
        }
    }
}

void lt_shampoo_free_unused_pending(lt_shampoo *s)
{
    for (size_t i = 0; i < s->total; i++)
        for (int d = 0; d < LT_MAX_DIMS && !s->block[i].swap; d++) {
            lt_tensor_free(&s->block[i].factor[d].pending);
            lt_tensor_free(&s->block[i].factor[d].pending_power);
        }
}

static lt_status visit_numbers(lt_block *b, const lt_state_visitor *visitor)
{
    LT_TRY(visit_number(b, visitor, "failures", -1, &b->failures));
    LT_TRY(visit_number(b, visitor, "rooted", -1, &b->root_step));
    LT_TRY(visit_number(b, visitor, "swap", -1, &b->swap));
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        if (!b->factor[d].is_matrix)
            continue;
        LT_TRY(visit_number(b, visitor, "failures", d, &b->factor[d].failures));
        LT_TRY(visit_number(b, visitor, "pending", d, &b->factor[d].pending_status));
    }
    return LT_OK;
}

/* Converts a loaded factor if a run with another --factor-dtype stored it as a Cholesky factor. */
static lt_status convert_loaded_cholesky(const lt_shampoo *s, const lt_block *b, lt_tensor *factor)
{
    bool converted = false;
    if (!factor || lt_device_master_dtype(s->base.device) != LT_F32)
        return LT_OK;
    LT_TRY(lt_quantized_expand_cholesky(factor, &converted));
    if (converted)
        lt_log(LT_LOG_DEBUG, "optim",
               "shampoo: %s block %d: converted a Cholesky factor of the "
               "checkpoint to f32",
               b->slot->param->name, b->index);
    return LT_OK;
}

/* Passes a block's counters to the visitor before its tensors: they determine which tensors exist. */
static lt_status visit_block(const lt_shampoo *s, lt_block *b, const lt_state_visitor *visitor)
{
    state list[BLOCK_STATES];
    const int64_t swap = b->swap;
    LT_TRY(visit_numbers(b, visitor));
    int count = list_state(s, b, list);
    for (int i = 0; i < count && b->swap != swap && s->spec[b->number] < s->count; i++)
        LT_TRY(make_tensor_or_store(s, b, &list[i]));
    for (int i = 0; i < count; i++) {
        const lt_state_entry entry = {
            .param = b->slot->param->name,
            .name = list[i].name,
            .block = b->index,
            .offset = lt_partition_offset(b->partition, b->part, &b->region),
            .shape = b->region.shape,
            .owner = b->owner,
            .dtype = lt_device_master_dtype(s->base.device),
            .extent = list[i].extent,
            .tensor = *list[i].tensor,
            .quantized = list[i].store ? *list[i].store : NULL,
        };
        LT_TRY(visitor->entry(visitor->context, &entry));
        if (list[i].what == LT_STORED_GRAM && list[i].store)
            LT_TRY(convert_loaded_cholesky(s, b, *list[i].tensor));
    }
    return LT_OK;
}

/* Logs once, after a load, the roots that were rounded. */
static void log_rounded(lt_shampoo *s)
{
    int count = 0;
    for (size_t i = 0; i < s->count; i++)
        for (int d = 0; d < LT_MAX_DIMS; d++) {
            lt_quantized *root = s->block[i].factor[d].root_store;
            count += root && root->rounded;
            if (root)
                root->rounded = false;
        }
    if (count)
        lt_log(LT_LOG_INFO, "optim",
               "shampoo: %d roots of the checkpoint were saved in another format; they are "
               "rounded until their next refresh",
               count);
}

lt_status lt_shampoo_visit_state(lt_optim *self, lt_state_visitor *visitor)
{
    lt_shampoo *s = (lt_shampoo *)self;
    LT_TRY(lt_shampoo_make_state(s));
    lt_status st = LT_OK;
    for (size_t i = 0; i < s->total && !st; i++)
        st = visit_block(s, lt_shampoo_block_number(s, i), visitor);
    lt_shampoo_free_unused_pending(s);
    log_rounded(s);
    return st;
}

static int64_t count_state_bytes(const lt_shampoo *s, const state *list, int count)
{
    const size_t size = lt_dtype_size(lt_device_master_dtype(s->base.device));
    int64_t bytes = 0;
    lt_quantized_format format;
    for (int i = 0; i < count; i++) {
        const int64_t elements = lt_shape_count(list[i].extent);
        bytes += is_stored(s, &list[i], &format) ? lt_quantized_bytes(format, elements)
                                                 : elements * (int64_t)size;
    }
    return bytes;
}

/* Counts pending roots too: with the asynchronous timing they exist from the first hand-over to the end of the
 * run. */
int64_t lt_shampoo_block_bytes(const lt_shampoo *s, lt_block *block, bool factors)
{
    const bool power = lt_shampoo_has_powers(&s->config);
    state list[BLOCK_STATES];
    int count = factors ? list_factors(s, block, list) : list_state(s, block, list);
    bool to_come = s->config.refresh_timing == LT_REFRESH_ASYNC && !block->swap;
    for (int d = 0; d < LT_MAX_DIMS && to_come; d++)
        if (block->factor[d].is_matrix)
            count += list_pending(block, d, power, list + count);
    return count_state_bytes(s, list, count);
}

size_t lt_shampoo_state_bytes(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    int64_t bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        bytes += lt_shampoo_block_bytes(s, &s->block[i], false);
    return (size_t)bytes;
}
