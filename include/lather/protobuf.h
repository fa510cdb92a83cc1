/** Protocol buffers, the wire format of ONNX: a message is a sequence of fields, each a number and a value. A reader
 * for untrusted files, and a writer. */
#ifndef LATHER_PROTOBUF_H
#define LATHER_PROTOBUF_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The unread bytes of a message, a string or packed numbers. Borrowed. */
typedef struct lt_protobuf {
    const uint8_t *at, *end;
} lt_protobuf;

typedef struct lt_protobuf_field {
    uint64_t number, value; /**< field number; bits of a varint or a fixed number */
    lt_protobuf data;       /**< contents of a string, message or packed numbers; else empty */
} lt_protobuf_field;

/** Reads the next field of a message. Returns false at its end, and if it is malformed: truncated, or with an
 *  invalid type or length. Then it sets *broken, which must start as false. */
LT_API bool lt_protobuf_next(lt_protobuf *message, lt_protobuf_field *field, bool *broken);
/** Reads the next number of packed varints. Returns false at their end or if they are malformed. */
LT_API bool lt_protobuf_varint(lt_protobuf *packed, uint64_t *value);

enum { LT_PROTOBUF_DEPTH = 16 };

/** A growing message. Starts as {0}; lt_protobuf_save() reports an earlier failure. */
typedef struct lt_protobuf_writer {
    uint8_t *bytes; /**< the message written so far; owned */
    size_t size, capacity;
    size_t open[LT_PROTOBUF_DEPTH]; /**< offsets of the contents of the open messages */
    int depth;
    bool failed;
} lt_protobuf_writer;

/** Begins a message as a field: it contains everything up to lt_protobuf_end(). */
LT_API void lt_protobuf_begin(lt_protobuf_writer *w, int field);
LT_API void lt_protobuf_end(lt_protobuf_writer *w);
/** Append a field: a varint, a fixed 32-bit or 64-bit number, a string, bytes. */
LT_API void lt_protobuf_integer(lt_protobuf_writer *w, int field, uint64_t value);
LT_API void lt_protobuf_float(lt_protobuf_writer *w, int field, float value);
LT_API void lt_protobuf_double(lt_protobuf_writer *w, int field, double value);
LT_API void lt_protobuf_text(lt_protobuf_writer *w, int field, const char *text);
LT_API void lt_protobuf_data(lt_protobuf_writer *w, int field, const void *data, size_t bytes);
/** Writes a file atomically. Errors: LT_E_NOMEM, LT_E_UNSUPPORTED (2 GiB or more, which no reader
 *  accepts), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_protobuf_save(const lt_protobuf_writer *w, const char *path);
LT_API void lt_protobuf_clear(lt_protobuf_writer *w);

#endif
