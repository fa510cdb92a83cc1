/* Tensors of files that rank 0 writes, whichever ranks have them. All ranks list the tensors in the same order; then
 * rank 0 receives one after another as it writes, and each other rank sends its own. */
#ifndef LT_TRAIN_GATHER_H
#define LT_TRAIN_GATHER_H

#include "lather/detail/place_ops.h"
#include "lather/weights.h"

/* A tensor of a file, and who has it: one rank all of it, or several ranks a box each. */
typedef struct lt_gathered {
    char *name, *note;              /* in the file; metadata of that name, NULL: none. Owned */
    lt_dtype dtype, stored;         /* on the ranks; in the file: the same, or f32 for f64 */
    lt_shape shape;                 /* of all of it */
    const lt_tensor *tensor;        /* this rank's: all of it, or a box; NULL: nothing */
    struct lt_quantized *quantized; /* or, in its place, what becomes such a tensor */
    lt_tensor *made;                /* tensor, if it was made for the file: owned; else NULL */
    int owner;                      /* the rank that has all of it */
    const lt_place_holder *holder;  /* or the ranks that have boxes; NULL: the owner alone */
    size_t holders, taken;          /* of these, rank 0 has received or read `taken` */
    lt_comm *comm;
} lt_gathered;

typedef struct lt_gather {
    lt_comm *comm; /* NULL: this rank alone */
    lt_gathered *item;
    size_t count, capacity;
    const lt_params *params; /* whose boxes several ranks hold; NULL: none */
    lt_place_map *map;
} lt_gather;

/* Finds which ranks hold which boxes of params; collective if there are any. Close it whatever it returns.
 * Errors: LT_E_ARG (a box, and no other ranks: names both), those of lt_place_map_new(). */
LT_MUST_CHECK lt_status lt_gather_open(lt_gather *out, lt_comm *comm, const lt_params *params);
/* On rank 0, what it has not received is received and thrown away if sent, that is if the others send. */
void lt_gather_close(lt_gather *gather, bool sent);

/* Adds a tensor, cut as param is; param NULL: whole. Takes name, note and made even if it fails; name NULL: LT_E_NOMEM.
 * Errors: LT_E_ARG (a box of another parameter than those of lt_gather_open()), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_gather_add(lt_gather *gather, const lt_gathered *item,
                                      const lt_param *param);
/* The same for a tensor that each rank has, all of it or its box. */
LT_MUST_CHECK lt_status lt_gather_add_tensor(lt_gather *gather, const char *name,
                                             const lt_tensor *tensor, const lt_param *param);

/* A file of some of the tensors. */
typedef struct lt_gather_file {
    const char *path;
    size_t first, last; /* the first one's number, and the last one's plus 1 */
    bool is_weights;    /* its metadata begins with the format's name, then those below */
    bool is_part;       /* of an lt_commit, which does the syncing */
    const lt_metadata *metadata;
    size_t metadata_count;
} lt_gather_file;
/* On rank 0. Errors: LT_E_IO, LT_E_NOMEM, LT_E_ARG (a name twice), those of receiving. */
LT_MUST_CHECK lt_status lt_gather_write(lt_gather *gather, const lt_gather_file *file);
/* On the others, while rank 0 writes. */
LT_MUST_CHECK lt_status lt_gather_send(const lt_gather *gather);

#endif
