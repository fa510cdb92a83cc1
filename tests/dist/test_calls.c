/* Arguments, order and progress of calls, the modelled link, and opening communicators by name. */

#include "base/alloc.h"
#include "base/clock.h"
#include "case_ranks.h"
#include "dist/comm/comm.h"
#include "temp.h"
#include "tensor/tensor.h"

#include <dlfcn.h>
#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool good(rank_case *c, lt_status st)
{
    return case_ok(c, st, "call");
}

/* All cases on the communicator of a single rank. */
static void run_self(void **state)
{
    rank_case c = {0};
    (void)state;
    assert_ok(lt_device_open(&c.device, "cpu", NULL));
    assert_ok(lt_comm_open(&c.comm, "self", c.device));
    for (int i = 0; i < case_count; i++)
        if (!case_rows[i].run(&c))
            fail_msg("%s: %s", case_rows[i].name, c.why);
    assert_int_equal(lt_comm_bytes(c.comm), 0);
    lt_comm_abort(c.comm);
    assert_status(lt_comm_barrier(c.comm), LT_E_COMM);
    lt_comm *part = NULL;
    assert_fails(lt_comm_split(c.comm, 0, 0, &part), LT_E_COMM, "comm: the group was aborted");
    lt_comm_close(&c.comm);
    lt_device_close(&c.device);
}

/* Rank 0 begins two independent requests; the second can complete first. */
static atomic_bool first_sent;

static bool complete_in_order(rank_case *c)
{
    lt_tensor *a = NULL, *b = NULL;
    lt_request *first = NULL, *second = NULL;
    bool ok = good(c, lt_tensor_new(&a, c->device, LT_F32, LT_SCALAR))
              && good(c, lt_tensor_new(&b, c->device, LT_F32, LT_SCALAR));
    if (lt_comm_rank(c->comm) == 0) {
        ok = ok && good(c, lt_comm_recv_begin(c->comm, a, 1, &first))
             && good(c, lt_comm_broadcast_begin(c->comm, b, 0, &second))
             && good(c, lt_request_wait(&second));
        if (ok && !atomic_load(&first_sent))
            ok = case_fails(c, "the second request was done before the first");
        ok = ok && good(c, lt_request_wait(&first));
    } else {
        ok = ok && good(c, lt_comm_broadcast_begin(c->comm, b, 0, &second))
             && good(c, lt_request_wait(&second));
        for (double end = lt_clock_seconds() + 0.02;
             lt_clock_seconds() < end;) /* time for a wrong order */
            continue;
        atomic_store(&first_sent, true);
        ok = ok && good(c, lt_comm_send_begin(c->comm, a, 0, &first))
             && good(c, lt_request_wait(&first));
    }
    lt_tensor_free(&a);
    lt_tensor_free(&b);
    return ok;
}

static void keep_order(void **state)
{
    (void)state;
    expect_cases(2, complete_in_order);
}

/* Rank 0 waits for its request only after rank 1 has completed it. */
static sem_t other_is_done;

static bool go_on_alone(rank_case *c)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    bool ok = good(c, lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(1 << 16)))
              && good(c, lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request));
    if (lt_comm_rank(c->comm) == 0)
        while (sem_wait(&other_is_done))
            continue;
    ok = ok && good(c, lt_request_wait(&request));
    if (lt_comm_rank(c->comm) == 1)
        sem_post(&other_is_done);
    lt_tensor_free(&t);
    return ok;
}

static void progress_alone(void **state)
{
    (void)state;
    assert_int_equal(sem_init(&other_is_done, 0, 0), 0);
    expect_cases(2, go_on_alone);
    sem_destroy(&other_is_done);
}

