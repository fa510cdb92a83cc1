/* src/base: status, alloc, log, clock, hash. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/plugins/plugin.h"
#include "near.h"

#include "lather/log.h"
#include "lather/plugin.h"
#include "lather/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void a_failure_is_status_and_message_in_one(void **state)
{
    (void)state;
    assert_status(lt_fail(LT_E_SHAPE, "conv2d: got %d, want %d", 3, 4), LT_E_SHAPE);
    assert_string_equal(lt_error_message(), "conv2d: got 3, want 4");
}

static void a_message_may_quote_the_one_before(void **state)
{
    (void)state;
    (void)lt_fail(LT_E_IO, "inner");
    (void)lt_fail(LT_E_IO, "outer: %s", lt_error_message());
    assert_string_equal(lt_error_message(), "outer: inner");
}

static void a_long_message_is_cut_not_overrun(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)lt_fail(LT_E_IO, "%s", text);
    assert_true(strlen(lt_error_message()) < sizeof text);
    assert_true(strspn(lt_error_message(), "x") == strlen(lt_error_message()));
}

static lt_status tried(lt_status st)
{
    LT_TRY(st);
    return LT_END;
}

static void try_returns_failures_only(void **state)
{
    (void)state;
    assert_int_equal(tried(LT_E_COMM), LT_E_COMM);
    assert_int_equal(tried(LT_OK), LT_END);
}

static void every_status_has_a_name_and_a_sentence(void **state)
{
    (void)state;
    assert_string_equal(lt_status_name(LT_E_FORMAT), "LT_E_FORMAT");
    for (int st = LT_OK; st <= LT_END; st++) {
        assert_true(strncmp(lt_status_name((lt_status)st), "LT_", 3) == 0);
        assert_true(strlen(lt_status_help((lt_status)st)) > 3);
    }
    assert_string_equal(lt_status_name((lt_status)999), "unknown status");
}

static void memory_comes_zeroed(void **state)
{
    (void)state;
    unsigned char *memory = lt_alloc(1000, 3), sum = 0;
    assert_non_null(memory);
    for (int i = 0; i < 3000; i++)
        sum |= memory[i];
    assert_int_equal(sum, 0);
    lt_free(memory);
}

static void an_overflowing_size_is_no_memory(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX / 2; /* hidden from the compiler, which would warn */
    assert_null(lt_alloc(huge, 4));
    assert_non_null(strstr(lt_error_message(), "no memory"));
    void *memory = lt_alloc(2, 2);
    assert_null(lt_realloc(memory, huge, 4));
    lt_free(memory);
}

static void aligned_memory_is_aligned(void **state)
{
    (void)state;
    for (size_t alignment = 64; alignment <= 4096; alignment *= 8) {
        void *memory = lt_alloc_aligned(alignment, 100);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % alignment, 0);
        lt_free(memory);
    }
}

static void the_chosen_allocation_fails_once(void **state)
{
    (void)state;
    lt_alloc_fail_at(2);
    void *first = lt_alloc(1, 1);
    char *second = lt_strdup("x"), *third = lt_format("%d", 42);
    assert_non_null(first);
    assert_null(second);
    assert_string_equal(third, "42");
    lt_free(first);
    lt_free(third);
}

typedef struct heard {
    char line[256];
    int lines;
} heard;

static void listen(void *context, lt_log_level level, const char *area, const char *text)
{
    heard *h = context;
    snprintf(h->line, sizeof h->line, "%d %s: %s", (int)level, area, text);
    h->lines++;
}

static void a_filter_has_a_level_per_area(void **state)
{
    (void)state;
    heard h = {{0}, 0};
    lt_log_set(listen, &h);
    assert_ok(lt_log_filter("warn,data=debug"));
    lt_log(LT_LOG_INFO, "train", "hidden");
    assert_int_equal(h.lines, 0);
    lt_log(LT_LOG_DEBUG, "data", "%d images", 12);
    assert_string_equal(h.line, "3 data: 12 images");
    lt_log(LT_LOG_WARN, "train", "shown");
    assert_int_equal(h.lines, 2);
    lt_log_set(NULL, NULL);
    assert_ok(lt_log_filter("info"));
}

static void a_wrong_filter_changes_nothing(void **state)
{
    (void)state;
    heard h = {{0}, 0};
    lt_log_set(listen, &h);
    assert_ok(lt_log_filter("error"));
    assert_status(lt_log_filter("debug,data=loud"), LT_E_ARG);
    assert_status(lt_log_filter("chatty"), LT_E_ARG);
    lt_log(LT_LOG_WARN, "data", "hidden");
    assert_int_equal(h.lines, 0);
    lt_log_set(NULL, NULL);
    assert_ok(lt_log_filter("info"));
}

