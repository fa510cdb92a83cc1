/** Interface for new data sets. Start from src/data/datasets/synthetic.c. */
#ifndef LATHER_EXT_DATASET_H
#define LATHER_EXT_DATASET_H

#include "lather/data.h"
#include "lather/ext/fail.h"

typedef enum lt_encoding {
    LT_ENCODING_FILE,   /**< an image file, its format detected from the content */
    LT_ENCODING_PLANES, /**< pixels u8 [C][H][W] */
    LT_ENCODING_PIXELS, /**< pixels u8 [H][W][C] */
    LT_ENCODING_FLOATS, /**< f32 in the data set's shape, row-major, used unchanged */
    LT_ENCODING_TOKENS  /**< i32: [T] ids, then [T] labels, the ids after them */
} lt_encoding;

/** One encoded sample. The loader owns the memory and reuses it. */
typedef struct lt_record {
    uint8_t *bytes;
    size_t size, capacity; /**< bytes used and allocated */
    lt_encoding encoding;
    int32_t width, height, channels; /**< size of the image, for planes and pixels only */
    int32_t label;                   /**< class of the sample, 0 to classes-1 */
    /** Random key of (seed, epoch) set by the loader, for samples that depend on the epoch; 0 without
     *  shuffle. */
    uint64_t epoch_key;
} lt_record;

/** Allocates bytes and padding for vector loads. The record's contents are lost.
 *  Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_record_reserve(lt_record *record, size_t bytes);

typedef struct lt_dataset_ops {
    const char *name;
    size_t bytes; /**< size of the dataset's struct */
    /** Required; called by several threads. A failure other than LT_E_NOMEM means a corrupt sample,
     *  for tokens an error; its message should name the file. */
    lt_status (*read)(const lt_dataset *self, int64_t index, lt_record *record);
    /** Optional: starts read-ahead of a sample. Called by several threads. */
    void (*ahead)(const lt_dataset *self, int64_t index);
    /** Optional: returns the name of a class. */
    const char *(*class_name)(const lt_dataset *self, int label);
    /** Optional: returns the name of a sample, for messages. */
    const char *(*sample_name)(const lt_dataset *self, int64_t index);
    /** Optional: continues lt_dataset_fingerprint() with labels or other contents in memory, for data
     *  whose samples have no names. */
    uint64_t (*fingerprint)(const lt_dataset *self, uint64_t hash);
    /** Optional: implements lt_dataset_bytes(). */
    int64_t (*bytes_of_files)(const lt_dataset *self);
    /** Optional: sets *label to the class of a sample, for lt_dataset_label(), which otherwise reads the
     *  sample. */
    lt_status (*label)(const lt_dataset *self, int64_t index, int *label);
    /** Optional: frees what the struct owns, not the struct. */
    void (*destroy)(lt_dataset *self);
} lt_dataset_ops;

/** First member of every dataset's struct. */
struct lt_dataset {
    const lt_dataset_ops *ops;
    int64_t count;
    int32_t classes;
    int32_t channels; /**< channels of images, 1 or 3; 0: 3 */
    lt_shape shape;   /**< shape of LT_ENCODING_FLOATS or LT_ENCODING_TOKENS; ndim 0: images */
    bool unsplit;     /**< lt_dataset_open() returns the same samples for training and evaluation */
    bool tokens;      /**< LT_ENCODING_TOKENS: shape is [T], classes the vocabulary's size */
    /* Internal fields of the library: */
    struct lt_remote *remote; /**< services that make the samples; NULL: local */
    int32_t *label_map;       /**< [classes] by lt_dataset_map_classes(): new labels; or NULL */
    char **map_name;          /**< [map_classes] new names; NULL for a class without one */
    int32_t map_classes;
};

/** Allocates a zeroed struct of ops->bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_new(lt_dataset **out, const lt_dataset_ops *ops);

/** A named kind of data set. */
typedef struct lt_dataset_kind {
    const char *usage; /**< name and its argument, if any: "cifar10:FILE" */
    /** Opens spec as written by the user, e.g. "cifar10:batch.bin", for training or evaluation. */
    lt_status (*open)(lt_dataset **out, const char *spec, bool train);
} lt_dataset_kind;

/** Registers a name for lt_dataset_open() and the program's --data. Borrows kind for the life of the
 *  process. Call before other threads use the library. Errors: LT_E_ARG (a duplicate name),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_register(const lt_dataset_kind *kind);

#endif
