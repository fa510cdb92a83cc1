/** A training step as one replayable unit. */
#ifndef LATHER_GRAPH_H
#define LATHER_GRAPH_H

#include "lather/tensor.h"

typedef struct lt_graph lt_graph;

/** One step: no read-back, no host branch on device data, no number that changes by value. */
typedef lt_status lt_step_fn(void *arg);

/** All in which runs of a step differ, except for what is in device memory. Compared by value. */
typedef struct lt_graph_key {
    int kind;          /**< which step function, in the caller's own numbering */
    bool first, last;  /**< micro-batch of its update: whether gradients are zeroed, reduced */
    const void *input; /**< device address of the input; NULL: it is always the same */
    lt_shape shape;    /**< of the input */
} lt_graph_key;

/** Runs step. A backend with graphs runs each key's step eagerly twice, captures it into *graph
 *  (NULL before the first call) and from then on replays that: step is not called any more. Where a
 *  step cannot be captured (it reads back, allocates, draws noise) it goes on eagerly, with one
 *  warning. The other backends simply call it. One thread, one device, one tape to a graph; it keeps
 *  16 keys, steps of more run eagerly.
 *  Tensors that a step makes keep their addresses; nothing else is put there while *graph lives.
 *  Errors: those of step; LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_graph_run(lt_device *device, lt_graph **graph, lt_graph_key key,
                                            lt_step_fn *step, void *arg);
/** Before its device is closed. *graph may be NULL. */
LT_API void lt_graph_free(lt_graph **graph);

/** What it did so far, of all keys. graph may be NULL: zeros. */
typedef struct lt_graph_stats {
    int64_t eager, captures, replays;
    bool failed; /**< some step cannot be captured */
} lt_graph_stats;
LT_API lt_graph_stats lt_graph_statistics(const lt_graph *graph);

#endif
