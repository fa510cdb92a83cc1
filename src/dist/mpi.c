/* Plugin liblather-mpi.so: a link over MPI, called on the library's progress thread only. Uses the library's headers, but
 * none of its functions.
 *
 * It has two MPI communicators: data, and control for aborts, which must arrive while data is blocked. */

#include "lather/ext/comm.h"

#include <limits.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_ABORT, TAG_LEAVE };

static const double abort_timeout = 3; /* seconds that other ranks have to respond after an abort */

/* Use of a slot. A sum cannot be cancelled. */
typedef enum slot_use { FREE, MESSAGE, SUM } slot_use;

/* Requests in flight, indexed by handle. */
typedef struct slots {
    MPI_Request *request;
    slot_use *use;
    size_t count, next;
} slots;

typedef struct mpi_link {
    lt_link base;
    MPI_Comm data, control;
    slots slots;
    bool ending; /* an abort is in progress */
} mpi_link;

static mpi_link *mpi_link_of(lt_link *self)
{
    return (mpi_link *)self;
}

static bool set_error(lt_link *self, const char *format, ...) LT_PRINTF(2, 3);
static bool set_error(lt_link *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(self->why, sizeof self->why, format, args);
    va_end(args);
    return false;
}

/* Returns true if an MPI call succeeded, else sets self->why to MPI's error text. */
static bool check_mpi(lt_link *self, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return true;
    MPI_Error_string(code, text, &length);
    return set_error(self, "%s: %.400s", call, text);
}

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_1ms(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Raises Open MPI's eager limit above the collectives' message size, unless the user set it. Larger messages use a
 * rendezvous with the receiver, which on a slow link queues after all data in flight: an all-reduce over two nodes took
 * 1.2 times as long. Other MPIs ignore the variable. */
static void raise_eager_limit(void)
{
    setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
}

/* Initializes MPI, which is possible once per process. */
static bool init_mpi(lt_link *self)
{
    int provided, started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (ended)
        return set_error(self, "MPI is already finalized and cannot be initialized again");
    if (started)
        return set_error(self,
                         "MPI is already initialized in this process; use lt_comm_split() for "
                         "more communicators");
    raise_eager_limit();
    return check_mpi(self, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided),
                     "MPI_Init_thread");
}

/* Gathers all ranks' host names, for error messages. */
static bool gather_hosts(lt_link *self)
{
    char own[LT_LINK_HOST] = "";
    char(*all)[LT_LINK_HOST] = calloc((size_t)self->size, sizeof *all);
    gethostname(own, sizeof own - 1);
    self->host = (const char(*)[LT_LINK_HOST])all;
    return all ? check_mpi(self,
                           MPI_Allgather(own, sizeof own, MPI_CHAR, all, sizeof own, MPI_CHAR,
                                         mpi_link_of(self)->data),
                           "MPI_Allgather")
               : set_error(self, "out of memory for the host names of %d ranks", self->size);
}

static bool open_link(lt_link *self)
{
    mpi_link *l = mpi_link_of(self);
    int *highest, found = 0;
    if (!init_mpi(self))
        return false;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!check_mpi(self, MPI_Comm_dup(MPI_COMM_WORLD, &l->data), "MPI_Comm_dup")
        || !check_mpi(self, MPI_Comm_dup(MPI_COMM_WORLD, &l->control), "MPI_Comm_dup"))
        return false;
    MPI_Comm_set_errhandler(l->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(l->control, MPI_ERRORS_RETURN);
    MPI_Comm_rank(l->data, &self->rank);
    MPI_Comm_size(l->data, &self->size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found);
    self->tags = !found ? SHRT_MAX : *highest < INT_MAX ? *highest : INT_MAX;
    return gather_hosts(self);
}

static bool grow_slots(lt_link *self)
{
    slots *s = &mpi_link_of(self)->slots;
    size_t more = 2 * s->count + 64;
    MPI_Request *request = realloc(s->request, more * sizeof(MPI_Request));
    s->request = request ? request : s->request;
    slot_use *use = realloc(s->use, more * sizeof *use);
    s->use = use ? use : s->use;
    if (!request || !use)
        return set_error(self, "out of memory for %zu messages", more);
    memset(use + s->count, 0, (more - s->count) * sizeof *use);
    s->next = s->count;
    s->count = more;
    /* cppcheck-suppress memleak ; s owns both */
    return true;
}

