/* Failing together: what happened on one rank is an error on all; and texts of all ranks. */
#ifndef LT_DIST_CONSENSUS_H
#define LT_DIST_CONSENSUS_H

#include "lather/comm.h"

/* Collective. LT_OK if mine is LT_OK on every rank; else every rank fails with the status and the
 * message of the lowest rank that failed: "rank 2: disk full". If a rank cannot even say so, the
 * group is aborted. */
LT_MUST_CHECK lt_status lt_comm_agree(lt_comm *comm, lt_status mine);

/* The second half, where all know already that rank `root` of comm failed; first is added to the
 * rank in the message. Collective. mine: what the root failed with, its message the last one. */
LT_MUST_CHECK lt_status lt_comm_share_failure(lt_comm *comm, int root, int first, lt_status mine);

/* Texts of all ranks in rank order, each with its NUL; *all is yours, for lt_free(). Collective. */
LT_MUST_CHECK lt_status lt_comm_gather_texts(lt_comm *comm, const char *text, char **all);

#endif
