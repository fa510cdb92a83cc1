/* bench service: rate of small calls, one after the other and by several threads, and bytes per second of large calls. */

#include "lather/service.h"

#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 64, LARGE_BYTES = 64 << 20, THREADS = 4 };

typedef struct settings {
    bench_common common;
    const char *address;
    int64_t calls, large;
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("address", address), .value = "tcp://127.0.0.1:0", .help = "address at which the service listens"},
    {"Benchmark", INT("calls", calls, 10, 1000000000), .value = "20000", .help = "calls of 64 bytes"},
    {"Benchmark", INT("large", large, 1, 1000000), .value = "10", .help = "calls of 64 MiB"},
};
/* clang-format on */

typedef struct work {
    lt_client *client;
    size_t bytes;
    int64_t calls;
    int failed;
} work;

static lt_status echo(void *context, const void *request, size_t bytes, lt_response_buffer *reply)
{
    (void)context;
    void *out = lt_response_allocate(reply, bytes);
    if (out)
        memcpy(out, request, bytes);
    return out ? LT_OK : LT_E_NOMEM;
}

static void *call(void *context)
{
    work *w = context;
    char *bytes = calloc(w->bytes, 1);
    for (int64_t i = 0; bytes && i < w->calls; i++) {
        lt_response back = {0};
        w->failed +=
            lt_client_call(w->client, bytes, w->bytes, 60, &back) || back.bytes != w->bytes;
        lt_response_free(&back);
    }
    free(bytes);
    return NULL;
}

/* Measures the seconds of calls by that number of threads. */
static lt_status measure(lt_client *client, size_t bytes, int64_t calls, int threads,
                         double *seconds)
{
    pthread_t thread[THREADS];
    work w[THREADS];
    int failed = 0;
    const double begin = bench_seconds();
    for (int i = 0; i < threads; i++) {
        w[i] = (work){client, bytes, calls / threads, 0};
        if (pthread_create(&thread[i], NULL, call, &w[i]) != 0)
            abort();
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        failed += w[i].failed;
    }
    *seconds = bench_seconds() - begin;
    return failed ? lt_fail(LT_E_COMM, "%d of %lld calls failed", failed, (long long)calls) : LT_OK;
}

static lt_status measure_all(lt_client *client)
{
    double ignored, one, several, bulk;
    LT_TRY(measure(client, SMALL, s.calls / 10, 1, &ignored));
    LT_TRY(measure(client, SMALL, s.calls, 1, &one));
    LT_TRY(measure(client, SMALL, s.calls, THREADS, &several));
    LT_TRY(measure(client, LARGE_BYTES, s.large, 1, &bulk));
    one = (double)s.calls / one;
    several = (double)s.calls / several;
    bulk = 1e-9 * LARGE_BYTES * (double)s.large / bulk;
    fprintf(stderr, "%.0f calls/s, %.0f by %d threads; %.3f GB/s there and back\n", one, several,
            THREADS, bulk);
    bench_print_header("service", "none", "u8", 0, THREADS);
    bench_print_fields("calls_per_second %.0f calls_per_second_4 %.0f gigabytes_per_second %.3f",
                       one, several, bulk);
    return LT_OK;
}

static lt_status run_service(lt_device *device, lt_comm *comm)
{
    const size_t most = (size_t)LARGE_BYTES * 2;
    lt_service *service = NULL;
    lt_client *client = NULL;
    (void)device, (void)comm;
    lt_status st = lt_service_open(
        &service, &(lt_service_config){.address = s.address, .handler = echo, .max_bytes = most});
    if (!st)
        st = lt_client_open(&client, &(lt_client_config){.address = lt_service_address(service),
                                                         .max_bytes = most});
    if (!st)
        st = measure_all(client);
    lt_client_close(&client);
    lt_service_close(&service);
    return st;
}

BENCH_COMMAND(service, BENCH_NO_DEVICE, table, "time calls of a service");
