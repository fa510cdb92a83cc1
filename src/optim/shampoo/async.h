/* Inverse roots on a worker thread. */
#ifndef LT_OPTIM_SHAMPOO_ASYNC_H
#define LT_OPTIM_SHAMPOO_ASYNC_H

#include "optim/shampoo/shampoo.h"

/* Returns true if this step starts a refresh on the worker thread. */
bool lt_shampoo_starts_async(const lt_shampoo *s);
/* Starts a refresh of all active blocks on the worker thread; it is swapped in f steps later. */
lt_status lt_shampoo_start_async(lt_shampoo *s);
/* Waits for the roots that are due in this step and swaps them in. */
lt_status lt_shampoo_swap_in(lt_shampoo *s);
/* Returns true if roots are due in this step. */
bool lt_shampoo_has_due_swap(const lt_shampoo *s);
/* Waits for the worker thread, so that pending roots are complete. Errors: those of the thread; the pending roots
 * are then discarded. */
lt_status lt_shampoo_wait_async(lt_shampoo *s);
/* Stops the worker thread after its current batch and discards its results. */
void lt_shampoo_cancel_async(lt_shampoo *s);

#endif
