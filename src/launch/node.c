/* A running node.
 *
 * 1. A service is bound and published before its arguments are expanded, so that services may refer to each other.
 *    Calls before lt_launch_node_serve() wait in wait_and_call_handler(). */

#include "base/alloc.h"
#include "base/heartbeat.h"
#include "base/os.h"
#include "base/token.h"
#include "launch/heartbeat_monitor.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct lt_launch_node {
    lt_launch_values values;
    lt_launch_place place;
    char secret[LT_TOKEN_BYTES]; /* "" if none */
    char *text, **words;         /* expanded arguments and their argv */
    int word_count;
    atomic_bool ending;
    atomic_llong progress;
    lt_heartbeat *heartbeat; /* NULL: not monitored, or a thread of the launcher */
    int end[2];              /* pipe: gets a byte when the node or the program ends */
    lt_service *service;
    pthread_mutex_t lock; /* protects handler, context, closed */
    pthread_cond_t served;
    lt_service_handler handler;
    void *context;
    bool closed;
    lt_launch_gang_threads *gang; /* borrowed; NULL: ranks are processes */
};

const char *lt_launch_node_label(const lt_launch_node *node)
{
    return node->values.group->config.label;
}

int lt_launch_node_index(const lt_launch_node *node)
{
    return node->values.index;
}

int lt_launch_node_count(const lt_launch_node *node)
{
    return node->values.count;
}

int lt_launch_node_count_of(const lt_launch_node *node, const char *label)
{
    const lt_launch_handle *h = lt_program_graph_find(node->values.program, label, strlen(label));
    return h ? h->config.count : -1;
}

const char *lt_launch_node_argument(const lt_launch_node *node, int index)
{
    return index >= 0 && index < node->word_count ? node->words[index] : NULL;
}

long lt_launch_node_number(const lt_launch_node *node, const char *name, long otherwise)
{
    for (int i = 0; i + 1 < node->word_count; i++)
        if (!strncmp(node->words[i], "--", 2) && !strcmp(node->words[i] + 2, name)) {
            char *end = NULL;
            const long n = strtol(node->words[i + 1], &end, 10);
            return end == node->words[i + 1] || *end ? otherwise : n;
        }
    return otherwise;
}

bool lt_launch_node_stopping(const lt_launch_node *node)
{
    return atomic_load(&((lt_launch_node *)(uintptr_t)node)->ending);
}

void lt_launch_node_progress(lt_launch_node *node)
{
    if (node)
        atomic_fetch_add(&node->progress, 1);
    else
        lt_heartbeat_progress();
}

long long lt_launch_node_progress_count(const lt_launch_node *node)
{
    return atomic_load(&((lt_launch_node *)(uintptr_t)node)->progress);
}

/* For signal handlers too. */
void lt_launch_node_stop(lt_launch_node *node)
{
    (void)!write(node->end[1], "", 1);
}

void lt_launch_node_request_end(lt_launch_node *node)
{
    atomic_store(&node->ending, true);
    lt_launch_node_stop(node);
}

/* Waits until lt_launch_node_serve() has set the handler, then calls it; invariant 1. */
static lt_status wait_and_call_handler(void *context, const void *request, size_t bytes,
                                       lt_response_buffer *reply)
{
    lt_launch_node *n = context;
    pthread_mutex_lock(&n->lock);
    while (!n->handler && !n->closed)
        pthread_cond_wait(&n->served, &n->lock);
    const lt_service_handler handler = n->handler;
    pthread_mutex_unlock(&n->lock);
    if (!handler)
        return lt_fail(LT_E_COMM, "the service has ended");
    return handler(n->context, request, bytes, reply);
}

static void set_handler(lt_launch_node *n, lt_service_handler handler, void *context, bool closed)
{
    pthread_mutex_lock(&n->lock);
    n->handler = handler;
    n->context = context;
    n->closed = closed;
    pthread_cond_broadcast(&n->served);
    pthread_mutex_unlock(&n->lock);
}

lt_status lt_launch_node_serve(lt_launch_node *node, lt_service_handler handler, void *context)
{
    if (!node->service)
        return lt_fail(LT_E_ARG, "launch: %s is not a service", lt_launch_node_label(node));
    set_handler(node, handler, context, false);
    char byte;
    while (read(node->end[0], &byte, 1) < 0 && errno == EINTR) {
    }
    set_handler(node, NULL, NULL, true);
    lt_service_close(&node->service); /* waits for handlers that run */
    return LT_OK;
}

lt_status lt_launch_node_client(lt_launch_node *node, const char *label, int index, bool repeat,
                                lt_client **out)
{
    enum { TIMEOUT = 300 }; /* seconds */
    char address[LT_LAUNCH_PATH];
    const lt_launch_handle *h = lt_program_graph_find(node->values.program, label, strlen(label));
    if (!h || h->config.kind != LT_LAUNCH_NODE_SERVICE || index < 0 || index >= h->config.count)
        return lt_fail(LT_E_ARG, "launch: %s: there is no service %s.%d",
                       lt_launch_node_label(node), label, index);
    LT_TRY(
        lt_launch_wait_for_address(&node->place, label, index, TIMEOUT, address, sizeof address));
    return lt_client_open(out, &(lt_client_config){.address = address,
                                                   .secret = *node->secret ? node->secret : NULL,
                                                   .repeat = repeat});
}

