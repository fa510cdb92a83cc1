/* Challenges and proofs. A connection that is gone is removed, and its id is not used again soon. */

#include "service/peers.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

bool lt_peers_equal(const char *a, const char *b)
{
    const size_t bytes = strlen(a);
    unsigned differ = bytes != strlen(b);
    for (size_t i = 0; !differ && i < bytes; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return !differ;
}

/* Under the lock. */
static lt_peer *find(lt_peers *peers, uint32_t id)
{
    lt_peer *p = peers->first;
    while (p && p->id != id)
        p = p->next;
    return p;
}

static lt_status draw(lt_peers *peers, uint32_t id, const char *nonce)
{
    pthread_mutex_lock(&peers->lock);
    lt_peer *p = find(peers, id);
    if (!p && (p = lt_alloc(1, sizeof *p))) {
        p->next = peers->first;
        p->id = id;
        peers->first = p;
    }
    if (p)
        snprintf(p->nonce, sizeof p->nonce, "%s", nonce);
    pthread_mutex_unlock(&peers->lock);
    return p ? LT_OK : LT_E_NOMEM;
}

lt_status lt_peers_challenge(lt_peers *peers, uint32_t id, const char *nonce,
                             lt_peer_challenge *out)
{
    memset(out, 0, sizeof *out);
    if (!lt_token_is_nonce(nonce))
        return lt_fail(LT_E_FORMAT, "service: a greeting without a nonce");
    LT_TRY(lt_token_draw(out->nonce));
    LT_TRY(lt_token_prove(out->proof, peers->secret, nonce, LT_PEER_SERVICE));
    return draw(peers, id, out->nonce);
}

lt_status lt_peers_prove(lt_peers *peers, uint32_t id, const char *proof)
{
    char nonce[LT_TOKEN_NONCE] = "", want[LT_TOKEN_PROOF];
    pthread_mutex_lock(&peers->lock);
    lt_peer *p = find(peers, id);
    if (p) { /* a nonce is for one answer */
        memcpy(nonce, p->nonce, sizeof nonce);
        p->nonce[0] = 0;
    }
    pthread_mutex_unlock(&peers->lock);
    if (!*nonce)
        return lt_fail(LT_E_COMM, "service: a proof that was not asked for");
    LT_TRY(lt_token_prove(want, peers->secret, nonce, LT_PEER_CLIENT));
    if (!lt_peers_equal(want, proof))
        return lt_fail(LT_E_COMM, "service: the caller does not know the secret");
    pthread_mutex_lock(&peers->lock);
    p = find(peers, id);
    if (p)
        p->proved = true;
    pthread_mutex_unlock(&peers->lock);
    return LT_OK;
}

bool lt_peers_proved(lt_peers *peers, uint32_t id)
{
    pthread_mutex_lock(&peers->lock);
    const lt_peer *p = find(peers, id);
    const bool proved = p && p->proved;
    pthread_mutex_unlock(&peers->lock);
    return proved;
}

void lt_peers_remove(lt_peers *peers, uint32_t id)
{
    pthread_mutex_lock(&peers->lock);
    lt_peer **p = &peers->first;
    while (*p && (*p)->id != id)
        p = &(*p)->next;
    lt_peer *gone = *p;
    if (gone)
        *p = gone->next;
    pthread_mutex_unlock(&peers->lock);
    lt_free(gone);
}

void lt_peers_clear(lt_peers *peers)
{
    while (peers->first)
        lt_peers_remove(peers, peers->first->id);
}
