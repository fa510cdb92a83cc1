/* TensorBoard's event files: Event messages (tensorflow/core/util/event.proto) in the wire format of Protocol
 * Buffers, framed as TFRecords with masked CRC-32C. */

#include "tensorboard.h"

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/shared_file.h"

#include "lather/protobuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TAG = 200 };
/* Field numbers of event.proto and summary.proto. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { VALUE_HISTOGRAM = 5 };
enum { HISTOGRAM_MIN = 1, HISTOGRAM_MAX, HISTOGRAM_COUNT, HISTOGRAM_SUM, HISTOGRAM_SQUARES };
enum { HISTOGRAM_LIMITS = 6, HISTOGRAM_COUNTS = 7, BUCKETS = 30 };
struct lt_tensorboard {
    FILE *file;
    char *path;
};

static void begin_event(lt_protobuf_writer *event, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lt_protobuf_double(event, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    lt_protobuf_integer(event, EVENT_STEP, (uint64_t)step);
}

/* Appends the message `part` to the message `to` as a field, and frees part. */
static void put_message(lt_protobuf_writer *to, int field, lt_protobuf_writer *part)
{
    lt_protobuf_data(to, field, part->bytes, part->size);
    to->failed = to->failed || part->failed;
    lt_protobuf_clear(part);
}

/* --- Records --- */

static void put_little(unsigned char *to, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(bits >> (8 * i));
}

/* Returns the masked checksum: plain checksums of data that contains checksums are weak. */
static uint32_t masked_checksum(const void *data, size_t bytes)
{
    uint32_t crc = lt_crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/* Writes an event and frees it. */
static lt_status write_event(lt_tensorboard *b, lt_protobuf_writer *event)
{
    enum { LENGTH = 8, SUM = 4 };
    unsigned char head[LENGTH + SUM], tail[SUM];
    lt_status st = event->failed ? LT_E_NOMEM : LT_OK;
    put_little(head, event->size, LENGTH);
    put_little(head + LENGTH, masked_checksum(head, LENGTH), SUM);
    put_little(tail, masked_checksum(event->bytes, event->size), SUM);
    if (!st
        && (fwrite(head, 1, sizeof head, b->file) != sizeof head
            || fwrite(event->bytes, 1, event->size, b->file) != event->size
            || fwrite(tail, 1, sizeof tail, b->file) != sizeof tail))
        st = lt_fail(LT_E_IO, "%s: %s", b->path, strerror(errno));
    lt_protobuf_clear(event);
    return st;
}

static lt_status write_start(lt_tensorboard *b, int64_t step)
{
    lt_protobuf_writer event = {0}, session = {0};
    begin_event(&event, 0);
    lt_protobuf_text(&event, EVENT_VERSION, "brain.Event:2");
    LT_TRY(write_event(b, &event));
    if (step == 0)
        return LT_OK;
    begin_event(&event, step + 1); /* the first step of this session */
    lt_protobuf_integer(&session, SESSION_STATUS, SESSION_START);
    put_message(&event, EVENT_SESSION, &session);
    return write_event(b, &event);
}

lt_status lt_tensorboard_open(lt_tensorboard **out, const char *folder, int64_t step)
{
    char host[64] = "host";
    lt_tensorboard *b = NULL;
    LT_TRY(LT_ALLOC(&b, 1));
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    b->path = lt_format("%s/events.out.tfevents.%010lld.%s.%ld", folder, (long long)time(NULL),
                        host, (long)getpid());
    lt_status st = b->path ? lt_shared_open_stream(&b->file, b->path, 'a') : LT_E_NOMEM;
    if (!st)
        st = write_start(b, step);
    if (st)
        lt_tensorboard_close(&b);
    else
        *out = b;
    return st;
}

/* Writes an event with one value of a summary, and frees it. */
static lt_status write_value(lt_tensorboard *b, int64_t step, lt_protobuf_writer *value)
{
    lt_protobuf_writer summary = {0}, event = {0};
    put_message(&summary, SUMMARY_VALUE, value);
    begin_event(&event, step);
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_event(b, &event);
}

lt_status lt_tensorboard_scalar(lt_tensorboard *b, const char *tag, int64_t step, double value)
{
    lt_protobuf_writer scalar = {0};
    lt_protobuf_data(&scalar, VALUE_TAG, tag, strnlen(tag, MAX_TAG));
    lt_protobuf_float(&scalar, VALUE_SIMPLE, (float)value);
    return write_value(b, step, &scalar);
}

/* Buckets of equal width between the smallest and the largest value. */
lt_status lt_tensorboard_histogram(lt_tensorboard *b, const char *tag, int64_t step,
                                   const double *sorted, size_t count)
{
    lt_protobuf_writer histogram = {0}, value = {0};
    const double low = sorted[0], high = sorted[count - 1];
    double limit[BUCKETS], in[BUCKETS] = {0}, sum = 0, squares = 0;
    for (int k = 0; k < BUCKETS; k++)
        limit[k] = k + 1 < BUCKETS ? low + (high - low) * (k + 1) / BUCKETS : high;
    for (size_t i = 0, k = 0; i < count; i++) {
        while (k + 1 < BUCKETS && sorted[i] > limit[k])
            k++;
        in[k]++;
        sum += sorted[i];
        squares += sorted[i] * sorted[i];
    }
    lt_protobuf_double(&histogram, HISTOGRAM_MIN, low);
    lt_protobuf_double(&histogram, HISTOGRAM_MAX, high);
    lt_protobuf_double(&histogram, HISTOGRAM_COUNT, (double)count);
    lt_protobuf_double(&histogram, HISTOGRAM_SUM, sum);
    lt_protobuf_double(&histogram, HISTOGRAM_SQUARES, squares);
    lt_protobuf_data(&histogram, HISTOGRAM_LIMITS, limit, sizeof limit); /* packed doubles */
    lt_protobuf_data(&histogram, HISTOGRAM_COUNTS, in, sizeof in);
    lt_protobuf_data(&value, VALUE_TAG, tag, strnlen(tag, MAX_TAG));
    put_message(&value, VALUE_HISTOGRAM, &histogram);
    return write_value(b, step, &value);
}

lt_status lt_tensorboard_flush(lt_tensorboard *b)
{
    return fflush(b->file) ? lt_fail(LT_E_IO, "%s: %s", b->path, strerror(errno)) : LT_OK;
}

void lt_tensorboard_close(lt_tensorboard **board)
{
    lt_tensorboard *b = *board;
    if (!b)
        return;
    if (b->file)
        fclose(b->file);
    lt_free(b->path);
    lt_free(b);
    *board = NULL;
}