/* Binds the service; after a restart to its published address, so that clients find it. */
static lt_status bind_service(lt_launch_node *n)
{
    const lt_launch_node_config *c = &n->values.group->config;
    char address[LT_LAUNCH_PATH];
    lt_service_config config = {.address = address,
                                .handler = wait_and_call_handler,
                                .context = n,
                                .secret = *n->secret ? n->secret : NULL};
    if (lt_launch_wait_for_address(&n->place, c->label, n->values.index, 0, address, sizeof address)
        || lt_service_open(&n->service, &config)) {
        lt_launch_make_listen_address(&n->place, c->label, n->values.index, address,
                                      sizeof address);
        LT_TRY(lt_service_open(&n->service, &config));
    }
    return lt_launch_publish_address(&n->place, c->label, n->values.index,
                                     lt_service_address(n->service));
}

lt_status lt_launch_node_open(lt_launch_node **out, const lt_launch_values *values,
                              lt_launch_gang_threads *gang)
{
    char path[LT_LAUNCH_PATH + 16];
    lt_launch_node *n = NULL;
    LT_TRY(LT_ALLOC(&n, 1));
    if (lt_os_pipe(n->end)) {
        lt_free(n);
        return lt_fail(LT_E_IO, "launch: no pipe: %s", strerror(errno));
    }
    n->values = *values;
    n->place = *values->place;
    n->values.place = &n->place;
    n->gang = gang;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->served, NULL);
    snprintf(path, sizeof path, "%s/secret", n->place.files);
    const bool is_process = n->place.platform != LT_LAUNCH_THREADS;
    const double interval = is_process ? lt_heartbeat_interval(&values->group->config) : 0;
    lt_status st = is_process ? lt_token_read(n->secret, path) : LT_OK;
    if (!st && interval > 0)
        st = lt_heartbeat_open(&n->heartbeat, values->rank, interval, &n->progress);
    if (st)
        lt_launch_node_close(&n);
    else
        *out = n;
    return st;
}

static lt_status expand_arguments(lt_launch_node *n)
{
    const char *text = n->values.group->config.arguments;
    if (!text)
        return LT_OK;
    LT_TRY(lt_launch_expand_placeholders(&n->values, text, &n->text));
    LT_TRY(lt_launch_split_argv(&n->words, n->text));
    while (n->words[n->word_count])
        n->word_count++;
    return LT_OK;
}

lt_status lt_launch_node_run(lt_launch_node *node, lt_launch_node_entry entry, void *context)
{
    if (node->values.group->config.kind == LT_LAUNCH_NODE_SERVICE)
        LT_TRY(bind_service(node));
    LT_TRY(expand_arguments(node));
    return entry(node, context);
}

void lt_launch_node_close(lt_launch_node **node)
{
    lt_launch_node *n = *node;
    if (!n)
        return;
    *node = NULL;
    lt_heartbeat_close(&n->heartbeat);
    set_handler(n, NULL, NULL, true);
    lt_service_close(&n->service);
    pthread_cond_destroy(&n->served);
    pthread_mutex_destroy(&n->lock);
    close(n->end[0]);
    close(n->end[1]);
    lt_free(n->text);
    lt_free(n->words);
    lt_free(n);
}

struct lt_launch_gang_threads {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    int size, came;
    lt_device **device; /* [size] */
    lt_comm **comm;     /* [size] */
    bool opened;
    lt_status status;
};

lt_status lt_launch_gang_threads_new(lt_launch_gang_threads **out, int size)
{
    lt_launch_gang_threads *g = lt_alloc(1, sizeof *g);
    if (g) {
        g->size = size;
        g->device = lt_alloc((size_t)size, sizeof *g->device);
        g->comm = lt_alloc((size_t)size, sizeof *g->comm);
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->ready, NULL);
    }
    if (!g || !g->device || !g->comm) {
        lt_launch_gang_threads_free(&g);
        return LT_E_NOMEM;
    }
    *out = g;
    return LT_OK;
}

void lt_launch_gang_threads_free(lt_launch_gang_threads **gang)
{
    lt_launch_gang_threads *g = *gang;
    *gang = NULL;
    if (!g)
        return;
    lt_free((void *)g->device);
    lt_free((void *)g->comm);
    lt_free(g);
}

/* Waits for all ranks; the last one opens the communicators. */
static lt_status join_gang_comm(lt_launch_gang_threads *g, int rank, lt_device *device,
                                lt_comm **out)
{
    pthread_mutex_lock(&g->lock);
    g->device[rank] = device;
    if (++g->came == g->size) {
        g->status = lt_comm_open_threads(g->comm, g->device, g->size);
        g->opened = true;
        pthread_cond_broadcast(&g->ready);
    }
    while (!g->opened)
        pthread_cond_wait(&g->ready, &g->lock);
    const lt_status st = g->status;
    if (!st)
        *out = g->comm[rank];
    pthread_mutex_unlock(&g->lock);
    return st;
}

lt_status lt_launch_node_comm(lt_launch_node *node, lt_device *device, lt_comm **out)
{
    if (node->values.group->config.kind != LT_LAUNCH_NODE_GANG)
        return lt_fail(LT_E_ARG, "launch: %s is not a gang", lt_launch_node_label(node));
    if (node->gang)
        return join_gang_comm(node->gang, node->values.index, device, out);
    return lt_comm_open(out, node->values.count > 1 ? lt_comm_launched_kind() : "self", device);
}

lt_status lt_launch_load_module(const char *module, lt_launch_node_entry *entry)
{
    const char *colon = strrchr(module, ':');
    char path[LT_LAUNCH_PATH];
    snprintf(path, sizeof path, "%.*s", (int)(colon - module), module);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: its code may still run */
    if (!object)
        return lt_fail(LT_E_IO, "launch: %s", dlerror());
    void *symbol = dlsym(object, colon + 1);
    if (!symbol)
        return lt_fail(LT_E_ARG, "launch: %s has no function %s", path, colon + 1);
    memcpy(entry, &symbol, sizeof *entry); /* converts an object to a function pointer, as POSIX */
    return LT_OK;
}
