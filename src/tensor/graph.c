/* Steps on backends without graphs: a plain call. */

#include "lather/graph.h"

lt_status lt_graph_run(lt_device *device, lt_graph **graph, lt_step_fn *step, void *arg)
{
    (void)device;
    (void)graph;
    return step(arg);
}

void lt_graph_free(lt_graph **graph)
{
    *graph = NULL;
}
