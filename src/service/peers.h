/* Connections of a service that has a secret, and which of them have proved that they know it. */
#ifndef LT_SERVICE_PEERS_H
#define LT_SERVICE_PEERS_H

#include "base/token.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What each side says of itself in its proof, so that a proof cannot be sent back. */
#define LT_PEER_SERVICE "service"
#define LT_PEER_CLIENT  "client"

typedef struct lt_peer {
    struct lt_peer *next;
    uint32_t id;                /* of the connection */
    char nonce[LT_TOKEN_NONCE]; /* what it is to prove; "": nothing asked */
    bool proved;
} lt_peer;

typedef struct lt_peers {
    pthread_mutex_t lock;
    lt_peer *first;
    const char *secret; /* borrowed */
} lt_peers;

/* Nonce and proof, with a NUL behind each. */
typedef struct lt_peer_challenge {
    char nonce[LT_TOKEN_NONCE];
    char proof[LT_TOKEN_PROOF];
} lt_peer_challenge;

/* Answers a connection's nonce and draws one for it. Errors: LT_E_FORMAT, LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_peers_challenge(lt_peers *peers, uint32_t id, const char *nonce,
                                           lt_peer_challenge *out);
/* Errors: LT_E_COMM, the proof does not hold, or nothing was asked. */
LT_MUST_CHECK lt_status lt_peers_prove(lt_peers *peers, uint32_t id, const char *proof);
bool lt_peers_proved(lt_peers *peers, uint32_t id);
void lt_peers_remove(lt_peers *peers, uint32_t id);
void lt_peers_clear(lt_peers *peers);

/* Whether two proofs are equal, in a time that does not depend on where they differ. */
bool lt_peers_equal(const char *a, const char *b);

#endif
