/** Gradients divided over ranks: which part of a gradient which rank needs. */
#ifndef LATHER_DETAIL_GRADIENT_PARTS_H
#define LATHER_DETAIL_GRADIENT_PARTS_H

/* Not a stable interface: may change in any release. */

#include "lather/data_parallel.h"
#include "lather/detail/view.h"

/** What one rank needs of one gradient: a parameter's, or a block of it. */
typedef struct lt_gradient_part {
    const lt_param *param; /**< borrowed */
    int64_t elements;
    int owner; /**< rank */
} lt_gradient_part;

/** Parts of all gradients, those of a parameter together, in the order of the parameters. They do not
 *  overlap, and nothing is between them. */
typedef struct lt_gradient_parts {
    lt_gradient_part *part; /**< [count] */
    size_t count;
    /** Part index of a tensor shaped like its parameter; any strides. */
    lt_view (*of)(void *context, size_t index, const lt_tensor *tensor);
    /** Elements from `at` on of a flat tensor, as a view of the part's shape. */
    lt_view (*flat)(void *context, size_t index, const lt_tensor *flat, int64_t at);
    void *context;
    /** A gradient has memory only from its first contribution until it is in its bucket, and its mean at
     *  the owner; a bucket only until it is reduced, and one is in flight while the next is filled.
     *  Buckets are in the reverse order of the parameters, from the first update on. Gradients of several
     *  micro-batches stay until the last. */
    bool releases;
} lt_gradient_parts;

/** From now on lt_data_parallel_finish() gives each rank the mean of its own parts only, bit for bit
 *  what all would get: the rest of a gradient stays what this rank computed. A bucket is laid out rank
 *  by rank, and reduced and scattered instead of reduced for all. Before the first update; copies
 *  *parts and takes over its list, also on failure. Collective.
 *  Of n ranks, rank r sends in an update (all elements - its own + (n - 1) * parameters) * the size of
 *  the communication dtype: after each rank's parts of a bucket come the flags of its gradients.
 *  Errors: LT_E_ARG (an update was made; a part has no such rank; the parts of a parameter are not its
 *  elements: names it; ranks disagree), LT_E_NOMEM, LT_E_COMM.
 *  Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
 *  SC 2020, section 5.2. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_divide(lt_data_parallel *dp,
                                                       const lt_gradient_parts *parts);

#endif
