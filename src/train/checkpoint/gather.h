/* Tensors of files, wherever they are. All ranks list them in the same order. Rank 0 writes all, or the owner of each
 * tensor writes it to its part. Ranks walk the list: the writer of a tensor receives what other ranks hold of it. */
#ifndef LT_TRAIN_GATHER_H
#define LT_TRAIN_GATHER_H

#include "lather/weights.h"

/* A shard of a parameter, and the lowest rank that holds it. */
typedef struct lt_holder {
    int rank;
    lt_shard_spec spec;
} lt_holder;

/* A tensor of a file, and who holds it: one rank the whole, or several ranks a shard each. */
typedef struct lt_gathered {
    char *name, *note;              /* name in the file; metadata of that name, or NULL. Owned */
    lt_dtype dtype, stored;         /* dtype on the ranks; in the file: the same, or f32 for f64 */
    lt_shape shape;                 /* shape of the whole tensor */
    const lt_tensor *tensor;        /* this rank's whole tensor or shard; NULL if it has neither */
    struct lt_quantized *quantized; /* state to dequantize, instead of tensor */
    lt_tensor *made;                /* owned: tensor that was made for the file; else NULL */
    int owner;                      /* rank that holds the whole; else one that holds a shard */
    bool later;                     /* belongs to a group of ranks after the first (groups.c) */
    const lt_holder *holder;        /* ranks that hold shards; NULL: the owner holds the whole */
    size_t holders, taken;          /* number of holders; how many of them the writer has read */
    struct lt_shard_gather *gather;
} lt_gathered;

typedef struct lt_shard_gather {
    lt_comm *comm; /* communicator of all ranks; NULL: this rank alone */
    lt_gathered *item;
    size_t count, capacity;
    size_t next;             /* index of the first tensor that the walk has not passed */
    bool in_parts;           /* owners write the tensors; false: rank 0 does */
    const lt_params *params; /* parameters whose shards are gathered; NULL: none */
    lt_holder *holder;       /* holders of the shards of params, parameter by parameter */
    size_t *first;           /* [params + 1]: index in holder of each parameter's first */
} lt_shard_gather;

/* Finds which ranks hold which shards of params; collective if there are any. Close it whatever it returns.
 * Errors: LT_E_ARG (a shard without other ranks: names both; ranks differ in the number of parameters or in a logical
 * shape), LT_E_SHAPE (the shards of all ranks are not exactly the parameter: names it), LT_E_NOMEM, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_gather_open(lt_shard_gather *out, lt_comm *comm,
                                       const lt_params *params);
void lt_gather_close(lt_shard_gather *gather);

/* Adds a tensor, sharded as param is; param NULL: whole. Takes name, note and made even if it fails; name NULL:
 * LT_E_NOMEM. Errors: LT_E_ARG (a shard of a parameter unknown to lt_gather_open(); another rank has it, and there is
 * no communicator), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_gather_add(lt_shard_gather *gather, const lt_gathered *item,
                                      const lt_param *param);
/* Adds the value of a parameter; owner: rank that has the whole. */
LT_MUST_CHECK lt_status lt_gather_add_param(lt_shard_gather *gather, const lt_param *param,
                                            int owner);

/* A file of some of the tensors. */
typedef struct lt_gather_file {
    const char *path;
    size_t first, last;     /* index of the file's first tensor, and of the one after its last */
    bool is_weights;        /* metadata begin with the format's name, then those below */
    bool in_atomic_dir;     /* an lt_atomic_dir syncs the file */
    const char *step, *run; /* metadata of a part; NULL for a whole file */
    const lt_metadata *metadata;
    size_t metadata_count;
} lt_gather_file;
/* Returns the number of tensors from first to last-1 that this rank writes. */
size_t lt_gather_count_own(const lt_shard_gather *gather, size_t first, size_t last);
/* Writes the tensors that this rank writes. Errors: LT_E_IO, LT_E_NOMEM, LT_E_ARG (a duplicate name), those of
 * receiving. */
LT_MUST_CHECK lt_status lt_gather_write(lt_shard_gather *gather, const lt_gather_file *file);
/* Reads tensor number index as a file would have it, on the rank that writes it; free *data with lt_free(). Call in the
 * order of the list. Errors: LT_E_NOMEM, those of receiving. */
LT_MUST_CHECK lt_status lt_gather_read(lt_shard_gather *gather, size_t index, void **data,
                                       size_t *bytes);
/* Walks the rest of the list, on every rank, also after a failure: sends tensors that other ranks write, receives and
 * discards those that this rank did not write. A failure aborts the group. */
LT_MUST_CHECK lt_status lt_gather_finish(lt_shard_gather *gather);

#endif
