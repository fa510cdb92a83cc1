/* The emulator's threads as ThreadSanitizer fibers, which take turns in one thread of the host. This file is compiled
 * without ThreadSanitizer, so the emulator's own switches between threads order nothing.
 *
 * Fences are modelled as those of C++ (ISO C++17, 32.9) with relaxed atomics: accesses of a thread before a fence
 * that is followed by an atomic happen before accesses of another thread that follow an atomic on the same variable
 * and a fence. */

#include "emulate_races.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <sanitizer/tsan_interface.h>

namespace
{

enum { MOST = 1024, ATOMICS = 8, NO_SYNC = 1 /* __tsan_switch_to_fiber_no_sync */ };

struct thread_of_device {
    void *fiber;
    unsigned barriers;
    bool fenced;
    unsigned atomics;
    void *last[ATOMICS]; /* variables of its latest atomics */
};

/* Variables whose addresses stand for what orders threads. */
struct team {
    thread_of_device thread[MOST];
    char barrier[2], block;
};

team teams[LT_EMULATE_TEAMS];
char launch_begins, launch_ends;
void *host;
team *active_team;
thread_of_device *active;
const char *kernel; /* name of the last kernel launched */

} /* namespace */

extern "C" const char *__tsan_default_options()
{
    return "halt_on_error=1:exitcode=66:report_thread_leaks=0:history_size=4";
}

void races_begin_launch()
{
    host = __tsan_get_current_fiber();
    __tsan_acquire(&launch_ends);
    __tsan_release(&launch_begins);
}

/* LATHER_EMULATE_RAN=FILE: a line with the kernel's name for each launch, for races_cover.py. */
void races_end_launch()
{
    static FILE *const list =
        getenv("LATHER_EMULATE_RAN") ? fopen(getenv("LATHER_EMULATE_RAN"), "w") : NULL;
    __tsan_acquire(&launch_ends);
    if (list) {
        fprintf(list, "%s\n", kernel);
        fflush(list);
    }
}

void races_enter(unsigned of, unsigned thread)
{
    active_team = &teams[of];
    active = &active_team->thread[thread];
    if (!active->fiber)
        active->fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(active->fiber, NO_SYNC);
}

void races_leave()
{
    __tsan_switch_to_fiber(host, NO_SYNC);
}

/* A team's blocks follow each other: they share memory. */
void races_begin_thread()
{
    active->barriers = 0;
    active->fenced = false;
    active->atomics = 0;
    __tsan_acquire(&launch_begins);
    __tsan_acquire(&active_team->block);
}

void races_end_thread()
{
    __tsan_release(&active_team->block);
    __tsan_release(&launch_ends);
}

/* Two in turn: a thread may be at the next barrier before the last has passed this one, and no further. */
void races_arrive()
{
    __tsan_release(&active_team->barrier[active->barriers % 2]);
}

void races_pass()
{
    __tsan_acquire(&active_team->barrier[active->barriers++ % 2]);
}

void lt_emulate_ran(const char *name)
{
    kernel = name;
}

void __threadfence()
{
    for (unsigned i = 0; i < active->atomics && i < ATOMICS; i++)
        __tsan_acquire(active->last[i]);
    active->atomics = 0;
    active->fenced = true;
}

void lt_emulate_atomic(void *variable)
{
    if (active->fenced)
        __tsan_release(variable);
    active->last[active->atomics++ % ATOMICS] = variable;
}
