/** Packs: a data set written as record shards, for faster reading. */
#ifndef LATHER_PACK_H
#define LATHER_PACK_H

#include "lather/data.h"
#include "lather/transform.h"

typedef enum lt_pack_mode {
    LT_PACK_ORIGINAL, /**< unchanged files: no transcoding */
    /** JPEG transcoded without loss: optimised Huffman codes, and a restart marker after every MCU row
     *  so that rows above a crop need no decoding. Files that cannot be transcoded exactly are
     *  stored unchanged. */
    LT_PACK_LOSSLESS,
    LT_PACK_RESIZED, /**< JPEG scaled down to max_side; smaller images as LT_PACK_LOSSLESS */
    LT_PACK_RAW      /**< decoded pixels, scaled down to max_side (0: full size) */
} lt_pack_mode;

typedef struct lt_pack_config {
    lt_pack_mode mode;
    int max_side;           /**< longest side of an image in pixels */
    int quality;            /**< JPEG quality, 1 to 100; 0: 90 */
    int64_t shard_samples;  /**< samples per shard; 0: 1/64 of all, between 64 and 8192 */
    int threads;            /**< worker threads; 0: one per core */
    lt_image_limits limits; /**< decoding limits; images above them count as corrupt */
} lt_pack_config;

typedef struct lt_pack_report {
    int64_t samples, total; /**< samples in the pack so far; samples in the data set */
    int64_t bad;            /**< corrupt images, skipped and listed in bad_images.txt */
    int64_t found;          /**< records written by an earlier call and verified by this one */
    int64_t kept;           /**< files stored unchanged: not JPEG, or not transcodable exactly */
    uint64_t bytes_in, bytes_out;
} lt_pack_report;
/** Callback after every shard, never concurrent; returns false to stop. */
typedef bool lt_pack_progress_fn(void *context, const lt_pack_report *so_far);

/** Writes data as shards into folder, then manifest.json (format, mode, class names). Shards are
 *  complete or absent, so an interrupted call is resumed by one with the same data and config, which
 *  verifies the hashes of all existing records. progress and report may be NULL.
 *  Errors: LT_E_ARG (a field out of range; folder has a pack of other data or config), LT_E_FORMAT
 *  (an existing record is corrupt), LT_E_IO, LT_E_NOMEM, LT_E_UNSUPPORTED (a build without libjpeg or
 *  xxHash), LT_END (stopped by progress). */
LT_API LT_MUST_CHECK lt_status lt_pack_write(const char *folder, const lt_dataset *data,
                                             const lt_pack_config *config,
                                             lt_pack_progress_fn *progress, void *context,
                                             lt_pack_report *report);

/** Opens a pack. Records are verified by their hash when read; the loader handles a corrupt one as a
 *  corrupt image.
 *  Errors: LT_E_IO, LT_E_FORMAT (no pack; a shard that is missing, corrupt or of another version,
 *  named in the message). */
LT_API LT_MUST_CHECK lt_status lt_dataset_pack(lt_dataset **out, const char *folder);

/** Reads and decodes every record. limits: decoding limits, or NULL for the defaults.
 *  Errors: LT_E_FORMAT, naming the first corrupt record. */
LT_API LT_MUST_CHECK lt_status lt_pack_verify(const char *folder, const lt_image_limits *limits,
                                              int64_t *samples);

#endif
