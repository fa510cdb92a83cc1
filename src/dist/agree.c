/* Failing together. */

#include "dist/agree.h"

#include "lather/ext/comm.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 512 }; /* of a message; the status goes in front of it */

/* As a byte tensor: the status, the text, a NUL. */
static lt_status exchange_text(lt_comm *comm, int root, char *bytes)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    LT_TRY(lt_tensor_new(&t, comm->device, LT_U8, LT_SHAPE(TEXT)));
    lt_status st = lt_tensor_write(t, bytes, TEXT);
    if (!st)
        st = lt_comm_broadcast_begin(comm, t, root, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(t, bytes, TEXT);
    lt_tensor_free(&t);
    return st;
}

lt_status lt_comm_share_failure(lt_comm *comm, int root, int first, lt_status mine)
{
    char bytes[TEXT] = {0};
    if (comm->rank == root) {
        bytes[0] = (char)mine;
        snprintf(bytes + 1, TEXT - 1, "%s", lt_error_message());
    }
    lt_status st = exchange_text(comm, root, bytes);
    if (st) { /* who waits for the text must not wait for ever */
        lt_comm_abort(comm);
        return st;
    }
    bytes[TEXT - 1] = 0;
    return lt_fail((lt_status)bytes[0], "rank %d: %s", first + root, bytes + 1);
}

/* The lowest rank that failed, or -1 if none did. */
static lt_status lowest_failed(lt_comm *comm, lt_status mine, int *rank)
{
    int32_t value = mine ? comm->size - comm->rank : 0;
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    LT_TRY(lt_tensor_new(&t, comm->device, LT_I32, LT_SHAPE(1)));
    lt_status st = lt_tensor_write(t, &value, sizeof value);
    if (!st)
        st = lt_comm_allreduce_begin(comm, t, LT_REDUCE_MAX, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(t, &value, sizeof value);
    lt_tensor_free(&t);
    *rank = value ? comm->size - value : -1;
    return st;
}

lt_status lt_comm_agree(lt_comm *comm, lt_status mine)
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
