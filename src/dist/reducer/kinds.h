/* Built-in reducers. */
#ifndef LT_DIST_REDUCER_KINDS_H
#define LT_DIST_REDUCER_KINDS_H

#include "dist/topology.h"

#include "lather/ext/reducer.h"

extern const lt_reducer_ops lt_reducer_plain, lt_reducer_two_level, lt_reducer_powersgd,
    lt_reducer_topk;

/* Fails with LT_E_ARG if nodes are unknown or differ in their number of ranks; option: the flag that chose the reducer. */
LT_MUST_CHECK static inline lt_status lt_reducer_check_even_nodes(const lt_reducer *r,
                                                                  const char *option)
{
    int first, other, node;
    if (!r->nodes)
        return lt_fail(LT_E_ARG, "--%s %s: the nodes of the ranks are not known", option,
                       r->ops->kind);
    node = lt_nodes_find_uneven(r->nodes, lt_comm_size(r->comm), &first, &other);
    return node ? lt_fail(LT_E_ARG,
                          "--%s %s needs the same number of ranks on each node; node 0 has %d, "
                          "node %d has %d",
                          option, r->ops->kind, first, node, other)
                : LT_OK;
}

#endif
