/* Input of a run: its data sets, the training loader, and the loader's statistics. */
#ifndef LT_TRAIN_INPUT_H
#define LT_TRAIN_INPUT_H

#include "ranks.h"

#include "lather/data.h"
#include "lather/detail/run.h"

typedef struct lt_train_input {
    lt_dataset *train, *val; /* training and validation data; train: NULL in an evaluation */
    lt_loader *loader;       /* loader of the training data */
    int workers;             /* loader threads of this rank; 0: as many as allowed */
    char val_split
        [64]; /* fraction and seed of the training data that val holds back; "" if val is its own part */
    const char *unit;          /* plural name of samples: "images" */
    int64_t batches_per_epoch; /* micro-batches per epoch of this rank, a multiple of grad_accum */
    bool has_ram_cache; /* decoded images are cached in memory; records have the cache's counters */
    int queued;         /* batches that were ready at the last micro-batch */
    int64_t bad_listed; /* corrupt samples already in the run's list */
    lt_loader_stats begin; /* counters of the loader when this part of the epoch began */
    double begin_seconds;  /* seconds of the epoch when this part began */
} lt_train_input;

void lt_train_input_close(lt_train_input *input);

/* Returns the next micro-batch of an lt_train_input; for use as lt_train_step_config.next. */
lt_status lt_train_input_next(void *input, lt_batch *batch);
/* Advances to the next epoch. The loader has prepared its first batches already, which a seek would drop. */
lt_status lt_train_input_next_epoch(lt_train_input *input, int64_t epoch, int64_t batch);

/* Checks that all ranks have the same number of samples and classes. Errors: LT_E_ARG, naming the first
 * difference. Collective. */
lt_status lt_train_input_check_ranks(const lt_train_input *input, lt_ranks *ranks);

/* Adds the corrupt samples of all ranks to the run's list; *listed: those of loader already there; loader may be
 * NULL. Collective. */
lt_status lt_train_input_record_corrupt(lt_ranks *ranks, lt_run *run, const lt_loader *loader,
                                        int64_t *listed);

/* Input statistics: the loader's counters since the beginning of a part of an epoch, which had taken epoch_seconds
 * before. */
enum { INPUT_VALUES = 10 };
void lt_train_input_begin_stats(lt_train_input *input, double epoch_seconds);
void lt_train_input_metrics(const lt_train_input *input, lt_metric out[INPUT_VALUES]);
/* Shows one line: whether the loader or the computation limits the speed. */
void lt_train_input_log_bottleneck(const lt_train_input *input, lt_run *run, int64_t epoch,
                                   double epoch_seconds);

#endif
