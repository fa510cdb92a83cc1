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

/** The parts of a step. All borrowed, for its lifetime. */
typedef struct lt_train_step_config {
    lt_device *device;
    lt_tape *tape;
    const lt_params *params;
    lt_optim *optim;
    lt_task task;
    lt_ema *ema;          /**< EMA of the weights, updated after the optimizer; NULL if absent */
    lt_comm *comm;        /**< communicator of all ranks; NULL: one rank */
    lt_data_parallel *dp; /**< averages gradients over comm; NULL: one rank */
    /** mesh of comm: dp averages over its replicas of the model; NULL: each rank is a replica */
    const lt_mesh *mesh;
    lt_comm *group; /**< ranks of dp, if fewer than comm: local steps; NULL: comm */
    /** Forward and backward take a time slice each step, without graph capture; gradient communication and the
     *  update are outside it. NULL: not shared. */
    lt_share *share;
    lt_pass pass;       /**< pass of forward; attempt and micro are set in each */
    int64_t grad_accum; /**< micro-batches per step; 0: 1 */
    /** private to the library: dp's backup workers or deadline; NULL if absent */
    struct lt_stragglers *stragglers;
    /** Measure the gradient noise scale, for which dp must have norms: compares the gradients of ranks with their
     *  mean, or that of the first micro-batch with that of all. Not with a mesh or a group. */
    bool gradient_noise;
    bool graph; /**< capture the work as graphs and replay them, if the device has graphs */
    /** Returns the next micro-batch, valid until the next call. LT_END is a failure here. Required. */
    lt_status (*next)(void *next_context, lt_batch *batch);
    void *next_context;
    /** Returns true if this rank was asked to stop; the result combines all ranks. NULL: never. */
    bool (*stop)(void *stop_context);
    void *stop_context;
} lt_train_step_config;

/** Results of a step. */
typedef struct lt_train_result {
    int64_t step;      /**< lt_step.attempt of the step; 0: no step */
    double lr;         /**< lt_step.lr of the step */
    lt_task_sums sums; /**< task sums over all ranks */
    /** weight of sums.loss: the fraction of labels that count, if the task has terms; else 1 */
    double weight;
    lt_step_result optim; /**< result of the optimizer */
    /** With gradient_noise; large_batch is 0 if the update was not applied, or has one part only. */
    lt_noise_sample noise;
    double begin;        /**< time at which the step began, by the monotonic clock */
    double seconds;      /**< duration of the step; with two in flight, from the end of the first */
    double data_seconds; /**< seconds that the step waited for data */
    double
        exposed_seconds;   /**< seconds waited for other ranks' gradients or shards of parameters */
    double comm_bytes;     /**< bytes that this rank sent in the step */
    double between_bytes;  /**< gradient bytes sent to other nodes, part of comm_bytes */
    double parallel_bytes; /**< bytes sent in passes over a sharded model, part of comm_bytes */
    lt_share_turn turn;    /**< time slice of share, with the seconds waited for it */
    bool may_run_ahead;    /**< the next step may be begun before this one is finished */
    bool stop;             /**< a rank was asked to stop */
} lt_train_result;

/** Makes a step. Errors: LT_E_ARG (a task with too many counts; gradient_noise with a single part, a mesh, or a
 *  group), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_train_step_new(lt_train_step **out,
                                                 const lt_train_step_config *config);
/** Frees the step; call before its borrowed parts are freed. */
LT_API void lt_train_step_free(lt_train_step **step);

/** Queues a step; lt_train_step_finish() returns its results. Collective. Errors: those of the task, the
 *  optimizer, the ranks and of next. */
LT_API LT_MUST_CHECK lt_status lt_train_step_begin(lt_train_step *step, const lt_step *numbers,
                                                   lt_train_result *result);
/** Waits for the results of a step, in the order of steps; at most one more may be in flight. Collective. An
 *  update that was not applied is not a failure: see result->optim.applied. Errors: LT_E_DEVICE, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_train_step_finish(lt_train_step *step, lt_train_result *result);

/** Returns how often the step's graphs were captured and replayed. */
LT_API lt_graph_stats lt_train_step_graphs(const lt_train_step *step);

#endif
