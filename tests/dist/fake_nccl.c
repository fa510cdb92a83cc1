/* Fake NCCL in host memory. */

#include "fake_queue.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fake_world *worlds;
static int ids;

static bool wanted(const fake_gpu *gpu, const char *call)
{
    return gpu->fails && !strcmp(gpu->fails, call);
}

static lt_status refuse(const fake_gpu *gpu, const char *call)
{
    return wanted(gpu, call) ? lt_fail(LT_E_COMM, "a %s that fails", call) : LT_OK;
}

static lt_status check(void)
{
    return LT_OK;
}

static lt_status set_device(void *device)
{
    return refuse(device, "set_device");
}

static lt_status gpu_name(void *device, char text[LT_NCCL_GPU_NAME])
{
    snprintf(text, LT_NCCL_GPU_NAME, "%s", ((fake_gpu *)device)->name);
    return refuse(device, "gpu_name");
}

static lt_status unique_id(char id[LT_NCCL_ID])
{
    pthread_mutex_lock(&fake_mutex);
    snprintf(id, LT_NCCL_ID, "id %d", ++ids);
    pthread_mutex_unlock(&fake_mutex);
    return LT_OK;
}

static fake_world *new_world(const char *id, int size)
{
    fake_world *w = calloc(1, sizeof *w);
    snprintf(w->id, sizeof w->id, "%s", id);
    w->size = size;
    w->next = worlds;
    worlds = w;
    return w;
}

static lt_nccl_group *new_group(fake_world *w, fake_gpu *gpu, int rank)
{
    lt_nccl_group *g = calloc(1, sizeof *g);
    g->world = w;
    g->gpu = gpu;
    g->rank = rank;
    g->size = w->size;
    pthread_create(&g->thread, NULL, fake_work, g);
    return g;
}

static lt_status init_rank(lt_nccl_group **out, void *device, const char id[LT_NCCL_ID], int rank,
                           int size)
{
    LT_TRY(refuse(device, "init_rank"));
    pthread_mutex_lock(&fake_mutex);
    fake_world *w = worlds;
    while (w && strcmp(w->id, id) != 0)
        w = w->next;
    if (!w)
        w = new_world(id, size);
    *out = new_group(w, device, rank);
    pthread_mutex_unlock(&fake_mutex);
    return LT_OK;
}

/* Makes a world for each color, on the last rank to arrive: others may begin their next split while some still wait. */
static void divide(fake_world *w)
{
    for (int r = 0; r < w->size; r++) {
        int size = 0, first = r;
        w->place[r] = 0;
        for (int q = w->size - 1; q >= 0; q--)
            if (w->color[q] == w->color[r]) {
                size++;
                first = q;
                w->place[r] += w->key[q] < w->key[r] || (w->key[q] == w->key[r] && q < r);
            }
        w->child[r] = first == r ? new_world("a part", size) : w->child[first];
    }
}

static lt_status split(lt_nccl_group *g, int color, int key, lt_nccl_group **out, int *rank,
                       int *size)
{
    fake_world *w = g->world;
    LT_TRY(refuse(g->gpu, "split"));
    pthread_mutex_lock(&fake_mutex);
    const uint64_t round = w->split_round;
    w->color[g->rank] = color;
    w->key[g->rank] = key;
    if (++w->split_arrived == w->size) {
        divide(w);
        w->split_arrived = 0;
        w->split_round++;
        pthread_cond_broadcast(&fake_news);
    }
    while (w->split_round == round)
        pthread_cond_wait(&fake_news, &fake_mutex);
    *rank = w->place[g->rank];
    *size = w->child[g->rank]->size;
    *out = new_group(w->child[g->rank], g->gpu, *rank);
    pthread_mutex_unlock(&fake_mutex);
    return LT_OK;
}

static void free_group(lt_nccl_group *g)
{
    pthread_cond_broadcast(&fake_news);
    pthread_mutex_unlock(&fake_mutex);
    pthread_join(g->thread, NULL);
    pthread_mutex_lock(&fake_mutex);
    for (; g->done < g->issued; g->done++)
        free(g->batch[g->done % QUEUE]);
    if (++g->world->gone == g->world->size) {
        fake_world **at = &worlds;
        while (*at != g->world)
            at = &(*at)->next;
        *at = g->world->next;
        free(g->world);
    }
    free(g->open);
    free(g);
    pthread_mutex_unlock(&fake_mutex);
}

static void destroy(lt_nccl_group *g)
{
    pthread_mutex_lock(&fake_mutex);
    g->stop = true;
    free_group(g);
}

static void abort_group(lt_nccl_group *g)
{
    pthread_mutex_lock(&fake_mutex);
    g->aborted = true;
    pthread_cond_broadcast(&fake_news);
    pthread_mutex_unlock(&fake_mutex);
}

