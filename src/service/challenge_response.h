/* How the two ends of a connection prove to each other that they know the secret. The client sends a nonce (HELLO),
 * the service its own (CHALLENGE), the client its proof (PROOF), and only then the service its own (RESULT): a stranger
 * gets nothing from a service that depends on its secret. */
#ifndef LT_SERVICE_PROOF_H
#define LT_SERVICE_PROOF_H

#include "base/token.h"
#include "service/frame.h"

/* Each side's label in its proof, so that a proof cannot be sent back. */
#define LT_PROOF_SERVICE "service"
#define LT_PROOF_CLIENT  "client"

typedef struct lt_nonces {
    char client[LT_TOKEN_NONCE], service[LT_TOKEN_NONCE];
} lt_nonces;

void lt_proof_make(char out[LT_TOKEN_PROOF], const char *secret, const lt_nonces *nonces,
                   const char *side);
/* Returns true if the frame's payload is that side's proof. */
bool lt_proof_holds(const lt_frame *frame, const char *secret, const lt_nonces *nonces,
                    const char *side);

#endif
