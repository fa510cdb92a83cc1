/** Packed shards: a data set prepared once, so that reading it takes less time. */
#ifndef LATHER_PACK_H
#define LATHER_PACK_H

#include "lather/data.h"
#include "lather/transform.h"

typedef enum lt_pack_mode {
    LT_PACK_ORIGINAL, /**< the files as they are */
    /** JPEG files with the same coefficients, so the same pixels: optimised Huffman codes, and a
     *  restart marker after every row of units, so that rows above a crop are not decoded. A file
     *  that cannot be written so, or whose pixels would differ, stays as it is. */
    LT_PACK_LOSSLESS,
    LT_PACK_RESIZED, /**< JPEG of at most max_side pixels a side; smaller images as LOSSLESS */
    LT_PACK_RAW      /**< pixels, of at most max_side a side (0: any) */
} lt_pack_mode;

typedef struct lt_pack_config {
    lt_pack_mode mode;
    int max_side;           /**< pixels */
    int quality;            /**< of JPEG, 1 .. 100; 0: 90 */
    int64_t shard_samples;  /**< in one file; 0: 1/64 of all, in 64 .. 8192 */
    int threads;            /**< 0: one per core */
    lt_image_limits limits; /**< of images to decode; one beyond is broken */
} lt_pack_config;

typedef struct lt_pack_report {
    int64_t samples, total; /**< written (or found written), of all */
    int64_t bad;            /**< images that cannot be read: left out, listed in bad_images.txt */
    int64_t found;          /**< records in shards of an earlier call, read again and right */
    int64_t kept;           /**< not rewritten: no JPEG, or not to be written without a loss */
    uint64_t bytes_in, bytes_out;
} lt_pack_report;
/** Told after every shard, one call at a time; returns false to stop. */
typedef bool lt_pack_progress_fn(void *context, const lt_pack_report *so_far);

/** Writes data as shards into folder, with manifest.json (format, mode, class names) last. Goes on
 *  where an interrupted call with the same data and config stopped: a shard is complete or absent.
 *  Every record that is there already is compared with its hash; a damaged one is LT_E_FORMAT.
 *  progress may be NULL. report may be NULL. Errors: LT_E_ARG (a config out of range; folder holds
 *  a pack of other data or config), LT_E_IO, LT_E_NOMEM, LT_E_UNSUPPORTED (a build without libjpeg
 *  or xxHash), LT_END (stopped). */
LT_API LT_MUST_CHECK lt_status lt_pack_write(const char *folder, const lt_dataset *data,
                                             const lt_pack_config *config,
                                             lt_pack_progress_fn *progress, void *context,
                                             lt_pack_report *report);

/** Reads a pack. Every record is checked against its hash when it is read; a damaged one counts as
 *  a broken image. Errors: LT_E_IO, LT_E_FORMAT (no pack, a shard missing, damaged, of another
 *  version: says which). */
LT_API LT_MUST_CHECK lt_status lt_dataset_pack(lt_dataset **out, const char *folder);

/** Reads and decodes every record. limits: of images; NULL: the usual ones.
 *  Errors: LT_E_FORMAT, naming the first damaged one. */
LT_API LT_MUST_CHECK lt_status lt_pack_verify(const char *folder, const lt_image_limits *limits,
                                              int64_t *samples);

#endif
