/* Registry of communicators, opened by name. */

#include "base/alloc.h"
#include "base/plugins/plugin.h"
#include "dist/collectives/collectives.h"
#include "dist/nccl/nccl.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* Loads the link exported by the plugin liblather-KIND.so. */
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

/* Row of the registry. */
typedef struct kind {
    const char *name;
    const lt_comm_ops *ops;
    lt_status (*open)(lt_comm *comm, const struct kind *kind);
    const lt_link_ops *link; /* NULL: loaded from the plugin of this name */
} kind;

/* Opens a communicator over a link. */
static lt_status open_linked(lt_comm *comm, const kind *k)
{
    const lt_link_ops *ops = k->link;
    if (!ops)
        LT_TRY(load_link(k->name, &ops));
    lt_link *link = lt_alloc(1, ops->bytes);
    if (!link)
        return LT_E_NOMEM;
    link->ops = ops;
    LT_TRY(lt_linked_open(&comm, link));
    int launched = lt_launched_size();
    if (!k->link && launched > 1 && comm->size == 1) {
        comm->ops->close(comm);
        return lt_fail(LT_E_COMM,
                       "comm %s: %d processes were launched, but each sees only itself: use the "
                       "mpirun of the MPI that the library was built with",
                       k->name, launched);
    }
    return LT_OK;
}

/* Opens NCCL, whose functions are in the plugin of its device. */
static lt_status open_nccl(lt_comm *comm, const kind *k)
{
    const lt_device *d = comm->device;
    const void *table;
    lt_nccl_start start;
    if (strcmp(d->backend->name, "cuda") != 0)
        return lt_fail(LT_E_ARG, "comm nccl: the device is %s, want a cuda device",
                       lt_device_name(d));
    LT_TRY(lt_plugin_open("comm nccl", "cuda", "lt_nccl_cuda", &table));
    const lt_nccl_api *api = table;
    LT_TRY(lt_plugin_check_version("comm nccl", api->version));
    LT_TRY(api->check());
    LT_TRY(lt_nccl_find_ranks(&start, lt_comm_open));
    (void)k;
    return lt_nccl_open_with(comm, api, d->ctx, &start);
}

/* Opens a communicator that implements its own collectives. */
static lt_status open_native(lt_comm *comm, const kind *k)
{
    (void)k;
    return comm->ops->open(comm);
}

enum { BUILT_IN = 3, KINDS = 16 };
static kind kinds[KINDS] = {
    {"self", &lt_comm_self, open_native, NULL},
    {"mpi", &lt_comm_linked, open_linked, NULL},
    {"nccl", &lt_comm_nccl, open_nccl, NULL},
};

static const kind *find_kind(const char *name)
{
    for (int i = 0; i < KINDS && kinds[i].name; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

const char *lt_comm_registered(size_t index)
{
    return index < KINDS - BUILT_IN ? kinds[BUILT_IN + index].name : NULL;
}

/* Returns true for names that lt_comm_open_threads() or --dist use. */
static bool is_reserved(const char *name)
{
    return !*name || strchr(name, '|') || !strcmp(name, "threads") || !strcmp(name, "auto")
           || !strcmp(name, "off");
}

static lt_status add_kind(kind row)
{
    int i = 0;
    if (is_reserved(row.name) || find_kind(row.name))
        return lt_fail(LT_E_ARG, "comm: the name '%s' is taken or reserved", row.name);
    while (i < KINDS && kinds[i].name)
        i++;
    if (i == KINDS)
        return lt_fail(LT_E_NOMEM, "comm %s: too many communicators registered, at most %d",
                       row.name, KINDS);
    kinds[i] = row;
    return LT_OK;
}

lt_status lt_comm_register(const lt_comm_ops *ops)
{
    return add_kind((kind){ops->kind, ops, open_native, NULL});
}

lt_status lt_comm_register_link(const lt_link_ops *ops)
{
    return add_kind((kind){ops->kind, &lt_comm_linked, open_linked, ops});
}

static lt_status unknown_kind_error(const char *name)
{
    char more[256] = "";
    size_t used = 0;
    for (int i = BUILT_IN; i < KINDS && kinds[i].name && used < sizeof more; i++)
        used += (size_t)snprintf(more + used, sizeof more - used, ", %s", kinds[i].name);
    return lt_fail(LT_E_UNSUPPORTED,
                   "comm: unknown communicator '%s'; valid: self, threads, mpi, nccl%s", name,
                   more);
}

lt_status lt_comm_open(lt_comm **out, const char *name, lt_device *device)
{
    if (!strcmp(name, "threads"))
        return lt_fail(LT_E_ARG, "comm: use lt_comm_open_threads() to open threads");
    const kind *k = find_kind(name);
    if (!k)
        return unknown_kind_error(name);
    lt_comm *comm;
    LT_TRY(lt_comm_allocate(&comm, k->ops, device));
    lt_status st = k->open(comm, k);
    if (st) {
        lt_free(comm);
        return st;
    }
    *out = comm;
    return LT_OK;
}
