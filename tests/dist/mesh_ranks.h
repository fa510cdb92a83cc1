/* Up to 64 ranks of a mesh on threads, and their blocks of matrices with known elements. */
#ifndef LT_TESTS_DIST_MESH_RANKS_H
#define LT_TESTS_DIST_MESH_RANKS_H

#include "doubles.h"
#include "ranks.h"

#include "lather/mesh.h"
#include "lather/tape.h"

enum { MESH_WHY = RANK_TEXT + 16 };

/* One rank; the mesh is made before fn runs, if the config is not NULL. */
typedef struct mesh_rank {
    test_rank at;
    lt_mesh *mesh;
    lt_tape *tape;
    int i, j, k, copy;
    const lt_mesh_config *config;
    const void *context;
    lt_status (*fn)(struct mesh_rank *r);
    uint64_t bytes; /* sent over the mesh's axes */
} mesh_rank;

/* Runs fn on every rank. Returns the first failure, with its message in why[MESH_WHY]. *bytes: sent by all ranks; may be
 * NULL. */
lt_status play_mesh(int ranks, bool f64, mesh_rank model, uint64_t *bytes, char *why);

/* Block of a matrix. */
typedef struct box {
    int64_t row, rows, column, columns;
} box;

/* Sets offset and size of part number index of a dimension. */
void cut(int64_t whole, int parts, int index, int64_t *first, int64_t *extent);

/* A rank's blocks of a linear layer on a grid: x [rows,in], w [out,in], b [1,out], y [rows,out]. */
typedef struct blocks {
    box x, w, b, y;
} blocks;
blocks blocks_of(const mesh_rank *r, int64_t rows, int64_t in, int64_t out);

/* Returns an element of one of several matrices: a small integer. */
double whole_number(int matrix, int64_t row, int64_t column);
/* Returns an element between -1 and 1. */
double fraction(int matrix, int64_t row, int64_t column);
typedef double element_fn(int matrix, int64_t row, int64_t column);

/* Makes a tensor of the block on r's device, in the master dtype; vector: one-dimensional, without its only row. */
lt_status make_box(const mesh_rank *r, lt_tensor **out, box b, int matrix, element_fn *value,
                   bool vector);
#endif
