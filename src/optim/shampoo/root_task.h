/* Matrices of a refresh, and their jobs for the solvers. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_TASK_H
#define LT_OPTIM_SHAMPOO_ROOT_TASK_H

#include "optim/shampoo/shampoo.h"

#include "lather/detail/roots.h"

/* The matrices of the marked active blocks of a batch, large ones first; returns how many. tasks:
 * LT_MAX_DIMS for each block. */
size_t lt_shampoo_list_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks);
/* Where the batch ends that begins at begin: its memory stays within a limit. */
size_t lt_shampoo_tasks_end(const lt_device *device, const lt_root_task *tasks, size_t begin,
                            size_t count);

/* Roots of these matrices, at once. Errors: LT_E_ARG (a factor is not finite), LT_E_NOMEM. */
lt_status lt_shampoo_run_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count);
/* The same in two halves, for lt_root_run() at another time or place: jobs on bias-corrected copies
 * of the factors in one tensor, *copies, that read and write the blocks' own roots. */
lt_status lt_shampoo_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                               lt_root_job *jobs, lt_tensor **copies);

/* Elements of roots that a step of the staggered timing should have on this device, if any; 0: the
 * fewer the better. */
int64_t lt_shampoo_batch_elements(const lt_device *device);

#endif
