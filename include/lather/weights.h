/** Weight files: safetensors with the names of a model's parameters. */
#ifndef LATHER_WEIGHTS_H
#define LATHER_WEIGHTS_H

#include "lather/comm.h"
#include "lather/param.h"
#include "lather/safetensors.h"

/** A text in the metadata of a weight file: {"class_names", "cat\ndog"}. Borrowed. */
typedef struct lt_metadata {
    const char *key, *value;
} lt_metadata;

/** Writes torchvision's keys in OIHW order as f32 (num_batches_tracked: i64, 0-D). Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_weights_save(const char *path, const lt_params *params);
/** Does the same as lt_weights_save(), with metadata. Errors: LT_E_ARG (a duplicate key, or "format"). */
LT_API LT_MUST_CHECK lt_status lt_weights_save_with(const char *path, const lt_params *params,
                                                    const lt_metadata *metadata, size_t count);

/** Saves weights on several ranks: rank 0 writes, the others send it their shards of parameters; the
 *  file is the same as on one rank. comm NULL: this one alone. Collective; if all ranks have whole
 *  parameters, the others return at once. Errors: LT_E_COMM, too; a failure on one rank fails on all. */
LT_API LT_MUST_CHECK lt_status lt_weights_save_ranks(const char *path, const lt_params *params,
                                                     const lt_metadata *metadata, size_t count,
                                                     lt_comm *comm);

/** Converts a parameter from a file's entry of another shape, row-major: positions for another number of patches,
 *  for instance. from and to NULL: only checks that it can. Errors: LT_E_SHAPE (the message explains the shapes),
 *  LT_E_NOMEM. */
typedef lt_status lt_weights_fit_fn(const void *context, const char *name, lt_shape have,
                                    const double *from, lt_shape want, double *to);

/** Part of a parameter's name, and its equivalent in files of other versions. */
typedef struct lt_weights_alias {
    const char *name, *in_file; /**< "mlp.0.", "mlp.linear_1."; name NULL ends a list */
} lt_weights_alias;

typedef struct lt_weights_config {
    const char *skip;        /**< omits parameters whose name has this prefix: "fc."; NULL: none */
    lt_weights_fit_fn *fit;  /**< converts entries of other shapes; NULL: these are errors */
    const void *fit_context; /**< context of fit; borrowed */
    const char *prefix;      /**< prefix that names in the file may have; NULL: none */
    /** Suffixes of further entries that the file may have, which are not read; ended by NULL. NULL: none. */
    const char *const *unread;
    const lt_weights_alias *alias; /**< alternative names of parameters; NULL: none */
} lt_weights_config;

/** Opens a weight file, a folder of one, or a run folder (its best checkpoint; without one, or if the weights are
 *  averaged, its final weights), with the names that models use: strips the prefixes "module." of PyTorch's
 *  DataParallel, "_orig_mod." of torch.compile, "model." and "backbone.". Errors: as lt_safetensors_open(). */
LT_API LT_MUST_CHECK lt_status lt_weights_open(lt_safetensors **out, const char *path);

/** Reads weights of f32, f64, f16 or bf16 into the parameters, for a shard its elements; num_batches_tracked may
 *  be missing, other names must not be floats. Changes nothing unless the whole file fits. config NULL: all parameters. Errors: LT_E_IO;
 *  LT_E_FORMAT (not a safetensors file, a NaN, names that are missing or not in the model); LT_E_SHAPE, naming the
 *  tensor and both shapes. */
LT_API LT_MUST_CHECK lt_status lt_weights_load(const char *path, const lt_params *params,
                                               const lt_weights_config *config);

#endif
