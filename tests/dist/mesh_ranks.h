/* Up to 64 ranks of a mesh, by threads, and what each holds of a matrix whose elements are known. */
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

/* Runs fn on every rank. LT_OK, or the first failure, its message in why[MESH_WHY]. *bytes: sent by all; or NULL. */
lt_status play_mesh(int ranks, bool f64, mesh_rank model, uint64_t *bytes, char *why);

/* A rectangle of a matrix. */
typedef struct box {
    int64_t row, rows, column, columns;
} box;

/* Part number index of parts of a dimension: sets first and extent. */
void cut(int64_t whole, int parts, int index, int64_t *first, int64_t *extent);

/* What a rank holds of a linear layer's matrices on a grid: x [rows,in], w [out,in], b [1,out], y [rows,out]. */
typedef struct blocks {
    box x, w, b, y;
} blocks;
blocks blocks_of(const mesh_rank *r, int64_t rows, int64_t in, int64_t out);

/* Element of one of several matrices: a small whole number. */
double whole_number(int matrix, int64_t row, int64_t column);
/* A number between -1 and 1. */
double fraction(int matrix, int64_t row, int64_t column);
typedef double element_fn(int matrix, int64_t row, int64_t column);

/* A tensor of the box, on r's device, of the device's master dtype; vector: without its only row. */
lt_status make_box(const mesh_rank *r, lt_tensor **out, box b, int matrix, element_fn *value,
                   bool vector);
#endif
