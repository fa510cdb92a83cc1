/* Whether all ranks mean the same: what they would otherwise find out by a wrong result. */

#include "base/alloc.h"
#include "dist/comm.h"

#include "lather/ext/view.h"

#include <string.h>

/* An all-gather of host memory, by way of the communicator's device. */
static lt_status gather(lt_comm *comm, lt_dtype dtype, const void *mine, const int64_t *count,
                        void *all)
{
    lt_tensor *part = NULL, *whole = NULL;
    lt_request *request = NULL;
    lt_comm_call call = {.what = LT_COMM_ALLGATHER, .dtype = dtype, .count = count};
    call.elements = lt_call_offset(&call, comm->size, comm->size);
    lt_status st = lt_tensor_new(&part, comm->device, dtype, LT_SHAPE(count[comm->rank]));
    if (!st)
        st = lt_tensor_new(&whole, comm->device, dtype, LT_SHAPE(call.elements));
    if (!st)
        st = lt_tensor_write(part, mine, lt_tensor_bytes(part));
    if (!st) {
        call.in = lt_tensor_view(part).data;
        call.out = lt_tensor_view(whole).data;
        st = comm->ops->begin(comm, &call, &request);
    }
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(whole, all, lt_tensor_bytes(whole));
    lt_tensor_free(&part);
    lt_tensor_free(&whole);
    return st;
}

/* The length of each rank's text, its NUL included. */
static lt_status gather_lengths(lt_comm *comm, const char *text, int64_t *length)
{
    const int64_t mine = (int64_t)strlen(text) + 1;
    int64_t *one = lt_alloc((size_t)comm->size, sizeof *one);
    if (!one)
        return LT_E_NOMEM;
    for (int r = 0; r < comm->size; r++)
        one[r] = 1;
    lt_status st = gather(comm, LT_I64, &mine, one, length);
    lt_free(one);
    return st;
}

/* Each rank's text, one behind the other. */
static lt_status gather_texts(lt_comm *comm, const char *text, const int64_t *length, char **all)
{
    const lt_comm_call call = {.count = length};
    *all = lt_alloc((size_t)lt_call_offset(&call, comm->size, comm->size), 1);
    return *all ? gather(comm, LT_U8, text, length, *all) : LT_E_NOMEM;
}

static lt_status compare(const lt_comm *comm, const char *what, const char *all)
{
    const char *theirs = all;
    for (int r = 0; r < comm->size; r++) {
        if (strcmp(theirs, all) != 0)
            return lt_fail(LT_E_ARG, "%s is %s on rank 0, %s on rank %d", what, all, theirs, r);
        theirs += strlen(theirs) + 1;
    }
    return LT_OK;
}

lt_status lt_comm_same(lt_comm *comm, const char *what, const char *text)
{
    if (comm->size == 1)
        return LT_OK;
    char *all = NULL;
    int64_t *length = lt_alloc((size_t)comm->size, sizeof *length);
    if (!length)
        return LT_E_NOMEM;
    lt_status st = gather_lengths(comm, text, length);
    if (!st)
        st = gather_texts(comm, text, length, &all);
    if (!st)
        st = compare(comm, what, all);
    lt_free(all);
    lt_free(length);
    return st;
}
