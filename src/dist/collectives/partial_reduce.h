/* The mean of the first ranks that are done with an update: synchronous SGD with backup workers.
 * Chen, Pan, Monga, Bengio & Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016, arXiv 1604.00981. */
#ifndef LT_DIST_PARTIAL_REDUCE_H
#define LT_DIST_PARTIAL_REDUCE_H

#include "dist/collectives/partial_progress.h"

/* Errors: LT_E_UNSUPPORTED (the communicator is not one of messages), LT_E_ARG (needed), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_partial_new(lt_partial **out, const lt_partial_config *config);
/* Behind lt_partial_wait(), or an abort. */
void lt_partial_free(lt_partial **partial);

/* An update begins: from here on the progress thread serves it, whatever this rank's own thread does. set: [size]
 * which ranks make it, read on rank 0; NULL: the first ones. Collective. */
LT_MUST_CHECK lt_status lt_partial_begin(lt_partial *partial, int64_t update, const bool *set);
/* in[bucket] is complete, and not written before lt_partial_wait(). */
void lt_partial_ready(lt_partial *partial, size_t bucket);
/* Whether the running update's set is known and this rank is not in it. Any thread. */
bool lt_partial_is_late(const lt_partial *partial);
/* Waits for the mean. All buckets need to be ready, unless this rank is late. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_partial_wait(lt_partial *partial);
/* Behind a wait: the mean of a bucket, the same bits on all ranks, until the next one; [size] who is in the set. */
const void *lt_partial_mean(const lt_partial *partial, size_t bucket);
const bool *lt_partial_set(const lt_partial *partial);
lt_partial_counts lt_partial_count(const lt_partial *partial);

#endif
