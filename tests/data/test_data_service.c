/* A loader gets the same bytes from services as from local data, also if services are killed. */

#include "data/remote/codec.h"
#include "images.h"
#include "near.h"

#include "lather/data_service.h"
#include "lather/ext/dataset.h"
#include "lather/service.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 24, MOST_WORKERS = 5, LIST = 2048 };

static lt_device *device;
static char *root;

static int setup(void **state)
{
    (void)state;
    root = make_image_folder();
    write_file(root, "class1/text.png", "not an image", 12);
    return lt_device_open(&device, "ref", NULL);
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(root);
    lt_device_close(&device);
    return 0;
}

/* --- Services in this process --- */

static lt_dataset *open_data(const char *path)
{
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, path, true));
    return d;
}

typedef struct workers {
    lt_dataset *data;
    lt_data_service *service[MOST_WORKERS];
    int count;
    char list[LIST]; /* "service:ADDRESS,ADDRESS" */
} workers;

static lt_data_service *open_service(const lt_dataset *d, const char *address)
{
    lt_data_service *s = NULL;
    const lt_data_service_config c = {.address = address, .threads = 2, .train = d};
    assert_ok(lt_data_service_open(&s, &c));
    return s;
}

static void open_workers(workers *w, int count)
{
    *w = (workers){.data = open_data(root), .count = count};
    size_t used = (size_t)snprintf(w->list, LIST, "service:");
    for (int i = 0; i < count; i++) {
        w->service[i] = open_service(w->data, "tcp://127.0.0.1:0");
        used += (size_t)snprintf(w->list + used, LIST - used, "%s%s", i ? "," : "",
                                 lt_data_service_address(w->service[i]));
    }
}

static void close_workers(workers *w)
{
    for (int i = 0; i < w->count; i++)
        lt_data_service_close(&w->service[i]);
    lt_dataset_free(&w->data);
}

/* --- Batches --- */

static lt_loader_config usual(void)
{
    return (lt_loader_config){
        .transform = {.augment = LT_AUGMENT_IMAGENET,
                      .size = SIDE,
                      .flip = 0.5,
                      .trivial_augment = true,
                      .jitter = {.brightness = 0.2, .hue = 0.1},
                      .erase = 0.3,
                      .vflip = 0.4,
                      .rotation = 30,
                      .grayscale = 0.2,
                      .blur = 0.3,
                      .erase_fill = {10, 200, 77}},
        .mix = {.mixup_alpha = 0.2, .cutmix_alpha = 1},
        .batch = 4,
        .threads = 4,
        .seed = 11,
        .shuffle = true,
        .max_bad = 5,
    };
}

typedef struct made {
    uint8_t *bytes; /* pixels, labels, targets of all batches */
    size_t size;
    char bad[4096]; /* the corrupt images */
} made;

static void append(made *m, const lt_tensor *t)
{
    const size_t bytes = lt_tensor_bytes(t);
    m->bytes = realloc(m->bytes, m->size + bytes);
    assert_non_null(m->bytes);
    assert_ok(lt_tensor_read(t, m->bytes + m->size, bytes));
    m->size += bytes;
}

/* Reads three epochs. interrupt is called before each batch; may be NULL. */
static made make_batches(lt_dataset *d, const lt_loader_config *c,
                         void (*interrupt)(void *context, int batch), void *context)
{
    made m = {0};
    lt_loader *l = NULL;
    lt_batch b;
    int batch = 0;
    assert_ok(lt_loader_new(&l, d, device, c));
    for (int epoch = 0; epoch < 3; epoch++) {
        lt_status st = LT_OK;
        while (!st) {
            if (interrupt)
                interrupt(context, batch++);
            st = lt_loader_next(l, &b);
            if (st)
                break;
            append(&m, b.inputs);
            append(&m, b.labels);
            if (b.targets)
                append(&m, b.targets);
        }
        if (st != LT_END)
            fail_msg("epoch %d: %s", epoch, lt_error_message());
    }
    for (int i = 0; lt_loader_corrupt(l, i); i++)
        snprintf(m.bad + strlen(m.bad), sizeof m.bad - strlen(m.bad), "%s\n",
                 lt_loader_corrupt(l, i));
    lt_loader_free(&l);
    return m;
}

static void assert_same(const made *a, const made *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->bytes, b->bytes, a->size);
    assert_string_equal(a->bad, b->bad);
}

