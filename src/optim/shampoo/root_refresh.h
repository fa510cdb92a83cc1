/* Refresh of inverse roots: schedule, tasks, worker thread, failure policy. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_REFRESH_H
#define LT_OPTIM_SHAMPOO_ROOT_REFRESH_H

#include "optim/shampoo/shampoo.h"

#include "lather/detail/roots.h"

/* Blocks to refresh within this step; lt_shampoo_mark_due_blocks() marks them. */
typedef enum lt_due { LT_DUE_NONE, LT_DUE_SOME, LT_DUE_ALL } lt_due;
lt_due lt_shampoo_mark_due_blocks(lt_shampoo *s);
/* Returns true if this step refreshes a block. */
bool lt_shampoo_has_due_blocks(const lt_shampoo *s);
/* Refreshes the marked active blocks of a batch. */
lt_status lt_shampoo_refresh_roots(lt_shampoo *s, lt_block_batch batch);

/* Assigns every block to a phase, in batches of about batch_elements if not 0. Errors: LT_E_NOMEM. */
lt_status lt_shampoo_assign_phases(lt_shampoo *s, int64_t batch_elements);

/* Lists the matrices of the marked active blocks of a batch, large ones first; returns their number. tasks:
 * LT_MAX_DIMS per block. */
size_t lt_shampoo_list_root_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks);
/* Returns the end of the batch that begins at begin, within a limit of memory. */
size_t lt_shampoo_end_of_root_batch(const lt_device *device, const lt_root_task *tasks,
                                    size_t begin, size_t count);

/* Computes the inverse roots of these matrices. Errors: LT_E_ARG (a factor is not finite), LT_E_NOMEM. */
lt_status lt_shampoo_run_root_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count);
/* Makes the jobs for lt_root_run() at another time or on another thread: bias-corrected copies of the factors in
 * one tensor, *copies, as inputs and the blocks' roots as outputs. */
lt_status lt_shampoo_make_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                    lt_root_job *jobs, lt_tensor **copies);

/* Returns the elements that the staggered timing should refresh per step on this device, or 0 for as few as
 * possible. */
int64_t lt_shampoo_refresh_elements(const lt_device *device);

/* Counts failures and applies the failure policy. step: the step of the factors. Errors: LT_E_ARG (too many
 * consecutive failures), LT_E_NOMEM. */
lt_status lt_shampoo_handle_failures(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                     int64_t step);

/* Returns true if this step starts a refresh on the worker thread. */
bool lt_shampoo_is_async_start_due(const lt_shampoo *s);
/* Starts a refresh of all active blocks on the worker thread; its roots are swapped in one period later. */
lt_status lt_shampoo_start_async(lt_shampoo *s);
/* Waits for the roots that are due in this step and swaps them in. */
lt_status lt_shampoo_swap_in_roots(lt_shampoo *s);
/* Returns true if roots are due in this step. */
bool lt_shampoo_has_due_swap(const lt_shampoo *s);
/* Waits for the worker thread, so that pending roots are complete. Errors: those of the thread; the pending roots
 * are then discarded. */
lt_status lt_shampoo_wait_async(lt_shampoo *s);
/* Stops the worker thread after its current batch and discards its results. */
void lt_shampoo_cancel_async(lt_shampoo *s);

#endif
