/* System calls that fail: threads, random numbers, mapped memory, an exchange of two names, the processor set.
 * Each is reported by name or worked around; afterwards the same call works. The linker replaces libc's functions
 * by these. */

#include "../optim/refreshes.h"
#include "../service/increment.h"
#include "base/atomic_dir.h"
#include "base/heartbeat.h"
#include "base/machine.h"
#include "base/os.h"
#include "base/token.h"
#include "temp_folder.h"
#include "tensor/backend/cpu/cpu.h"

#include "lather/detail/backend.h"
#include "lather/detail/run_folder.h"
#include "lather/ext/dataset.h"
#include "lather/loader.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int failing_thread; /* number of the next call that fails, from 1; 0: none */
static bool random_fails, map_fails, exchange_fails, affinity_fails;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
ssize_t __real_getrandom(void *to, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags);
void *__real_mmap64(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __real_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context)
{
    if (failing_thread && !--failing_thread)
        return EAGAIN;
    return __real_pthread_create(thread, attributes, run, context);
}

ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags)
{
    errno = ENOSYS;
    return random_fails ? -1 : __real_getrandom(to, bytes, flags);
}

void *__wrap_mmap64(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
    return map_fails ? MAP_FAILED : __real_mmap64(at, bytes, access, flags, fd, offset);
}

int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    errno = EINVAL;
    return exchange_fails ? -1 : __real_renameat2(from, old, to, new, flags);
}

int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    return affinity_fails ? -1 : __real_sched_getaffinity(process, bytes, set);
}

static void assert_message(const char *words)
{
    if (!strstr(lt_error_message(), words))
        fail_msg("'%s' does not contain '%s'", lt_error_message(), words);
}

/* --- Threads --- */

static void a_loader_thread_fails(void **state)
{
    enum { THREADS = 3 };
    const lt_loader_config c = {
        .transform = {.size = 8, .resize = 8}, .batch = 4, .threads = THREADS, .seed = 3};
    lt_device *device = NULL;
    lt_dataset *data = NULL;
    (void)state;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_dataset_synthetic(&data, 12, 8, 3, 5));
    for (int k = 1; k <= THREADS + 1; k++) {
        char message[64];
        lt_loader *l = NULL;
        lt_batch b;
        failing_thread = k;
        const lt_status st = lt_loader_new(&l, data, device, &c);
        failing_thread = 0;
        snprintf(message, sizeof message, "data: cannot start thread %d of %d: ", k, THREADS);
        assert_status(st, k <= THREADS ? LT_E_NOMEM : LT_OK);
        if (st)
            assert_message(message);
        else
            assert_ok(lt_loader_next(l, &b));
        lt_loader_free(&l);
    }
    lt_dataset_free(&data);
    lt_device_close(&device);
}

static void a_service_thread_fails(void **state)
{
    lt_service *s = NULL;
    (void)state;
    failing_thread = 1;
    assert_status(lt_service_open(&s, &(lt_service_config){.address = "inproc://refused",
                                                           .handler = increment}),
                  LT_E_NOMEM);
    failing_thread = 0;
    assert_message("service: inproc://refused: cannot start a thread");
    assert_null(s);
    lt_service_close(&s);
    s = serve("inproc://refused", NULL); /* the name is available again */
    lt_client *c = connect_to("inproc://refused", NULL, false);
    check_call(c, 5);
    lt_client_close(&c);
    lt_service_close(&s);
}

/* The client sees its connection close, and the next one is served. */
static void a_connection_thread_fails(void **state)
{
    lt_response answer = {0};
    (void)state;
    lt_service *s = serve("inproc://connections", NULL);
    failing_thread = 1;
    lt_client *c = NULL;
    lt_status st = lt_client_open(&c, &(lt_client_config){.address = "inproc://connections"});
    if (!st)
        st = lt_client_call(c, "x", 1, SECONDS, &answer);
    assert_int_not_equal(st, LT_OK);
    assert_int_equal(failing_thread, 0);
    lt_response_free(&answer);
    lt_client_close(&c);
    c = connect_to("inproc://connections", NULL, false);
    check_call(c, 5);
    lt_client_close(&c);
    lt_service_close(&s);
}