static made make_local(const lt_loader_config *c)
{
    lt_dataset *d = open_data(root);
    made m = make_batches(d, c, NULL, NULL);
    lt_dataset_free(&d);
    return m;
}

static void test_equal_bytes(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 5};
    const lt_loader_config c = usual();
    lt_loader_config other = usual();
    made want = make_local(&c), differs;
    assert_non_null(strstr(want.bad, "class1/text.png"));
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        workers w;
        open_workers(&w, counts[i]);
        lt_dataset *d = open_data(w.list);
        assert_int_equal(lt_dataset_count(d), lt_dataset_count(w.data));
        assert_string_equal(lt_dataset_class_name(d, 2), "class2");
        made got = make_batches(d, &c, NULL, NULL);
        assert_same(&want, &got);
        for (int k = 0; k < counts[i]; k++)
            assert_true(lt_data_service_samples(w.service[k]) > 0);
        free(got.bytes);
        lt_dataset_free(&d);
        close_workers(&w);
    }
    other.seed++; /* control */
    differs = make_local(&other);
    assert_memory_not_equal(want.bytes, differs.bytes, want.size);
    free(differs.bytes);
    free(want.bytes);
}

static void test_records(void **state)
{
    (void)state;
    workers w;
    lt_record a = {0}, b = {0};
    int side, want;
    open_workers(&w, 1);
    lt_dataset *d = open_data(w.list);
    assert_ok(lt_dataset_short_side(w.data, &want));
    assert_ok(lt_dataset_short_side(d, &side));
    assert_int_equal(side, want);
    assert_true(lt_dataset_fingerprint(d) == lt_dataset_fingerprint(w.data));
    assert_int_equal(lt_dataset_count(d), lt_dataset_count(w.data));
    assert_int_equal(lt_dataset_channels(d), lt_dataset_channels(w.data));
    assert_int_equal(lt_dataset_classes(d), lt_dataset_classes(w.data));
    assert_int_equal(d->tokens, w.data->tokens);
    assert_int_equal(d->unsplit, w.data->unsplit);
    for (int i = 0; i < lt_dataset_classes(d); i++)
        assert_string_equal(lt_dataset_class_name(d, i), lt_dataset_class_name(w.data, i));
    for (int64_t i = 0; i < 3; i++) {
        assert_ok(w.data->ops->read(w.data, i, &a));
        assert_ok(d->ops->read(d, i, &b));
        assert_int_equal(a.size, b.size);
        assert_int_equal(a.label, b.label);
        assert_memory_equal(a.bytes, b.bytes, a.size);
    }
    assert_int_equal(d->ops->read(d, d->count, &b), LT_E_ARG);
    assert_fails(lt_dataset_split(&d, 0.5, 0, true), LT_E_UNSUPPORTED,
                 "cannot split the images of a data service: serve-data has --val-split");
    free(a.bytes);
    free(b.bytes);
    lt_dataset_free(&d);
    close_workers(&w);
}

/* --- Kills --- */

typedef struct process {
    pid_t pid;
    char address[256];
} process;

/* Runs a service; this program executes itself for it, because a forked child of a threaded process may do little. */
static int work(const char *address, const char *path)
{
    lt_dataset *d = NULL;
    lt_data_service *s = NULL;
    lt_data_service_config c = {.address = address, .threads = 2};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (lt_dataset_open(&d, path, true))
        return 1;
    c.train = d;
    if (lt_data_service_open(&s, &c)) {
        fprintf(stderr, "%s\n", lt_error_message());
        return 2;
    }
    printf("%s\n", lt_data_service_address(s));
    fflush(stdout);
    for (;;)
        pause();
}

static process start_process(const char *address)
{
    process p = {0};
    int text[2];
    assert_int_equal(pipe(text), 0);
    p.pid = fork();
    if (!p.pid) {
        dup2(text[1], STDOUT_FILENO);
        execl("/proc/self/exe", "worker", address, root, (char *)NULL);
        _exit(1);
    }
    close(text[1]);
    FILE *output = fdopen(text[0], "r");
    assert_non_null(output);
    assert_non_null(fgets(p.address, sizeof p.address, output));
    p.address[strcspn(p.address, "\n")] = 0;
    fclose(output);
    return p;
}

