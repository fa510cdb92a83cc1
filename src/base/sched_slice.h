/* Scheduler time slice of a thread. */
#ifndef LT_BASE_SCHED_SLICE_H
#define LT_BASE_SCHED_SLICE_H

/* Requests the shortest slice, 0.1 ms, for the calling thread, which mostly waits for messages: on a busy core it then
 * runs sooner after waking, with an unchanged CPU share. Effective on Linux 6.12 and later, else a no-op. sched(7),
 * sched_setattr(2), "EEVDF: custom slices". */
void lt_sched_slice_shorten(void);

#endif
