/* Token files: the ids of documents, one after the other, each document behind an end-of-text id.
 * Numbers are little-endian.
 *
 *   header   lt_token_header
 *   name     of the tokenizer, as lt_tokenizer_open() takes it, ended by 0
 *   ids      count numbers of width bytes, from header.ids on, a multiple of 64
 *   table    CRC-32C of each LT_TOKEN_CHUNK ids, the last one of what is left
 *
 * The header is written last; the file gets its name when it is complete. */
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
    uint64_t hash;       /* of the vocabulary */
    uint32_t size, end;  /* of the vocabulary; its end-of-text id */
    uint32_t width;      /* bytes of an id: 2 or 4 */
    uint32_t name_bytes; /* of the name, its 0 included */
    uint64_t ids, count; /* where ids begin; how many */
    uint64_t documents;
    uint32_t crc;      /* of name and table */
    uint32_t self_crc; /* of the bytes before */
} lt_token_header;

/* A file open for reading. Starts as {.fd = -1}. */
typedef struct lt_token_file {
    char *path, *name;
    int fd;
    lt_token_header header;
    uint32_t *table;
} lt_token_file;

/* Whether path is a regular file that begins with the magic. */
bool lt_is_token_file(const char *path);
/* Errors: LT_E_IO; LT_E_FORMAT, naming path and what is wrong. Close it in any case. */
lt_status lt_token_file_open(lt_token_file *f, const char *path);
void lt_token_file_close(lt_token_file *f);
/* count ids from first on, their chunks compared with the table. Called by several threads at once.
 * Errors: LT_E_IO; LT_E_FORMAT (damage; an id outside of the vocabulary), naming path and place. */
lt_status lt_token_file_read(const lt_token_file *f, int64_t first, int64_t count, int32_t *out);

/* A file being written. Starts as {0}. */
typedef struct lt_token_writer {
    lt_replacement file;
    lt_token_header header;
    lt_vocabulary vocabulary; /* borrowed */
    uint8_t *chunk;           /* [LT_TOKEN_CHUNK] ids that are not written yet */
    size_t used;              /* of them */
    uint32_t *table;
    size_t chunks, capacity;
} lt_token_writer;
lt_status lt_token_writer_open(lt_token_writer *w, const char *path, const lt_vocabulary *v);
/* A document begins: its end-of-text id. */
lt_status lt_token_writer_begin(lt_token_writer *w);
lt_status lt_token_writer_add(lt_token_writer *w, const int32_t *id, size_t count);
/* Writes table and header, syncs, renames; the folder is not synced. Clears w in any case. */
lt_status lt_token_writer_finish(lt_token_writer *w);
void lt_token_writer_abandon(lt_token_writer *w);

#endif