static void kill_process(process *p)
{
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

/* Kills the first service, then restarts it and kills the second. */
static void interrupt(void *context, int batch)
{
    process *p = context;
    if (batch == 2)
        kill_process(&p[0]);
    if (batch == 6) {
        p[0] = start_process(p[0].address);
        kill_process(&p[1]);
    }
}

static void test_kills(void **state)
{
    (void)state;
    char list[LIST];
    lt_loader_config c = usual();
    made want = make_local(&c);
    process p[] = {start_process("tcp://127.0.0.1:0"), start_process("tcp://127.0.0.1:0")};
    snprintf(list, LIST, "service:%s,%s", p[0].address, p[1].address);
    lt_dataset *d = open_data(list);
    made got = make_batches(d, &c, interrupt, p);
    assert_same(&want, &got);
    lt_dataset_free(&d);
    kill_process(&p[0]);
    free(got.bytes);
    free(want.bytes);
}

/* --- Forged requests --- */

static lt_status send_bytes(lt_client *client, const void *bytes, size_t size)
{
    lt_response answer = {0};
    lt_status st = lt_client_call(client, bytes, size, 60, &answer);
    lt_response_free(&answer);
    return st;
}

static lt_data_request good_request(void)
{
    const lt_transform t = {.size = SIDE};
    lt_data_request q = {.magic = LT_DATA_MAGIC, .kind = LT_REQUEST_INFO, .train = 1};
    lt_encode_transform(&q, &t);
    return q;
}

/* Connects to the first service and makes a valid request for its first sample. */
static lt_data_request connect_to(const workers *w, lt_client **client)
{
    lt_response answer = {0};
    lt_data_info info;
    lt_data_request q = good_request();
    const lt_client_config c = {.address = lt_data_service_address(w->service[0])};
    assert_ok(lt_client_open(client, &c));
    assert_ok(lt_client_call(*client, &q, sizeof q, 60, &answer));
    memcpy(&info, (const char *)answer.data + sizeof(lt_data_response), sizeof info);
    lt_response_free(&answer);
    q.kind = LT_REQUEST_SAMPLE;
    q.data = info.data;
    return q;
}

static void test_forged_requests(void **state)
{
    (void)state;
    workers w;
    lt_client *client = NULL;
    open_workers(&w, 1);
    const lt_data_request sample = connect_to(&w, &client);
    lt_data_request q = good_request();
    assert_ok(send_bytes(client, &q, sizeof q));
    for (size_t bytes = 0; bytes < sizeof q; bytes += 13)
        assert_int_equal(send_bytes(client, &q, bytes), LT_E_FORMAT);
    char long_one[sizeof q + 1] = {0};
    memcpy(long_one, &q, sizeof q);
    assert_int_equal(send_bytes(client, long_one, sizeof long_one), LT_E_FORMAT);
    q.kind = LT_REQUEST_KINDS;
    assert_int_equal(send_bytes(client, &q, sizeof q), LT_E_FORMAT);
    q = good_request();
    q.train = 0;
    assert_int_equal(send_bytes(client, &q, sizeof q), LT_E_ARG);
    q = good_request();
    q.kind = LT_REQUEST_SAMPLE; /* without the data set's fingerprint */
    assert_int_equal(send_bytes(client, &q, sizeof q), LT_E_ARG);
    uint32_t seed = 4; /* noise after a valid beginning */
    for (int i = 0; i < 300; i++) {
        q = sample;
        q.integer[next_random(&seed) % LT_REQUEST_INTEGERS] = (int64_t)(int32_t)next_random(&seed);
        uint64_t bits = (uint64_t)next_random(&seed) << 32 | next_random(&seed);
        memcpy(&q.real[next_random(&seed) % LT_REQUEST_REALS], &bits, sizeof bits);
        q.index = i % 3 ? i % 15 : (int64_t)bits;
        (void)!send_bytes(client, &q, sizeof q);
    }
    q = good_request();
    assert_ok(send_bytes(client, &q, sizeof q)); /* the service still responds */
    lt_client_close(&client);
    close_workers(&w);
}

static lt_status request_first(const workers *w, const lt_transform *t)
{
    lt_client *client = NULL;
    lt_data_request q = connect_to(w, &client);
    lt_encode_transform(&q, t);
    const lt_status st = send_bytes(client, &q, sizeof q);
    lt_client_close(&client);
    return st;
}

static void test_large_requests(void **state)
{
    const lt_transform good = {
        .augment = LT_AUGMENT_IMAGENET, .size = SIDE, .rand_augment = {100, 9}};
    lt_transform t = good;
    workers w;
    (void)state;
    open_workers(&w, 1);
    assert_ok(request_first(&w, &good));
    t.rand_augment.ops = INT32_MAX;
    assert_fails(request_first(&w, &t), LT_E_ARG,
                 "RandAugment has 2147483647 operations, want 0 .. 100");
    t = good;
    t.size = -7;
    assert_fails(request_first(&w, &t), LT_E_ARG, "request has -7 as integer 1 of its transform");
    t.size = 16384;
    assert_fails(request_first(&w, &t), LT_E_ARG, "size is 16384, want 1 .. 4096");
    close_workers(&w);
}

/* A request that a thread sends; its connection is open. */
typedef struct large_request {
    lt_client *client;
    lt_data_request q;
} large_request;

static void *send_large(void *context)
{
    const large_request *r = context;
    assert_status(send_bytes(r->client, &r->q, sizeof r->q), LT_E_COMM);
    return NULL;
}

/* A hundred operations on 16 million pixels take ten seconds, several times as long under sanitizers. */
static void test_close_while_augmenting(void **state)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const lt_transform t = {
        .augment = LT_AUGMENT_IMAGENET, .size = LT_TRANSFORM_MOST_SIZE, .rand_augment = {100, 9}};
    const char *factor = getenv("LATHER_TEST_PATIENCE");
    const double limit = 3 * (factor ? strtod(factor, NULL) : 1) * (double)CLOCKS_PER_SEC;
    pthread_t thread;
    workers w;
    large_request r = {0};
    (void)state;
    open_workers(&w, 1);
    r.q = connect_to(&w, &r.client);
    lt_encode_transform(&r.q, &t);
    assert_int_equal(pthread_create(&thread, NULL, send_large, &r), 0);
    const clock_t begin = clock();               /* CPU time */
    while (clock() - begin < CLOCKS_PER_SEC / 2) /* until augmentation has begun */
        nanosleep(&pause, NULL);
    close_workers(&w);
    pthread_join(thread, NULL);
    lt_client_close(&r.client);
    assert_true((double)(clock() - begin) < limit);
}

