/** Shard of a tensor: the elements that a rank holds, a box in a view of the whole tensor. */
#ifndef LATHER_DETAIL_SHARD_SPEC_H
#define LATHER_DETAIL_SHARD_SPEC_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** A shard, as offset and extent in a view (as PyTorch's ShardMetadata). Element numbers are row-major: logical ones of
 *  the whole tensor, local ones of the shard, which is the order of the rank's tensor whatever its shape. */
typedef struct lt_shard_spec {
    lt_shape logical; /**< shape of the whole tensor, as in weight files and optimizer state */
    lt_shape
        view; /**< the same elements with more dimensions: an in_proj [3h,h] is [3,heads,h/heads,h] */
    lt_shape offset; /**< indices of the shard's first element in the view */
    lt_shape extent; /**< shape of the shard, with the dimensions of the view */
} lt_shard_spec;

/** Returns the shard that is the whole tensor. */
LT_API lt_shard_spec lt_shard_spec_whole(lt_shape shape);
/** Returns shard number index of `parts` along a dimension of a view, of lt_even_shard_size() elements there. */
LT_API lt_shard_spec lt_shard_spec_even(lt_shape logical, lt_shape view, int dim, int parts,
                                        int index);
/** Splits the shard further, along another dimension or again along the same. With fewer elements than parts some shards
 *  are empty, which lt_shard_spec_check() rejects. */
LT_API void lt_shard_spec_split(lt_shard_spec *spec, int dim, int parts, int index);

/** Checks a shard. Errors: LT_E_SHAPE, with name and both numbers (view and logical shape differ in elements; the shard
 *  is empty or exceeds the view; it does not have count elements). */
LT_API LT_MUST_CHECK lt_status lt_shard_spec_check(const lt_shard_spec *spec, const char *name,
                                                   int64_t count);
LT_API bool lt_shard_spec_is_whole(const lt_shard_spec *spec);
/** Returns true if both are the same elements of the same logical shape in the same order, even with other views. */
LT_API bool lt_shard_spec_equal(const lt_shard_spec *a, const lt_shard_spec *b);

enum { LT_SHARD_SPEC_TEXT = 400 };
/** Writes "[0:3,2:4,0:16,0:64] of [3,4,16,64]" to text (of LT_SHARD_SPEC_TEXT bytes) and returns it. */
LT_API const char *lt_shard_spec_text(const lt_shard_spec *spec, char *text);

/** Returns the number of elements of the shard. */
LT_API int64_t lt_shard_spec_count(const lt_shard_spec *spec);
/** Returns the logical index of a local element. */
LT_API int64_t lt_shard_spec_index(const lt_shard_spec *spec, int64_t element);

/** Elements that are contiguous in both orders. */
typedef struct lt_shard_run {
    int64_t logical, local; /**< first element in each order */
    int64_t count;
} lt_shard_run;

/** Advances to the next maximal run of the shard in local order; a zeroed run gives the first. Returns false at the
 *  end. */
LT_API bool lt_shard_spec_next_run(const lt_shard_spec *spec, lt_shard_run *run);

/** Copies the shard out of the whole tensor; both in host memory, with elements of element_bytes. */
LT_API void lt_shard_spec_read(const lt_shard_spec *spec, const void *logical, void *local,
                               size_t element_bytes);
/** Copies the shard into the whole tensor. */
LT_API void lt_shard_spec_write(const lt_shard_spec *spec, const void *local, void *logical,
                                size_t element_bytes);

#endif
