/* Whether all ranks mean the same: what they would otherwise find out by a wrong result. */

#include "base/alloc.h"
#include "dist/comm.h"

#include <string.h>

static lt_status gather(lt_comm *comm, lt_comm_call *call)
{
    lt_request *request = NULL;
    LT_TRY(comm->ops->begin(comm, call, &request));
    return lt_request_wait(&request);
}

/* The length of each rank's text, its NUL included. */
static lt_status gather_lengths(lt_comm *comm, const char *text, int64_t *length)
{
    int64_t mine = (int64_t)strlen(text) + 1;
    int64_t *one = lt_alloc((size_t)comm->size, sizeof *one);
    if (!one)
        return LT_E_NOMEM;
    for (int r = 0; r < comm->size; r++)
        one[r] = 1;
    lt_comm_call call = {.what = LT_COMM_ALLGATHER,
                         .dtype = LT_I64,
                         .elements = comm->size,
                         .count = one,
                         .in = &mine,
                         .out = length};
    lt_status st = gather(comm, &call);
    lt_free(one);
    return st;
}

/* Each rank's text, one behind the other. */
static lt_status gather_texts(lt_comm *comm, const char *text, const int64_t *length, char **all)
{
    lt_comm_call call = {.what = LT_COMM_ALLGATHER, .dtype = LT_U8, .count = length, .in = text};
    call.elements = lt_call_offset(&call, comm->size, comm->size);
    *all = lt_alloc((size_t)call.elements, 1);
    if (!*all)
        return LT_E_NOMEM;
    call.out = *all;
    return gather(comm, &call);
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
