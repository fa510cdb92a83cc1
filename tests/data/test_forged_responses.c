/* Invalid responses of a data service are errors of the loader, which name both numbers. */

#include "base/alloc.h"
#include "data/remote/codec.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/dataset.h"
#include "lather/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, BODY = SIDE * SIDE * 3 };

static const lt_data_response good = {.magic = LT_DATA_MAGIC};
static const lt_data_info true_info = {.data = 1, .count = 8, .classes = 3, .channels = 3};

/* Bytes after the header of a response. */
typedef struct bytes {
    const void *data;
    size_t size;
} bytes;

/* A service that sends a description, then black samples or one record. */
typedef struct forger {
    lt_data_response head; /* header of samples and records */
    int change;            /* added to the samples' length, in bytes */
    int32_t label;         /* label of all samples */
    bytes info, record;
} forger;

static void answer(lt_response_buffer *reply, const lt_data_response *head, bytes body)
{
    char *to = lt_response_allocate(reply, sizeof *head + body.size);
    memcpy(to, head, sizeof *head);
    if (body.size)
        memcpy(to + sizeof *head, body.data, body.size);
}

static lt_status forge(void *context, const void *request, size_t size, lt_response_buffer *reply)
{
    const forger *l = context;
    lt_data_request q = {0};
    memcpy(&q, request, size < sizeof q ? size : sizeof q);
    if (q.kind == LT_REQUEST_INFO) {
        answer(reply, &good, l->info);
    } else if (q.kind == LT_REQUEST_RECORD) {
        answer(reply, &l->head, l->record);
    } else {
        char whole[sizeof l->head + sizeof l->label + BODY + 1] = {0};
        const size_t all = (size_t)((int64_t)sizeof whole - 1 + l->change);
        memcpy(whole, &l->head, sizeof l->head);
        memcpy(whole + sizeof l->head, &l->label, sizeof l->label);
        memcpy(lt_response_allocate(reply, all), whole, all);
    }
    return LT_OK;
}

static lt_status open_forger(lt_service **service, lt_dataset **d, forger *l)
{
    char list[256];
    const lt_service_config c = {.address = "tcp://127.0.0.1:0", .handler = forge, .context = l};
    if (!l->info.size)
        l->info = (bytes){&true_info, sizeof true_info};
    assert_ok(lt_service_open(service, &c));
    snprintf(list, sizeof list, "service:%s", lt_service_address(*service));
    return lt_dataset_open(d, list, true);
}

/* Checks that the loader's error contains says, or that it accepts the samples if says is NULL. */
static void check_samples(forger l, const char *says)
{
    const lt_loader_config c = {
        .transform = {.size = SIDE}, .batch = 4, .threads = 2, .max_bad = -1};
    lt_service *service = NULL;
    lt_dataset *d = NULL;
    lt_loader *loader = NULL;
    lt_batch b;
    assert_ok(open_forger(&service, &d, &l));
    assert_ok(lt_loader_new(&loader, d, device, &c));
    if (says)
        assert_fails(lt_loader_next(loader, &b), LT_E_FORMAT, says);
    else
        assert_ok(lt_loader_next(loader, &b));
    lt_loader_free(&loader);
    lt_dataset_free(&d);
    lt_service_close(&service);
}

static void test_samples(void **state)
{
    (void)state;
    check_samples((forger){.head = good}, NULL);
    check_samples((forger){.head = good, .change = -1},
                  "sample of a service has 1731 bytes, want 1732");
    check_samples((forger){.head = good, .change = 1}, "sample of a service has 1733 bytes");
    check_samples((forger){.head = good, .change = -(4 + BODY) - 5},
                  "response of a service has 11 bytes, want at least 16");
    check_samples((forger){.head = good, .label = 3}, "has label 3");
    check_samples((forger){.head = good, .label = -1}, "has label -1");
    check_samples((forger){.head = {.magic = 0x1234}},
                  "has magic 00001234 and status 0; want 4c544402 and 0 .. ");
    check_samples((forger){.head = {.magic = LT_DATA_MAGIC, .status = -2}},
                  "has magic 4c544402 and status -2; want");
    check_samples((forger){.head = {.magic = LT_DATA_MAGIC, .status = LT_END}}, " and status ");
}

