/* Addresses of services: inproc://NAME, ipc:///PATH, tcp://HOST:PORT. */
#ifndef LT_SERVICE_ADDRESS_H
#define LT_SERVICE_ADDRESS_H

#include "lather/status.h"

#include <stdbool.h>

enum { LT_ADDRESS_HOST = 256 };

typedef enum lt_address_kind { LT_ADDRESS_INPROC, LT_ADDRESS_IPC, LT_ADDRESS_TCP } lt_address_kind;

typedef struct lt_address {
    lt_address_kind kind;
    const char *name;           /* in the text: what follows :// */
    char host[LT_ADDRESS_HOST]; /* of tcp; without the brackets of an IPv6 address */
    int port;                   /* of tcp */
    bool is_loopback;           /* not to be reached from other machines; inproc and ipc too */
    bool is_any;                /* of tcp: 0.0.0.0 or [::], all of this machine's addresses */
} lt_address;

/* Errors: LT_E_ARG, naming the text and what is wrong with it. */
LT_MUST_CHECK lt_status lt_address_parse(lt_address *out, const char *text);

#endif
