/* Shard files of a pack (packed record shards). Numbers are little-endian.
 *
 *   header   lt_pack_header
 *   records  concatenated, from sizeof(lt_pack_header) on
 *   table    count x lt_pack_entry
 *   text     NUL-terminated names of the samples
 *
 * The header is written last; a temporary file is renamed when it is complete. */
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
    uint64_t config_hash; /* hash of config and data set, see hash_config() in write.c */
    uint64_t count;       /* number of records */
    uint64_t table, text; /* offsets of table and text in the file */
    uint64_t text_size;
    uint32_t crc;      /* CRC-32C of table and text */
    uint32_t self_crc; /* CRC-32C of the header's fields before this one */
} lt_pack_header;

typedef struct lt_pack_entry {
    uint64_t offset, size, hash; /* position and size of the record; hash: its XXH3, 64 bits */
    uint32_t label, name;        /* class; name: offset of the sample's name in the text */
    uint32_t width, height;      /* size in pixels with LT_ENCODING_PIXELS, otherwise 0 */
    uint16_t encoding, channels;
    uint32_t unused;
} lt_pack_entry;

/* Table and names of a shard. */
typedef struct lt_pack_shard {
    lt_pack_entry *entry;
    size_t count;
    char *text;
    size_t text_size;
} lt_pack_shard;

/* Sets *out to true if the folder has a manifest.json. Errors: LT_E_NOMEM. */
lt_status lt_is_pack(bool *out, const char *folder);
/* Returns FOLDER/shard-00007.pack, or NULL if out of memory; lt_free() it. */
char *lt_pack_shard_path(const char *folder, int64_t index);
/* Loads table and text, and checks the header. config_hash: expected hash; 0 accepts any. Errors, with path: LT_E_IO;
 * LT_E_FORMAT; LT_E_ARG (another hash). */
lt_status lt_pack_shard_load(lt_pack_shard *out, const char *path, uint64_t config_hash);
void lt_pack_shard_clear(lt_pack_shard *shard);

/* A shard being written. Starts as {0}. */
typedef struct lt_pack_writer {
    const char *path; /* path of the shard; borrowed */
    lt_replacement file;
    uint64_t at;
    lt_pack_shard shard;
    size_t capacity, text_capacity;
} lt_pack_writer;
/* Creates a temporary file. path: borrowed until the writer is cleared. */
lt_status lt_pack_writer_open(lt_pack_writer *w, const char *path);
/* Appends a record and its table entry. */
lt_status lt_pack_writer_add(lt_pack_writer *w, const lt_record *record, const char *name);
/* Writes header and table, syncs and renames. Clears w in any case. */
lt_status lt_pack_writer_finish(lt_pack_writer *w, uint64_t config_hash);
/* Deletes the temporary file and clears w. */
void lt_pack_writer_abandon(lt_pack_writer *w);

/* Returns XXH3, 64 bits; 0 in a build without xxHash (lt_has_xxhash() is false). */
uint64_t lt_hash64(const void *data, size_t bytes);
bool lt_has_xxhash(void);

/* Encodes records as the config's mode requires. */
typedef struct lt_pack_encoder lt_pack_encoder;
lt_status lt_pack_encoder_new(lt_pack_encoder **out, const lt_pack_config *config);
/* Encodes a record in place; sets *kept if it is unchanged. Errors: LT_E_FORMAT (a corrupt image). */
lt_status lt_pack_encode(lt_pack_encoder *e, lt_record *record, int channels, bool *kept);
void lt_pack_encoder_free(lt_pack_encoder **e);

#endif
