/* How long the scheduler lets a thread run before others of its core have their turn. */
#ifndef LT_BASE_SLICE_H
#define LT_BASE_SLICE_H

/* Asks for the shortest slice, 0.1 ms, for the calling thread: one that waits for messages and works little. Among
 * threads that compute it then has a core soon after it woke, and keeps it for less; its share of the core stays.
 * Linux 6.12 and later do so; an older one changes nothing. Source: sched(7), sched_setattr(2), "EEVDF: custom slices". */
void lt_slice_shorten(void);

#endif
