/* Mutual challenge-response authentication by a shared secret. The client sends a nonce (HELLO), the service its nonce
 * (CHALLENGE), the client its proof (PROOF), and only then the service its proof (RESULT): an unauthenticated client
 * receives nothing that depends on the secret. */
#ifndef LT_SERVICE_PROOF_H
#define LT_SERVICE_PROOF_H

#include "base/token.h"
#include "service/frame.h"

/* Labels of the two sides in their proofs, which prevent reflecting a proof. */
#define LT_PROOF_SERVICE "service"
#define LT_PROOF_CLIENT  "client"

typedef struct lt_nonces {
    char client[LT_TOKEN_NONCE], service[LT_TOKEN_NONCE];
} lt_nonces;

/* Computes the proof of one side: its response to the other's nonce. */
void lt_proof_make(char out[LT_TOKEN_PROOF], const char *secret, const lt_nonces *nonces,
                   const char *side);
/* Returns true if the frame's payload is that side's proof. */
bool lt_proof_is_valid(const lt_frame *frame, const char *secret, const lt_nonces *nonces,
                       const char *side);

#endif