/* 3 sums of 25000 f32: each rank sends 100000 bytes, in 0.8 ms at 1 Gbit/s, after 2 ms of latency. */
static bool wait_for_link(rank_case *c)
{
    enum { COUNT = 3, SIZE = 25000 };
    static const double each = 2e-3 + 8.0 * 4 * SIZE / 1e9;
    lt_tensor *t[COUNT] = {NULL};
    lt_request *request[COUNT] = {NULL};
    bool ok = true;
    lt_comm_set_model(c->comm, 2000, 1);
    double begin = lt_clock_seconds();
    for (int i = 0; i < COUNT; i++)
        ok = ok && good(c, lt_tensor_new(&t[i], c->device, LT_F32, LT_SHAPE(SIZE)))
             && good(c, lt_comm_allreduce_begin(c->comm, t[i], LT_REDUCE_SUM, &request[i]));
    for (int i = 0; ok && i < COUNT; i++) {
        ok = good(c, lt_request_wait(&request[i]));
        if (ok && lt_clock_seconds() - begin < each * (i + 1))
            ok = case_fails(c, "request %d after %g s, the link takes %g", i,
                            lt_clock_seconds() - begin, each * (i + 1));
    }
    lt_comm_set_model(c->comm, 0, 0);
    begin = lt_clock_seconds();
    ok = ok && good(c, lt_comm_barrier(c->comm));
    for (int i = 0; i < COUNT; i++)
        lt_tensor_free(&t[i]);
    return ok;
}

static void model_a_link(void **state)
{
    (void)state;
    expect_cases(2, wait_for_link);
}

/* Closing completes and frees requests that were never waited for. */
static bool leave_requests(rank_case *c)
{
    lt_request *request;
    bool ok = true;
    static lt_tensor *t[2];
    lt_tensor **mine = &t[lt_comm_rank(c->comm)];
    ok = good(c, lt_tensor_new(mine, c->device, LT_F32, LT_SHAPE(1000)))
         && good(c, lt_comm_allreduce_begin(c->comm, *mine, LT_REDUCE_SUM, &request))
         && good(c, lt_comm_barrier(c->comm));
    lt_tensor_free(mine); /* the barrier was done after the sum */
    return ok;
}

static void end_unwaited(void **state)
{
    (void)state;
    expect_cases(2, leave_requests);
}

static void refuse_arguments(void **state)
{
    lt_device *device;
    lt_comm *comm[2] = {NULL};
    lt_tensor *f = NULL, *u = NULL, *i = NULL, *bf = NULL;
    lt_request *request;
    (void)state;
    assert_ok(lt_device_open(&device, "ref", NULL));
    lt_device *both[] = {device, device};
    assert_status(lt_comm_open_threads(comm, both, 0), LT_E_ARG);
    assert_ok(lt_comm_open_threads(comm, both, 2));
    assert_ok(lt_tensor_new(&f, device, LT_F32, LT_SHAPE(4, 3)));
    assert_ok(lt_tensor_new(&bf, device, LT_BF16, LT_SHAPE(6)));
    assert_ok(lt_tensor_new(&u, device, LT_U8, LT_SHAPE(6)));
    assert_ok(lt_tensor_new(&i, device, LT_I32, LT_SHAPE(6)));
    const int64_t count[] = {6, 6}, negative[] = {13, -1}, few[] = {6, 5};

    assert_status(lt_comm_allreduce_begin(comm[0], u, LT_REDUCE_SUM, &request), LT_E_UNSUPPORTED);
    assert_status(lt_comm_allreduce_begin(comm[0], i, LT_REDUCE_MEAN, &request), LT_E_UNSUPPORTED);
    assert_status(lt_comm_allreduce_begin(comm[0], f, (lt_reduce)7, &request), LT_E_ARG);
    assert_status(lt_comm_broadcast_begin(comm[0], f, 2, &request), LT_E_ARG);
    assert_status(lt_comm_broadcast_begin(comm[0], f, -1, &request), LT_E_ARG);
    assert_status(lt_comm_send_begin(comm[0], f, 0, &request), LT_E_ARG);
    assert_status(lt_comm_allgather_begin(comm[0], i, f, count, &request), LT_E_SHAPE);
    assert_status(lt_comm_allgather_begin(comm[0], bf, f, count, &request), LT_E_SHAPE);
    assert_status(lt_comm_allgather_begin(comm[0], i, f, negative, &request), LT_E_ARG);
    assert_status(lt_comm_allgather_begin(comm[0], i, f, few, &request), LT_E_SHAPE);
    assert_status(lt_comm_allgather_begin(comm[0], NULL, f, count, &request), LT_E_SHAPE);
    assert_status(lt_comm_reducescatter_begin(comm[0], f, f, count, LT_REDUCE_SUM, &request),
                  LT_E_SHAPE);
    assert_status(lt_comm_alltoall_begin(comm[0], f, i, count, negative, &request), LT_E_ARG);
    assert_status(lt_comm_alltoall_begin(comm[0], f, i, few, count, &request), LT_E_SHAPE);
    assert_status(lt_comm_alltoall_begin(comm[0], f, f, count, count, &request), LT_E_ARG);
    const int64_t swap[] = {0, 6}, keep[] = {6, 0};
    assert_status(lt_comm_alltoall_begin(comm[0], bf, i, swap, swap, &request), LT_E_SHAPE);
    assert_status(lt_comm_alltoall_begin(comm[0], u, i, swap, keep, &request), LT_E_ARG);
    lt_tensor_free_memory(bf);
    assert_fails(lt_comm_allreduce_begin(comm[0], bf, LT_REDUCE_SUM, &request), LT_E_ARG,
                 "the tape already freed this tensor; use lt_tape_keep()");
    f->stride[0] = 5; /* rows are not contiguous */
    f->shape.dim[0] = 2;
    assert_status(lt_comm_allreduce_begin(comm[0], f, LT_REDUCE_SUM, &request), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "not dense"));
    assert_null(request);
    assert_int_equal(lt_comm_bytes(comm[0]), 0);

    lt_tensor_free(&f), lt_tensor_free(&bf), lt_tensor_free(&u), lt_tensor_free(&i);
    lt_comm_close(&comm[1]);
    lt_comm_close(&comm[0]);
    lt_device_close(&device);
}

