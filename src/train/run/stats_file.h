/* optim_stats.bin: the records of --optim-stats. Little endian: "LTSTATS1", uint64 H, H bytes of JSON, padded by spaces so
 * that records are aligned to 8 bytes, then records of equal size: int64 step, float32 values. */
#ifndef LT_TRAIN_STATS_FILE_H
#define LT_TRAIN_STATS_FILE_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LT_STATS_FILE "optim_stats"

/* Drops the records after step from FOLDER/optim_stats.bin and from those that were moved aside; step 0: removes the
 * files. Missing files are no error. Errors: LT_E_IO, LT_E_FORMAT (an invalid header), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stats_file_rewind(const char *folder, int64_t step);

/* Opens FOLDER/optim_stats.bin to append records. A file with another header is renamed to optim_stats.1.bin, .2.bin, ...
 * first. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stats_file_open(FILE **out, const char *folder, const char *json);
/* Appends a record, whole. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_stats_file_write(FILE *file, int64_t step, const float *value,
                                            size_t count);

#endif
