/* How a rank meets rank 0. Another process may listen at that address: what comes from one that has not
 * proven the token is not final, and the rank tries again until its patience is over. */

#include "base/clock.h"
#include "dist/rendezvous/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_MS = 50, MOST_RETRY_MS = 1000 };

typedef enum outcome { MET, AGAIN, WRONG } outcome;

static outcome say(char words[LT_WIRE_WORDS], const char *why)
{
    snprintf(words, LT_WIRE_WORDS, "%s", why);
    return AGAIN;
}

/* The two challenges and answers. words: why not. */
static outcome shake_hands(lt_star *s, double end, char words[LT_WIRE_WORDS])
{
    char asked[LT_TOKEN_NONCE];
    lt_hello mine, theirs;
    const char *why = "";
    const int fd = s->link[0];
    if (!lt_wire_get(fd, LT_WIRE_ASK, asked, sizeof asked, end, &why))
        return say(words, why);
    /* Rank 0 asks when its file is written: what is there now is not of a run before. */
    if (s->token_file && lt_token_read(s->token, s->token_file))
        return say(words, lt_error_message());
    if (!lt_token_is_nonce(asked) || lt_hello_make(&mine, s, asked))
        return say(words, "asks something else");
    if (!lt_wire_put(fd, LT_WIRE_HELLO, &mine, sizeof mine, end, &why)
        || !lt_wire_get(fd, LT_WIRE_HELLO, &theirs, sizeof theirs, end, &why))
        return say(words, why);
    if (!lt_hello_is_proven(&theirs, s, mine.nonce) || theirs.rank)
        return say(words, "does not know this job's token");
    return lt_hello_is_wrong(&mine, &theirs, words) ? WRONG : MET;
}

static outcome try_once(lt_star *s, const struct addrinfo *all, double end,
                        char words[LT_WIRE_WORDS])
{
    s->link[0] = lt_wire_connect(all);
    if (s->link[0] < 0)
        return say(words, strerror(errno));
    lt_wire_set_options(s->link[0]);
    return shake_hands(s, end, words);
}

lt_status lt_star_reach(lt_star *s, const lt_star_config *config)
{
    const double end = lt_clock_seconds() + s->patience;
    struct addrinfo *all;
    char words[LT_WIRE_WORDS] = "", now[LT_WIRE_WORDS];
    outcome found;
    LT_TRY(lt_wire_find(config, false, &all)); /* rank 0 may start later than this one */
    for (int wait = RETRY_MS; (found = try_once(s, all, end, now)) == AGAIN; wait *= 2) {
        const double left = 1e3 * (end - lt_clock_seconds());
        if (left > 0 || !*words) /* else the time for it was too short */
            snprintf(words, sizeof words, "%s", now);
        lt_star_hang_up(&s->link[0]);
        if (left <= 0)
            break;
        wait = wait < MOST_RETRY_MS ? wait : MOST_RETRY_MS;
        poll(NULL, 0, left < wait ? (int)left + 1 : wait);
    }
    freeaddrinfo(all);
    if (found == WRONG)
        return lt_fail(LT_E_COMM, "%s", now);
    return found == MET
               ? LT_OK
               : lt_fail(
                   LT_E_COMM,
                   "comm: rank %d of %d does not reach rank 0 at %s, port %d, within %g s: %s",
                   s->rank, s->size, config->address, config->port, s->patience, words);
}
