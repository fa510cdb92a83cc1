/** Runs a training step as one replayable graph. */
#ifndef LATHER_GRAPH_H
#define LATHER_GRAPH_H

#include "lather/tensor.h"

typedef struct lt_graph lt_graph;

/** One step. It must not read back, branch on device data, or use host numbers that change
 *  between runs. */
typedef lt_status lt_step_fn(void *arg);

/** Everything in which runs of a step differ, apart from the contents of device memory. Compared
 *  by value. */
typedef struct lt_graph_key {
    int kind; /**< which step function, numbered by the caller */
    /** Position of the micro-batch in its step: first zeroes gradients, last reduces them. */
    bool first, last;
    const void *input; /**< device address of the input; NULL: always the same */
    lt_shape shape;    /**< shape of the input */
} lt_graph_key;

/** Runs a step. A backend with graphs runs each key's step eagerly twice, captures it into
 *  *graph (NULL before the first call) and replays it from then on without calling step. A step
 *  that cannot be captured (it reads back, allocates or draws noise) keeps running eagerly, with
 *  one warning. Other backends always call step. Use one thread, one device and one tape per
 *  graph. A graph stores 16 keys; steps with further keys run eagerly. Tensors made in a
 *  captured step keep their addresses and their memory until *graph is freed. Errors: those of
 *  step; LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_graph_run(lt_device *device, lt_graph **graph, lt_graph_key key,
                                            lt_step_fn *step, void *arg);
/** Frees *graph, which may be NULL. Call it before closing the device. */
LT_API void lt_graph_free(lt_graph **graph);

/** Counts over all keys; zeros for a NULL graph. */
typedef struct lt_graph_stats {
    int64_t eager, captures, replays;
    bool failed; /**< at least one step could not be captured */
} lt_graph_stats;
LT_API lt_graph_stats lt_graph_statistics(const lt_graph *graph);

#endif
