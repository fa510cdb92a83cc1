/* TCP connections from rank 0 to every other rank: how ranks find each other before their
 * communicator works, and how they tell each other that it does not work any more. */
#ifndef LT_DIST_STAR_H
#define LT_DIST_STAR_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_star lt_star;

typedef struct lt_star_config {
    int rank, size;
    const char *address; /* of rank 0: a name or a number; on rank 0 NULL: any of its own */
    int port;
    double patience;   /* seconds until all must be there */
    const char *token; /* what only ranks of this job know; NULL: anybody may join */
    const char
        *token_file; /* or where it is when rank 0 asks for it; rank 0 removes it in the end */
} lt_star_config;

/* Rank 0 listens; *port 0: the system chooses one. Then lt_star_join() on all ranks, where *star is
 * this on rank 0 and NULL elsewhere. */
LT_MUST_CHECK lt_status lt_star_listen(lt_star **star, const lt_star_config *config, int *port);
/* Until all are there; connections that do not prove the token are refused. On failure *star is
 * closed. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_star_join(lt_star **star, const lt_star_config *config);
/* No words: others are not told that this rank leaves, they find out. */
void lt_star_close(lt_star **star);

/* Collective, before anything is told: bytes of rank 0 to all; bytes of each to all, by rank. */
LT_MUST_CHECK lt_status lt_star_share(lt_star *star, void *bytes, size_t count);
LT_MUST_CHECK lt_status lt_star_collect(lt_star *star, const void *mine, void *all, size_t each);

/* Tells all others why this is the end. Nothing else is told after it. */
void lt_star_tell(lt_star *star, const char *why);
/* Tells them that this rank is done, in order. */
void lt_star_leave(lt_star *star);
/* Whether somebody told the end, or went away without a word; never waits. Rank 0 passes it on. */
bool lt_star_heard(lt_star *star, char *why, size_t bytes);

#endif
