/* Entries of optim.safetensors: which there are, their names, and how they are read. */
#ifndef LT_TRAIN_CHECKPOINT_ENTRY_H
#define LT_TRAIN_CHECKPOINT_ENTRY_H

#include "lather/checkpoint.h"

/* Kind of an entry. A group of ranks (lather/local_steps.h) has its own entries of kinds OPTIM and GROUP. */
typedef enum lt_entry_kind {
    LT_ENTRY_OPTIM,   /* state of the optimizer */
    LT_ENTRY_EXTRA,   /* lt_checkpoint_contents.extra, whose name is entry.param */
    LT_ENTRY_REDUCER, /* state of the gradient reducer (--compress) */
    LT_ENTRY_OUTER,   /* state of the outer step, common to all groups */
    LT_ENTRY_GROUP    /* state of the outer step, of this rank's group */
} lt_entry_kind;

/* Visits all entries and numbers of this rank's group, in the order of the file; *kind is the kind of each. A group
 * after the first visits its own entries last. */
LT_MUST_CHECK lt_status lt_checkpoint_visit(const lt_checkpoint_contents *parts,
                                            lt_state_visitor *visitor, lt_entry_kind *kind);

/* Returns an entry's name; NULL without memory. Optimizer and outer step: "PREFIX[conv1.weight]#block.B.NAME", or
 * "PREFIX[conv1.weight]#NAME" for state of the whole parameter; reducer: the same with "@" instead of "#". */
char *lt_checkpoint_entry_name(const char *prefix, lt_entry_kind kind, const lt_state_entry *entry);
/* Returns "offset [0,0] shape [64,147]", which identifies a block; NULL without memory. */
char *lt_checkpoint_format_block(const lt_state_entry *entry);

/* One of the two passes over a file. */
typedef struct lt_reading {
    const char *path; /* path of the file, for messages */
    const lt_safetensors *file;
    bool write;         /* write the entries; false: only check them */
    lt_entry_kind kind; /* kind of the entry that is visited */
} lt_reading;
/* Reads a tensor of the file into the entry's, which may be a shard, quantized, or on another rank. Errors: as
 * lt_entry_load(). */
LT_MUST_CHECK lt_status lt_reading_load_entry(const lt_reading *r, const lt_safetensors_entry *e,
                                              const lt_state_entry *entry);

/* A list of integers, such as an optimizer's numbers in the order of visiting. Zero it first. */
typedef struct lt_numbers {
    int64_t *item; /* the integers; free with lt_free() */
    size_t count, capacity;
} lt_numbers;

/* Functions of an lt_state_visitor: they ignore an entry or a number, or append a number to an lt_numbers. */
lt_status lt_skip_entry(void *context, const lt_state_entry *entry);
lt_status lt_skip_number(void *context, const char *name, int64_t *value);
lt_status lt_numbers_append(void *numbers, const char *name, int64_t *value);

#endif
