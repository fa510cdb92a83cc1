/* The context of the cuda backend on a fake device: every failure closes all opened objects, messages name the
 * cause, and workspace lives as long as a captured graph may need it. */

#include "fake.h"
#include "near.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 64 << 20 };

static void nothing_is_open(void)
{
    assert_int_equal(fake.blocks, 0);
    assert_int_equal(fake.streams, 0);
    assert_int_equal(fake.events, 0);
    assert_int_equal(fake.libraries, 0);
    assert_int_equal(fake.used, 0);
}

static void *open_device(void)
{
    void *ctx = NULL;
    const lt_device_config config = {0};
    assert_ok(lt_cuda_open_with(&fake_api, &ctx, 0, &config));
    return ctx;
}

static void says(const char *part)
{
    if (!strstr(lt_error_message(), part))
        fail_msg("the message is \"%s\", without \"%s\"", lt_error_message(), part);
}

static void what_is_opened_is_closed(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *memory, *work;
    assert_int_equal(fake.streams, LT_CUDA_STREAMS);
    assert_ok(lt_cuda_alloc(ctx, 1000, &memory));
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_COPIES, 1000, &work));
    assert_int_equal(fake.blocks, 2);
    lt_cuda_free(ctx, memory, 1000);
    lt_cuda_close(ctx);
    nothing_is_open();
}

/* Its kernels are queued where the GPU takes the others first. */
static void a_device_in_the_background_has_no_urgent_queue(void **state)
{
    (void)state;
    void *ctx = NULL;
    fake_reset(MEMORY);
    lt_cuda_close(open_device());
    assert_int_equal(fake.urgent, 1);
    assert_ok(lt_cuda_open_with(&fake_api, &ctx, 0, &(lt_device_config){.background = true}));
    assert_int_equal(fake.urgent, 1);
    lt_cuda_close(ctx);
    nothing_is_open();
}

/* Each row: a call that fails at its n-th use while a device is opened. */
typedef struct open_row {
    const char *name, *call;
    int after;
} open_row;

static const open_row open_rows[] = {
    {"no properties: everything is closed", "properties", 0},
    {"no first stream: everything is closed", "stream_create", 0},
    {"no last stream: everything is closed", "stream_create", LT_CUDA_STREAMS - 1},
    {"no libraries: everything is closed", "libraries_open", 0},
};

static void a_failed_open_leaves_nothing(void **state)
{
    const open_row *row = *state;
    const lt_device_config config = {0};
    void *ctx = NULL;
    fake_reset(MEMORY);
    fake.fails = row->call;
    fake.fails_after = row->after;
    fake.fails_with = 999;
    assert_status(lt_cuda_open_with(&fake_api, &ctx, 0, &config), LT_E_DEVICE);
    assert_null(ctx);
    says("cuda:0: open: ");
    says("a fault (999)");
    nothing_is_open();
}

static void no_memory_says_how_much(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *first, *second = NULL;
    assert_ok(lt_cuda_alloc(ctx, 48 << 20, &first));
    assert_status(lt_cuda_alloc(ctx, 32 << 20, &second), LT_E_NOMEM);
    says("no 32.0 MiB of device memory: 16.0 of 64.0 MiB are free");
    /* It is over: the next operation does not find it. */
    assert_ok(lt_cuda_begin(ctx, "relu"));
    assert_ok(lt_cuda_end(ctx));
    lt_cuda_free(ctx, first, 48 << 20);
    lt_cuda_close(ctx);
    nothing_is_open();
}

/* A library's code for it, and one of another failure: the control. */
typedef struct library_row {
    const char *name;
    lt_cuda_library library;
    int no_memory, other;
} library_row;

static const library_row library_rows[] = {
    {"no memory for CUDA", LT_CUDA_RUNTIME, LT_CUDA_NO_MEMORY, 700},
    {"no memory for cuDNN", LT_CUDA_CUDNN, LT_CUDNN_NO_MEMORY, 5000},
    {"no memory for cuBLAS", LT_CUDA_CUBLAS, LT_CUBLAS_NO_MEMORY, LT_CUDNN_NO_MEMORY},
    {"no memory for cuSOLVER", LT_CUDA_CUSOLVER, LT_CUSOLVER_NO_MEMORY, LT_CUBLAS_NO_MEMORY},
};

