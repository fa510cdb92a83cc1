/** Files of weights: safetensors with the names of a model's parameters. */
#ifndef LATHER_WEIGHTS_H
#define LATHER_WEIGHTS_H

#include "lather/comm.h"
#include "lather/param.h"
#include "lather/safetensors.h"

/** A text for the metadata of a file of weights: {"class_names", "cat\ndog"}. Borrowed. */
typedef struct lt_metadata {
    const char *key, *value;
} lt_metadata;

/** Writes torchvision's keys in OIHW order as f32 (num_batches_tracked: i64, 0-D).
 *  Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_weights_save(const char *path, const lt_params *params);
/** The same with metadata. Errors: LT_E_ARG (a key twice, or "format"). */
LT_API LT_MUST_CHECK lt_status lt_weights_save_with(const char *path, const lt_params *params,
                                                    const lt_metadata *metadata, size_t count);

/** The same on several ranks: rank 0 writes, the others send it their boxes of parameters; the file is that
 *  of one rank. comm NULL: this one alone. Collective; if all ranks have whole parameters the others return
 *  at once. Errors: LT_E_COMM, too; what fails on one rank fails on all. */
LT_API LT_MUST_CHECK lt_status lt_weights_save_ranks(const char *path, const lt_params *params,
                                                     const lt_metadata *metadata, size_t count,
                                                     lt_comm *comm);

/** Makes the values of a parameter of a file's entry of another shape, row-major: positions for
 *  another number of patches, say. from and to NULL: only whether it can. Errors: LT_E_SHAPE (the
 *  message says what the shapes mean), LT_E_NOMEM. */
typedef lt_status lt_weights_fit_fn(const void *context, const char *name, lt_shape have,
                                    const double *from, lt_shape want, double *to);

/** Part of a name: in parameters' names, and in files of other versions. */
typedef struct lt_weights_alias {
    const char *name, *in_file; /**< "mlp.0.", "mlp.linear_1."; name NULL ends a list */
} lt_weights_alias;

typedef struct lt_weights_config {
    const char *skip;        /**< leaves out parameters whose name begins so: "fc."; NULL: none */
    lt_weights_fit_fn *fit;  /**< for entries of other shapes; NULL: they are errors */
    const void *fit_context; /**< borrowed */
    const char *prefix; /**< that names in the file may have before the parameters'; NULL: none */
    /** Ends of names of entries that the file may have besides, which are not read; NULL ends the
     *  list. NULL: none. */
    const char *const *unread;
    const lt_weights_alias *alias; /**< other names of parameters; NULL: none */
} lt_weights_config;

/** Opens a file of weights, or the model.safetensors of a folder, by the names that models use: without the "module." of PyTorch's
 *  DataParallel and the "_orig_mod." of torch.compile in front of all. Errors: as lt_safetensors_open(). */
LT_API LT_MUST_CHECK lt_status lt_weights_open(lt_safetensors **out, const char *path);

/** Reads weights of f32, f64, f16 or bf16 into the parameters, of a box its elements; num_batches_tracked
 *  may be missing.
 *  Changes nothing unless all is right. config NULL: all parameters. Errors: LT_E_IO; LT_E_FORMAT
 *  (no safetensors file, a NaN, names that are missing or not in the model); LT_E_SHAPE, naming the
 *  tensor and both shapes. */
LT_API LT_MUST_CHECK lt_status lt_weights_load(const char *path, const lt_params *params,
                                               const lt_weights_config *config);

#endif