static void other_ranks_show_warnings_only(void **state)
{
    (void)state;
    heard h = {{0}, 0};
    lt_log_set(listen, &h);
    lt_log_rank(3);
    lt_log(LT_LOG_INFO, "train", "hidden");
    lt_log(LT_LOG_WARN, "train", "shown");
    assert_int_equal(h.lines, 1);
    lt_log_rank(-1);
    lt_log_set(NULL, NULL);
}

/* From the list of test vectors in draft-eastlake-fnv, section 6. */
static void fnv1a_gives_its_published_values(void **state)
{
    (void)state;
    assert_true(lt_fnv1a(LT_FNV1A_BEGIN, NULL, 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(lt_fnv1a_text(LT_FNV1A_BEGIN, "a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(lt_fnv1a_text(LT_FNV1A_BEGIN, "foobar") == UINT64_C(0x85944171f73967e8));
    assert_true(lt_fnv1a_text(lt_fnv1a(LT_FNV1A_BEGIN, "foo", 3), "bar")
                == UINT64_C(0x85944171f73967e8));
    assert_false(lt_fnv1a_text(LT_FNV1A_BEGIN, "foobaz") == UINT64_C(0x85944171f73967e8));
}

static void the_clock_never_goes_back(void **state)
{
    (void)state;
    int64_t before = lt_clock_nanoseconds();
    double seconds = lt_clock_seconds();
    assert_true(before <= lt_clock_nanoseconds());
    assert_true(1e-9 * (double)before <= seconds);
}

static void *own_seconds(void *context)
{
    *(double *)context = lt_clock_thread_cpu_seconds();
    return NULL;
}

/* A thread that begins has had no processor yet, whatever others had. Of the wall's time it has no more than passes;
 * the hundredth is for the rates of two clocks, of which time servers slew one (adjtimex(2): by 500 ppm). */
static void the_clock_of_a_thread_is_its_own(void **state)
{
    (void)state;
    const double wall = lt_clock_seconds(), begin = lt_clock_thread_cpu_seconds(), some = 0.01;
    double seconds = some;
    pthread_t thread;
    while (lt_clock_thread_cpu_seconds() < begin + some)
        ;
    assert_true(lt_clock_seconds() - wall >= 0.99 * some);
    assert_int_equal(pthread_create(&thread, NULL, own_seconds, &seconds), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seconds >= 0 && seconds < some);
}

/* As sched_getattr(2) has it. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice, deadline, period;
} scheduling;

static scheduling own_attributes(void)
{
    scheduling a = {.size = sizeof a};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0);
    return a;
}

static void *shorten(void *attributes)
{
    scheduling *a = attributes;
    a[0] = own_attributes();
    lt_sched_slice_shorten();
    a[1] = own_attributes();
    return NULL;
}

static void a_thread_has_a_shorter_slice_and_all_else_as_before(void **state)
{
    (void)state;
    scheduling a[2];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, shorten, a), 0);
    pthread_join(thread, NULL);
    if (!LT_LINUX || !a[0].slice || a[0].policy)
        skip(); /* the build or the kernel lacks custom slices, or another policy is set */
    assert_true(a[0].slice > a[1].slice && a[1].slice == 100000);
    assert_int_equal(a[0].nice, a[1].nice);
    assert_true(a[0].flags == a[1].flags && a[0].policy == a[1].policy);
}

static void a_plugin_has_the_version_of_the_library(void **state)
{
    (void)state;
    assert_null(lt_plugin_at(0)); /* none is loaded */
    assert_ok(lt_plugin_check_version("device x", lt_version()));
    assert_fails(lt_plugin_check_version("device x", "0.0.9"), LT_E_UNSUPPORTED,
                 "device x: plugin version 0.0.9 does not match library version ");
    assert_non_null(strstr(lt_error_message(), lt_version()));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_status_and_message_in_one),
        cmocka_unit_test(a_message_may_quote_the_one_before),
        cmocka_unit_test(a_long_message_is_cut_not_overrun),
        cmocka_unit_test(try_returns_failures_only),
        cmocka_unit_test(every_status_has_a_name_and_a_sentence),
        cmocka_unit_test(memory_comes_zeroed),
        cmocka_unit_test(an_overflowing_size_is_no_memory),
        cmocka_unit_test(aligned_memory_is_aligned),
        cmocka_unit_test(the_chosen_allocation_fails_once),
        cmocka_unit_test(a_filter_has_a_level_per_area),
        cmocka_unit_test(a_wrong_filter_changes_nothing),
        cmocka_unit_test(other_ranks_show_warnings_only),
        cmocka_unit_test(fnv1a_gives_its_published_values),
        cmocka_unit_test(a_plugin_has_the_version_of_the_library),
        cmocka_unit_test(the_clock_never_goes_back),
        cmocka_unit_test(the_clock_of_a_thread_is_its_own),
        cmocka_unit_test(a_thread_has_a_shorter_slice_and_all_else_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
