/* --optim-stats in the training loop: measures every N-th step and writes FOLDER/optim_stats.bin, an event in the
 * records, and TensorBoard's scalars and histograms. */
#ifndef LT_TRAIN_OPTIM_STATS_H
#define LT_TRAIN_OPTIM_STATS_H

#include "optim/stats/stats.h"

#include "lather/detail/run.h"

#include <stdio.h>

typedef struct lt_train_stats {
    lt_optim_stats *optim; /* NULL: off */
    FILE *file;            /* NULL: no run folder, or another rank */
} lt_train_stats;

/* Opens the file in the run's folder. id: identifies the run. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_train_stats_open_file(lt_train_stats *t, const lt_run *run,
                                                 const char *id);
void lt_train_stats_close(lt_train_stats *t);

/* Writes the numbers of the step that was measured; on rank 0 only. */
LT_MUST_CHECK lt_status lt_train_stats_write(const lt_train_stats *t, lt_run *run, int64_t step);

#endif
