/* Calls of a service: rate of small ones, in order and by several threads, and bytes per second of large ones.
 *
 *     bench_service ADDRESS [CALLS [LARGE]]      prints one JSON object */

#include "lather/service.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALL = 64, LARGE_BYTES = 64 << 20, THREADS = 4 };

typedef struct work {
    lt_client *client;
    size_t bytes;
    int calls;
    int failed;
} work;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static lt_status echo(void *context, const void *request, size_t bytes, lt_reply *reply)
{
    (void)context;
    void *out = lt_reply_data(reply, bytes);
    if (out)
        memcpy(out, request, bytes);
    return out ? LT_OK : LT_E_NOMEM;
}

static void *call(void *context)
{
    work *w = context;
    char *bytes = calloc(w->bytes, 1);
    for (int i = 0; bytes && i < w->calls; i++) {
        lt_answer back = {0};
        w->failed +=
            lt_client_call(w->client, bytes, w->bytes, 60, &back) || back.bytes != w->bytes;
        lt_answer_free(&back);
    }
    free(bytes);
    return NULL;
}

/* Seconds of so many calls by so many threads; 0: one failed. */
static double measure(lt_client *client, size_t bytes, int calls, int threads)
{
    pthread_t thread[THREADS];
    work w[THREADS];
    int failed = 0;
    const double begin = now();
    for (int i = 0; i < threads; i++) {
        w[i] = (work){client, bytes, calls / threads, 0};
        if (pthread_create(&thread[i], NULL, call, &w[i]) != 0)
            abort();
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        failed += w[i].failed;
    }
    return failed ? 0 : now() - begin;
}

int main(int argc, char **argv)
{
    lt_service *service = NULL;
    lt_client *client = NULL;
    const int calls = argc > 2 ? atoi(argv[2]) : 20000, large = argc > 3 ? atoi(argv[3]) : 10;
    const size_t most = (size_t)LARGE_BYTES * 2;
    lt_status st = lt_service_open(
        &service, &(lt_service_config){.address = argc > 1 ? argv[1] : "tcp://127.0.0.1:0",
                                       .handler = echo,
                                       .max_bytes = most});
    if (!st)
        st = lt_client_open(&client, &(lt_client_config){.address = lt_service_address(service),
                                                         .max_bytes = most});
    if (st) {
        fprintf(stderr, "bench_service: %s\n", lt_error_message());
        return 1;
    }
    (void)measure(client, SMALL, calls / 10, 1);
    const double one = measure(client, SMALL, calls, 1),
                 several = measure(client, SMALL, calls, THREADS);
    const double bulk = measure(client, LARGE_BYTES, large, 1);
    printf(
        "{\"calls_per_second\": %.0f, \"calls_per_second_4\": %.0f, \"gigabytes_per_second\": %.3f}\n",
        calls / one, calls / several, 1e-9 * LARGE_BYTES * large / bulk);
    lt_client_close(&client);
    lt_service_close(&service);
    return one > 0 && several > 0 && bulk > 0 ? 0 : 1;
}