/* --- Other data --- */

static void test_other_data(void **state)
{
    (void)state;
    char list[LIST];
    lt_dataset *own = open_data(root), *other = open_data("synthetic:10:16:3"), *d = NULL;
    lt_data_service *a = open_service(own, "tcp://127.0.0.1:0"),
                    *b = open_service(other, "tcp://127.0.0.1:0");
    snprintf(list, LIST, "service:%s,%s", lt_data_service_address(a), lt_data_service_address(b));
    assert_fails(lt_dataset_open(&d, list, true), LT_E_ARG, "has other data");
    snprintf(list, LIST, "service:%s", lt_data_service_address(a));
    assert_fails(lt_dataset_open(&d, list, false), LT_E_ARG, "has no validation data");
    assert_int_equal(lt_dataset_open(&d, "service:", true), LT_E_ARG);
    assert_int_equal(lt_dataset_open(&d, "service:nowhere", true), LT_E_ARG);
    char many[1100] = "service:";
    memset(many + strlen(many), ',', 1024);
    assert_fails(lt_dataset_open(&d, many, true), LT_E_ARG, "got 1025 services, want at most ");
    lt_data_service_close(&a);
    lt_data_service_close(&b);
    lt_dataset_free(&own);
    lt_dataset_free(&other);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[0], "worker"))
        return work(argv[1], argv[2]);
    const struct CMUnitTest rows[] = {
        row_test("killing and restarting services changes no batch", test_kills, NULL),
        row_test("1, 2 and 5 services give a local loader's bytes and list of corrupt images",
                 test_equal_bytes, NULL),
        row_test("a service's records equal the data set's", test_records, NULL),
        row_test("malformed requests are rejected and the next one is answered",
                 test_forged_requests, NULL),
        row_test("requests above the command line's limits are rejected with both numbers",
                 test_large_requests, NULL),
        row_test("a service can be closed while it augments a large image",
                 test_close_while_augmenting, NULL),
        row_test("services with different data and invalid addresses are errors", test_other_data,
                 NULL),
    };
    return cmocka_run_group_tests(rows, setup, teardown);
}
