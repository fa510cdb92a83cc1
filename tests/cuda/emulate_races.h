/* What the emulator tells ThreadSanitizer: each thread of a block is a thread of its own there, in four teams that blocks
 * take by turns, and only what orders threads on a device orders them: the beginning and end of a launch, barriers of a
 * block, and fences around atomics. Blocks of different teams are not ordered, whatever the order in which they ran; nor
 * are threads of a warp that exchange values. So a race is one whether or not it spoils a result here.
 * Empty without LT_EMULATE_RACES. */
#ifndef LT_TESTS_EMULATE_RACES_H
#define LT_TESTS_EMULATE_RACES_H

#ifdef LT_EMULATE_RACES

void races_begin_launch();
void races_end_launch();
/* From here on it is this thread of the team that does what is done. */
void races_enter(unsigned team, unsigned thread);
/* From here on it is the host. */
void races_leave();
/* Of the thread that was entered: its first and last moment, and a barrier of its block. */
void races_begin_thread();
void races_end_thread();
void races_arrive();
void races_pass();
/* Of a thread: which kernel it runs. Kernels call it, see emulate.py. */
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
