/* Evaluation during training: a trainer puts versions of its parameters into a store, an evaluator scores the newest
 * one and puts the score back; neither waits for the other.
 *
 *     cc evaluator.c -shared -fPIC -o evaluator.so $(pkg-config --cflags --libs lather)
 *     lather launch evaluator.ini --on local */

#include "lather/launch_node.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSIONS = 20, SECONDS = 60, WAIT_US = 1000 };

typedef enum what { PUT, GET, SCORE, SCORED } what;

typedef struct message {
    what what;
    int version;
    double value;
} message;

typedef struct shelf {
    pthread_mutex_t lock;
    message newest, scored;
} shelf;

lt_status store(lt_launch_node *node, void *context);
lt_status train(lt_launch_node *node, void *context);
lt_status evaluate(lt_launch_node *node, void *context);

static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    shelf *s = context;
    message in, out;
    if (bytes != sizeof in)
        return LT_E_FORMAT;
    memcpy(&in, request, bytes);
    pthread_mutex_lock(&s->lock);
    if (in.what == PUT && in.version > s->newest.version)
        s->newest = in;
    if (in.what == SCORE && in.version > s->scored.version)
        s->scored = in;
    out = in.what == SCORED ? s->scored : s->newest;
    pthread_mutex_unlock(&s->lock);
    void *to = lt_response_allocate(reply, sizeof out);
    if (to)
        memcpy(to, &out, sizeof out);
    return to ? LT_OK : LT_E_NOMEM;
}

lt_status store(lt_launch_node *node, void *context)
{
    shelf s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    (void)context;
    return lt_launch_node_serve(node, handle_request, &s);
}

static lt_status call_store(lt_client *client, what what_, int version, double value, message *in)
{
    const message out = {what_, version, value};
    lt_response back = {0};
    const lt_status st = lt_client_call(client, &out, sizeof out, SECONDS, &back);
    if (!st && back.bytes == sizeof *in)
        memcpy(in, back.data, sizeof *in);
    lt_response_free(&back);
    return st;
}

/* One step, x -> x - rate * 2 (x - 1): version v has x after v steps. */
static double gradient_step(double x)
{
    return x - 0.2 * (x - 1);
}

lt_status train(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    message in = {0};
    double x = 0;
    (void)context;
    lt_status st = lt_launch_node_client(node, "store", 0, true, &client);
    for (int v = 1; !st && v <= VERSIONS; v++) {
        x = gradient_step(x);
        st = call_store(client, PUT, v, x, &in);
    }
    in.version = 0;
    while (!st && in.version < VERSIONS) { /* the last score */
        st = call_store(client, SCORED, 0, 0, &in);
        usleep(WAIT_US);
    }
    printf("version %d has loss %.6f\n", in.version, in.value);
    fflush(stdout);
    lt_client_close(&client);
    return !st && in.value != (x - 1) * (x - 1) ? LT_E_FORMAT : st;
}

lt_status evaluate(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    message in = {0};
    int last = 0;
    (void)context;
    lt_status st = lt_launch_node_client(node, "store", 0, true, &client);
    while (!st && last < VERSIONS && !lt_launch_node_stopping(node)) {
        st = call_store(client, GET, 0, 0, &in);
        if (!st && in.version > last) {
            const int version = in.version;
            st = call_store(client, SCORE, version, (in.value - 1) * (in.value - 1), &in);
            last = version;
        } else {
            usleep(WAIT_US);
        }
    }
    lt_client_close(&client);
    return st;
}
