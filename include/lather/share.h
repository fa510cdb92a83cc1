/** Device time-sharing: jobs take turns on their devices, so that one computes while another communicates. */
#ifndef LATHER_SHARE_H
#define LATHER_SHARE_H

#include "lather/comm.h"

enum { LT_SHARE_NAME = 64, LT_SHARE_WEIGHT = 1000 };

/** Configuration of a job. */
typedef struct lt_share_config {
    /** Name of the session, 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-'; jobs with the same name share. */
    char session[LT_SHARE_NAME];
    int weight;    /**< turns per turn of a job of weight 1: 1 to LT_SHARE_WEIGHT */
    lt_comm *comm; /**< all ranks of this job, borrowed; NULL: a single rank */
    /** lt_device_name(); jobs take turns on devices of the same name. A job's ranks on the same device of a machine, such
     *  as "cpu", have separate turns. */
    const char *device;
    const char *folder; /**< folder of the session's files, one per device; NULL: /dev/shm */
    double deadline;    /**< maximum seconds to wait for a turn; 0: unlimited */
} lt_share_config;

/** Parses "NAME" or "NAME:WEIGHT" into session and weight (default 1). Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_share_parse(lt_share_config *out, const char *text);

/** A job's membership in a session. Used by one thread at a time. */
typedef struct lt_share lt_share;

/**
 * Joins a session. The n-th turn of a job that joined at time s with weight w has stamp s + n/w. Turns on a device are
 * taken in order of stamps, each waiting for its job. Stamps depend on nothing else, so the order is the same on all
 * devices of a session without a coordinator. s is the largest time of any of this job's devices; no later turn starts
 * there until the job has joined. A job that closed or died has no further turns. Collective.
 *
 * Owns    *out is yours: lt_share_close()
 * Errors  LT_E_ARG (name or weight; another job of the session has its ranks on other devices: names both),
 *         LT_E_UNSUPPORTED (more than 16 jobs), LT_E_IO, LT_E_COMM; the same on all ranks
 * Source  the order is stride scheduling: Waldspurger & Weihl, MIT/LCS/TM-528, 1995; turns between computing and
 *         communicating jobs: Luo et al., "CrossoverScheduler", arXiv 2103.07974
 */
LT_API LT_MUST_CHECK lt_status lt_share_open(lt_share **out, const lt_share_config *config);
/** Leaves the session and ends a running turn. Before the communicator is closed. */
LT_API void lt_share_close(lt_share **share);

/** A job's turn on a device. */
typedef struct lt_share_turn {
    int64_t
        number; /**< number of the turn on this device in this session, from 1; equal on all ranks unless a job died */
    double seconds; /**< seconds waited for the turn */
} lt_share_turn;

/** Waits for this job's next turn, before forward. All its ranks must take equally many turns. Not collective.
 *  Errors: LT_E_ARG (a turn is running), LT_E_COMM (deadline exceeded: names the process waited for), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_share_begin(lt_share *share, lt_share_turn *turn);
/** Ends the turn, after backward and the device's queued work (lt_device_sync()).
 *  Errors: LT_E_ARG (no turn is running), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_share_end(lt_share *share);

#endif
