/* New roots: when they are due, their matrices, and what happens to those that have none. */
#ifndef LT_OPTIM_SHAMPOO_REFRESH_H
#define LT_OPTIM_SHAMPOO_REFRESH_H

#include "optim/shampoo/shampoo.h"

#include "lather/ext/roots.h"

/* Which blocks get new roots inside this step: marks them. */
typedef enum lt_due { LT_DUE_NONE, LT_DUE_SOME, LT_DUE_ALL } lt_due;
lt_due lt_shampoo_plan(lt_shampoo *s);
/* Whether that is any. */
bool lt_shampoo_refreshes(const lt_shampoo *s);
/* New roots of the marked active blocks of a batch. */
lt_status lt_shampoo_refresh(lt_shampoo *s, lt_block_batch batch);

/* One matrix of a refresh. */
typedef struct lt_root_task {
    lt_block *block;
    int dim;
    int64_t n;
    lt_status status; /* out: LT_OK, or why the old root stays */
    bool kept;        /* out: the old root is near enough */
    bool retried;     /* out: solved in double */
} lt_root_task;
/* The matrices of the marked active blocks of a batch, large ones first; returns how many. tasks:
 * LT_MAX_DIMS for each block. */
size_t lt_shampoo_list_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks);
/* Where the batch ends that begins at begin: its memory stays within a limit. */
size_t lt_shampoo_tasks_end(const lt_device *device, const lt_root_task *tasks, size_t begin,
                            size_t count);
/* Counts failures and applies the failure policy. step: of the factors.
 * Errors: LT_E_ARG (too many failures in a row), LT_E_NOMEM. */
lt_status lt_shampoo_apply_policy(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                  int64_t step);

/* Roots of these matrices, at once. Errors: LT_E_ARG (a factor is not finite), LT_E_NOMEM. */
lt_status lt_shampoo_run_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count);
/* The same in two halves, for lt_root_run() at another time or place: jobs on bias-corrected copies
 * of the factors in one tensor, *copies, that read and write the blocks' own roots. */
lt_status lt_shampoo_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                               lt_root_job *jobs, lt_tensor **copies);

/* Elements of roots that a step of the staggered timing should have on this device, if any; 0: the
 * fewer the better. */
int64_t lt_shampoo_batch_elements(const lt_device *device);
/* Gives every block its phase, in batches of about so many elements if not 0. Errors: LT_E_NOMEM. */
lt_status lt_shampoo_stagger(lt_shampoo *s, int64_t batch_elements);

#endif
