/** Which elements of a whole tensor a rank holds: one box of a view of it. */
#ifndef LATHER_DETAIL_PLACE_H
#define LATHER_DETAIL_PLACE_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** A plain value. Elements are counted in row-major order: logical ones of the whole tensor, local ones
 *  of the box, which is the order of the rank's own tensor whatever its shape. */
typedef struct lt_place {
    lt_shape logical; /**< of the whole tensor: that of weight files and of optimizer state */
    lt_shape view;    /**< the same elements, cut finer: an in_proj [3h,h] is [3,heads,h/heads,h] */
    lt_shape offset;  /**< where the box begins in the view; its dim are indices */
    lt_shape extent;  /**< the box's extents, of as many dimensions as the view */
} lt_place;

/** All of a tensor. */
LT_API lt_place lt_place_whole(lt_shape shape);
/** Part number index of parts along a dimension of a view, as even as lt_exchange_part() cuts. */
LT_API lt_place lt_place_shard(lt_shape logical, lt_shape view, int dim, int parts, int index);
/** Cuts the box itself so, along another dimension or once more along the same. With fewer elements than
 *  parts some boxes are empty, which lt_place_check() refuses. */
LT_API void lt_place_cut(lt_place *place, int dim, int parts, int index);

/** Errors: LT_E_SHAPE, with name and both numbers (the view has not the logical shape's elements; the box
 *  is empty or leaves the view; it has not count elements). */
LT_API LT_MUST_CHECK lt_status lt_place_check(const lt_place *place, const char *name,
                                              int64_t count);
LT_API bool lt_place_is_whole(const lt_place *place);
/** The same elements of the same shape, in the same order: however the views are cut. */
LT_API bool lt_place_equal(const lt_place *a, const lt_place *b);

enum { LT_PLACE_TEXT = 400 };
/** Writes "[0:3,2:4,0:16,0:64] of [3,4,16,64]" to text (of LT_PLACE_TEXT bytes) and returns it. */
LT_API const char *lt_place_text(const lt_place *place, char *text);

/** Elements of the box. */
LT_API int64_t lt_place_count(const lt_place *place);
/** The logical element that local element number element is. */
LT_API int64_t lt_place_index(const lt_place *place, int64_t element);

/** Elements that are neighbours in both orders. */
typedef struct lt_place_run {
    int64_t logical, local; /**< the first one, in either order */
    int64_t count;
} lt_place_run;

/** The next of the box's runs, by local order, each as long as can be; a zeroed run gives the first.
 *  False: there is none. */
LT_API bool lt_place_next_run(const lt_place *place, lt_place_run *run);

/** Copies the box out of the whole tensor; both in host memory, of elements of that many bytes. */
LT_API void lt_place_read(const lt_place *place, const void *logical, void *local,
                          size_t element_bytes);
/** The other direction: the box's elements of logical are overwritten. */
LT_API void lt_place_write(const lt_place *place, const void *local, void *logical,
                           size_t element_bytes);

#endif
