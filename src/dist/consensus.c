/* Agreement between ranks: gathered host memory, texts that must be equal, collective errors. */

#include "dist/consensus.h"

#include "base/alloc.h"
#include "dist/comm/comm.h"

#include "lather/ext/comm.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a failure: its status, whether the message names a rank, the message and its NUL. */
enum { STATUS, IS_NAMED, MESSAGE, TEXT = 512 };

/* Message of the last shared failure, which names a rank. */
static _Thread_local char shared[2 * TEXT];

/* --- Host memory --- */

/* Gathers host memory through device tensors. shard: NULL if this rank contributes 0 bytes. */
static lt_status gather_tensors(lt_comm *comm, lt_tensor *shard, lt_tensor *whole, const void *own,
                                const int64_t *bytes, void *all)
{
    if (shard)
        LT_TRY(lt_tensor_write(shard, own, lt_tensor_bytes(shard)));
    LT_TRY(lt_comm_allgather(comm, shard, whole, bytes));
    return lt_tensor_read(whole, all, lt_tensor_bytes(whole));
}

lt_status lt_comm_allgather_host(lt_comm *comm, const void *own, const int64_t *bytes, void *all)
{
    lt_tensor *shard = NULL, *whole = NULL;
    int64_t total = 0;
    for (int r = 0; r < comm->size; r++)
        total += bytes[r];
    if (!total)
        return LT_OK;
    lt_status st = lt_tensor_new(&whole, comm->device, LT_U8, LT_SHAPE(total));
    if (!st && bytes[comm->rank])
        st = lt_tensor_new(&shard, comm->device, LT_U8, LT_SHAPE(bytes[comm->rank]));
    if (!st)
        st = gather_tensors(comm, shard, whole, own, bytes, all);
    lt_tensor_free(&shard);
    lt_tensor_free(&whole);
    return st;
}

lt_status lt_comm_allgather_equal(lt_comm *comm, const void *own, size_t bytes, void *all)
{
    int64_t *each = NULL;
    LT_TRY(LT_ALLOC(&each, comm->size));
    for (int r = 0; r < comm->size; r++)
        each[r] = (int64_t)bytes;
    lt_status st = lt_comm_allgather_host(comm, own, each, all);
    lt_free(each);
    return st;
}

/* --- Texts --- */

lt_status lt_comm_gather_texts(lt_comm *comm, const char *text, char **all)
{
    const int64_t own = (int64_t)strlen(text) + 1;
    int64_t total = 0, *length = lt_alloc((size_t)comm->size, sizeof *length);
    if (!length)
        return LT_E_NOMEM;
    lt_status st = lt_comm_allgather_equal(comm, &own, sizeof own, length);
    for (int r = 0; r < comm->size && !st; r++)
        total += length[r];
    char *texts = st ? NULL : lt_alloc((size_t)total, 1);
    if (!st)
        st = texts ? lt_comm_allgather_host(comm, text, length, texts) : LT_E_NOMEM;
    lt_free(length);
    if (st)
        lt_free(texts);
    else
        *all = texts;
    return st;
}

static lt_status check_texts_equal(const lt_comm *comm, const char *what, const char *all)
{
    const char *theirs = all;
    for (int r = 0; r < comm->size; r++) {
        if (strcmp(theirs, all) != 0)
            return lt_fail(LT_E_ARG, "%s is %s on rank 0, %s on rank %d", what, all, theirs, r);
        theirs += strlen(theirs) + 1;
    }
    return LT_OK;
}

lt_status lt_comm_check_same(lt_comm *comm, const char *what, const char *text)
{
    if (comm->size == 1)
        return LT_OK;
    char *all = NULL;
    LT_TRY(lt_comm_gather_texts(comm, text, &all));
    lt_status st = check_texts_equal(comm, what, all);
    lt_free(all);
    return st;
}

/* --- Failures --- */

/* Broadcasts the bytes of a failure. */
static lt_status broadcast_failure(lt_comm *comm, int root, char *bytes)
{
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new(&t, comm->device, LT_U8, LT_SHAPE(TEXT)));
    lt_status st = lt_tensor_write(t, bytes, TEXT);
    if (!st)
        st = lt_comm_broadcast(comm, t, root);
    if (!st)
        st = lt_tensor_read(t, bytes, TEXT);
    lt_tensor_free(&t);
    return st;
}

lt_status lt_comm_share_failure(lt_comm *comm, int root, int first, lt_status mine)
{
    char bytes[TEXT] = {0};
    if (comm->rank == root) {
        bytes[STATUS] = (char)mine;
        bytes[IS_NAMED] =
            (char)(*shared && !strcmp(lt_error_message(), shared)); /* by a group within */
        snprintf(bytes + MESSAGE, TEXT - MESSAGE, "%s", lt_error_message());
    }
    lt_status st = broadcast_failure(comm, root, bytes);
    if (st) { /* else the other ranks wait for the text forever */
        lt_comm_abort(comm);
        return st;
    }
    bytes[TEXT - 1] = 0;
    st = bytes[IS_NAMED]
             ? lt_fail((lt_status)bytes[STATUS], "%s", bytes + MESSAGE)
             : lt_fail((lt_status)bytes[STATUS], "rank %d: %s", first + root, bytes + MESSAGE);
    snprintf(shared, sizeof shared, "%s", lt_error_message());
    return st;
}

/* Finds the lowest failed rank, or -1 if none failed. */
static lt_status lowest_failed(lt_comm *comm, lt_status mine, int *rank)
{
    int32_t value = mine ? comm->size - comm->rank : 0;
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new(&t, comm->device, LT_I32, LT_SHAPE(1)));
    lt_status st = lt_tensor_write(t, &value, sizeof value);
    if (!st)
        st = lt_comm_allreduce(comm, t, LT_REDUCE_MAX);
    if (!st)
        st = lt_tensor_read(t, &value, sizeof value);
    lt_tensor_free(&t);
    *rank = value ? comm->size - value : -1;
    return st;
}

lt_status lt_comm_agree_on_status(lt_comm *comm, lt_status mine)
{
    char text[TEXT];
    int failed = -1;
    if (comm->size == 1)
        return mine;
    snprintf(text, sizeof text, "%s", mine ? lt_error_message() : "");
    lt_status st = lowest_failed(comm, mine, &failed);
    if (st) {
        lt_comm_abort(comm);
        return mine ? lt_fail(mine, "%s", text) : st;
    }
    if (failed < 0)
        return LT_OK;
    if (mine)
        mine = lt_fail(mine, "%s", text);
    return lt_comm_share_failure(comm, failed, 0, mine);
}