/* The step fails; a later one computes the roots. */
static void the_root_thread_of_shampoo_fails(void **state)
{
    const lt_shampoo_config config = small_blocks(LT_REFRESH_ASYNC, 3);
    fixture f;
    int failed = 0;
    (void)state;
    open_blocks(&f, &config);
    failing_thread = 1;
    for (int t = 1; t <= 8; t++) {
        double g[64] = {1, 2, 3, 4, 5};
        for (size_t i = 0; i < f.list.count; i++)
            put_grad(f.list.item[i], g);
        const lt_status st = lt_optim_step(f.optim, &(lt_step){.lr = 0.1, .attempt = ++f.attempt});
        failed += st != LT_OK;
        if (!st)
            continue;
        assert_status(st, LT_E_NOMEM);
        assert_message("shampoo: cannot create a thread for the roots of step ");
    }
    assert_int_equal(failed, 1);
    assert_int_equal(failing_thread, 0);
    fixture_close(&f);
}

static void the_heartbeat_thread_fails(void **state)
{
    atomic_llong progress = 0;
    lt_heartbeat *b = NULL;
    (void)state;
    failing_thread = 1;
    assert_status(lt_heartbeat_open(&b, 0, 1, &progress), LT_E_NOMEM);
    failing_thread = 0;
    assert_message("heartbeat: cannot start a thread");
    assert_null(b);
    const pid_t ended = fork();
    if (!ended)
        _exit(0);
    assert_int_equal(waitpid(ended, NULL, 0), ended);
    assert_fails(lt_heartbeat_watch(ended, 0, 1), LT_E_IO,
                 "heartbeat: pidfd_open: No such process");
}

/* --- Others --- */

static void random_numbers_fail(void **state)
{
    char id[LT_RUN_ID], other[LT_RUN_ID], nonce[LT_TOKEN_NONCE];
    (void)state;
    if (!LT_LINUX) {
        print_message("SKIP: the portable form reads /dev/urandom\n");
        skip();
    }
    random_fails = true;
    assert_status(lt_run_new_id(id), LT_E_IO);
    assert_message("run: no random numbers: Function not implemented");
    assert_status(lt_token_draw(nonce), LT_E_IO);
    assert_message("comm: getrandom: Function not implemented");
    random_fails = false;
    assert_ok(lt_run_new_id(id));
    assert_ok(lt_run_new_id(other));
    assert_string_not_equal(id, other);
    assert_ok(lt_token_draw(nonce));
    assert_true(lt_token_is_nonce(nonce));
}

/* Without a reserved range as large as the machine's memory, segments grow. */
static void reserving_addresses_fails(void **state)
{
    lt_device *device = NULL;
    lt_tensor *t = NULL;
    void *memory = NULL;
    (void)state;
    map_fails = true;
    assert_status(lt_backend_cpu()->alloc(NULL, (size_t)1 << 30, &memory), LT_E_NOMEM);
    assert_message("cpu: cannot map 1024 MiB of address space");
    assert_ok(lt_device_open(&device, "cpu", NULL));
    assert_ok(lt_tensor_new(&t, device, LT_F32, LT_SHAPE(1000)));
    assert_ok(lt_tensor_fill(t, 3));
    map_fails = false;
    assert_true(lt_device_memory(device).reserved < (size_t)1 << 30);
    lt_tensor_free(&t);
    lt_device_close(&device);
}

static void put_file(const lt_atomic_dir *c, const char *text)
{
    char path[2 * TEMP_PATH];
    snprintf(path, sizeof path, "%s/text", c->temp);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A file system that cannot exchange two names: the old folder is removed first. */
static void exchanging_names_fails(void **state)
{
    char path[2 * TEMP_PATH], text[8] = "";
    (void)state;
    snprintf(path, sizeof path, "%s/folder", folder);
    for (int k = 0; k < 2; k++) {
        lt_atomic_dir c = {0};
        assert_ok(lt_atomic_dir_begin(&c, path));
        put_file(&c, k ? "new" : "old");
        exchange_fails = true;
        assert_ok(lt_atomic_dir_commit(&c));
        exchange_fails = false;
    }
    snprintf(path, sizeof path, "%s/folder/text", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "new");
}

static void reading_the_processor_set_fails(void **state)
{
    (void)state;
    const int known = lt_cpu_threads();
    affinity_fails = true;
    const int all = lt_cpu_threads();
    affinity_fails = false;
    assert_in_range(all, known, sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loader_thread_fails),
        cmocka_unit_test(a_service_thread_fails),
        cmocka_unit_test(a_connection_thread_fails),
        cmocka_unit_test(the_root_thread_of_shampoo_fails),
        cmocka_unit_test(the_heartbeat_thread_fails),
        cmocka_unit_test(random_numbers_fail),
        cmocka_unit_test(reserving_addresses_fails),
        cmocka_unit_test_setup_teardown(exchanging_names_fails, temp_setup, temp_teardown),
        cmocka_unit_test(reading_the_processor_set_fails),
    };
    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
