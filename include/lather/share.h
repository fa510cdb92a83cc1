/** Jobs that take turns on their devices: while one's gradients are between its ranks, another computes. */
#ifndef LATHER_SHARE_H
#define LATHER_SHARE_H

#include "lather/comm.h"

enum { LT_SHARE_NAME = 64, LT_SHARE_WEIGHT = 1000 };

/** How a job takes part. */
typedef struct lt_share_config {
    /** 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-': jobs that give the same one share. */
    char session[LT_SHARE_NAME];
    int weight;    /**< turns for each of a job of weight 1: 1 .. LT_SHARE_WEIGHT */
    lt_comm *comm; /**< all ranks of this job, borrowed; NULL: one */
    /** lt_device_name(): jobs take turns on devices of the same name. Of a job's ranks on one machine and the
     *  same device, such as "cpu", each has turns of its own. */
    const char *device;
    const char
        *folder;     /**< of the session's files, one a device, on this machine; NULL: /dev/shm */
    double deadline; /**< seconds that a turn may take to come; 0: for ever */
} lt_share_config;

/** "NAME" or "NAME:WEIGHT" into session and weight (1). Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_share_parse(lt_share_config *out, const char *text);

/** A job's part in a session. One thread at a time. */
typedef struct lt_share lt_share;

/**
 * Joins. The n-th turn of a job that joined at time s with weight w has the stamp s + n/w; turns on a device
 * are taken in the order of stamps, each waits for its job. Stamps depend on nothing else, so the order is
 * the same on all devices of a session without a coordinator; s is the largest time of any of this job's
 * devices, where no turn behind it is given out meanwhile. A job that closed or died has no turns from
 * then on. Collective.
 *
 * Owns    *out is yours: lt_share_close()
 * Errors  LT_E_ARG (name or weight; ranks of a job in the session are on other devices: names both),
 *         LT_E_UNSUPPORTED (more than 16 jobs), LT_E_IO, LT_E_COMM; the same on all ranks
 * Source  the order is stride scheduling: Waldspurger & Weihl, MIT/LCS/TM-528, 1995; turns between computing and
 *         communicating jobs: Luo et al., "CrossoverScheduler", arXiv 2103.07974
 */
LT_API LT_MUST_CHECK lt_status lt_share_open(lt_share **out, const lt_share_config *config);
/** Leaves; a turn that it has ends. Before the communicator. */
LT_API void lt_share_close(lt_share **share);

/** A turn that was taken. */
typedef struct lt_share_turn {
    int64_t
        number; /**< turns on this device since the session began, 1 in the first; the same on all ranks while
                         no job was killed */
    double seconds; /**< that it was waited for */
} lt_share_turn;

/** Waits for this job's next turn; all its ranks must take as many. Before forward. Not collective.
 *  Errors: LT_E_ARG (it has one), LT_E_COMM (the deadline: names the process that was waited for), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_share_begin(lt_share *share, lt_share_turn *turn);
/** Gives the device to the next job: behind backward, when what was queued is done (lt_device_sync()).
 *  Errors: LT_E_ARG (it has no turn), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_share_end(lt_share *share);

#endif
