/* A parameter server and its workers, synchronous: least squares on data that is split over the workers.
 *
 *     cc parameter_server.c -shared -fPIC -o parameter_server.so $(pkg-config --cflags --libs lather)
 *     lather launch parameter_server.ini --on local
 *
 * The server adds gradients in the order of workers, so its parameters are, bit for bit, those of one process, which
 * it computes in the end to compare. */

#include "lather/launch_node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 8, ROWS = 16, STEPS = 20, MOST = 64, SECONDS = 60, WAIT_US = 300 };
static const double rate = 0.002;

typedef struct server {
    pthread_mutex_t lock;
    lt_launch_node *node;
    int workers, step, came;
    double w[WIDTH], gradient[MOST][WIDTH];
    char has[MOST];
} server;

typedef struct message {
    int worker, step;
    double values[WIDTH];
} message;

lt_status serve(lt_launch_node *node, void *context);
lt_status work(lt_launch_node *node, void *context);

/* Computes the sum of (x.w - y) x over the worker's rows at w. */
static void gradient_of(int worker, const double *w, double *g)
{
    memset(g, 0, WIDTH * sizeof *g);
    for (int r = 0; r < ROWS; r++) {
        double x[WIDTH], error = -(double)((worker * ROWS + r) % 11);
        for (int i = 0; i < WIDTH; i++) {
            x[i] = (double)((worker * 31 + r * 17 + i * 7) % 13) / 6 - 1;
            error += x[i] * w[i];
        }
        for (int i = 0; i < WIDTH; i++)
            g[i] += error * x[i];
    }
}

static void apply_gradients(double *w, double (*gradient)[WIDTH], int workers)
{
    for (int i = 0; i < WIDTH; i++) {
        double sum = 0;
        for (int k = 0; k < workers; k++)
            sum += gradient[k][i];
        w[i] -= rate * sum;
    }
}

/* Receives a gradient, possibly again; responds with the parameters of the newest step. */
static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    server *s = context;
    message in, out = {0};
    if (bytes != sizeof in)
        return LT_E_FORMAT;
    memcpy(&in, request, bytes);
    pthread_mutex_lock(&s->lock);
    if (in.worker >= 0 && in.worker < s->workers && in.step == s->step && !s->has[in.worker]) {
        memcpy(s->gradient[in.worker], in.values, sizeof in.values);
        s->has[in.worker] = 1;
        s->came++;
    }
    if (s->came == s->workers) {
        apply_gradients(s->w, s->gradient, s->workers);
        memset(s->has, 0, sizeof s->has);
        s->came = 0;
        s->step++;
    }
    out.step = s->step;
    memcpy(out.values, s->w, sizeof s->w);
    pthread_mutex_unlock(&s->lock);
    void *to = lt_response_allocate(reply, sizeof out);
    if (to)
        memcpy(to, &out, sizeof out);
    return to ? LT_OK : LT_E_NOMEM;
}

lt_status serve(lt_launch_node *node, void *context)
{
    static const double zero[WIDTH] = {0};
    server *s = calloc(1, sizeof *s);
    double w[WIDTH];
    (void)context;
    if (!s)
        return LT_E_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->workers = lt_launch_node_count_of(node, "worker");
    const lt_status st = lt_launch_node_serve(node, handle_request, s);
    memcpy(w, zero, sizeof w);
    for (int step = 0; step < s->step; step++) {
        for (int k = 0; k < s->workers; k++)
            gradient_of(k, w, s->gradient[k]);
        apply_gradients(w, s->gradient, s->workers);
    }
    const int same = s->step == STEPS && !memcmp(w, s->w, sizeof w);
    printf("%d steps of %d workers: %s one process\n", s->step, s->workers,
           same ? "the bits of" : "differs from");
    fflush(stdout);
    free(s);
    return st ? st : same ? LT_OK : LT_E_FORMAT;
}

lt_status work(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    message out = {.worker = lt_launch_node_index(node), .step = -1}, in = {0};
    (void)context;
    lt_status st = lt_launch_node_client(node, "server", 0, true, &client);
    while (!st && in.step < STEPS) {
        lt_response back = {0};
        st = lt_client_call(client, &out, sizeof out, SECONDS, &back);
        if (!st && back.bytes == sizeof in)
            memcpy(&in, back.data, sizeof in);
        lt_response_free(&back);
        if (in.step == out.step) {
            usleep(WAIT_US); /* other workers are not done yet */
        } else {
            gradient_of(out.worker, in.values, out.values);
            out.step = in.step;
        }
    }
    lt_client_close(&client);
    return st;
}