/* Checks that lt_comm_open(kind) fails with these words. */
static void refuse(const char *kind, lt_status want, const char *words)
{
    lt_device *device;
    lt_comm *comm = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    lt_status got = lt_comm_open(&comm, kind, device);
    if (got != want || !strstr(lt_error_message(), words))
        fail_msg("%s: %s: %s; want '%s'", kind, lt_status_name(got), lt_error_message(), words);
    assert_null(comm);
    lt_device_close(&device);
}

static void refuse_plugin(void **state)
{
    char folder[TEMP_PATH], path[TEMP_PATH];
    Dl_info info;
    (void)state;
    temp_make(folder);
    temp_path(path, folder, "liblather-mpi.so");
    refuse("carrier pigeon", LT_E_UNSUPPORTED, "'carrier pigeon'");
    refuse("threads", LT_E_ARG, "lt_comm_open_threads");
    setenv("LATHER_PLUGIN_PATH", folder, 1);
    refuse("mpi", LT_E_UNSUPPORTED, path);
    temp_write(path, "not a library", 13);
    refuse("mpi", LT_E_UNSUPPORTED, "cannot be loaded: ");
    assert_int_equal(unlink(path), 0);
    double (*function)(double) = cos; /* from a library without the table */
    void *address;
    memcpy(&address, &function, sizeof address);
    if (dladdr(address, &info) && strstr(info.dli_fname, ".so")) {
        assert_int_equal(symlink(info.dli_fname, path), 0);
        refuse("mpi", LT_E_UNSUPPORTED, "has no lt_link_mpi");
    }
    unsetenv("LATHER_PLUGIN_PATH");
    unlink(path);
    setenv("LATHER_MODULE_PATH", folder, 1);
    refuse("mpi", LT_E_UNSUPPORTED, path);
    unsetenv("LATHER_MODULE_PATH");
    temp_remove(folder);
}

/* A link of a single rank, which sends no messages. */
static bool open_alone(lt_link *self)
{
    self->rank = 0;
    self->size = 1;
    self->tags = 2 * 64; /* for the whole group and a split */
    return true;
}

static void close_alone(lt_link *self, bool aborted)
{
    (void)self;
    (void)aborted;
}

static bool is_aborted(lt_link *self)
{
    (void)self;
    return false;
}

