/* A plugin that registers what else a plugin can: a communicator, a reducer and hooks. */

#include "lather/ext/comm.h"
#include "lather/ext/reducer.h"
#include "lather/plugin.h"
#include "lather/train_hooks.h"

#include <string.h>

/* --- A communicator of one rank --- */

static lt_status open_alone(lt_comm *self)
{
    self->size = 1;
    return LT_OK;
}

static void close_alone(lt_comm *self)
{
    (void)self;
}

static lt_status begin(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    (void)self;
    *request = NULL;
    if (call->in != call->out && call->elements)
        memcpy(call->out, call->in, (size_t)call->elements * lt_dtype_size(call->dtype));
    return LT_OK;
}

static lt_status wait_for(lt_request *request)
{
    (void)request;
    return LT_OK;
}

static lt_status split(lt_comm *self, int color, int key, lt_comm *out)
{
    (void)self, (void)color, (void)key;
    return open_alone(out);
}

static const lt_comm_ops alone = {.kind = "alone",
                                  .bytes = sizeof(lt_comm),
                                  .open = open_alone,
                                  .close = close_alone,
                                  .begin = begin,
                                  .wait = wait_for,
                                  .split = split,
                                  .abort = close_alone};

/* --- A reducer: a plain mean --- */

static lt_request **request_of(const lt_reducer *self, size_t bucket)
{
    return (lt_request **)self->bucket[bucket].own;
}

static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    return lt_comm_allreduce_begin(self->comm, self->bucket[bucket].flat, LT_REDUCE_MEAN,
                                   request_of(self, bucket));
}

static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    return lt_request_wait(request_of(self, bucket));
}

static void sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    (void)self;
    *out = (lt_reducer_bytes){0};
}

static const lt_reducer_ops mean = {.kind = "mean",
                                    .bytes = sizeof(lt_reducer),
                                    .bucket_bytes = sizeof(lt_request *),
                                    .reduces_flags = true,
                                    .begin = begin_bucket,
                                    .finish = finish_bucket,
                                    .sent = sent};

/* --- Hooks: a record every step --- */

static lt_status after_step(void *context, const lt_train_view *view, bool *stop)
{
    const lt_metric seen = {"seen", 1};
    (void)context, (void)stop;
    return lt_train_record(view, "parts", &seen, 1);
}

static const lt_train_hooks hooks = {.name = "parts", .after_step = after_step};

LT_PLUGIN(host)
{
    if (host->bytes < sizeof *host || strcmp(host->version, LT_VERSION) != 0 || !*host->program)
        return lt_fail(LT_E_ARG, "the host is not described");
    LT_TRY(lt_comm_register(&alone));
    LT_TRY(lt_reducer_register(&mean));
    return lt_train_hooks_register(&hooks);
}
