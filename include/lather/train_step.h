/** One training step: forward and backward of its micro-batches, then the optimizer. */
#ifndef LATHER_TRAIN_STEP_H
#define LATHER_TRAIN_STEP_H

#include "lather/data_parallel.h"
#include "lather/detail/noise_scale.h"
#include "lather/ema.h"
#include "lather/ext/task.h"
#include "lather/graph.h"
#include "lather/mesh.h"
#include "lather/share.h"

typedef struct lt_train_step lt_train_step;

/** What a step works with. All borrowed, for its lifetime. */
typedef struct lt_train_step_config {
    lt_device *device;
    lt_tape *tape;
    const lt_params *params;
    lt_optim *optim;
    lt_task task;
    lt_ema *ema;          /**< updated behind the optimizer; NULL: none */
    lt_comm *comm;        /**< NULL: one rank */
    lt_data_parallel *dp; /**< averages gradients over comm; NULL: one rank */
    const lt_mesh
        *mesh;      /**< of comm: dp averages over its copies of the model; NULL: a rank is one */
    lt_comm *group; /**< of dp, where that is a part of comm: local steps; NULL: comm */
    /** Forward and backward take a turn each step, not captured; the exchange of gradients and the update are
     *  outside it. NULL: none. */
    lt_share *share;
    lt_pass pass;       /**< of forward; attempt and micro are set in each */
    int64_t grad_accum; /**< micro-batches of a step; 0: 1 */
    struct lt_stragglers
        *stragglers; /**< the library's own: of dp with backup workers or a deadline; NULL: none */
    /** Measure what the gradient noise scale takes, for which dp has norms: gradients of ranks beside their mean, or of
     *  the first micro-batch beside that of all. Not of a mesh, nor of a group. */
    bool gradient_noise;
    bool graph; /**< capture the work as graphs and replay them, where the device has them */
    /** The next micro-batch; lent until the next call. LT_END is a failure here. Required. */
    lt_status (*next)(void *next_context, lt_batch *batch);
    void *next_context;
    /** Whether this rank was asked to stop; the result says whether any was. NULL: never. */
    bool (*stop)(void *stop_context);
    void *stop_context;
} lt_train_step_config;

/** What a step showed. */
typedef struct lt_train_result {
    int64_t step;      /**< its lt_step.attempt; 0: none */
    double lr;         /**< its lt_step.lr */
    lt_task_sums sums; /**< of all ranks */
    double
        weight; /**< of sums.loss: the share of labels that count, if the task has terms; else 1 */
    lt_step_result optim; /**< the optimizer's */
    /** With gradient_noise; large_batch 0: the update was not applied, or is of one part alone. */
    lt_noise_sample noise;
    double begin;        /**< monotonic clock, when it was begun */
    double seconds;      /**< that it took; of two in flight at once, from the end of the first */
    double data_seconds; /**< of that, waiting for data */
    double exposed_seconds; /**< of that, waiting for gradients, or divided parameters, of others */
    double comm_bytes;      /**< that this rank sent */
    double between_bytes;   /**< of that, gradients to other nodes */
    double parallel_bytes;  /**< of comm_bytes, in passes over a model that is divided over ranks */
    lt_share_turn turn;     /**< of share, and the seconds of seconds that it was waited for */
    bool may_run_ahead;     /**< the next step may be begun before this one is finished */
    bool stop;              /**< a rank was asked to stop */
} lt_train_result;

/** Errors: LT_E_ARG (a task of too many counts; gradient_noise of one rank with one micro-batch, of a mesh, of a
 *  group), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_train_step_new(lt_train_step **out,
                                                 const lt_train_step_config *config);
/** Before what it borrows. */
LT_API void lt_train_step_free(lt_train_step **step);

/** Queues a step; its results come with lt_train_step_finish(). Collective.
 *  Errors: those of the task, the optimizer, the ranks and of next. */
LT_API LT_MUST_CHECK lt_status lt_train_step_begin(lt_train_step *step, const lt_step *numbers,
                                                   lt_train_result *result);
/** Waits for the results of a step that was begun, in the order of steps; at most one more may be in
 *  flight. Collective. An update that was not applied is no failure: result->optim.applied says it.
 *  Errors: LT_E_DEVICE, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_train_step_finish(lt_train_step *step, lt_train_result *result);

/** How often its graphs were captured and replayed. */
LT_API lt_graph_stats lt_train_step_graphs(const lt_train_step *step);

#endif
