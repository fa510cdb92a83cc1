/* Custom time slices by sched_setattr(2). */

#include "base/sched_slice.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct sched_attr, first version; its header conflicts with the C library's. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime of a normal thread: slice in ns */
} attributes;

/* Sets the calling thread's slice to the shortest one; keeps its policy and nice value. */
void lt_sched_slice_shorten(void)
{
    enum { SHORTEST = 100000 }; /* ns; the kernel's minimum */
    attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0))
        return;
    a.runtime = SHORTEST;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
