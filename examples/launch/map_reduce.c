/* Map and reduce: mappers count words of their parts of a text, reducers add the counts, a collector queries them.
 *
 *     cc map_reduce.c -shared -fPIC -o map_reduce.so $(pkg-config --cflags --libs lather)
 *     lather launch map_reduce.ini --on local
 *
 * A reducer keeps the counts of each mapper apart, so counts that a mapper sends twice are added once. */

#include "lather/launch_node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 50, LENGTH = 10000, MOST = 64, SECONDS = 60, WAIT_US = 500 };

typedef struct message {
    int mapper; /* -1: a request for the current counts */
    int mappers;
    long count[WORDS];
} message;

typedef struct reducer {
    pthread_mutex_t lock;
    message from[MOST];
    char has[MOST];
} reducer;

lt_status map(lt_launch_node *node, void *context);
lt_status reduce(lt_launch_node *node, void *context);
lt_status collect(lt_launch_node *node, void *context);

/* Returns the index of word i of the (synthetic) text. */
static int word_at(long i)
{
    return (int)((unsigned long)(i * i + 7 * i) % 9973 % WORDS);
}

static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    reducer *r = context;
    message in, sum = {.mapper = -1};
    if (bytes != sizeof in)
        return LT_E_FORMAT;
    memcpy(&in, request, bytes);
    pthread_mutex_lock(&r->lock);
    if (in.mapper >= 0 && in.mapper < MOST) {
        r->from[in.mapper] = in;
        r->has[in.mapper] = 1;
    }
    for (int m = 0; m < MOST; m++) {
        sum.mappers += r->has[m];
        for (int w = 0; w < WORDS; w++)
            sum.count[w] += r->from[m].count[w];
    }
    pthread_mutex_unlock(&r->lock);
    void *to = lt_response_allocate(reply, sizeof sum);
    if (to)
        memcpy(to, &sum, sizeof sum);
    return to ? LT_OK : LT_E_NOMEM;
}

lt_status reduce(lt_launch_node *node, void *context)
{
    reducer *r = calloc(1, sizeof *r);
    (void)context;
    if (!r)
        return LT_E_NOMEM;
    pthread_mutex_init(&r->lock, NULL);
    const lt_status st = lt_launch_node_serve(node, handle_request, r);
    free(r);
    return st;
}

static lt_status call_reducer(lt_launch_node *node, int reducer_, const message *out, message *in)
{
    lt_client *client = NULL;
    lt_response back = {0};
    lt_status st = lt_launch_node_client(node, "reducer", reducer_, true, &client);
    if (!st)
        st = lt_client_call(client, out, sizeof *out, SECONDS, &back);
    if (!st && back.bytes == sizeof *in)
        memcpy(in, back.data, sizeof *in);
    lt_response_free(&back);
    lt_client_close(&client);
    return st;
}

lt_status map(lt_launch_node *node, void *context)
{
    const int reducers = lt_launch_node_count_of(node, "reducer"), own = lt_launch_node_index(node),
              all = lt_launch_node_count(node);
    long count[WORDS] = {0};
    lt_status st = LT_OK;
    (void)context;
    for (long i = own; i < LENGTH; i += all)
        count[word_at(i)]++;
    for (int r = 0; !st && r < reducers; r++) { /* word w belongs to reducer w mod reducers */
        message out = {.mapper = own}, in;
        for (int w = r; w < WORDS; w += reducers)
            out.count[w] = count[w];
        st = call_reducer(node, r, &out, &in);
    }
    return st;
}

lt_status collect(lt_launch_node *node, void *context)
{
    const int reducers = lt_launch_node_count_of(node, "reducer"),
              mappers = lt_launch_node_count_of(node, "mapper");
    long want[WORDS] = {0}, got[WORDS] = {0};
    lt_status st = LT_OK;
    (void)context;
    for (long i = 0; i < LENGTH; i++)
        want[word_at(i)]++;
    for (int r = 0; !st && r < reducers; r++) {
        message ask = {.mapper = -1}, in = {0};
        while (!st && in.mappers < mappers) {
            st = call_reducer(node, r, &ask, &in);
            if (in.mappers < mappers)
                usleep(WAIT_US);
        }
        for (int w = 0; w < WORDS; w++)
            got[w] += in.count[w];
    }
    const int same = !memcmp(want, got, sizeof want);
    printf("%d words by %d mappers and %d reducers: %s\n", LENGTH, mappers, reducers,
           same ? "exact" : "wrong");
    fflush(stdout);
    return st ? st : same ? LT_OK : LT_E_FORMAT;
}
