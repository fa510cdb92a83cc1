/* Event files as TensorBoard reads them: Event messages (tensorflow/core/util/event.proto) in the
 * wire format of Protocol Buffers, framed as TFRecords with masked CRC-32C. */

#include "tensorboard.h"

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/shared_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 512, MAX_TAG = 200 };
/* Field numbers of event.proto and summary.proto, and wire types. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct lt_tensorboard {
    FILE *file;
    char *path;
};

typedef struct message {
    unsigned char data[MESSAGE];
    size_t bytes;
} message;

static void put_varint(message *m, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        m->data[m->bytes++] = (unsigned char)(value | 128);
    m->data[m->bytes++] = (unsigned char)value;
}

static void put_key(message *m, int field, int wire)
{
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_little(message *m, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        m->data[m->bytes++] = (unsigned char)(bits >> (8 * i));
}

static void put_double(message *m, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, FIXED64);
    put_little(m, bits, 8);
}

static void put_float(message *m, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, FIXED32);
    put_little(m, bits, 4);
}

static void put_bytes(message *m, int field, const void *data, size_t bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, bytes);
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static void begin_event(message *m, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    m->bytes = 0;
    put_double(m, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_key(m, EVENT_STEP, VARINT);
    put_varint(m, (uint64_t)step);
}

/* A checksum of data that holds checksums is weak; hence the mask. */
static uint32_t masked(const void *data, size_t bytes)
{
    uint32_t crc = lt_crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

static lt_status write_record(lt_tensorboard *b, const message *m)
{
    message head = {.bytes = 0}, tail = {.bytes = 0};
    put_little(&head, m->bytes, 8);
    put_little(&head, masked(head.data, 8), 4);
    put_little(&tail, masked(m->data, m->bytes), 4);
    if (fwrite(head.data, 1, head.bytes, b->file) != head.bytes
        || fwrite(m->data, 1, m->bytes, b->file) != m->bytes
        || fwrite(tail.data, 1, tail.bytes, b->file) != tail.bytes)
        return lt_fail(LT_E_IO, "%s: %s", b->path, strerror(errno));
    return LT_OK;
}

static lt_status write_start(lt_tensorboard *b, int64_t step)
{
    static const char version[] = "brain.Event:2";
    message m, session = {.bytes = 0};
    begin_event(&m, 0);
    put_bytes(&m, EVENT_VERSION, version, sizeof version - 1);
    LT_TRY(write_record(b, &m));
    if (step == 0)
        return LT_OK;
    begin_event(&m, step + 1); /* the first step of this session */
    put_key(&session, SESSION_STATUS, VARINT);
    put_varint(&session, SESSION_START);
    put_bytes(&m, EVENT_SESSION, session.data, session.bytes);
    return write_record(b, &m);
}

lt_status lt_tensorboard_open(lt_tensorboard **out, const char *folder, int64_t step)
{
    char host[64] = "host";
    lt_tensorboard *b = lt_alloc(1, sizeof *b);
    if (!b)
        return LT_E_NOMEM;
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    b->path = lt_format("%s/events.out.tfevents.%010lld.%s.%ld", folder, (long long)time(NULL),
                        host, (long)getpid());
    lt_status st = b->path ? lt_shared_stream(&b->file, b->path, 'a') : LT_E_NOMEM;
    if (!st)
        st = write_start(b, step);
    if (st)
        lt_tensorboard_close(&b);
    else
        *out = b;
    return st;
}

lt_status lt_tensorboard_scalar(lt_tensorboard *b, const char *tag, int64_t step, double value)
{
    message scalar = {.bytes = 0}, summary = {.bytes = 0}, event;
    put_bytes(&scalar, VALUE_TAG, tag, strnlen(tag, MAX_TAG));
    put_float(&scalar, VALUE_SIMPLE, (float)value);
    put_bytes(&summary, SUMMARY_VALUE, scalar.data, scalar.bytes);
    begin_event(&event, step);
    put_bytes(&event, EVENT_SUMMARY, summary.data, summary.bytes);
    return write_record(b, &event);
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
