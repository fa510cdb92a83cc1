/* Number of ranks of a gang, and the grad-accum that keeps its global batch:
 *
 *     global batch = batch size x grad-accum x ranks */

#include "launch/launch.h"

#include "lather/ext/fail.h"

#include <inttypes.h>

lt_status lt_launch_compute_gang_size(const lt_launch_node_config *config, int slots, int *ranks,
                                      int64_t *grad_accum)
{
    const int most = slots > 0 && slots < config->count ? slots : config->count;
    *grad_accum = 1;
    *ranks = most;
    if (!config->global_batch)
        return LT_OK;
    for (int r = most; r >= 1; r--)
        if (config->global_batch % (config->batch_size * r) == 0) {
            *ranks = r;
            *grad_accum = config->global_batch / (config->batch_size * r);
            return LT_OK;
        }
    return lt_fail(LT_E_ARG,
                   "launch: %s: a global batch of %" PRId64
                   " is not a multiple of micro-batches of %" PRId64 " on %d ranks or fewer",
                   config->label, config->global_batch, config->batch_size, most);
}
