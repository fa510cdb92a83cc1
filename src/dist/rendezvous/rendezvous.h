/* TCP rendezvous: connections from rank 0 to every other rank, over which ranks find each other before
 * their communicator works, and tell each other when it has failed. */
#ifndef LT_DIST_RENDEZVOUS_H
#define LT_DIST_RENDEZVOUS_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_rendezvous lt_rendezvous;

typedef struct lt_rendezvous_config {
    int rank, size;
    const char *address; /* of rank 0: a name or a number; on rank 0 NULL: any of its own */
    int port;
    double timeout;    /* seconds until all ranks must have joined */
    const char *token; /* a secret of this job's ranks; NULL: any process may join */
    /* Or the file that has it when rank 0 sends its challenge; rank 0 removes it in the end. */
    const char *token_file;
} lt_rendezvous_config;

/* Rank 0 listens; *port 0: the system chooses one. Then lt_rendezvous_join() on all ranks, where *out is
 * this on rank 0 and NULL on the others. */
LT_MUST_CHECK lt_status lt_rendezvous_listen(lt_rendezvous **out,
                                             const lt_rendezvous_config *config, int *port);
/* Returns when all ranks have joined; connections that do not prove the token are refused. On failure
 * *out is closed. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_rendezvous_join(lt_rendezvous **out, const lt_rendezvous_config *config);
/* Closes without notifying the other ranks, which see the end of the stream. */
void lt_rendezvous_close(lt_rendezvous **out);

/* Collective, before any abort: bytes of rank 0 to all; bytes of each to all, by rank. */
LT_MUST_CHECK lt_status lt_rendezvous_broadcast(lt_rendezvous *r, void *bytes, size_t count);
LT_MUST_CHECK lt_status lt_rendezvous_allgather(lt_rendezvous *r, const void *own, void *all,
                                                size_t each);

/* Sends all other ranks the reason of an abort. Nothing else is sent after it. */
void lt_rendezvous_abort(lt_rendezvous *r, const char *why);
/* Sends them that this rank closes in order. */
void lt_rendezvous_leave(lt_rendezvous *r);
/* Whether a rank has aborted, or closed without leaving; never blocks. Rank 0 forwards it. */
bool lt_rendezvous_poll(lt_rendezvous *r, char *why, size_t bytes);

#endif
