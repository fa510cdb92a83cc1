/* A service and its clients, and data that services make, in which one call for memory, a thread or a socket fails: a
 * call fails or is repeated, with the right answer; nothing leaks, nothing waits for ever. */

#include "lather/service.h"

#include "faults.h"
#include "images.h"

#include "lather/data_service.h"

enum { REQUEST = 100, SIDE = 8 };
static const double seconds = 2; /* time-out of a call */

typedef struct row {
    const char *name, *address, *secret;
    bool repeat;
    unsigned kinds;
} row;

typedef struct scene {
    const row *row;
    lt_service *service;
    lt_client *client;
    lt_response answer;
} scene;

static lt_status mirror(void *context, const void *request, size_t bytes, lt_response_buffer *reply)
{
    (void)context;
    unsigned char *out = lt_response_allocate(reply, bytes);
    if (!out)
        return LT_E_NOMEM;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(((const unsigned char *)request)[i] + 1);
    return LT_OK;
}

static lt_status call(scene *s)
{
    unsigned char request[REQUEST];
    for (int i = 0; i < REQUEST; i++)
        request[i] = (unsigned char)i;
    lt_response_free(&s->answer);
    return lt_client_call(s->client, request, REQUEST, seconds, &s->answer);
}

static lt_status serve_and_call(void *context)
{
    scene *s = context;
    const lt_service_config serve = {
        .address = s->row->address, .handler = mirror, .secret = s->row->secret, .threads = 2};
    LT_TRY(lt_service_open(&s->service, &serve));
    const lt_client_config c = {.address = lt_service_address(s->service),
                                .secret = s->row->secret,
                                .repeat = s->row->repeat};
    LT_TRY(lt_client_open(&s->client, &c));
    return call(s);
}

static void end(void *context)
{
    scene *s = context;
    lt_response_free(&s->answer);
    lt_client_close(&s->client);
    lt_service_close(&s->service);
}

/* Checks that a call works: with the open client, or after opening again. */
static void after_call(void *context, lt_status st)
{
    scene *s = context;
    if (st && s->client) {
        assert_ok(call(s));
    } else if (st) {
        end(s);
        assert_ok(serve_and_call(s));
    }
    assert_int_equal(s->answer.bytes, REQUEST);
    for (int i = 0; i < REQUEST; i++)
        assert_int_equal(((const unsigned char *)s->answer.data)[i], i + 1);
}

#define TCP    "tcp://127.0.0.1:0"
#define INPROC "inproc://faults"
static const row rows[] = {
    {"tcp: memory and threads", TCP, NULL, false, FAULT_MEMORY | FAULT_THREAD},
    {"tcp: sockets", TCP, NULL, false, FAULT_SOCKET},
    {"tcp, repeated: memory and threads", TCP, NULL, true, FAULT_MEMORY | FAULT_THREAD},
    {"tcp, repeated: sockets", TCP, NULL, true, FAULT_SOCKET},
    {"tcp, secret: memory", TCP, "a secret of tests", false, FAULT_MEMORY},
    {"tcp, secret: sockets", TCP, "a secret of tests", true, FAULT_SOCKET},
    {"inproc: memory and threads", INPROC, NULL, false, FAULT_MEMORY | FAULT_THREAD},
};

static void a_call_that_fails_says_so(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .survives = "*",
                          .kinds = s.row->kinds,
                          .any_status = true,
                          .act = serve_and_call,
                          .after = after_call,
                          .close = end,
                          .context = &s,
                          .least = 4};
    (void)faults_each(&c);
}

/* --- Data --- */

static char *folder;
static lt_device *device;

typedef struct supply {
    unsigned kinds;
    const char *name;
    lt_dataset *data, *remote;
    lt_data_service *service;
    lt_loader *loader;
    uint64_t sum, want;
} supply;

static lt_status read_epoch(supply *f)
{
    unsigned char bytes[8 * 3 * SIDE * SIDE];
    lt_batch b;
    lt_status st;
    f->sum = 0;
    while (!(st = lt_loader_next(f->loader, &b))) {
        LT_TRY(lt_tensor_read(b.inputs, bytes, lt_tensor_bytes(b.inputs)));
        for (size_t i = 0; i < lt_tensor_bytes(b.inputs); i++)
            f->sum = (f->sum ^ bytes[i]) * 1099511628211U;
    }
    return st == LT_END ? LT_OK : st;
}

static lt_status remote_epoch(void *context)
{
    supply *f = context;
    char list[128];
    const lt_data_service_config serve = {.address = TCP, .threads = 1, .train = f->data};
    const lt_loader_config c = {.transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE},
                                .batch = 4,
                                .threads = 1,
                                .seed = 11,
                                .max_batches = 1};
    LT_TRY(lt_data_service_open(&f->service, &serve));
    snprintf(list, sizeof list, "%s", lt_data_service_address(f->service));
    LT_TRY(lt_dataset_service(&f->remote, list, NULL, true));
    LT_TRY(lt_loader_new(&f->loader, f->remote, device, &c));
    return read_epoch(f);
}

static void end_remote(void *context)
{
    supply *f = context;
    lt_loader_free(&f->loader);
    lt_dataset_free(&f->remote);
    lt_data_service_close(&f->service);
}

static void after_remote(void *context, lt_status st)
{
    supply *f = context;
    if (st) {
        end_remote(f);
        assert_ok(remote_epoch(f));
    }
    f->want = f->want ? f->want : f->sum;
    assert_true(f->sum == f->want);
}

static supply services[] = {
    {.name = "data: memory and threads", .kinds = FAULT_MEMORY | FAULT_THREAD},
    {.name = "data: sockets", .kinds = FAULT_SOCKET},
};

static void data_that_cannot_be_had_is_missed(void **state)
{
    supply *f = *state;
    assert_ok(lt_dataset_open(&f->data, folder, true));
    const fault_case c = {.name = f->name,
                          .survives = "*",
                          .kinds = f->kinds,
                          .any_status = true,
                          .act = remote_epoch,
                          .after = after_remote,
                          .close = end_remote,
                          .context = f,
                          .least = 10};
    (void)faults_each(&c);
    lt_dataset_free(&f->data);
}

static int setup(void **state)
{
    (void)state;
    folder = make_image_folder();
    return lt_device_open(&device, "ref", NULL);
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    lt_device_close(&device);
    return 0;
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows), SERVICES = COUNT_OF(services) };
    struct CMUnitTest tests[ROWS + SERVICES];
    for (size_t i = 0; i < ROWS; i++)
        tests[i] = (struct CMUnitTest){rows[i].name, a_call_that_fails_says_so, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    for (size_t i = 0; i < SERVICES; i++)
        tests[ROWS + i] = (struct CMUnitTest){services[i].name, data_that_cannot_be_had_is_missed,
                                              NULL, NULL, &services[i]};
    return faults_run("faults in a service", tests, COUNT_OF(tests), setup, teardown);
}