static void no_memory_within_a_library_says_how_much(void **state)
{
    const library_row *row = *state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *memory;
    assert_ok(lt_cuda_alloc(ctx, 48 << 20, &memory));
    assert_status(lt_cuda_check(ctx, row->library, row->no_memory, "call"), LT_E_NOMEM);
    says(" says: ");
    says("device memory: 16.0 of 64.0 MiB are free");
    assert_status(lt_cuda_check(ctx, row->library, row->other, "call"), LT_E_DEVICE);
    assert_null(strstr(lt_error_message(), "free"));
    lt_cuda_free(ctx, memory, 48 << 20);
    lt_cuda_close(ctx);
}

static void old_work_memory_stays(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *small, *again, *large;
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_MAIN, 100, &small));
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_MAIN, 1 << 20, &again));
    assert_ptr_equal(small, again);
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_MAIN, 3 << 20, &large));
    assert_ptr_not_equal(small, large);
    memset(small, 1, 100); /* a captured graph writes there still */
    assert_int_equal(fake.blocks, 2);
    void *tensor;
    assert_ok(lt_cuda_alloc(ctx, 4096, &tensor));
    assert_int_equal(lt_cuda_allocated_bytes(ctx), fake.used); /* both, and the tensor */
    lt_cuda_free(ctx, tensor, 4096);
    assert_int_equal(lt_cuda_allocated_bytes(ctx), fake.used);
    lt_cuda_close(ctx);
    nothing_is_open();
}

static void work_memory_takes_what_there_is(void **state)
{
    (void)state;
    fake_reset((size_t)5 << 20);
    void *ctx = open_device(), *work;
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_MAIN, 2 << 20, &work));
    /* Twice the size does not fit, the requested size does. */
    assert_ok(lt_cuda_workspace(ctx, LT_CUDA_MAIN, (2 << 20) + 256, &work));
    assert_ok(lt_cuda_begin(ctx, "eigh"));
    assert_status(lt_cuda_workspace(ctx, LT_CUDA_MAIN, 3 << 20, &work), LT_E_NOMEM);
    says("cuda:0: eigh: no 3.0 MiB of device memory: 1.0 of 5.0 MiB are free");
    lt_cuda_close(ctx);
    nothing_is_open();
}

static void nothing_is_allocated_in_a_capture(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    lt_cuda *c = open_device();
    void *work, *memory;
    assert_ok(lt_cuda_workspace(c, LT_CUDA_MAIN, 1000, &work));
    assert_ok(lt_cuda_begin(c, "conv2d"));
    c->capturing = true;
    const int before = fake.blocks;
    assert_ok(lt_cuda_workspace(c, LT_CUDA_MAIN, 1000, &work));
    assert_status(lt_cuda_workspace(c, LT_CUDA_MAIN, 9 << 20, &work), LT_E_DEVICE);
    says("conv2d: needs 9437184 bytes of workspace in a captured step");
    assert_status(lt_cuda_alloc(c, 1000, &memory), LT_E_DEVICE);
    assert_int_equal(fake.blocks, before);
    c->capturing = false;
    lt_cuda_close(c);
}

static int calls_of(const char *name, int from)
{
    int count = 0;
    for (int i = from; i < fake.calls && i < FAKE_CALLS; i++)
        count += !strcmp(fake.log[i], name);
    return count;
}

/* The error was reported once; the next operation succeeds. */
static void a_failure_is_told_once(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *memory;
    assert_ok(lt_cuda_alloc(ctx, 1000, &memory));
    char byte = 0;
    fake.fails_with = 999;
    fake.fails = "copy_async";
    assert_status(lt_cuda_copy(ctx, memory, &byte, 1, LT_COPY_IN), LT_E_DEVICE);
    assert_ok(lt_cuda_begin(ctx, "relu"));
    assert_ok(lt_cuda_end(ctx));
    fake.fails = "capture_begin"; /* the step can run as it is */
    assert_status(lt_cuda_graphs.begin(ctx), LT_E_DEVICE);
    assert_ok(lt_cuda_sync(ctx));
    fake.fails = "release"; /* free returns void: it is not reported */
    lt_cuda_free(ctx, memory, 1000);
    fake.fails = NULL;
    assert_ok(lt_cuda_sync(ctx));
    lt_cuda_close(ctx);
    nothing_is_open();
}

