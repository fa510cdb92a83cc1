/* Inverse roots on a worker thread (--refresh async). In a due step t bias-corrected copies of the
 * factors go to a thread that has its own device. Its results are written to pending tensors, which are swapped
 * in at the beginning of step t + f (f: precondition_frequency), however fast the thread was: that step waits
 * for them. The result equals that of a single-threaded loop that defers its roots by f steps.
 * The first refresh, at start, is done within the step.
 *
 * A checkpoint is a barrier: it waits for the thread, and stores the pending roots with the step that
 * swaps them in. Only the thread reads or writes pending roots; both threads read the roots in use,
 * and neither writes them. */

#include "base/alloc.h"
#include "base/trace.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/shampoo.h"
#include "optim/shampoo/state.h"
#include "tensor/tensor.h"

#include "lather/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

/* One refresh in flight. */
typedef struct lt_async {
    pthread_t thread;
    const lt_shampoo_config *config;
    const lt_device *like; /* the kind of device that the thread opens */
    lt_device **device;    /* the optimizer's async_device: of an earlier refresh, or NULL */
    lt_root_task *task;
    lt_root_job *job;
    size_t count;
    lt_tensor *copies; /* bias-corrected factors */
    int64_t step;      /* step of the factors */
    atomic_bool stop, done;

    /* The thread's results. */
    lt_status status;
    char message[MESSAGE];
    double seconds;
} lt_async;

/* --- The thread --- */

static lt_status compute_roots(lt_async *a)
{
    const int threads = a->config->refresh_threads;
    if (!*a->device)
        LT_TRY(lt_device_open_like(a->device, a->like, threads ? threads : 1));
    lt_device *device = *a->device;
    const lt_root_context context = {.config = a->config, .device = device, .step = a->step};
    lt_status st = LT_OK;
    for (size_t begin = 0, end; begin < a->count && !st && !atomic_load(&a->stop); begin = end) {
        end = lt_shampoo_end_of_root_batch(device, a->task, begin, a->count);
        st = lt_root_run(&context, a->job + begin, end - begin);
    }
    if (!st)
        st = lt_device_sync(device);
    if (st || device->backend->host_memory)
        lt_device_close(a->device);
    return st;
}

static void *run_root_thread(void *context)
{
    lt_async *a = context;
    int64_t begin = lt_clock_nanoseconds();
    if (atomic_load(&lt_trace_on))
        lt_profile_thread("shampoo roots");
    a->status = compute_roots(a);
    if (a->status)
        snprintf(a->message, MESSAGE, "%s", lt_error_message());
    lt_shampoo_add_time(begin, &a->seconds, "shampoo roots");
    atomic_store(&a->done, true);
    return NULL;
}

/* --- Handing over --- */

/* Returns the first step that swaps in pending roots, or 0. */
static int64_t next_swap_step(const lt_shampoo *s)
{
    int64_t next = 0;
    for (size_t i = 0; i < s->total; i++)
        if (s->block[i].swap && (!next || s->block[i].swap < next))
            next = s->block[i].swap;
    return next;
}

/* False while a refresh is pending: a resumed run may have one with a larger precondition_frequency. */
bool lt_shampoo_is_async_start_due(const lt_shampoo *s)
{
    int64_t t = s->base.attempt;
    bool due =
        t > s->config.start_preconditioning_step && t % s->config.precondition_frequency == 0;
    return s->config.refresh_timing == LT_REFRESH_ASYNC && due && !next_swap_step(s);
}

static void free_async(lt_shampoo *s)
{
    lt_async *a = s->async;
    if (!a)
        return;
    lt_tensor_free(&a->copies);
    lt_free(a->job);
    lt_free(a->task);
    lt_free(a);
    s->async = NULL;
}

static lt_status make_async(lt_shampoo *s)
{
    lt_async *a = s->async = lt_alloc(1, sizeof *a);
    if (!a)
        return LT_E_NOMEM;
    a->config = &s->config;
    a->like = s->base.device;
    a->device = &s->async_device;
    a->step = s->base.attempt;
    a->task = lt_alloc(s->count * LT_MAX_DIMS, sizeof *a->task);
    a->job = lt_alloc(s->count * LT_MAX_DIMS, sizeof *a->job);
    return a->task && a->job ? LT_OK : LT_E_NOMEM;
}

/* Marks blocks with a gradient, of this and other ranks, as due, and schedules the swap of their roots. */
static void mark_pending_blocks(lt_shampoo *s)
{
    for (size_t i = 0; i < s->total; i++) {
        lt_block *b = &s->block[i];
        b->due = b->slot->param->has_grad;
        b->swap = b->due ? s->base.attempt + s->config.precondition_frequency : 0;
    }
}

static lt_status fill_jobs(lt_shampoo *s)
{
    lt_async *a = s->async;
    a->count = lt_shampoo_list_root_tasks(s, (lt_block_batch){0, s->count}, a->task);
    if (!a->count) /* all blocks belong to other ranks or have no matrix */
        return LT_OK;
    LT_TRY(lt_shampoo_make_state(s)); /* the pending tensors */
    LT_TRY(lt_shampoo_make_root_jobs(s, a->task, a->count, a->job, &a->copies));
    for (size_t i = 0; i < a->count; i++) {
        lt_factor *f = &a->task[i].block->factor[a->task[i].dim];
        a->job[i].out = lt_tensor_view(f->pending);
        if (f->pending_power)
            a->job[i].power = lt_tensor_view(f->pending_power);
        f->pending_status = LT_OK;
    }
    return lt_device_sync(s->base.device);
}