static void test_records(void **state)
{
    static const struct {
        lt_data_record head;
        const char *says;
    } rows[] = {
        {{.encoding = -1}, "record of a service has unknown encoding -1"},
        {{.encoding = LT_ENCODING_TOKENS + 1}, "has unknown encoding "},
        {{.encoding = LT_ENCODING_PIXELS, .width = 5, .height = 7, .channels = 3},
         "record of a service has 0 bytes for 5 x 7 x 3"},
        {{.encoding = LT_ENCODING_PLANES, .width = 0, .height = 7, .channels = 3},
         "has 0 bytes for 0 x 7 x 3"},
        {{.encoding = LT_ENCODING_PIXELS, .width = 1, .height = 1 << 21, .channels = 1},
         "has 0 bytes for 1 x 2097152 x 1"},
    };
    (void)state;
    for (size_t i = 0; i <= COUNT_OF(rows); i++) {
        const bool is_short = i == COUNT_OF(rows);
        forger l = {.head = good, .record = {&rows[is_short ? 0 : i].head, sizeof rows->head}};
        lt_service *service = NULL;
        lt_dataset *d = NULL;
        lt_record record = {0};
        l.record.size -= is_short;
        assert_ok(open_forger(&service, &d, &l));
        assert_fails(d->ops->read(d, 0, &record), LT_E_FORMAT,
                     is_short ? "record of a service has 23 bytes, want at least 24"
                              : rows[i].says);
        lt_free(record.bytes);
        lt_dataset_free(&d);
        lt_service_close(&service);
    }
}

static void check_description(bytes info, const char *says)
{
    forger l = {.head = good, .info = info};
    lt_service *service = NULL;
    lt_dataset *d = NULL;
    assert_fails(open_forger(&service, &d, &l), LT_E_FORMAT, says);
    assert_null(d);
    lt_service_close(&service);
}

static void test_descriptions(void **state)
{
    static const struct {
        lt_data_info in;
        const char *says;
    } rows[] = {
        {{.data = 1, .count = 8, .classes = INT32_MAX, .channels = 3},
         "2147483647 classes, want 1 to 16777216"},
        {{.data = 1, .count = 8, .classes = 0, .channels = 3}, "0 classes, want 1 to"},
        {{.data = 1, .count = INT64_MAX, .classes = 2, .channels = 3},
         "9223372036854775807 samples, want 1 to 1099511627776"},
        {{.data = 1, .count = 8, .classes = 2, .channels = 1, .ndim = 2, .dim = {1 << 20, 1 << 20}},
         "1099511627776 elements in a sample, want 1 to 67108864"},
        {{.data = 1, .count = 8, .classes = 2, .channels = 1, .ndim = 1, .dim = {INT64_MAX}},
         "9223372036854775807 elements in a dimension of a sample, want 1 to 67108864"},
        {{.data = 1,
          .count = 8,
          .classes = 2,
          .channels = 1,
          .ndim = 1,
          .tokens = 1,
          .dim = {(1 << 25) + 1}},
         "33554433 elements in a dimension of a sample, want 1 to 33554432"},
        {{.data = 1, .count = 8, .classes = 2, .channels = 2},
         "samples of 0 dimensions and 2 channels, tokens: 0"},
        {{.data = 1, .count = 8, .classes = 2, .channels = 1, .ndim = -1},
         "samples of -1 dimensions and 1 channels"},
        {{.data = 1, .count = 8, .classes = 2, .channels = 1, .tokens = 1},
         "samples of 0 dimensions and 1 channels, tokens: 1"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_description((bytes){&rows[i].in, sizeof rows->in}, rows[i].says);
    check_description((bytes){&true_info, sizeof true_info - 1}, "description of a service has ");
    struct {
        lt_data_info in;
        char names[8];
    } named = {true_info, "cat\0dog"};
    named.in.names = 1;
    check_description((bytes){&named, offsetof(__typeof__(named), names) + sizeof named.names},
                      "a service sent names of 2 of 3 classes");
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        row_test("the trainer limits the numbers of classes, samples and elements",
                 test_descriptions, NULL),
        row_test("samples of a wrong length or label, of no service", test_samples, NULL),
        row_test("records without a header or of another size", test_records, NULL),
    };
    return cmocka_run_group_tests_name("forged responses", rows, open_device, close_device);
}
