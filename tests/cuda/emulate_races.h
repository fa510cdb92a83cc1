/* The emulator's reports to ThreadSanitizer. Each CUDA thread is one TSan fiber; blocks use four teams of fibers in
 * turn. Only the synchronization of a device orders fibers: begin and end of a launch, barriers of a block, fences
 * around atomics. Blocks of different teams are unordered, whatever the order in which they ran, and so are threads
 * of a warp that exchange values. A race is therefore reported even if the result is right here. All macros are empty
 * without LT_EMULATE_RACES. */
#ifndef LT_TESTS_EMULATE_RACES_H
#define LT_TESTS_EMULATE_RACES_H

#ifdef LT_EMULATE_RACES

void races_begin_launch();
void races_end_launch();
/* Attributes all following accesses to this thread of the team. */
void races_enter(unsigned team, unsigned thread);
/* From here on it is the host. */
void races_leave();
/* Events of the current thread: start, end, and a barrier of its block. */
void races_begin_thread();
void races_end_thread();
void races_arrive();
void races_pass();
/* Sets the kernel that the current thread runs. emulate.py inserts the call into kernels. */
void lt_emulate_ran(const char *kernel);

#else

static inline void races_begin_launch()
{
}
static inline void races_end_launch()
{
}
static inline void races_enter(unsigned, unsigned)
{
}
static inline void races_leave()
{
}
static inline void races_begin_thread()
{
}
static inline void races_end_thread()
{
}
static inline void races_arrive()
{
}
static inline void races_pass()
{
}

#endif

#endif
