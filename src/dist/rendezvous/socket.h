/* Sockets and messages of the star: a message is a head and its bytes, in the machine's order, as all
 * data of a communicator are. */
#ifndef LT_DIST_WIRE_H
#define LT_DIST_WIRE_H

#include "dist/rendezvous/rendezvous.h"

#include <netdb.h>
#include <stdint.h>

enum { LT_WIRE_WORDS = 384, LT_WIRE_MAGIC = 0x4c545354 };

typedef enum lt_wire_kind {
    LT_WIRE_ASK,
    LT_WIRE_HELLO,
    LT_WIRE_DATA,
    LT_WIRE_END,
    LT_WIRE_LEAVE
} lt_wire_kind;

typedef struct lt_wire_head {
    uint32_t magic, kind, bytes;
} lt_wire_head;

/* Waits until the socket can be read (or written: events of poll()); false: not before end. */
bool lt_wire_ready(int fd, short events, double end);
/* All bytes, or false: then *why has words that follow the name of the other side. */
bool lt_wire_transfer(int fd, void *bytes, size_t count, bool out, double end, const char **why);
bool lt_wire_put(int fd, lt_wire_kind what, const void *bytes, size_t count, double end,
                 const char **why);
/* If the end is told in place of it, *why has its words, lent until the next call. */
bool lt_wire_get(int fd, lt_wire_kind what, void *bytes, size_t count, double end,
                 const char **why);

lt_status lt_wire_find(const lt_star_config *config, bool passive, struct addrinfo **out);
/* A socket, or -1 and errno. */
int lt_wire_listen(const struct addrinfo *a);
int lt_wire_connect(const struct addrinfo *all);
int lt_wire_port(int fd);
void lt_wire_set_options(int fd);

#endif
