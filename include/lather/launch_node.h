/** The interface of a running node of a job graph to its program. */
#ifndef LATHER_LAUNCH_NODE_H
#define LATHER_LAUNCH_NODE_H

#include "lather/comm.h"
#include "lather/service.h"

#include <stdbool.h>

/** One running node; owned by the library, borrowed by its entry. */
typedef struct lt_launch_node lt_launch_node;

/** A node's code: a function of this program, or of a shared object that `entry = FILE.so:NAME` names. Runs in a
 * thread or in a separate process. Its return value is the node's outcome: LT_OK, or a failure that its group's
 * policy handles. */
typedef lt_status (*lt_launch_node_entry)(lt_launch_node *node, void *context);

LT_API const char *
lt_launch_node_label(const lt_launch_node *node); /**< label of its group: "producer" */
LT_API int
lt_launch_node_index(const lt_launch_node *node); /**< its index in the group; gangs: the rank */
LT_API int
lt_launch_node_count(const lt_launch_node *node); /**< number of its group's nodes, or of ranks */
/** Returns the number of nodes of another group. -1: there is no such group. */
LT_API int lt_launch_node_count_of(const lt_launch_node *node, const char *label);
/** Returns an argument with its placeholders replaced; NULL past the end. */
LT_API const char *lt_launch_node_argument(const lt_launch_node *node, int index);
/** Parses the argument after "--name" as a number. Returns otherwise if it is absent or not a number. */
LT_API long lt_launch_node_number(const lt_launch_node *node, const char *name, long otherwise);
/** Returns whether the program shall end: a function should return soon. */
LT_API bool lt_launch_node_stopping(const lt_launch_node *node);

/** Reports progress: the group's `progress` limits the time between two calls. NULL: this process, which need not be
 * part of a job graph. Any thread. */
LT_API void lt_launch_node_progress(lt_launch_node *node);

/** For a service: handles requests at the node's address (lt_service_open(), with its default number of threads)
 * until the program ends or a handler calls lt_launch_node_stop(). Earlier requests are queued. Errors: LT_E_ARG: not
 * a service. */
LT_API LT_MUST_CHECK lt_status lt_launch_node_serve(lt_launch_node *node,
                                                    lt_service_handler handler, void *context);
/** Ends lt_launch_node_serve() of this node. Any thread. */
LT_API void lt_launch_node_stop(lt_launch_node *node);
/** Creates a client of node index of a group of services; waits until the node has published its address. repeat as
 * in lt_client_config. Owns: *out is the caller's. Errors: LT_E_ARG: no such service; LT_E_COMM: no address was
 * published. */
LT_API LT_MUST_CHECK lt_status lt_launch_node_client(lt_launch_node *node, const char *label,
                                                     int index, bool repeat, lt_client **out);
/** Opens the communicator of a gang's ranks. Collective. Owns: *out is the caller's. Errors: LT_E_ARG: not a gang. */
LT_API LT_MUST_CHECK lt_status lt_launch_node_comm(lt_launch_node *node, lt_device *device,
                                                   lt_comm **out);

#endif
