/* What a launcher hears of its nodes: beats in their output (base/heartbeat.h), and who has been silent for too long. */
#ifndef LT_LAUNCH_BEATS_H
#define LT_LAUNCH_BEATS_H

#include "launch/launch.h"

enum { LT_BEATS_LINE = 48 };

typedef struct lt_heard {
    double at,
        moved; /* seconds of the monotonic clock: the last beat, the last progress; 0: none yet */
    long long progress;
} lt_heard;

typedef struct lt_beats {
    lt_heard *node; /* [nodes] by rank */
    int nodes;      /* 0: no group of the task wants beats */
    char text[LT_BEATS_LINE];
    int bytes; /* of a beat that has begun */
} lt_beats;

/* A node that hangs, and what it has not done. */
typedef struct lt_hang {
    int rank; /* -1: of a gang, all alike */
    char why[96];
} lt_hang;

/* Seconds between two beats of a node of the group; 0: none are wanted. */
double lt_beats_interval(const lt_launch_node_config *config);
LT_MUST_CHECK lt_status lt_beats_new(lt_beats *out, const lt_launch *launch, const lt_task *task);
void lt_beats_free(lt_beats *beats);
/* The task is started anew. */
void lt_beats_reset(lt_beats *beats);
/* Takes a byte of output; true: it is a beat's. *whole: its last. */
bool lt_beats_take(lt_beats *beats, char c, bool *whole);
/* The launcher itself has not looked for so many seconds. */
void lt_beats_forgive(lt_beats *beats, double seconds);
/* Whether a node of the task hangs. */
bool lt_beats_hang(const lt_beats *beats, const lt_launch *launch, const lt_task *task,
                   lt_hang *out);

#endif
