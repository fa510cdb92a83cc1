/* Addresses of services: inproc://NAME, ipc:///PATH, tcp://HOST:PORT. */
#ifndef LT_SERVICE_ADDRESS_H
#define LT_SERVICE_ADDRESS_H

#include "lather/status.h"

#include <stdbool.h>

enum { LT_ADDRESS_HOST = 256 };

typedef enum lt_address_kind { LT_ADDRESS_INPROC, LT_ADDRESS_IPC, LT_ADDRESS_TCP } lt_address_kind;

typedef struct lt_address {
    lt_address_kind kind;
    const char *name;           /* the part of the address after :// */
    char host[LT_ADDRESS_HOST]; /* tcp: host, without the brackets of an IPv6 address */
    int port;                   /* tcp: number of the port */
    bool is_loopback;           /* not reachable from other machines; true for inproc and ipc */
    bool is_any;                /* tcp: 0.0.0.0 or [::], all addresses of this machine */
} lt_address;

/* Parses an address. Errors: LT_E_ARG with the text and the reason. */
LT_MUST_CHECK lt_status lt_address_parse(lt_address *out, const char *text);

#endif
