/** Protocol buffers, the wire format of ONNX: a message is a row of fields, each a number and a value. A reader for
 *  files that are not trusted, and a writer. */
#ifndef LATHER_PROTOBUF_H
#define LATHER_PROTOBUF_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes that are not read yet: of a message, a text, or packed numbers. Borrowed. */
typedef struct lt_protobuf {
    const uint8_t *at, *end;
} lt_protobuf;

typedef struct lt_protobuf_field {
    uint64_t number, value; /**< value: of a varint or a fixed number, as it lies there */
    lt_protobuf data;       /**< of a text, a message or packed numbers, else empty, at NULL */
} lt_protobuf_field;

/** Takes the next field off a message. False at its end, and where it is broken: cut off, a type or
 *  length that is none. That sets *broken, which starts as false, and sticks. */
LT_API bool lt_protobuf_next(lt_protobuf *message, lt_protobuf_field *field, bool *broken);
/** Takes the next number off packed varints. False at their end or where they are broken. */
LT_API bool lt_protobuf_varint(lt_protobuf *packed, uint64_t *value);

enum { LT_PROTOBUF_DEPTH = 16 };

/** A message that grows. Starts as {0}; a failure sticks, and lt_protobuf_save() reports it. */
typedef struct lt_protobuf_writer {
    uint8_t *bytes; /**< owned */
    size_t size, capacity;
    size_t open[LT_PROTOBUF_DEPTH]; /**< where the contents of messages begin that are not ended */
    int depth;
    bool failed;
} lt_protobuf_writer;

/** A message as a field: everything up to lt_protobuf_end() is in it. */
LT_API void lt_protobuf_begin(lt_protobuf_writer *w, int field);
LT_API void lt_protobuf_end(lt_protobuf_writer *w);
/** A field: a varint, a fixed 32-bit or 64-bit number, a text, bytes. */
LT_API void lt_protobuf_integer(lt_protobuf_writer *w, int field, uint64_t value);
LT_API void lt_protobuf_float(lt_protobuf_writer *w, int field, float value);
LT_API void lt_protobuf_double(lt_protobuf_writer *w, int field, double value);
LT_API void lt_protobuf_text(lt_protobuf_writer *w, int field, const char *text);
LT_API void lt_protobuf_data(lt_protobuf_writer *w, int field, const void *data, size_t bytes);
/** Writes a file, which appears whole or not at all. Errors: LT_E_NOMEM, LT_E_UNSUPPORTED (2 GiB or
 *  more, which no reader takes), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_protobuf_save(const lt_protobuf_writer *w, const char *path);
LT_API void lt_protobuf_clear(lt_protobuf_writer *w);

#endif
