/* The hooks of a run, in the order of their calls, and the one that ended it. */
#ifndef LT_TRAIN_HOOKS_H
#define LT_TRAIN_HOOKS_H

#include "ranks.h"

#include "lather/checkpoint.h"
#include "lather/train_hooks.h"

#include <stddef.h>

typedef struct lt_hooks {
    const lt_train_hooks *item[LT_MAX_HOOKS]; /* borrowed */
    int count;
    const char *ended_by; /* name of the hook that ended the run; NULL if none did */
} lt_hooks;

/* Adds hooks; NULL: adds nothing. lt_hooks_add_registered() adds those of lt_train_hooks_register(), with the same
 * errors. */
lt_status lt_hooks_add(lt_hooks *hooks, const lt_train_hooks *more);
lt_status lt_hooks_add_registered(lt_hooks *hooks);

/* A point of a run: the offset of its function. */
typedef enum lt_hook_point {
    LT_HOOK_BEFORE_RUN = offsetof(lt_train_hooks, before_run),
    LT_HOOK_BEFORE_STEP = offsetof(lt_train_hooks, before_step),
    LT_HOOK_AFTER_STEP = offsetof(lt_train_hooks, after_step),
    LT_HOOK_AFTER_EVALUATION = offsetof(lt_train_hooks, after_evaluation),
    LT_HOOK_AFTER_EPOCH = offsetof(lt_train_hooks, after_epoch)
} lt_hook_point;

/* Calls the hooks of a point; sets ended_by if one asks to stop on any rank. hooks may be NULL. Collective. Errors:
 * those of a hook, with its name. */
lt_status lt_hooks_call(lt_hooks *hooks, lt_hook_point point, const lt_train_view *view,
                        lt_ranks *ranks);

/* Copies the hooks' numbers and ended_by to the state of a checkpoint; hooks may be NULL. */
void lt_hooks_store(const lt_hooks *hooks, lt_checkpoint_state *state);
/* Sets the hooks' numbers to those of a state that has them. */
void lt_hooks_restore(const lt_hooks *hooks, const lt_checkpoint_state *state);

#endif
