/* Speed of the connection by which a host under check has reached the launcher. */
#ifndef LT_LAUNCH_HOST_LINK_H
#define LT_LAUNCH_HOST_LINK_H

#include <stdbool.h>

typedef struct lt_host_link {
    double gbit, ms; /* Gbit/s to the launcher, milliseconds of a message; 0: not measured */
} lt_host_link;

/* Answers the launcher's measurement on a connected socket that does not block, until it closes, for at most `seconds`. */
void lt_host_link_serve(int fd, double seconds);
/* Accepts the host's connection from a socket that listens, and measures it for at most `seconds`. Returns false if that
 * was too short or the host has gone. */
bool lt_host_link_measure(int listener, double seconds, lt_host_link *out);

#endif
