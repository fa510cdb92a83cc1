/* Pipeline of the stages of a reduction: each bucket passes all stages in order, and each stage processes buckets in the
 * order in which they were begun. While one bucket is reduced between nodes, the next is reduced within them.
 *
 * On host memory each stage has a dedicated thread, which waits for its requests and computes without the device's
 * kernels. Each stage uses a separate communicator (lt_comm_split): then the order of calls on each is independent of
 * timing and the same on all ranks. On devices with streams a bucket's stages run immediately on the caller's thread. */
#ifndef LT_DIST_REDUCER_PIPELINE_H
#define LT_DIST_REDUCER_PIPELINE_H

#include "lather/ext/reducer.h"

typedef struct lt_pipeline lt_pipeline;

/* Processes a bucket in a stage. Requests that it begins are waited for before it returns or by the next stage. */
typedef lt_status lt_stage_fn(lt_reducer *reducer, size_t bucket);

/* Opens a pipeline of the stages fn[count]. At most reducer->buckets buckets can be in flight. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_pipeline_open(lt_pipeline **out, lt_reducer *reducer,
                                         lt_stage_fn *const *fn, size_t count);
/* Queues a bucket for the first stage. */
LT_MUST_CHECK lt_status lt_pipeline_begin(lt_pipeline *pipeline, size_t bucket);
/* Waits until the oldest unfinished bucket, which must be this one, has passed all stages. Returns the first error of
 * any stage; after an error the stages skip all buckets. */
LT_MUST_CHECK lt_status lt_pipeline_finish(lt_pipeline *pipeline, size_t bucket);
/* Waits for buckets in flight, ends the threads and frees the pipeline. No-op for NULL. */
void lt_pipeline_close(lt_pipeline **pipeline);

#endif
