/* Files and folders as data sets read them. */
#ifndef LT_DATA_FILES_H
#define LT_DATA_FILES_H

#include "lather/ext/dataset.h"

enum { LT_FILE_MOST = 1 << 30 }; /* bytes; an uncompressed picture of the largest size has 402 MB */

/* False: errno says why, 0 if it is something else. */
bool lt_is_folder(const char *path);

/* The whole file. Errors: LT_E_IO, LT_E_FORMAT (empty, or larger than any picture), both naming
 * path. */
lt_status lt_file_read(const char *path, lt_record *record);

/* size bytes from offset on. Errors: LT_E_IO, LT_E_FORMAT (the file ends before), naming path. */
lt_status lt_file_read_part(const char *path, uint64_t offset, uint64_t size, lt_record *record);

/* The same from an open file, into memory. path: for messages. Errors: as lt_file_read_part(). */
lt_status lt_read_at(int fd, const char *path, void *to, size_t bytes, uint64_t offset);

/* Asks the system to have size bytes from offset on in memory soon; size 0: all from there on. */
void lt_file_ahead(const char *path, uint64_t offset, uint64_t size);

/* Which of count parts a sample is in, of which each begins with sample first[i], the first with 0: the
 * last that begins at or before it. */
size_t lt_part_of(const int64_t *first, size_t count, int64_t index);

/* A file that may be compressed by gzip. */
typedef struct lt_stream_in lt_stream_in;

/* Errors: LT_E_IO; LT_E_UNSUPPORTED (gzip, in a build without zlib). */
lt_status lt_stream_open(lt_stream_in **out, const char *path);
/* Exactly bytes. Errors: LT_E_FORMAT (the file ends before, or is no gzip), LT_E_IO. */
lt_status lt_stream_read(lt_stream_in *in, void *to, size_t bytes);
/* Whether nothing follows. */
bool lt_stream_ended(lt_stream_in *in);
/* No more than this many bytes are taken from it, whatever a header says: those of a plain file, at most
 * 100 times as many of gzip (256 MiB of a small one). */
uint64_t lt_stream_bound(const lt_stream_in *in);
void lt_stream_close(lt_stream_in **in);

#endif
