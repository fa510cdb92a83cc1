/** Sharded gradients (ZeRO stage 2): the parts of each gradient and their owners. */
#ifndef LATHER_DETAIL_GRADIENT_PARTS_H
#define LATHER_DETAIL_GRADIENT_PARTS_H

/* Not a stable interface: may change in any release. */

#include "lather/data_parallel.h"
#include "lather/detail/view.h"

/** A part of a gradient that one rank needs: the whole gradient, or a block of it. */
typedef struct lt_gradient_part {
    const lt_param *param; /**< parameter of the gradient; borrowed */
    int64_t elements;
    int owner; /**< rank that needs the part */
} lt_gradient_part;

/** Parts of all gradients, grouped by parameter, in the order of the parameters. They cover each gradient exactly once. */
typedef struct lt_gradient_parts {
    lt_gradient_part *part; /**< [count] the parts */
    size_t count;
    /** Returns part number index of a tensor shaped like its parameter; any strides. */
    lt_view (*of)(void *context, size_t index, const lt_tensor *tensor);
    /** Returns the elements from `at` on of a flat tensor as a view with the part's shape. */
    lt_view (*flat)(void *context, size_t index, const lt_tensor *flat, int64_t at);
    void *context;
    /** Frees memory early: a gradient has memory from its first contribution until it is in its bucket, and its mean at
     *  the owner; a bucket until it is reduced, with one in flight while the next is filled. Buckets are in reverse order
     *  of the parameters from the first update on. Gradients of several micro-batches are kept until the last. */
    bool releases;
} lt_gradient_parts;

/** Makes lt_data_parallel_finish() reduce each gradient part to its owner only: buckets are reduce-scattered instead of
 *  all-reduced. Means are bitwise identical to those of an all-reduce; other parts keep this rank's gradient. Before the
 *  first update; copies *parts and takes ownership of its list, also on failure. Collective.
 *  With n ranks, rank r sends (all elements - its own + (n - 1) * parameters) * the size of the communication dtype per
 *  update: each rank's chunk of a bucket ends with the flags of its gradients.
 *  Errors: LT_E_ARG (not before the first update; invalid owner; the parts of a parameter do not add up: names it; ranks
 *  disagree), LT_E_NOMEM, LT_E_COMM.
 *  Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
 *  SC 2020, section 5.2. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_shard_gradients(lt_data_parallel *dp,
                                                                const lt_gradient_parts *parts);

#endif
