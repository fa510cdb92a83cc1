/* Roots on another thread. */
#ifndef LT_OPTIM_SHAMPOO_ASYNC_H
#define LT_OPTIM_SHAMPOO_ASYNC_H

#include "optim/shampoo/shampoo.h"

/* Returns true if this step starts roots on the async thread. */
bool lt_shampoo_starts_async(const lt_shampoo *s);
/* Starts the roots of all active blocks on a thread; they are swapped in f steps from now. */
lt_status lt_shampoo_start_async(lt_shampoo *s);
/* Swaps in the roots that are due in this step; waits for them. */
lt_status lt_shampoo_swap_in(lt_shampoo *s);
/* Returns true if this step does. */
bool lt_shampoo_has_due_swap(const lt_shampoo *s);
/* Waits for the thread, so that the pending roots are complete. Errors: the thread's; then nothing
 * is pending any more. */
lt_status lt_shampoo_wait_async(lt_shampoo *s);
/* Stops the thread at the next chance; its roots are lost. */
void lt_shampoo_cancel_async(lt_shampoo *s);

#endif
