/** What operations need of the other ranks, as functions: tensors know no communicator. */
#ifndef LATHER_DETAIL_EXCHANGE_OPS_H
#define LATHER_DETAIL_EXCHANGE_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"

typedef enum lt_exchange_what {
    LT_EXCHANGE_SUM,         /**< out, in place, becomes the sum over ranks */
    LT_EXCHANGE_MAX,         /**< the same, the maximum */
    LT_EXCHANGE_GATHER,      /**< out: in of every rank, in rank order */
    LT_EXCHANGE_SCATTER_SUM, /**< out: this rank's part of the sum over ranks of in */
    LT_EXCHANGE_BROADCAST,   /**< out, in place, becomes the root's */
    LT_EXCHANGE_REDUCE       /**< out, on the root: the sum over ranks of in */
} lt_exchange_what;

/** Views without gaps, of one dtype; lent until the wait. */
typedef struct lt_exchange_call {
    lt_exchange_what what;
    int root;             /**< of a broadcast or reduce */
    lt_view in, out;      /**< in is absent where it says "in place"; out off a reduce's root */
    const int64_t *count; /**< [size] elements of each rank's part in a gather or scatter-sum, else
                               NULL; lent until begin returns */
} lt_exchange_call;

/** A group of ranks. All of them begin the same calls in the same order. Both entries are required. */
typedef struct lt_exchange lt_exchange;
struct lt_exchange {
    int rank, size;
    lt_status (*begin)(lt_exchange *self, const lt_exchange_call *call, void **request);
    /** Waits and sets *request to NULL; NULL: nothing. */
    lt_status (*wait)(lt_exchange *self, void **request);
};

/** begin and wait. */
LT_API LT_MUST_CHECK lt_status lt_exchange_run(lt_exchange *self, const lt_exchange_call *call);

/** Extent of part number index when whole is cut as evenly as possible, the first parts longer. */
LT_API int64_t lt_exchange_part(int64_t whole, int parts, int index);
/** Where it begins; index == parts: whole. */
LT_API int64_t lt_exchange_first(int64_t whole, int parts, int index);

#endif
