/** A training step as one replayable unit. */
#ifndef LATHER_GRAPH_H
#define LATHER_GRAPH_H

#include "lather/device.h"

typedef struct lt_graph lt_graph;

/** One step: no read-back, no host branch on device data, no number that changes by value. */
typedef lt_status lt_step_fn(void *arg);

/** Runs step. A backend with graphs runs it eagerly twice, captures it into *graph (NULL before
 *  the first call) and then replays; the others simply call it. */
LT_API LT_MUST_CHECK lt_status lt_graph_run(lt_device *device, lt_graph **graph, lt_step_fn *step,
                                            void *arg);
LT_API void lt_graph_free(lt_graph **graph);

#endif