/* Takes a free slot, growing the table if full. */
static bool take_slot(lt_link *self, size_t *slot)
{
    slots *s = &mpi_link_of(self)->slots;
    size_t tried = 0;
    while (tried < s->count && s->use[(s->next + tried) % s->count])
        tried++;
    if (tried == s->count) {
        tried = 0;
        if (!grow_slots(self))
            return false;
    }
    *slot = (s->next + tried) % s->count;
    s->next = *slot + 1;
    s->use[*slot] = MESSAGE;
    return true;
}

static bool check_posted(lt_link *self, int code, const char *call, size_t slot, uint64_t *handle)
{
    *handle = slot;
    if (check_mpi(self, code, call))
        return true;
    mpi_link_of(self)->slots.use[slot] = FREE;
    return false;
}

static bool post_send(lt_link *self, const lt_message *m, uint64_t *handle)
{
    mpi_link *l = mpi_link_of(self);
    size_t slot;
    if (!take_slot(self, &slot))
        return false;
    int code =
        MPI_Isend(m->in, (int)m->bytes, MPI_BYTE, m->to, m->tag, l->data, &l->slots.request[slot]);
    return check_posted(self, code, "MPI_Isend", slot, handle);
}

static bool post_recv(lt_link *self, const lt_message *m, uint64_t *handle)
{
    mpi_link *l = mpi_link_of(self);
    size_t slot;
    if (!take_slot(self, &slot))
        return false;
    int code = MPI_Irecv(m->out, (int)m->bytes, MPI_BYTE, m->from, m->tag, l->data,
                         &l->slots.request[slot]);
    return check_posted(self, code, "MPI_Irecv", slot, handle);
}

static bool start_sum(lt_link *self, const lt_comm_call *c, uint64_t *handle)
{
    mpi_link *l = mpi_link_of(self);
    size_t slot;
    if (!take_slot(self, &slot))
        return false;
    l->slots.use[slot] = SUM;
    const int code = MPI_Iallreduce(c->in == c->out ? MPI_IN_PLACE : c->in, c->out,
                                    (int)c->elements, c->dtype == LT_F64 ? MPI_DOUBLE : MPI_FLOAT,
                                    MPI_SUM, l->data, &l->slots.request[slot]);
    return check_posted(self, code, "MPI_Iallreduce", slot, handle);
}

static bool test_message(lt_link *self, uint64_t handle, bool *done)
{
    slots *s = &mpi_link_of(self)->slots;
    int flag = 0;
    bool ok = check_mpi(self, MPI_Test(&s->request[handle], &flag, MPI_STATUS_IGNORE), "MPI_Test");
    *done = flag;
    if (flag || !ok)
        s->use[handle] = FREE;
    return ok;
}

/* After an abort: receives and discards a message of another rank, so that its send completes. Returns false if there was
 * no message. */
static bool discard_message(lt_link *self)
{
    int found = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi_link_of(self)->data, &found, &message, &status)
            != MPI_SUCCESS
        || !found)
        return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    void *unwanted = malloc(bytes ? (size_t)bytes : 1);
    if (unwanted)
        MPI_Mrecv(unwanted, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    free(unwanted);
    return true;
}

