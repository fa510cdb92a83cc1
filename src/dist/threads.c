/* Link between ranks in one process: a message is a copy from the sender's to the receiver's memory, made when both
 * sides have been posted. */

#include "base/alloc.h"
#include "dist/collectives/collectives.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct posted {
    lt_message message;
    bool done;
    struct posted *next;
} posted;

/* Unmatched sends and receives between two ranks, in order. */
typedef struct queue {
    posted *sends, *recvs;
} queue;

typedef struct threads_link {
    lt_link base;
    queue *queue; /* [size * size], by from and to */
} threads_link;

static queue *queue_between(lt_link *self, const lt_message *m)
{
    return &((threads_link *)self)->queue[m->from * self->size + m->to];
}

static bool open_link(lt_link *self)
{
    threads_link *l = (threads_link *)self;
    self->rank = -1;
    self->tags = INT_MAX;
    l->queue = lt_alloc((size_t)self->size * (size_t)self->size, sizeof *l->queue);
    if (!l->queue)
        snprintf(self->why, sizeof self->why, "out of memory for %d ranks", self->size);
    return l->queue;
}

static void free_messages(posted *list)
{
    while (list) {
        posted *next = list->next;
        lt_free(list);
        list = next;
    }
}

static void close_link(lt_link *self, bool aborted)
{
    threads_link *l = (threads_link *)self;
    (void)aborted;
    for (int i = 0; i < self->size * self->size; i++) {
        free_messages(l->queue[i].sends);
        free_messages(l->queue[i].recvs);
    }
    lt_free(l->queue);
}

/* Removes and returns the first message with that tag, or NULL. */
static posted *take_matching(posted **list, int tag)
{
    while (*list && (*list)->message.tag != tag)
        list = &(*list)->next;
    posted *found = *list;
    if (found)
        *list = found->next;
    return found;
}

static void append_message(posted **list, posted *l)
{
    while (*list)
        list = &(*list)->next;
    *list = l;
}

static bool post_or_match(lt_link *self, const lt_message *m, posted **mine, posted **theirs,
                          uint64_t *handle)
{
    posted *l = lt_alloc(1, sizeof *l), *other = take_matching(theirs, m->tag);
    if (!l) {
        snprintf(self->why, sizeof self->why, "out of memory for a message");
        return false;
    }
    l->message = *m;
    *handle = (uint64_t)(uintptr_t)l;
    if (!other) {
        append_message(mine, l);
        return true;
    }
    const void *in = m->in ? m->in : other->message.in;
    void *out = m->out ? m->out : other->message.out;
    if (other->message.bytes != m->bytes) {
        snprintf(self->why, sizeof self->why, "a message of %zu bytes, want %zu",
                 other->message.bytes, m->bytes);
        lt_free(l);
        return false;
    }
    memcpy(out, in, m->bytes);
    l->done = other->done = true;
    return true;
}

static bool post_send(lt_link *self, const lt_message *m, uint64_t *handle)
{
    queue *b = queue_between(self, m);
    return post_or_match(self, m, &b->sends, &b->recvs, handle);
}

static bool post_recv(lt_link *self, const lt_message *m, uint64_t *handle)
{
    queue *b = queue_between(self, m);
    return post_or_match(self, m, &b->recvs, &b->sends, handle);
}

static posted *message_of_handle(uint64_t handle)
{
    return (
        posted *)(uintptr_t)handle; /* NOLINT(performance-no-int-to-ptr): from post_or_match() */
}

static bool test_message(lt_link *self, uint64_t handle, bool *done)
{
    posted *l = message_of_handle(handle);
    (void)self;
    *done = l->done;
    if (l->done)
        lt_free(l);
    return true;
}

static void remove_message(posted **list, const posted *l)
{
    while (*list && *list != l)
        list = &(*list)->next;
    if (*list)
        *list = l->next;
}

static void cancel_message(lt_link *self, uint64_t handle)
{
    posted *l = message_of_handle(handle);
    queue *b = queue_between(self, &l->message);
    remove_message(&b->sends, l);
    remove_message(&b->recvs, l);
    lt_free(l);
}

/* No-op: all ranks are in this process. */
static void ignore_abort(lt_link *self, const char *why)
{
    (void)self;
    (void)why;
}

static bool never_aborted(lt_link *self)
{
    (void)self;
    return false;
}

static const lt_link_ops ops = {
    .kind = "threads",
    .version = LT_VERSION,
    .bytes = sizeof(threads_link),
    .open = open_link,
    .close = close_link,
    .send = post_send,
    .recv = post_recv,
    .test = test_message,
    .cancel = cancel_message,
    .tell_abort = ignore_abort,
    .was_aborted = never_aborted,
};

static lt_status make_all_comms(lt_comm **comm, lt_device *const *device, int size)
{
    for (int r = 0; r < size; r++)
        LT_TRY(lt_comm_allocate(&comm[r], &lt_comm_linked, device[r]));
    lt_link *link = lt_alloc(1, ops.bytes);
    if (!link)
        return LT_E_NOMEM;
    link->ops = &ops;
    link->size = size;
    return lt_linked_open(comm, link);
}

lt_status lt_comm_open_threads(lt_comm **out, lt_device *const *device, int size)
{
    enum { MOST = 1024 };
    if (size < 1 || size > MOST)
        return lt_fail(LT_E_ARG, "comm threads: %d ranks, want 1 to %d", size, MOST);
    lt_comm **comm = lt_alloc((size_t)size, sizeof(lt_comm *));
    if (!comm)
        return LT_E_NOMEM;
    lt_status st = make_all_comms(comm, device, size);
    for (int r = 0; r < size; r++)
        if (st)
            lt_free(comm[r]);
        else
            out[r] = comm[r];
    lt_free(comm);
    return st;
}