static void discard_async_refresh(lt_shampoo *s)
{
    for (size_t i = 0; i < s->total; i++)
        s->block[i].swap = 0;
    lt_shampoo_free_unused_pending(s);
    free_async(s);
}

lt_status lt_shampoo_start_async(lt_shampoo *s)
{
    int64_t begin = lt_clock_nanoseconds();
    mark_pending_blocks(s);
    lt_status st = make_async(s);
    if (!st)
        st = fill_jobs(s);
    if (!st && !s->async->count)
        free_async(s);
    else if (!st && pthread_create(&s->async->thread, NULL, run_root_thread, s->async))
        st = lt_fail(LT_E_NOMEM, "shampoo: cannot create a thread for the roots of step %" PRId64,
                     s->base.attempt);
    if (st)
        discard_async_refresh(s);
    lt_shampoo_add_time(begin, &s->stats.root_seconds, "shampoo hand over");
    return st;
}

/* --- Taking over --- */

lt_status lt_shampoo_wait_async(lt_shampoo *s)
{
    lt_async *a = s->async;
    if (!a)
        return LT_OK;
    pthread_join(a->thread, NULL);
    lt_status st = a->status;
    if (st) {
        lt_fail(st, "%s", a->message);
        discard_async_refresh(s);
        return st;
    }
    for (size_t i = 0; i < a->count; i++) {
        lt_factor *f = &a->task[i].block->factor[a->task[i].dim];
        f->pending_status = a->job[i].status;
        f->residual = a->job[i].status ? f->residual : a->job[i].residual;
        s->pending_retries += a->job[i].retried;
    }
    s->pending_seconds += a->seconds;
    free_async(s);
    return LT_OK;
}

void lt_shampoo_cancel_async(lt_shampoo *s)
{
    if (!s->async)
        return;
    atomic_store(&s->async->stop, true);
    pthread_join(s->async->thread, NULL);
    discard_async_refresh(s);
}

static lt_status wait_for_thread(lt_shampoo *s)
{
    int64_t begin = lt_clock_nanoseconds();
    if (s->async && !atomic_load(&s->async->done))
        lt_log(LT_LOG_DEBUG, "optim",
               "shampoo: step %" PRId64 " waits for the roots of step %" PRId64, s->base.attempt,
               s->async->step);
    LT_TRY(lt_shampoo_wait_async(s));
    lt_shampoo_add_time(begin, &s->stats.wait_seconds, "shampoo wait");
    return LT_OK;
}

/* Swaps in the new roots. Captured graphs hold the address of the old ones, so with graphs the new ones are copied
 * there. */
static lt_status replace_used_root(const lt_shampoo *s, lt_tensor **used, lt_tensor **pending)
{
    lt_tensor *t = *used;
    if (s->base.device->backend->graphs && t)
        return lt_tensor_copy(t, *pending);
    *used = *pending;
    *pending = t;
    return LT_OK;
}

/* Swaps in all pending roots: those due in this step, or in an earlier one that was skipped. */
static lt_status swap_all_pending(lt_shampoo *s, lt_root_task *tasks, size_t *number)
{
    size_t count = 0;
    for (size_t i = 0; i < s->total; i++) {
        lt_block *b = &s->block[i];
        for (int d = 0; d < LT_MAX_DIMS && b->swap; d++) {
            lt_factor *f = &b->factor[d];
            if (!f->pending)
                continue;
            if (!f->pending_status) {
                LT_TRY(replace_used_root(s, &f->root, &f->pending));
                LT_TRY(replace_used_root(s, &f->power, &f->pending_power));
            }
            tasks[count++] = (lt_root_task){.block = b,
                                            .dim = d,
                                            .n = b->region.shape.dim[d],
                                            .status = (lt_status)f->pending_status};
        }
        b->swap = 0;
    }
    lt_shampoo_free_unused_pending(s);
    *number = count;
    return LT_OK;
}

bool lt_shampoo_has_due_swap(const lt_shampoo *s)
{
    const int64_t when = next_swap_step(s);
    return when && when <= s->base.attempt;
}

lt_status lt_shampoo_swap_in_roots(lt_shampoo *s)
{
    const int64_t when = next_swap_step(s);
    if (!lt_shampoo_has_due_swap(s))
        return LT_OK;
    LT_TRY(wait_for_thread(s));
    s->stats.worker_seconds = s->pending_seconds;
    s->stats.retries = s->pending_retries;
    s->pending_seconds = 0;
    s->pending_retries = 0;
    lt_root_task *tasks = NULL;
    LT_TRY(LT_ALLOC(&tasks, s->total * LT_MAX_DIMS));
    size_t count = 0;
    lt_status st = swap_all_pending(s, tasks, &count);
    if (!st)
        st = lt_shampoo_handle_failures(s, tasks, count, when - s->config.precondition_frequency);
    lt_free(tasks);
    return st;
}