/* cudaFree() need not wait. */
static void memory_in_use_is_waited_for(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *memory;
    assert_ok(lt_cuda_alloc(ctx, 1000, &memory));
    const int before = fake.calls;
    lt_cuda_free(ctx, memory, 1000);
    assert_int_equal(calls_of("stream_sync", before), LT_CUDA_STREAMS);
    assert_string_equal(fake.log[before + LT_CUDA_STREAMS], "release");
    lt_cuda_close(ctx);
}

static void all_queues_are_waited_for(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device();
    const int before = fake.calls;
    fake.fails = "stream_sync";
    fake.fails_with = 999;
    assert_status(lt_cuda_sync(ctx), LT_E_DEVICE);
    says("cuda:0: sync: cudaStreamSynchronize: CUDA says: a fault (999)");
    assert_int_equal(calls_of("stream_sync", before), LT_CUDA_STREAMS);
    fake.fails = NULL;
    assert_ok(lt_cuda_sync(ctx));
    lt_cuda_close(ctx);
}

/* A fault shows at the end of the operation only if each is waited for. */
static void a_fault_has_its_operation(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    setenv("LATHER_SYNC", "1", 1);
    lt_cuda *c = open_device();
    assert_ok(lt_cuda_begin(c, "relu"));
    fake.fails = "stream_sync";
    fake.fails_with = 700;
    assert_status(lt_cuda_end(c), LT_E_DEVICE);
    says("cuda:0: relu: run: CUDA says: a fault (700)");
    fake.fails = NULL;
    lt_cuda_close(c);
    unsetenv("LATHER_SYNC");

    c = open_device();
    assert_ok(lt_cuda_begin(c, "relu"));
    fake.fails = "stream_sync";
    fake.fails_after = 0;
    assert_ok(lt_cuda_end(c)); /* without LATHER_SYNC it does not synchronize */
    assert_status(lt_cuda_sync(c), LT_E_DEVICE);
    says("LATHER_SYNC=1 names it");
    fake.fails = NULL;
    lt_cuda_close(c);
    nothing_is_open();
}

static void a_failed_launch_is_the_operations(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    lt_cuda *c = open_device();
    assert_ok(lt_cuda_begin(c, "add"));
    fake.error = 9;
    assert_status(lt_cuda_end(c), LT_E_DEVICE);
    says("cuda:0: add: launch");
    lt_cuda_close(c);
}