static void know_registered_links(void **state)
{
    static const lt_link_ops link = {.kind = "string",
                                     .version = LT_VERSION,
                                     .bytes = sizeof(lt_link),
                                     .poll = true,
                                     .open = open_alone,
                                     .close = close_alone,
                                     .was_aborted = is_aborted};
    double value = 3;
    lt_device *device, *other;
    lt_comm *comm = NULL;
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    (void)state;
    assert_ok(lt_comm_register_link(&link));
    assert_ok(lt_device_open(&device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_comm_open(&comm, "string", device));
    assert_int_equal(lt_comm_use_engine_sums(comm, true), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "comm string: --sums engine needs mpi"));
    assert_ok(lt_tensor_new(&t, device, LT_F64, LT_SHAPE(1)));
    assert_ok(lt_tensor_write(t, &value, sizeof value));
    assert_ok(lt_comm_allreduce_begin(comm, t, LT_REDUCE_SUM, &request));
    assert_ok(lt_request_wait(&request));
    assert_ok(lt_tensor_item(t, &value));
    assert_near(value, 3, 0);
    lt_comm *split[2] = {NULL, NULL};
    assert_ok(lt_comm_split(comm, 0, 0, &split[0]));
    assert_fails(lt_comm_split(comm, 0, 0, &split[1]), LT_E_UNSUPPORTED,
                 "comm string: too many splits: at most 1");
    lt_comm_close(&split[0]);
    assert_ok(lt_device_open(&other, "ref", NULL));
    const lt_backend *host = device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    device->backend = &far;
    assert_fails(lt_comm_allreduce_begin(comm, t, LT_REDUCE_SUM, &request), LT_E_UNSUPPORTED,
                 "comm string: allreduce on ref, want a device with host memory (ref or cpu)");
    t->device = other;
    assert_fails(lt_comm_allreduce_begin(comm, t, LT_REDUCE_SUM, &request), LT_E_ARG,
                 "comm: allreduce: the tensor is on ref, the communicator is for ref");
    t->device = device;
    device->backend = host;
    lt_device_close(&other);
    lt_tensor_free(&t);
    lt_comm_close(&comm);
    lt_device_close(&device);
}

static void know_registered(void **state)
{
    static lt_comm_ops pigeon, other;
    static const lt_link_ops reserved = {.kind = "off"};
    lt_device *device;
    lt_comm *comm = NULL;
    (void)state;
    pigeon = other = lt_comm_self;
    pigeon.kind = "pigeon";
    assert_ok(lt_comm_register(&pigeon));
    assert_string_equal(lt_comm_registered(0), "pigeon");
    assert_null(lt_comm_registered(1));
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_comm_open(&comm, "pigeon", device));
    assert_int_equal(lt_comm_size(comm), 1);
    lt_comm_close(&comm);
    lt_device_close(&device);
    refuse("carrier", LT_E_UNSUPPORTED, "valid: self, threads, mpi, nccl, pigeon");
    assert_int_equal(lt_comm_register(&pigeon), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "the name 'pigeon' is taken"));
    assert_int_equal(lt_comm_register(&other), LT_E_ARG); /* "self" */
    assert_int_equal(lt_comm_register_link(&reserved), LT_E_ARG);
}

/* The last test, as communicators remain registered. */
static void limit_registered(void **state)
{
    static lt_comm_ops more[16];
    static char name[COUNT_OF(more)][8];
    lt_status st = LT_OK;
    (void)state;
    for (size_t i = 0; !st && i < COUNT_OF(more); i++) {
        more[i] = lt_comm_self;
        more[i].kind = name[i];
        snprintf(name[i], sizeof name[i], "c%zu", i);
        st = lt_comm_register(&more[i]);
    }
    /* three are built in, two are of tests */
    assert_failed(st, LT_E_NOMEM, "comm c11: too many communicators registered, at most 16");
}

