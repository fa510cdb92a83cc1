/* Opening a communicator by name. */

#include "base/alloc.h"
#include "base/plugin.h"
#include "dist/collectives/collectives.h"
#include "dist/nccl/nccl.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* The link that the plugin liblather-KIND.so exports. */
static lt_status load_link(const char *kind, const lt_link_ops **out)
{
    char user[64], symbol[64];
    const void *table;
    snprintf(user, sizeof user, "comm %s", kind);
    snprintf(symbol, sizeof symbol, "lt_link_%s", kind);
    LT_TRY(lt_plugin_open(user, kind, symbol, &table));
    *out = table;
    return lt_plugin_check_version(user, (*out)->version);
}

/* A communicator over a plugin's link. */
static lt_status open_linked(lt_comm *comm, const char *kind)
{
    const lt_link_ops *ops;
    LT_TRY(load_link(kind, &ops));
    lt_link *link = lt_alloc(1, ops->bytes);
    if (!link)
        return LT_E_NOMEM;
    link->ops = ops;
    LT_TRY(lt_linked_open(&comm, link));
    int launched = lt_launched_size();
    if (launched > 1 && comm->size == 1) {
        comm->ops->close(comm);
        return lt_fail(LT_E_COMM,
                       "comm %s: %d processes were launched, but each of them is alone: the "
                       "launcher is not of the MPI that the library was built with",
                       kind, launched);
    }
    return LT_OK;
}

/* The table is in the plugin whose memory NCCL moves. */
static lt_status open_nccl(lt_comm *comm, const char *kind)
{
    const lt_device *d = comm->device;
    const void *table;
    lt_nccl_start start;
    if (strcmp(d->backend->name, "cuda") != 0)
        return lt_fail(LT_E_ARG, "comm nccl: the device is %s; NCCL is for cuda devices",
                       lt_device_name(d));
    LT_TRY(lt_plugin_open("comm nccl", "cuda", "lt_nccl_cuda", &table));
    const lt_nccl_api *api = table;
    LT_TRY(lt_plugin_check_version("comm nccl", api->version));
    LT_TRY(api->check());
    LT_TRY(lt_nccl_find_ranks(&start));
    (void)kind;
    return lt_nccl_open_with(comm, api, d->ctx, &start);
}

static lt_status open_self(lt_comm *comm, const char *kind)
{
    (void)kind;
    return comm->ops->open(comm);
}

/* Every communicator that has a name. */
static const struct kind {
    const char *name;
    const lt_comm_ops *ops;
    lt_status (*open)(lt_comm *comm, const char *kind);
} kinds[] = {
    {"self", &lt_comm_self, open_self},
    {"mpi", &lt_comm_linked, open_linked},
    {"nccl", &lt_comm_nccl, open_nccl},
};

lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int i = 0;
    if (!strcmp(kind, "threads"))
        return lt_fail(LT_E_ARG, "comm: lt_comm_open_threads() opens threads");
    while (i < KINDS && strcmp(kinds[i].name, kind) != 0)
        i++;
    if (i == KINDS)
        return lt_fail(LT_E_UNSUPPORTED,
                       "comm: no communicator '%s' in this build; there are self, "
                       "threads, mpi, nccl",
                       kind);
    lt_comm *comm;
    LT_TRY(lt_comm_make(&comm, kinds[i].ops, device));
    lt_status st = kinds[i].open(comm, kind);
    if (st) {
        lt_free(comm);
        return st;
    }
    *out = comm;
    return LT_OK;
}