/* How a process ends in which memory is freed, while a step is captured or not. */
static int status_of_free(bool capturing)
{
    const struct rlimit no_core = {0};
    int status = -1;
    fake_reset(MEMORY);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        void *memory;
        lt_cuda *c = open_device();
        if (setrlimit(RLIMIT_CORE, &no_core) || lt_cuda_alloc(c, 64, &memory))
            _exit(2);
        signal(SIGABRT, SIG_DFL);
        c->capturing = capturing;
        lt_cuda_free(c, memory, 64);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void memory_is_not_freed_in_a_capture(void **state)
{
    (void)state;
    const int captured = status_of_free(true), plain = status_of_free(false);
    assert_true(WIFSIGNALED(captured) && WTERMSIG(captured) == SIGABRT);
    assert_true(WIFEXITED(plain) && WEXITSTATUS(plain) == 0);
}

static void copies_arrive(void **state)
{
    (void)state;
    fake_reset(MEMORY);
    void *ctx = open_device(), *memory;
    const char text[] = "there and back";
    char back[sizeof text] = "";
    assert_ok(lt_cuda_alloc(ctx, sizeof text, &memory));
    assert_ok(lt_cuda_copy(ctx, memory, text, sizeof text, LT_COPY_IN));
    assert_ok(lt_cuda_copy(ctx, back, memory, sizeof text, LT_COPY_OUT));
    assert_ok(lt_cuda_sync(ctx));
    assert_string_equal(back, text);
    lt_cuda_free(ctx, memory, sizeof text);
    lt_cuda_close(ctx);
}

/* Drivers and devices. A message of NULL: they are supported. */
typedef struct driver_row {
    const char *name;
    int driver, count, ordinal, major, minor, arch;
    const char *message;
} driver_row;

static const driver_row driver_rows[] = {
    {"a device of the same architecture", 13000, 1, 0, 9, 0, 90, NULL},
    {"a newer driver and device", 13020, 8, 7, 10, 0, 90, NULL},
    {"an older minor version of the driver", 13000, 1, 0, 8, 6, 80, NULL},
    {"no driver", 0, 0, 0, 0, 0, 90, "this machine has no NVIDIA driver"},
    {"too old a driver", 12040, 1, 0, 9, 0, 90,
     "the driver is for CUDA 12.4, want one for CUDA 13.0"},
    {"no device", 13000, 0, 0, 0, 0, 90, "there is a driver, but no device"},
    {"no such device", 13000, 2, 2, 9, 0, 90, "cuda:2: there are 2 devices, cuda:0 to cuda:1"},
    {"too old a device", 13000, 1, 0, 8, 0, 90,
     "Fake has compute capability 8.0, the plugin is built for 9.0"},
};

static void drivers_are_checked(void **state)
{
    const driver_row *row = *state;
    fake_reset(MEMORY);
    fake.driver = row->driver;
    fake.count = row->count;
    fake.major = row->major;
    fake.minor = row->minor;
    lt_status st = lt_cuda_check_driver(&fake_api, row->ordinal, row->arch);
    if (!row->message) {
        assert_ok(st);
        return;
    }
    assert_status(st, LT_E_UNSUPPORTED);
    says(row->message);
}

static void versions_are_checked(void **state)
{
    (void)state;
    assert_ok(lt_cuda_check_version("cuDNN", 9008, 9019, "a"));
    assert_ok(lt_cuda_check_version("cuDNN", 9008, 9008, "a"));
    assert_status(lt_cuda_check_version("cuDNN", 9008, 9007, "/x/libcudnn.so.9"), LT_E_UNSUPPORTED);
    says("cuDNN 9.7 was found (/x/libcudnn.so.9), want 9.8 or a later 9.x");
    assert_status(lt_cuda_check_version("cuDNN", 9008, 10000, "a"), LT_E_UNSUPPORTED);
    says("built with 9.x");
    assert_status(lt_cuda_check_version("cuDNN", 9008, 8009, "a"), LT_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(what_is_opened_is_closed),
        cmocka_unit_test(a_device_in_the_background_has_no_urgent_queue),
        cmocka_unit_test(no_memory_says_how_much),
        cmocka_unit_test(old_work_memory_stays),
        cmocka_unit_test(work_memory_takes_what_there_is),
        cmocka_unit_test(nothing_is_allocated_in_a_capture),
        cmocka_unit_test(a_failure_is_told_once),
        cmocka_unit_test(memory_in_use_is_waited_for),
        cmocka_unit_test(all_queues_are_waited_for),
        cmocka_unit_test(a_fault_has_its_operation),
        cmocka_unit_test(a_failed_launch_is_the_operations),
        cmocka_unit_test(memory_is_not_freed_in_a_capture),
        cmocka_unit_test(copies_arrive),
        cmocka_unit_test(versions_are_checked),
    };
    struct CMUnitTest
        all[COUNT_OF(plain) + COUNT_OF(open_rows) + COUNT_OF(driver_rows) + COUNT_OF(library_rows)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(plain); i++)
        all[n++] = plain[i];
    for (size_t i = 0; i < COUNT_OF(open_rows); i++)
        all[n++] = row_test(open_rows[i].name, a_failed_open_leaves_nothing, &open_rows[i]);
    for (size_t i = 0; i < COUNT_OF(driver_rows); i++)
        all[n++] = row_test(driver_rows[i].name, drivers_are_checked, &driver_rows[i]);
    for (size_t i = 0; i < COUNT_OF(library_rows); i++)
        all[n++] = row_test(library_rows[i].name, no_memory_within_a_library_says_how_much,
                            &library_rows[i]);
    return cmocka_run_group_tests(all, NULL, NULL);
}
