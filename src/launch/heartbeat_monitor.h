/* Reads heartbeats (base/heartbeat.h) from the output of nodes, and detects nodes that hang. */
#ifndef LT_LAUNCH_HEARTBEAT_MONITOR_H
#define LT_LAUNCH_HEARTBEAT_MONITOR_H

#include "launch/launch.h"

enum { LT_HEARTBEAT_LINE = 48 };

typedef struct lt_node_heartbeat {
    double at, moved; /* time of the last heartbeat, of the last progress; 0: none yet */
    long long progress;
} lt_node_heartbeat;

typedef struct lt_heartbeat_monitor {
    lt_node_heartbeat *node; /* [nodes] heartbeats of each node, by rank */
    int nodes;               /* number of nodes; 0: the task is not monitored */
    char text[LT_HEARTBEAT_LINE];
    int bytes; /* bytes read so far of an incomplete heartbeat */
} lt_heartbeat_monitor;

/* A hung node and the reason. */
typedef struct lt_hang {
    int rank; /* rank that hangs; -1: all ranks of a gang equally */
    char why[96];
} lt_hang;

/* Returns the seconds between heartbeats of the group's nodes, or 0 if they are not monitored. */
double lt_heartbeat_interval(const lt_launch_node_config *config);
LT_MUST_CHECK lt_status lt_heartbeat_monitor_new(lt_heartbeat_monitor *out, const lt_launch *launch,
                                                 const lt_task *task);
void lt_heartbeat_monitor_free(lt_heartbeat_monitor *monitor);
/* Resets the monitor when the task is restarted. */
void lt_heartbeat_monitor_reset(lt_heartbeat_monitor *monitor);
/* Processes a byte of output. Returns true if it belongs to a heartbeat; sets *whole at its last byte. */
bool lt_heartbeat_monitor_read_byte(lt_heartbeat_monitor *monitor, char c, bool *whole);
/* Extends all timeouts by `seconds` during which the launcher itself did not run. */
void lt_heartbeat_monitor_extend(lt_heartbeat_monitor *monitor, double seconds);
/* Returns true if the rank has sent heartbeats before, and none for that long. */
bool lt_heartbeat_monitor_is_silent(const lt_heartbeat_monitor *monitor, int rank, double seconds);
/* Returns true if a node of the task hangs; fills *out. */
bool lt_heartbeat_monitor_find_hang(const lt_heartbeat_monitor *monitor, const lt_launch *launch,
                                    const lt_task *task, lt_hang *out);

#endif
