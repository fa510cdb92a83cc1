/* A slice of one's own, by the kernel's sched_setattr(2). */

#include "base/sched_slice.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct sched_attr, first version; its header and the C library's contradict each other. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: of a normal thread, its slice in ns */
} attributes;

/* What the thread has else, its policy and its nice value, is as it was. */
void lt_slice_shorten(void)
{
    enum { SHORTEST = 100000 }; /* ns; the kernel's least */
    attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0))
        return;
    a.runtime = SHORTEST;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
