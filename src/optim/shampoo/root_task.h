/* Matrices of a refresh and their solver jobs. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_TASK_H
#define LT_OPTIM_SHAMPOO_ROOT_TASK_H

#include "optim/shampoo/shampoo.h"

#include "lather/detail/roots.h"

/* Lists the matrices of the marked active blocks of a batch, large ones first; returns their number. tasks:
 * LT_MAX_DIMS per block. */
size_t lt_shampoo_list_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks);
/* Returns the end of the batch that begins at begin, within a limit of memory. */
size_t lt_shampoo_tasks_end(const lt_device *device, const lt_root_task *tasks, size_t begin,
                            size_t count);

/* Computes the inverse roots of these matrices. Errors: LT_E_ARG (a factor is not finite), LT_E_NOMEM. */
lt_status lt_shampoo_run_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count);
/* Makes the jobs for lt_root_run() at another time or on another thread: bias-corrected copies of the factors in
 * one tensor, *copies, as inputs and the blocks' roots as outputs. */
lt_status lt_shampoo_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                               lt_root_job *jobs, lt_tensor **copies);

/* Returns the elements that the staggered timing should refresh per step on this device, or 0 for as few as
 * possible. */
int64_t lt_shampoo_batch_elements(const lt_device *device);

#endif
