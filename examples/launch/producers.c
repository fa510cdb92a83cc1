/* Producers and consumers with a bounded buffer between them:
 *
 *     cc producers.c -shared -fPIC -o producers.so $(pkg-config --cflags --libs lather)
 *     lather launch producers.ini --on threads        (or local, mpirun, slurm)
 *
 * A producer that is killed and started again puts its items once more; the buffer takes each number once, so the
 * consumer gets exactly the same items. */

#include "lather/launch_node.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CAPACITY = 64, SECONDS = 60, WAIT_US = 500 };

typedef struct queue {
    pthread_mutex_t lock;
    int64_t item[CAPACITY];
    int count;
    int64_t total;
    uint8_t *seen; /* [total] */
} queue;

lt_status buffer(lt_launch_node *node, void *context);
lt_status produce(lt_launch_node *node, void *context);
lt_status consume(lt_launch_node *node, void *context);

static void put_item(queue *q, int64_t number, char *reply)
{
    if (number < 0 || number >= q->total || q->seen[number]) {
        *reply = 'y'; /* received before */
    } else if (q->count < CAPACITY) {
        q->item[q->count++] = number;
        q->seen[number] = 1;
        *reply = 'y';
    } else {
        *reply = 'f';
    }
}

/* Receives a number to put, or an empty request for one. */
static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    queue *q = context;
    const unsigned char *in = request;
    int64_t number = 0;
    for (size_t i = 0; i < bytes && i < sizeof number; i++)
        number |= (int64_t)in[i] << (8 * i);
    pthread_mutex_lock(&q->lock);
    char *out = lt_response_allocate(reply, bytes ? 1 : q->count ? sizeof number : 0);
    if (out && bytes)
        put_item(q, number, out);
    else if (out && q->count)
        for (size_t i = 0, item = (size_t)q->item[--q->count]; i < sizeof number; i++)
            out[i] = (char)(item >> (8 * i));
    pthread_mutex_unlock(&q->lock);
    return out ? LT_OK : LT_E_NOMEM;
}

lt_status buffer(lt_launch_node *node, void *context)
{
    queue q = {.lock = PTHREAD_MUTEX_INITIALIZER};
    (void)context;
    q.total = lt_launch_node_number(node, "items", 100) * lt_launch_node_count_of(node, "producer");
    q.seen = calloc((size_t)q.total + 1, 1);
    const lt_status st = lt_launch_node_serve(node, handle_request, &q);
    free(q.seen);
    return st;
}

lt_status produce(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    const int64_t items = lt_launch_node_number(node, "items", 100);
    (void)context;
    lt_status st = lt_launch_node_client(node, "buffer", 0, true, &client);
    for (int64_t i = 0; !st && i < items && !lt_launch_node_stopping(node); i++) {
        const int64_t number = lt_launch_node_index(node) * items + i;
        unsigned char bytes[sizeof number];
        char taken = 0;
        for (size_t b = 0; b < sizeof bytes; b++)
            bytes[b] = (unsigned char)(number >> (8 * b));
        while (!st && taken != 'y') {
            lt_response back = {0};
            st = lt_client_call(client, bytes, sizeof bytes, SECONDS, &back);
            taken = back.bytes ? *(const char *)back.data : 0;
            lt_response_free(&back);
            if (!st && taken != 'y')
                usleep(WAIT_US); /* the buffer is full */
        }
    }
    lt_client_close(&client);
    return st;
}

/* Takes one item from the buffer; if the buffer is empty, waits a moment and sets *number to -1. */
static lt_status take_item(lt_client *client, int64_t *number)
{
    lt_response back = {0};
    *number = -1;
    const lt_status st = lt_client_call(client, NULL, 0, SECONDS, &back);
    const unsigned char *in = back.data;
    if (!st && back.bytes == sizeof *number) {
        *number = 0;
        for (size_t b = 0; b < sizeof *number; b++)
            *number |= (int64_t)in[b] << (8 * b);
    } else if (!st) {
        usleep(WAIT_US);
    }
    lt_response_free(&back);
    return st;
}

lt_status consume(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    const int64_t total =
        lt_launch_node_number(node, "items", 100) * lt_launch_node_count_of(node, "producer");
    unsigned char *seen = calloc((size_t)total + 1, 1);
    int64_t got = 0, twice = 0;
    (void)context;
    lt_status st = seen ? lt_launch_node_client(node, "buffer", 0, false, &client) : LT_E_NOMEM;
    while (!st && got < total && !lt_launch_node_stopping(node)) {
        int64_t number = 0;
        st = take_item(client, &number);
        if (!st && number >= 0) {
            twice += seen[number]++ != 0;
            got++;
        }
    }
    printf("consumed %lld of %lld items, %lld twice\n", (long long)got, (long long)total,
           (long long)twice);
    fflush(stdout);
    lt_client_close(&client);
    free(seen);
    return st ? st : twice ? LT_E_FORMAT : LT_OK;
}
