/* A chain of stages for buckets in flight: each bucket passes all stages in order, and each stage takes the buckets in
 * the order in which they were begun. So while one bucket is between the nodes, the next is inside of them.
 *
 * On host memory each stage has a plain thread of its own, which waits for its requests and computes without the
 * device's kernels. A stage uses a communicator that no other one uses (lt_comm_split): then the order of calls on
 * each depends on no timing, and is the same on all ranks. On devices with queues the stages of a bucket run at once,
 * on the caller's thread. */
#ifndef LT_DIST_REDUCER_PIPELINE_H
#define LT_DIST_REDUCER_PIPELINE_H

#include "lather/ext/reducer.h"

typedef struct lt_stages lt_stages;

/* The work of a stage for a bucket; what it began has ended when it returns, or is ended by the bucket's next stage. */
typedef lt_status lt_stage_fn(lt_reducer *reducer, size_t bucket);

/* fn[count] is copied. reducer->buckets is the most that can be in flight. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stages_open(lt_stages **out, lt_reducer *reducer, lt_stage_fn *const *fn,
                                       size_t count);
/* Queues a bucket. */
LT_MUST_CHECK lt_status lt_stages_begin(lt_stages *stages, size_t bucket);
/* Until the oldest bucket that was begun and not finished has passed all stages: this one. Errors: the first of any
 * stage. After one no stage does anything more, for any bucket. */
LT_MUST_CHECK lt_status lt_stages_finish(lt_stages *stages, size_t bucket);
/* Waits for what is in flight. NULL is fine. */
void lt_stages_close(lt_stages **stages);

#endif