static void call_mpi_abort(const lt_link *self, const char *why)
{
    fprintf(stderr, "lather: comm mpi: rank %d of %d (%s): %s: %s; calling MPI_Abort\n", self->rank,
            self->size, self->host[self->rank], self->why, why);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* Cancels a message. MPI_Cancel() is only a request: until the message completes MPI may access its memory, which the
 * caller frees. So MPI_Abort() is called if it does not complete in time. */
static void cancel_message(lt_link *self, uint64_t handle)
{
    slots *s = &mpi_link_of(self)->slots;
    int done = 0;
    if (s->use[handle] == MESSAGE) /* cancels receives; sends complete as receivers drain them */
        MPI_Cancel(&s->request[handle]);
    s->use[handle] = FREE;
    for (double end = clock_seconds() + abort_timeout; clock_seconds() < end;) {
        if (MPI_Test(&s->request[handle], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done)
            return;
        discard_message(self);
        sleep_1ms();
    }
    call_mpi_abort(self, "a message did not complete after an abort");
}

/* Returns true if all requests have completed. */
static bool all_complete(MPI_Request *request, int count)
{
    for (int i = 0; i < count; i++) {
        int done = 0;
        if (MPI_Test(&request[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            return false;
    }
    return true;
}

/* Sends text to all other ranks on the control communicator; returns true if all completed within abort_timeout. */
static bool send_control(lt_link *self, const char *text, int bytes, int tag)
{
    mpi_link *l = mpi_link_of(self);
    MPI_Request *request = calloc((size_t)self->size, sizeof(MPI_Request));
    bool sent = request, gone = false;
    for (int r = 0; request && r < self->size; r++) {
        request[r] = MPI_REQUEST_NULL;
        if (r != self->rank)
            sent &=
                MPI_Isend(text, bytes, MPI_CHAR, r, tag, l->control, &request[r]) == MPI_SUCCESS;
    }
    for (double end = clock_seconds() + abort_timeout; sent && clock_seconds() < end;) {
        gone = all_complete(request, self->size);
        if (gone)
            break;
        sleep_1ms();
    }
    free(request);
    return gone;
}

static void send_abort(lt_link *self, const char *why)
{
    char text[LT_LINK_TEXT];
    snprintf(text, sizeof text, "%s", why);
    snprintf(self->why, sizeof self->why, "%s", why);
    send_control(self, text, sizeof text, TAG_ABORT);
    mpi_link_of(self)->ending = true;
}

/* Probes for an abort instead of posting a receive, which would have to be cancelled at the end of a normal run. */
static bool poll_abort(lt_link *self)
{
    mpi_link *l = mpi_link_of(self);
    int found = 0;
    MPI_Status status;
    if (l->ending) {
        discard_message(self);
        return false;
    }
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, l->control, &found, &status) != MPI_SUCCESS || !found)
        return false;
    MPI_Recv(self->why, sizeof self->why, MPI_CHAR, status.MPI_SOURCE, TAG_ABORT, l->control,
             MPI_STATUS_IGNORE);
    self->why[sizeof self->why - 1] = 0;
    l->ending = true;
    return true;
}

/* After an abort: waits until all ranks have stopped sending, which MPI_Finalize() requires. */
static bool wait_for_leave(lt_link *self)
{
    mpi_link *l = mpi_link_of(self);
    bool sent = send_control(self, "", 0, TAG_LEAVE);
    int left = self->size - 1;
    for (double end = clock_seconds() + abort_timeout; left && clock_seconds() < end;) {
        int flag = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_LEAVE, l->control, &flag, MPI_STATUS_IGNORE)
            != MPI_SUCCESS)
            return false;
        if (!flag) {
            discard_message(self);
            sleep_1ms();
            continue;
        }
        MPI_Recv(NULL, 0, MPI_CHAR, MPI_ANY_SOURCE, TAG_LEAVE, l->control, MPI_STATUS_IGNORE);
        left--;
    }
    return sent && !left;
}

static void close_link(lt_link *self, bool aborted)
{
    mpi_link *l = mpi_link_of(self);
    if (aborted && !wait_for_leave(self))
        call_mpi_abort(self, "other ranks did not respond after an abort");
    while (aborted && discard_message(self))
        continue;
    MPI_Comm_free(&l->data);
    MPI_Comm_free(&l->control);
    MPI_Finalize();
    free((void *)(size_t)self->host);
    self->host = NULL;
    free(l->slots.request);
    free(l->slots.use);
}

LT_API extern const lt_link_ops lt_link_mpi;
const lt_link_ops lt_link_mpi = {
    .kind = "mpi",
    .version = LT_VERSION,
    .bytes = sizeof(mpi_link),
    .poll = true,
    .open = open_link,
    .close = close_link,
    .send = post_send,
    .recv = post_recv,
    .test = test_message,
    .cancel = cancel_message,
    .tell_abort = send_abort,
    .was_aborted = poll_abort,
};
LT_API extern lt_link_sum_fn *const lt_sum_mpi;
lt_link_sum_fn *const lt_sum_mpi = start_sum;
