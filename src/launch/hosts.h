/* Hosts of a launch by mpirun: their list, spares, which of them are left out, and the placement of ranks. */
#ifndef LT_LAUNCH_HOSTS_H
#define LT_LAUNCH_HOSTS_H

#include "lather/launch.h"

#include <sys/socket.h>

enum { LT_HOST_NAME = 256, LT_HOST_WHY = 192, LT_HOST_MOST_SLOTS = 4096 };

typedef struct lt_launch_host {
    char name[LT_HOST_NAME];
    int slots;
    bool is_local; /* the launcher runs on it */
    bool is_out;   /* left out */
    int losses;    /* number of times that it was left out */
    char why[LT_HOST_WHY];
    struct sockaddr_storage address;
    socklen_t address_bytes;
} lt_launch_host;

typedef struct lt_launch_hosts {
    lt_launch_host *host; /* [count] */
    int *order;           /* [count] hosts in the order of their use */
    int count;
    int regular; /* the first `regular` of order are hosts of ranks, the others are spares */
    bool is_checked, was_checked; /* checks are wanted; all have been checked once */
    char source[LT_HOST_NAME];    /* variable or flag that named them */
    bool is_given;                /* by a flag; false: by the environment */
} lt_launch_hosts;

/* Reads the lists. *out is NULL without hosts, and owned by the caller otherwise. Errors: LT_E_ARG (a line that is
 * wrong, a host that does not resolve, or is listed twice), LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_launch_hosts_open(lt_launch_hosts **out,
                                             const lt_launch_hosts_config *config);
void lt_launch_hosts_free(lt_launch_hosts **hosts);
/* Returns the slots of hosts that are not left out; regular: without spares. */
int lt_launch_hosts_slots(const lt_launch_hosts *hosts, bool regular);
/* Leaves a host out. */
void lt_launch_hosts_leave_out(lt_launch_hosts *hosts, int host, const char *why);
/* Puts a spare in the place of each host that is left out, and logs it. */
void lt_launch_hosts_use_spares(lt_launch_hosts *hosts, FILE *log);
/* Sets the host of each of `ranks` ranks, in mpirun's order: the launcher's own host first, the others in the order of
 * their use, each with as many ranks as slots. Spares follow if slots are missing. Returns the number placed. */
int lt_launch_hosts_place(const lt_launch_hosts *hosts, int ranks, int *host_of_rank);
/* Writes mpirun's list "a:2,b:1" of a placement, or with ranks = 0 of all hosts; for lt_free(). */
LT_MUST_CHECK lt_status lt_launch_hosts_list(const lt_launch_hosts *hosts, const int *host_of_rank,
                                             int ranks, char **out);
/* Writes the hosts that are left out with their reasons: "a (why), b (why)", or "none". Returns out. */
const char *lt_launch_hosts_describe_lost(const lt_launch_hosts *hosts, char *out, size_t size);
/* Returns the host that a message of mpirun or ssh reports as lost, or -1. */
int lt_launch_hosts_find_lost(const lt_launch_hosts *hosts, const char *text);

#endif
