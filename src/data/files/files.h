/* Reads files: whole, byte ranges, and streams that may be gzip. */
#ifndef LT_DATA_FILES_H
#define LT_DATA_FILES_H

#include "lather/ext/dataset.h"

enum { LT_FILE_MOST = 1 << 30 }; /* bytes; an uncompressed image of the largest size has 402 MB */

/* Returns true for a folder. Otherwise sets errno, to 0 if path exists and is not a folder. */
bool lt_is_folder(const char *path);

/* Reads the whole file. Errors, with path: LT_E_IO, LT_E_FORMAT (empty, or larger than LT_FILE_MOST). */
lt_status lt_file_read(const char *path, lt_record *record);

/* Reads size bytes from offset on. Errors, with path: LT_E_IO, LT_E_FORMAT (the file ends before). */
lt_status lt_file_read_range(const char *path, uint64_t offset, uint64_t size, lt_record *record);

/* Reads `bytes` bytes at an offset of an open file. path: for messages. Errors: as lt_file_read_range(). */
lt_status lt_read_at(int fd, const char *path, void *to, size_t bytes, uint64_t offset);

/* Writes `bytes` bytes at an offset of an open file. path: for messages. Errors: LT_E_IO. */
lt_status lt_write_at(int fd, const char *path, const void *from, size_t bytes, uint64_t offset);

/* Starts read-ahead of size bytes from offset on (posix_fadvise WILLNEED); size 0: to the end. */
void lt_file_read_ahead(const char *path, uint64_t offset, uint64_t size);

/* Returns the segment that contains index: the largest i with first[i] <= index. first: index of the first element of
 * each of count segments, ascending; first[0] is 0. */
size_t lt_find_segment(const int64_t *first, size_t count, int64_t index);

/* Ends the constructor of a data set: stores d in *out, or frees it if st is an error. Returns st. */
static inline lt_status lt_dataset_set_or_free(lt_dataset **out, lt_dataset *d, lt_status st)
{
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}

/* An input stream of a plain file or a gzip file. */
typedef struct lt_stream_in lt_stream_in;

/* Opens a stream. Errors: LT_E_IO; LT_E_UNSUPPORTED (gzip in a build without zlib). */
lt_status lt_file_stream_open(lt_stream_in **out, const char *path);
/* Reads exactly bytes. Errors: LT_E_FORMAT (the file ends before, or the gzip data are invalid), LT_E_IO. */
lt_status lt_file_stream_read(lt_stream_in *in, void *to, size_t bytes);
/* Returns true at the end of the stream. Consumes a byte otherwise. */
bool lt_file_stream_at_end(lt_stream_in *in);
/* Returns an upper bound of the stream's length, so that readers need not trust a header: the size of a plain file; 100
 * times the size of a gzip file, or for a small one up to 256 MiB. */
uint64_t lt_file_stream_size_bound(const lt_stream_in *in);
void lt_file_stream_close(lt_stream_in **in);

#endif
