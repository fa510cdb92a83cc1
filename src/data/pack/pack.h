/* The shard file of a pack: header, records, table, text. Numbers are little-endian.
 *
 *   header   lt_pack_header
 *   records  one after the other, from sizeof(lt_pack_header) on
 *   table    count x lt_pack_entry
 *   text     names of the samples, each ended by 0
 *
 * The header is written last; the file gets its name when it is complete. */
#ifndef LT_DATA_PACK_H
#define LT_DATA_PACK_H

#include "base/shared_file.h"

#include "lather/ext/dataset.h"
#include "lather/pack.h"

#define LT_PACK_MAGIC "LATHPACK"
enum { LT_PACK_VERSION = 1, LT_PACK_ORDER = 0x01020304 };

typedef struct lt_pack_header {
    char magic[8];
    uint32_t version, order;
    uint64_t recipe; /* hash of the shard's samples and config */
    uint64_t count, table, text, text_size;
    uint32_t crc;      /* of table and text */
    uint32_t self_crc; /* of the bytes before */
} lt_pack_header;

typedef struct lt_pack_entry {
    uint64_t offset, size, hash; /* of the record; XXH3, 64 bits */
    uint32_t label, name;        /* name: offset in the text */
    uint32_t width, height;      /* pixels: of LT_ENCODING_PIXELS, else 0 */
    uint16_t encoding, channels;
    uint32_t unused;
} lt_pack_entry;

/* One shard in memory, without its records. */
typedef struct lt_pack_shard {
    lt_pack_entry *entry;
    size_t count;
    char *text;
    size_t text_size;
} lt_pack_shard;

/* Whether folder holds a manifest.json. Errors: LT_E_NOMEM. */
lt_status lt_is_pack(bool *out, const char *folder);
/* FOLDER/shard-00007.pack; lt_free() it. */
char *lt_pack_shard_path(const char *folder, int64_t index);
/* Reads header, table and text. recipe: what it must be made from; 0: anything.
 * Errors: LT_E_IO; LT_E_FORMAT, naming path and what is wrong; LT_E_ARG (another recipe). */
lt_status lt_pack_shard_open(lt_pack_shard *out, const char *path, uint64_t recipe);
void lt_pack_shard_clear(lt_pack_shard *shard);

/* A shard being written. Starts as {0}. */
typedef struct lt_pack_writer {
    const char *path; /* borrowed */
    lt_replacement file;
    uint64_t at;
    lt_pack_shard shard;
    size_t capacity, text_capacity;
} lt_pack_writer;
/* path: borrowed until the writer is cleared. */
lt_status lt_pack_writer_open(lt_pack_writer *w, const char *path);
/* entry: label, encoding, size of the image; the rest is filled in. */
lt_status lt_pack_writer_add(lt_pack_writer *w, const lt_record *record, const char *name);
/* Writes header and table, syncs, renames. Clears w in any case. */
lt_status lt_pack_writer_finish(lt_pack_writer *w, uint64_t recipe);
void lt_pack_writer_abandon(lt_pack_writer *w);

/* XXH3, 64 bits. */
uint64_t lt_hash64(const void *data, size_t bytes);
bool lt_has_hash(void);

/* What a record becomes. */
typedef struct lt_pack_encoder lt_pack_encoder;
lt_status lt_pack_encoder_new(lt_pack_encoder **out, const lt_pack_config *config);
/* Encodes the record in place; *kept: left unchanged. Errors: LT_E_FORMAT (a broken image). */
lt_status lt_pack_encode(lt_pack_encoder *e, lt_record *record, int channels, bool *kept);
void lt_pack_encoder_free(lt_pack_encoder **e);

#endif
