/* Token files: the ids of concatenated documents, each after an end-of-text id. Numbers are little-endian.
 *
 *   header   lt_token_header
 *   name     name of the tokenizer for lt_tokenizer_open(), NUL-terminated
 *   ids      count ids of width bytes, from offset header.ids on, a multiple of 64
 *   table    CRC-32C of each chunk of LT_TOKEN_CHUNK ids; the last chunk may be shorter
 *
 * The header is written last; a temporary file is renamed when it is complete. */
#ifndef LT_DATA_TOKEN_FILE_H
#define LT_DATA_TOKEN_FILE_H

#include "base/shared_file.h"

#include "lather/ext/fail.h"
#include "lather/tokenizer.h"

#include <stdbool.h>

#define LT_TOKEN_MAGIC "LATHTOKS"
enum { LT_TOKEN_VERSION = 1, LT_TOKEN_ORDER = 0x01020304, LT_TOKEN_CHUNK = 4096 };

typedef struct lt_token_header {
    char magic[8];
    uint32_t version, order;
    uint64_t hash;       /* hash of the vocabulary */
    uint32_t size, end;  /* size of the vocabulary; end-of-text id */
    uint32_t width;      /* bytes per id: 2 or 4 */
    uint32_t name_bytes; /* bytes of the tokenizer's name, including the NUL */
    uint64_t ids, count; /* offset and number of the ids */
    uint64_t documents;
    uint32_t crc;      /* CRC-32C of name and table */
    uint32_t self_crc; /* CRC-32C of the header's fields before this one */
} lt_token_header;

/* A file open for reading. Starts as {.fd = -1}. */
typedef struct lt_token_file {
    char *path, *name;
    int fd;
    lt_token_header header;
    uint32_t *table;
} lt_token_file;

/* Returns true if path is a regular file that begins with the magic. */
bool lt_is_token_file(const char *path);
/* Opens a token file and reads its header and table. Errors, with path: LT_E_IO; LT_E_FORMAT. Close f in any case. */
lt_status lt_token_file_open(lt_token_file *f, const char *path);
void lt_token_file_close(lt_token_file *f);
/* Reads count ids from index first on, and compares their chunks with the table. Thread-safe. Errors, with path and
 * index: LT_E_IO; LT_E_FORMAT (corrupt data; an id outside the vocabulary). */
lt_status lt_token_file_read(const lt_token_file *f, int64_t first, int64_t count, int32_t *out);

/* A file being written. Starts as {0}. */
typedef struct lt_token_writer {
    lt_replacement file;
    lt_token_header header;
    lt_vocabulary vocabulary; /* identity of the tokenizer; strings are borrowed */
    uint8_t *chunk;           /* [LT_TOKEN_CHUNK] ids that are not written yet */
    size_t used;              /* number of ids in chunk */
    uint32_t *table;
    size_t chunks, capacity;
} lt_token_writer;
lt_status lt_token_writer_open(lt_token_writer *w, const char *path, const lt_vocabulary *v);
/* Begins a document: adds the end-of-text id. */
lt_status lt_token_writer_begin_document(lt_token_writer *w);
lt_status lt_token_writer_add(lt_token_writer *w, const int32_t *id, size_t count);
/* Writes table and header, syncs the file (not the folder) and renames it. Clears w in any case. */
lt_status lt_token_writer_finish(lt_token_writer *w);
/* Deletes the temporary file and clears w. */
void lt_token_writer_abandon(lt_token_writer *w);

#endif
