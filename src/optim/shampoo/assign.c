/* Cost model of Shampoo's blocks and their assignment to ranks. Shi et al., "A Distributed
 * Data-Parallel PyTorch Implementation of the Distributed Shampoo Optimizer", 2023 (arXiv
 * 2309.06497), section 4.1, balances blocks by bytes; inverse roots cost n^3, so that leaves the
 * time of a step uneven. */

#include "optim/shampoo/assign.h"

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/shampoo/state.h"

#include <math.h>

/* Nanoseconds on one core of an EPYC of Zen 4 in f32, from `bench optim --threads 1 --steps 3` on a quiet machine
 * with `--optim shampoo` (factors 376 ms, precondition and update 685, refresh by `rational` 3765) and `--optim
 * adamw` (20.6), divided by the sums over ResNet-50's blocks of 1024: n^3 over all factors 3.79e10, elements times
 * n 3.17e10, elements 2.56e7. 18 elementwise passes are subtracted from the 685 ms. */
static const double per_root = 0.099;    /* per n^3 of an inverse root */
static const double per_gram = 0.012;    /* per elements * n of G G^T, half of which is symmetric */
static const double per_product = 0.020; /* per elements * n of an inverse root times G */
static const double per_byte = 0.029;    /* per byte that an elementwise kernel reads or writes */

/* Returns how often elementwise kernels read or write an element of the block in a step. */
static int count_memory_passes(const lt_shampoo_config *c, const lt_block *b)
{
    int count = 5; /* reading the gradient, writing the update */
    count += c->beta1 > 0 ? 8 : 0;
    count += c->grafting != LT_GRAFTING_NONE ? 4 : 0;
    count += lt_shampoo_has_graft_moment(c) ? 6 : 0;
    count += c->momentum > 0 ? 6 : 0;
    count += b->slot && b->slot->weight_decay > 0 ? 3 : 0;
    count += lt_shampoo_is_corrected(c) ? 6 : 0;
    return count;
}

/* Returns the number of matrix products with one factor's inverse root or eigenbasis in a step. */
static int count_matrix_products(const lt_shampoo_config *c, int order)
{
    const int there_and_back = lt_shampoo_has_powers(c) ? 2 : 1;
    if (lt_shampoo_is_corrected(
            c)) /* the update into the eigenbasis and back, the gradient into it */
        return 3 + (lt_shampoo_is_kl(c) ? there_and_back * (order - 1) : 0);
    return lt_shampoo_is_kl(c) ? there_and_back * order : there_and_back;
}

/* Returns the time of an orthogonalization, whose products are on the smaller dimension. */
static double orthogonalization_nanoseconds(const lt_shampoo_config *c, const lt_block *b)
{
    const double elements = (double)lt_shape_count(b->region.shape);
    const double rows = b->region.shape.ndim > 1 ? (double)b->region.shape.dim[0] : 1;
    const double n = fmin(rows, elements / rows);
    return lt_orthogonal_iterations(&c->orthogonalization)
           * (per_gram * n * (elements + n * n) + per_product * n * elements);
}

double lt_block_root_cost(const lt_block *block)
{
    double cost = 0;
    for (int d = 0; d < block->region.shape.ndim; d++) {
        double n = (double)block->region.shape.dim[d];
        if (block->factor[d].is_matrix)
            cost += n * n * n;
    }
    return cost;
}

double lt_block_refresh_nanoseconds(const lt_block *b)
{
    return per_root * lt_block_root_cost(b);
}

double lt_block_step_nanoseconds(const lt_shampoo_config *c, const lt_block *b)
{
    const lt_shape shape = b->region.shape;
    const double elements = (double)lt_shape_count(shape);
    double ns = per_byte * sizeof(float) * elements * count_memory_passes(c, b);
    for (int d = 0; d < shape.ndim; d++) {
        const double n = (double)shape.dim[d];
        if (!b->factor[d].is_matrix)
            continue;
        ns += per_gram * elements * n;
        ns += per_product * elements * n * count_matrix_products(c, shape.ndim);
    }
    if (lt_shampoo_is_orthogonalized(c, b))
        ns += orthogonalization_nanoseconds(c, b);
    return ns;
}

double lt_block_nanoseconds(const lt_shampoo_config *c, const lt_block *b)
{
    return lt_block_step_nanoseconds(c, b)
           + lt_block_refresh_nanoseconds(b) / (double)c->precondition_frequency;
}

static size_t count_parts(const lt_optim *self)
{
    return ((const lt_shampoo *)self)->total;
}

static void fill_part_record(lt_optim *self, size_t index, lt_part *part)
{
    lt_shampoo *s = (lt_shampoo *)self;
    lt_block *b = lt_shampoo_block_number(s, index);
    part->slot = b->slot;
    part->nanoseconds = lt_block_nanoseconds(&s->config, b);
    part->state_bytes = lt_shampoo_block_bytes(s, b, false);
    part->elements = lt_shape_count(b->region.shape);
    part->dims = b->region.shape;
}

static lt_view part_view(lt_optim *self, size_t index, const lt_tensor *parameter)
{
    return lt_block_view_in_tensor(lt_shampoo_block_number((lt_shampoo *)self, index), parameter);
}

static void part_region(lt_optim *self, size_t index, lt_shape *offset, lt_shape *extent)
{
    lt_block_region(lt_shampoo_block_number((lt_shampoo *)self, index), offset, extent);
}

/* Permutes blocks in place, by swaps, so that each is at index spec[number]: this rank's first. */
static void move_own_blocks_first(lt_shampoo *s)
{
    for (size_t i = 0; i < s->total; i++)
        for (size_t to; (to = s->spec[s->block[i].number]) != i;) {
            const lt_block other = s->block[to];
            s->block[to] = s->block[i];
            s->block[i] = other;
        }
}

static void set_owners(lt_optim *self, const lt_part *part, int rank)
{
    lt_shampoo *s = (lt_shampoo *)self;
    size_t mine = 0, others = 0;
    lt_shampoo_free_state(s);
    for (size_t i = 0; i < s->total; i++)
        mine += part[i].owner == rank;
    s->count = mine;
    for (size_t i = 0; i < s->total; i++) {
        lt_block *b = lt_shampoo_block_number(s, i);
        b->owner = part[i].owner;
        b->update = part[i].update;
        b->value = part[i].value;
        b->grad = part[i].grad;
    }
    mine = 0;
    for (size_t i = 0; i < s->total; i++)
        s->spec[i] = part[i].owner == rank ? mine++ : s->count + others++;
    move_own_blocks_first(s);
    s->ready = false;
}

static void list_counters(lt_optim *self, size_t index, int64_t *counter[LT_PART_COUNTERS])
{
    lt_block *b = lt_shampoo_block_number((lt_shampoo *)self, index);
    *counter++ = &b->failures;
    *counter++ = &b->root_step;
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        *counter++ = &b->factor[d].failures;
        *counter++ = &b->factor[d].pending_status;
    }
}

const lt_part_ops lt_shampoo_parts = {
    .count = count_parts,
    .describe = fill_part_record,
    .of = part_view,
    .region = part_region,
    .set_owners = set_owners,
    .counters = list_counters,
};
