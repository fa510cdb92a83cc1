/* TCP rendezvous: connections from rank 0 to every other rank, over which ranks bootstrap their communicator and later
 * report its failure. */
#ifndef LT_DIST_RENDEZVOUS_H
#define LT_DIST_RENDEZVOUS_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_rendezvous lt_rendezvous;

typedef struct lt_rendezvous_config {
    int rank, size;
    const char *address; /* name or number of rank 0's host; on rank 0 NULL: all its interfaces */
    int port;
    double timeout;    /* seconds until all ranks must have joined */
    const char *token; /* secret of this job's ranks; NULL: any process may join */
    const char *
        token_file; /* file with the token instead; rank 0 writes it before its challenge and removes it */
} lt_rendezvous_config;

/* Listens, on rank 0 only; *port gets the port, which the system chooses if config->port is 0. Then all ranks call
 * lt_rendezvous_join(), with this *out on rank 0 and NULL on the others. */
LT_MUST_CHECK lt_status lt_rendezvous_listen(lt_rendezvous **out,
                                             const lt_rendezvous_config *config, int *port);
/* Waits until all ranks have joined; rejects connections that do not prove the token. Closes *out on failure. Errors:
 * LT_E_COMM. */
LT_MUST_CHECK lt_status lt_rendezvous_join(lt_rendezvous **out, const lt_rendezvous_config *config);
/* Closes the connections without notifying the other ranks, which see their end. */
void lt_rendezvous_close(lt_rendezvous **out);

/* Broadcast rank 0's bytes; all-gather `each` bytes, in rank order. Collective; before any abort. */
LT_MUST_CHECK lt_status lt_rendezvous_broadcast(lt_rendezvous *r, void *bytes, size_t count);
LT_MUST_CHECK lt_status lt_rendezvous_allgather(lt_rendezvous *r, const void *own, void *all,
                                                size_t each);

/* Sends all other ranks the reason of an abort. Nothing else is sent after it. */
void lt_rendezvous_abort(lt_rendezvous *r, const char *why);
/* Announces an orderly close to the other ranks. */
void lt_rendezvous_leave(lt_rendezvous *r);
/* Returns true, and the reason, if a rank has aborted or closed without leaving; never blocks. Rank 0 forwards aborts. */
bool lt_rendezvous_poll_abort(lt_rendezvous *r, char *why, size_t bytes);

#endif
