/* Where a run's samples come from: its data sets, the loader of training, and what that counted. */
#ifndef LT_TRAIN_INPUT_H
#define LT_TRAIN_INPUT_H

#include "ranks.h"

#include "lather/data.h"
#include "lather/detail/run.h"

typedef struct lt_train_input {
    lt_dataset *train, *val;   /* train: NULL in an evaluation */
    lt_loader *loader;         /* of train */
    const char *unit;          /* of samples, plural: "images" */
    int64_t batches_per_epoch; /* micro-batches of this rank, a multiple of grad_accum */
    bool has_ram_cache;        /* there is a cache in memory, whose counts go to records */
    int queued;                /* batches that were ready for the last micro-batch */
    int64_t bad_listed;        /* bad samples that are in the run's list */
    lt_loader_stats begin;     /* counters when this part of the epoch began, */
    double begin_seconds;      /* and the epoch's seconds then */
} lt_train_input;

void lt_train_input_close(lt_train_input *input);

/* The next micro-batch: lt_train_step_config.next, with an lt_train_input. */
lt_status lt_train_input_next(void *input, lt_batch *batch);
/* To epoch and batch from the end of the epoch before, of which the loader has made batches already; a seek would
 * drop them. */
lt_status lt_train_input_next_epoch(lt_train_input *input, int64_t epoch, int64_t batch);

/* All ranks have as many samples of the same classes. Errors: LT_E_ARG, naming the first difference. Collective. */
lt_status lt_train_input_agree(const lt_train_input *input, lt_ranks *ranks);

/* Adds the bad samples of all ranks to the run's list; *listed: of loader so far; loader NULL: none. Collective. */
lt_status lt_train_input_list_bad(lt_ranks *ranks, lt_run *run, const lt_loader *loader,
                                  int64_t *listed);

/* Input statistics: the loader's counters from the beginning of a part of an epoch on, which has taken
 * epoch_seconds so far. */
enum { INPUT_VALUES = 10 };
void lt_train_input_begin(lt_train_input *input, double epoch_seconds);
void lt_train_input_values(const lt_train_input *input, lt_metric out[INPUT_VALUES]);
/* One line: whether the loader or the computation held the run up. */
void lt_train_input_note(const lt_train_input *input, lt_run *run, int64_t epoch,
                         double epoch_seconds);

#endif
