/* Collective errors: a failure on one rank becomes an error on all ranks. Also gathers texts and host memory. */
#ifndef LT_DIST_CONSENSUS_H
#define LT_DIST_CONSENSUS_H

#include "lather/comm.h"

/* Returns LT_OK if mine is LT_OK on every rank. Otherwise every rank fails with status and message of the lowest failed
 * rank: "rank 2: disk full". Aborts the group if that message cannot be sent. Collective. */
LT_MUST_CHECK lt_status lt_comm_agree_on_status(lt_comm *comm, lt_status mine);

/* Fails on all ranks with the error of rank `root`, if all ranks know already that it failed. mine: the root's status,
 * whose text is lt_error_message() there. The message names rank first + root. Collective. */
LT_MUST_CHECK lt_status lt_comm_share_failure(lt_comm *comm, int root, int first, lt_status mine);

/* Gathers the texts of all ranks in rank order, each with its NUL. Free *all with lt_free(). Collective. */
LT_MUST_CHECK lt_status lt_comm_gather_texts(lt_comm *comm, const char *text, char **all);

/* lt_comm_allgather_host() with the same number of bytes from each rank. */
LT_MUST_CHECK lt_status lt_comm_allgather_equal(lt_comm *comm, const void *own, size_t bytes,
                                                void *all);

#endif
