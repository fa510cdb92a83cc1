/* Objects that the ranks of a run share; NULL for a single rank. */
#ifndef LT_TRAINER_PARALLEL_H
#define LT_TRAINER_PARALLEL_H

#include "trainer.h"

#include "lather/detail/sharded_optim.h"

typedef struct trainer_shared {
    /* maps whole parameters to the shards of a model; NULL: they are whole */
    lt_sharded_optim *sharded;
    lt_data_parallel *dp;      /* averages gradients; NULL: one rank, or an evaluation */
    lt_local_steps *local;     /* groups of --local-steps; NULL without local steps */
    lt_stragglers *stragglers; /* mitigation of slow ranks; NULL: ranks wait for each other */
    lt_share *share;           /* time slices of the device; NULL: not shared */
} trainer_shared;

/* Opens the time-sharing of --share-device. Call last, as the other jobs wait for this job's time slices from then
 * on. */
lt_status lt_trainer_open_device_share(trainer_shared *s, lt_trainer *t);
/* Starts averaging gradients. Call before the optimizer is made. */
lt_status lt_trainer_open_parallel(trainer_shared *s, const command_line *line, lt_ranks *ranks,
                                   trainer_model *model);
/* Turns compression of gradients on or off for the beginning epoch. */
void lt_trainer_switch_compression(const trainer_shared *s, const ranks_options *options,
                                   int64_t epoch);
/* Makes the optimizer and its groups. Call after freezing. */
lt_status lt_trainer_make_optim(trainer_shared *s, lt_optim **optim, arguments *args,
                                lt_ranks *ranks, trainer_model *model);
/* Shards the optimizer's state. Call before a checkpoint is loaded. */
lt_status lt_trainer_shard_optim(const trainer_shared *s, lt_optim *optim, const arguments *args,
                                 lt_ranks *ranks, lt_tape *tape);
/* Frees the shared objects. Call after the optimizer is freed, before the ranks are left. */
void lt_trainer_close_shared(trainer_shared *s);

#endif