/* Environment variables of launchers. */
static const struct {
    const char *name, *set[7], *kind;
    int rank, size;
} launches[] = {
    {"none", {NULL}, "self", 0, 1},
    {"mpirun of Open MPI",
     {"OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=3", "OMPI_COMM_WORLD_LOCAL_SIZE=4"},
     "mpi",
     3,
     4},
    {"mpirun -n 1", {"OMPI_COMM_WORLD_SIZE=1", "PMIX_RANK=0"}, "self", 0, 1},
    {"mpirun of MPICH", {"PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"}, "mpi", 1, 2},
    {"a batch job's script", {"SLURM_NTASKS=4", "SLURM_LOCALID=0"}, "self", 0, 1},
    {"srun, the third node of 4(x2),3",
     {"SLURM_NTASKS=11", "PMIX_RANK=9", "SLURM_LOCALID=1", "SLURM_NODEID=2",
      "SLURM_TASKS_PER_NODE=4(x2),3"},
     "mpi",
     1,
     3},
    {"srun, one task on each of two nodes",
     {"SLURM_NTASKS=2", "PMIX_RANK=1", "SLURM_LOCALID=0", "SLURM_NODEID=1",
      "SLURM_TASKS_PER_NODE=1(x2)"},
     "mpi",
     0,
     1},
    {"srun, a fourth node of 4(x2),3",
     {"SLURM_NTASKS=11", "PMIX_RANK=9", "SLURM_LOCALID=1", "SLURM_NODEID=3",
      "SLURM_TASKS_PER_NODE=4(x2),3"},
     "mpi",
     0,
     1},
    {"srun, the first of nodes without tasks",
     {"SLURM_NTASKS=4", "PMIX_RANK=1", "SLURM_LOCALID=1", "SLURM_NODEID=1",
      "SLURM_TASKS_PER_NODE=0,4"},
     "mpi",
     0,
     1},
    {"Open MPI within a job of Slurm",
     {"OMPI_COMM_WORLD_SIZE=2", "PMIX_RANK=1", "SLURM_NTASKS=1", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_LOCALID=0"},
     "mpi",
     1,
     2},
    {"torchrun",
     {"WORLD_SIZE=6", "RANK=0", "MASTER_ADDR=host", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=3"},
     "nccl",
     0,
     3},
    {"torchrun of one process",
     {"WORLD_SIZE=1", "RANK=0", "MASTER_ADDR=host", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"},
     "self",
     0,
     1},
    {"a rank beyond its node's",
     {"PMI_SIZE=4", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=2"},
     "mpi",
     0,
     1},
    {"nonsense",
     {"OMPI_COMM_WORLD_SIZE=many", "OMPI_COMM_WORLD_LOCAL_RANK=9", "OMPI_COMM_WORLD_LOCAL_SIZE=4"},
     "self",
     0,
     1},
};

static void know_launchers(void **state)
{
    static const char *const all[] = {"OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "PMI_SIZE",
                                      "PMI_RANK",
                                      "PMI_FD",
                                      "PMIX_RANK",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_NODEID",
                                      "SLURM_TASKS_PER_NODE",
                                      "WORLD_SIZE",
                                      "RANK",
                                      "MASTER_ADDR",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(launches); i++) {
        char text[128];
        int rank, size;
        for (size_t k = 0; k < COUNT_OF(all); k++)
            unsetenv(all[k]);
        for (const char *const *set = launches[i].set; *set; set++) {
            snprintf(text, sizeof text, "%s", *set);
            char *value = strchr(text, '=');
            *value = 0;
            setenv(text, value + 1, 1);
        }
        lt_comm_launched_local(&rank, &size);
        if (strcmp(lt_comm_launched_kind(), launches[i].kind) != 0 || rank != launches[i].rank
            || size != launches[i].size)
            fail_msg("%s: %s, %d of %d", launches[i].name, lt_comm_launched_kind(), rank, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a single rank passes all cases", run_self, NULL, NULL, NULL},
        {"requests complete in order of issue", keep_order, NULL, NULL, NULL},
        {"a sum progresses while its rank is busy", progress_alone, NULL, NULL, NULL},
        {"the modelled link delays requests in sequence", model_a_link, NULL, NULL, NULL},
        {"closing completes requests that are not waited for", end_unwaited, NULL, NULL, NULL},
        {"invalid arguments are rejected", refuse_arguments, NULL, NULL, NULL},
        {"a missing or foreign plugin is named", refuse_plugin, NULL, NULL, NULL},
        {"a registered communicator is opened by name", know_registered, NULL, NULL, NULL},
        {"a registered link is opened by name", know_registered_links, NULL, NULL, NULL},
        {"the number of registered communicators is limited", limit_registered, NULL, NULL, NULL},
        {"launchers are detected by their environment variables", know_launchers, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests_name("comm calls", tests, NULL, NULL);
}