static void finish_abort(lt_nccl_group *g)
{
    pthread_mutex_lock(&fake_mutex);
    free_group(g);
}

static lt_status async_error(lt_nccl_group *g)
{
    return g->gpu->health ? lt_fail(LT_E_COMM, "%s", g->gpu->health) : LT_OK;
}

static lt_status group_start(lt_nccl_group *g)
{
    g->open = calloc(1, sizeof *g->open);
    return LT_OK;
}

static lt_status group_end(lt_nccl_group *g)
{
    pthread_mutex_lock(&fake_mutex);
    g->batch[g->issued++ % QUEUE] = g->open;
    g->open = NULL;
    pthread_cond_broadcast(&fake_news);
    pthread_mutex_unlock(&fake_mutex);
    return LT_OK;
}

static lt_status add(lt_nccl_group *g, const lt_comm_call *call, lt_comm_call_kind what,
                     bool reduce, const char *name)
{
    LT_TRY(refuse(g->gpu, name));
    fake_op *op = &g->open->op[g->open->count++];
    op->call = *call;
    op->call.what = what;
    op->call.count = NULL; /* borrowed */
    op->reduce = reduce;
    return LT_OK;
}

static lt_status allreduce(lt_nccl_group *g, const lt_comm_call *call)
{
    return add(g, call, LT_COMM_ALLREDUCE, false, "allreduce");
}

static lt_status reduce_scatter(lt_nccl_group *g, const lt_comm_call *call, int64_t count)
{
    lt_comm_call c = *call;
    c.elements = count * g->size;
    return add(g, &c, LT_COMM_REDUCESCATTER, false, "reduce_scatter");
}

static lt_status allgather(lt_nccl_group *g, const lt_comm_call *call, int64_t count)
{
    lt_comm_call c = *call;
    c.elements = count * g->size;
    return add(g, &c, LT_COMM_ALLGATHER, false, "gather");
}

static lt_status reduce(lt_nccl_group *g, const lt_comm_call *call)
{
    return add(g, call, LT_COMM_ALLREDUCE, true, "reduce");
}

static lt_status broadcast(lt_nccl_group *g, const lt_comm_call *call)
{
    return add(g, call, LT_COMM_BROADCAST, false, "broadcast");
}

static lt_status send(lt_nccl_group *g, const lt_comm_call *call)
{
    return add(g, call, LT_COMM_SEND, false, "send");
}

static lt_status recv(lt_nccl_group *g, const lt_comm_call *call)
{
    return add(g, call, LT_COMM_RECV, false, "recv");
}

static lt_status barrier(lt_nccl_group *g)
{
    const lt_comm_call call = {.what = LT_COMM_BARRIER};
    return add(g, &call, LT_COMM_BARRIER, false, "barrier");
}

static bool is_capturing(lt_nccl_group *g)
{
    return g->gpu->captured;
}

static atomic_int events;

int fake_nccl_events(void)
{
    return atomic_load(&events);
}

static lt_status record(lt_nccl_group *g, lt_nccl_event **out)
{
    atomic_fetch_add(&events, 1);
    *out = malloc(sizeof **out);
    **out = (lt_nccl_event){g, g->gpu, g->issued};
    return LT_OK;
}

static void set_launch_hooks(void *device, const lt_nccl_launch_hooks *hooks)
{
    ((fake_gpu *)device)->hooks = hooks ? *hooks : (lt_nccl_launch_hooks){0};
}

static lt_status record_main(void *device, lt_nccl_event **out)
{
    atomic_fetch_add(&events, 1);
    *out = malloc(sizeof **out);
    **out = (lt_nccl_event){NULL, device, 0};
    return LT_OK;
}

static lt_status event_query(lt_nccl_event *m, bool *done)
{
    pthread_mutex_lock(&fake_mutex);
    *done = m->group ? m->group->done >= m->at : !m->gpu->stuck;
    pthread_mutex_unlock(&fake_mutex);
    return LT_OK;
}

static lt_status main_wait(lt_nccl_event *m)
{
    m->gpu->waits++;
    return LT_OK;
}

static void event_destroy(lt_nccl_event *m)
{
    atomic_fetch_sub(&events, 1);
    free(m);
}

const lt_nccl_api fake_nccl = {
    .version = LT_VERSION,
    .check = check,
    .set_device = set_device,
    .gpu_name = gpu_name,
    .unique_id = unique_id,
    .init_rank = init_rank,
    .split = split,
    .destroy = destroy,
    .abort = abort_group,
    .finish_abort = finish_abort,
    .async_error = async_error,
    .group_start = group_start,
    .group_end = group_end,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .reduce = reduce,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .is_capturing = is_capturing,
    .set_launch_hooks = set_launch_hooks,
    .record_main = record_main,
    .record = record,
    .event_query = event_query,
    .main_wait = main_wait,
    .event_destroy = event_destroy,
};
