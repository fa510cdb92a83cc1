/* Partial reduction: the mean over the ranks that finish an update first (synchronous SGD with backup workers).
 * Chen, Pan, Monga, Bengio & Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016, arXiv 1604.00981. */
#ifndef LT_DIST_PARTIAL_REDUCE_H
#define LT_DIST_PARTIAL_REDUCE_H

#include "dist/collectives/partial_progress.h"

/* Creates a partial reduction; config->comm has a link, and needed is 1 to the number of ranks. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_partial_new(lt_partial **out, const lt_partial_config *config);
/* Frees a partial reduction, after lt_partial_wait() or an abort. */
void lt_partial_free(lt_partial **partial);

/* Begins an update, which the progress thread serves from here on. set: [size] flags of the participating ranks, read on
 * rank 0; NULL: the first to finish. Collective. */
LT_MUST_CHECK lt_status lt_partial_begin(lt_partial *partial, int64_t update, const bool *set);
/* Announces that in[bucket] is complete; it must not be written before lt_partial_wait(). */
void lt_partial_mark_ready(lt_partial *partial, size_t bucket);
/* Returns true if the update's participants are known and exclude this rank. Callable from any thread. */
bool lt_partial_is_late(const lt_partial *partial);
/* Waits for the mean. All buckets must be ready, unless this rank is late. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_partial_wait(lt_partial *partial);
/* After a wait: the mean of a bucket, bitwise identical on all ranks, valid until the next update; and [size] flags of
 * the participating ranks. */
const void *lt_partial_bucket_mean(const lt_partial *partial, size_t bucket);
const bool *lt_partial_participants(const lt_partial *partial);
lt_partial_counts lt_partial_byte_counts(const lt_partial *partial);

#endif
