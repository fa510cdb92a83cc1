/** For writing a dataset. Start from src/data/datasets/synthetic.c. */
#ifndef LATHER_EXT_DATASET_H
#define LATHER_EXT_DATASET_H

#include "lather/data.h"
#include "lather/ext/fail.h"

typedef enum lt_encoding {
    LT_ENCODING_FILE,   /**< an image file; its magic bytes say which */
    LT_ENCODING_PLANES, /**< u8, channel by channel: [C][H][W] */
    LT_ENCODING_PIXELS, /**< u8, pixel by pixel: [H][W][C] */
    LT_ENCODING_FLOATS, /**< f32, row-major, of the data set's shape; used unchanged */
    LT_ENCODING_TOKENS  /**< i32: [T] ids, then [T] labels, the ids that follow them */
} lt_encoding;

/** One encoded sample. The loader owns the memory and reuses it for the next one. */
typedef struct lt_record {
    uint8_t *bytes;
    size_t size, capacity; /**< in bytes */
    lt_encoding encoding;
    int32_t width, height, channels; /**< of planes and pixels; an image file brings its own */
    int32_t label;                   /**< 0 .. classes-1 */
    /** Set by the loader: of (seed, epoch), for samples that differ from epoch to epoch; 0 without
     *  shuffle. */
    uint64_t epoch_key;
} lt_record;

/** Allocates bytes, and spare ones after them that vector loads may read. The record's contents are
 *  lost. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_record_reserve(lt_record *record, size_t bytes);

typedef struct lt_dataset_ops {
    const char *name;
    size_t bytes; /**< of the dataset's struct */
    /** Called by several threads at once. A failure other than LT_E_NOMEM marks the sample as
     *  broken, of tokens it is an error; its message should name the file. */
    lt_status (*read)(const lt_dataset *self, int64_t index, lt_record *record);
    /** Optional: starts read-ahead of the sample. Called by several threads at once. */
    void (*ahead)(const lt_dataset *self, int64_t index);
    /** Optional. */
    const char *(*class_name)(const lt_dataset *self, int label);
    const char *(*sample_name)(const lt_dataset *self, int64_t index);
    /** Optional: for lt_dataset_fingerprint() of data without names of samples, or of a text: continues
     *  the hash of count and classes with labels or other contents that are in memory. */
    uint64_t (*fingerprint)(const lt_dataset *self, uint64_t hash);
    /** Optional: for lt_dataset_bytes(). */
    int64_t (*bytes_of_files)(const lt_dataset *self);
    void (*destroy)(lt_dataset *self);
} lt_dataset_ops;

/** First member of every dataset's struct. */
struct lt_dataset {
    const lt_dataset_ops *ops;
    int64_t count;
    int32_t classes;
    int32_t channels; /**< 1 or 3; 0: 3 */
    /** Of LT_ENCODING_FLOATS or LT_ENCODING_TOKENS, which all samples have then; ndim 0: images. */
    lt_shape shape;
    bool unsplit; /**< lt_dataset_open() gives the same samples to train and to evaluate */
    bool tokens;  /**< LT_ENCODING_TOKENS: shape is [T], classes the vocabulary's size */
    struct lt_remote *remote; /**< the library's: services that make its samples; NULL: none */
    /** The library's, of lt_dataset_map_classes(): numbers that classes get, [classes]; NULL: their own. */
    int32_t *label_map;
    char **map_name; /**< [map_classes], NULL inside: no name */
    int32_t map_classes;
};

/** A zeroed struct of ops->bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_new(lt_dataset **out, const lt_dataset_ops *ops);

/** A data set with a name. */
typedef struct lt_dataset_kind {
    const char
        *usage; /**< its name, and what may follow: "cifar10:FILE"; without ':', nothing may */
    /** spec as the user wrote it, "cifar10:batch.bin". train: the part to train on, else that to
     *  evaluate. */
    lt_status (*open)(lt_dataset **out, const char *spec, bool train);
} lt_dataset_kind;

/** From now on lt_dataset_open(), and --data of this program, know the data set by its name. Borrows
 *  kind, for ever. Before other threads use the library. Errors: LT_E_ARG (the name is taken),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_register(const lt_dataset_kind *kind);

#endif
