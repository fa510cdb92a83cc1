/* Nodes: groups of ranks that run under one kernel and host name. */

#include "dist/topology.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "dist/consensus.h"

#include "lather/ext/comm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- Numbering --- */

/* Numbers the nodes: ranks with equal texts form one. texts: all ranks' texts, each with its NUL. */
static void number_nodes_by_text(lt_nodes *n, const char *texts, int ranks)
{
    const char *mine = texts;
    for (int r = 0; r < ranks; r++, mine += strlen(mine) + 1) {
        const char *theirs = texts;
        int first = 0;
        while (strcmp(theirs, mine) != 0) {
            theirs += strlen(theirs) + 1;
            first++;
        }
        n->of[r] = first < r ? n->of[first] : n->count++;
    }
}

static void number_nodes_by_size(lt_nodes *n, int ranks)
{
    for (int r = 0; r < ranks; r++)
        n->of[r] = r / n->ranks_per_node;
    n->count = ranks / n->ranks_per_node;
}

static int count_ranks_of_node(const lt_nodes *n, int node, int ranks)
{
    int found = 0;
    for (int r = 0; r < ranks; r++)
        found += n->of[r] == node;
    return found;
}

int lt_nodes_find_uneven(const lt_nodes *n, int ranks, int *first, int *other)
{
    *first = count_ranks_of_node(n, 0, ranks);
    for (int node = 1; node < n->count; node++) {
        *other = count_ranks_of_node(n, node, ranks);
        if (*other != *first)
            return node;
    }
    return 0;
}

/* Derives all other fields from n->of. */
static void derive_fields(lt_nodes *n, int rank, int ranks)
{
    int first, other;
    n->index = n->of[rank];
    n->local = 0;
    for (int r = 0; r < rank; r++)
        n->local += n->of[r] == n->index;
    n->locals = count_ranks_of_node(n, n->index, ranks);
    n->ranks_per_node = lt_nodes_find_uneven(n, ranks, &first, &other) ? 0 : n->locals;
    n->contiguous = true;
    for (int r = 1; r < ranks; r++) /* numbered by their lowest rank */
        n->contiguous &= n->of[r] >= n->of[r - 1];
}

/* --- Detection --- */

static lt_status allocate_node_list(lt_nodes *n, int ranks)
{
    *n = (lt_nodes){.of = lt_alloc((size_t)ranks, sizeof *n->of)};
    return n->of ? LT_OK : LT_E_NOMEM;
}

/* Gathers all ranks' texts, which identify their machines, and groups ranks with equal ones. */
static lt_status find_nodes(lt_nodes *n, lt_comm *comm, const char *text)
{
    char *all = NULL;
    LT_TRY(allocate_node_list(n, comm->size));
    lt_status st = lt_comm_gather_texts(comm, text, &all);
    if (st) {
        lt_nodes_clear(n);
        return st;
    }
    number_nodes_by_text(n, all, comm->size);
    derive_fields(n, comm->rank, comm->size);
    lt_free(all);
    return LT_OK;
}

lt_status lt_comm_nodes_on_host(lt_nodes *out, lt_comm *comm, const char *boot_id, const char *host)
{
    lt_nodes found;
    char *text = lt_format("%s\n%s", boot_id, host);
    if (!text)
        return LT_E_NOMEM;
    lt_status st = find_nodes(&found, comm, text);
    lt_free(text);
    if (!st)
        *out = found;
    return st;
}

static lt_status detect_nodes(lt_nodes *out, lt_comm *comm)
{
    char boot_id[64], host[256] = "";
    lt_machine_boot_id(boot_id, sizeof boot_id);
    gethostname(host, sizeof host - 1);
    return lt_comm_nodes_on_host(out, comm, boot_id, host);
}

static lt_status divide_ranks_into_nodes(lt_nodes *out, lt_comm *comm, int ranks_per_node)
{
    lt_nodes nodes;
    if (comm->size % ranks_per_node)
        return lt_fail(LT_E_ARG, "%d ranks are not a multiple of %d ranks per node", comm->size,
                       ranks_per_node);
    LT_TRY(allocate_node_list(&nodes, comm->size));
    nodes.ranks_per_node = ranks_per_node;
    number_nodes_by_size(&nodes, comm->size);
    derive_fields(&nodes, comm->rank, comm->size);
    *out = nodes;
    return LT_OK;
}

lt_status lt_comm_nodes(lt_nodes *out, lt_comm *comm, int ranks_per_node)
{
    char text[32];
    snprintf(text, sizeof text, "%d", ranks_per_node);
    LT_TRY(lt_comm_check_same(comm, "the number of ranks per node", text));
    if (ranks_per_node < 0)
        return lt_fail(LT_E_ARG, "%d ranks per node, want 1 or more, or 0 to detect nodes",
                       ranks_per_node);
    return ranks_per_node ? divide_ranks_into_nodes(out, comm, ranks_per_node)
                          : detect_nodes(out, comm);
}

void lt_nodes_clear(lt_nodes *nodes)
{
    lt_free(nodes->of);
    *nodes = (lt_nodes){0};
}

/* --- Groups --- */

lt_status lt_nodes_open_node(const lt_nodes *nodes, lt_comm *comm, lt_comm **out)
{
    return lt_comm_split(comm, nodes->index, nodes->local, out);
}

lt_status lt_nodes_open_peers(const lt_nodes *nodes, lt_comm *comm, lt_comm **out)
{
    return lt_comm_split(comm, nodes->local, nodes->index, out);
}
