/* Files of a checkpoint in parts: a rank writes the tensors that it owns to NAME-0000I-of-0000N.safetensors, and
 * NAME.safetensors.index.json, in HuggingFace's format, has the part of each tensor. A file whose tensors all belong to
 * one rank is NAME.safetensors. ADR 0096. */
#ifndef LT_TRAIN_PARTS_H
#define LT_TRAIN_PARTS_H

#include "checkpoint.h"

enum { LT_PARTS_FILES = 2, LT_PARTS_NAME = 64 }; /* files: model, optim */

/* A rank's part of each file. */
typedef struct lt_rank_parts {
    int64_t tensors[LT_PARTS_FILES], bytes[LT_PARTS_FILES];
    uint32_t crc[LT_PARTS_FILES]; /* CRC-32C */
    int number[LT_PARTS_FILES];   /* number of its part, from 1; 0: it writes none */
} lt_rank_parts;

/* The files of a save, and the parts of all ranks. */
typedef struct lt_parts {
    lt_shard_gather *gather;
    const lt_checkpoint_contents *contents;
    const lt_checkpoint_state *state;
    size_t end[LT_PARTS_FILES];       /* index of the tensor after each file's last */
    lt_rank_parts *of;                /* [ranks] */
    int ranks, count[LT_PARTS_FILES]; /* number of parts of each file */
    bool is_shared;                   /* ranks other than 0 write parts */
    char step[32];                    /* state->step */
    char run[LT_CHECKPOINT_NAME];     /* rank 0's run id: those of other ranks may differ */
} lt_parts;

/* Finds which ranks write parts: the owners of the tensors. Sets gather->in_parts. Free of with lt_free(). Collective; a failure aborts the group. Errors: LT_E_NOMEM, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_parts_plan(lt_parts *parts);
/* Shares the name of the folder that rank 0 has made, and its run id. Has rank 0 write all tensors unless all ranks see the
 * folder. folder: rank 0's. *path: to be freed. Collective; a failure aborts the group. Errors: LT_E_NOMEM, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_parts_share_folder(lt_parts *parts, const char *folder, char **path);
/* Writes this rank's part of each file; synced, except on rank 0. Errors: as lt_gather_write(). */
LT_MUST_CHECK lt_status lt_parts_write(lt_parts *parts, const char *folder);
/* Gathers sizes and checksums. Collective; a failure aborts the group. Errors: LT_E_NOMEM, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_parts_exchange(lt_parts *parts);
/* Writes the index of each file in parts, on rank 0. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_parts_write_indices(const lt_parts *parts, const char *folder);

#endif
