/* Mesh of ranks: a communicator split per axis. Ranks are numbered row-major, columns fastest. */

#include "dist/mesh/mesh.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <stdio.h>

enum {
    TEXT = 96,
    MOST = 1 << 20
}; /* MOST: ranks along an axis, so that products fit into int64_t */

static const char *mesh_text(const lt_mesh_config *c, char text[TEXT])
{
    snprintf(text, TEXT, "%d x %d x %d x %d%s", c->data, c->depth, c->rows, c->columns,
             c->force ? " (forced)" : "");
    return text;
}

lt_status lt_mesh_resolve(const lt_mesh_config *config, lt_mesh_config *out)
{
    char text[TEXT];
    lt_mesh_config c = *config;
    int *const extent[] = {&c.data, &c.depth, &c.rows, &c.columns};
    for (int i = 0; i < 4; i++) {
        if (*extent[i] < 0 || *extent[i] > MOST)
            return lt_fail(LT_E_ARG, "mesh %s (data, depth, rows, columns): %d, want 1 to %d",
                           mesh_text(config, text), *extent[i], (int)MOST);
        *extent[i] += !*extent[i];
    }
    if (c.rows != c.columns && (c.rows != 1 || c.depth != 1))
        return lt_fail(
            LT_E_ARG,
            "mesh %s (data, depth, rows, columns): %d rows and %d columns, want equal numbers, or 1 "
            "row and depth 1",
            mesh_text(&c, text), c.rows, c.columns);
    if (c.depth > c.rows && !c.force)
        return lt_fail(LT_E_ARG,
                       "mesh %s (data, depth, rows, columns): depth %d exceeds the %d rows, which "
                       "needs force",
                       mesh_text(&c, text), c.depth, c.rows);
    *out = c;
    return LT_OK;
}

static lt_status check_config(lt_comm *comm, const lt_mesh_config *config, lt_mesh_config *c)
{
    char text[TEXT];
    LT_TRY(lt_comm_check_same(comm, "the mesh", mesh_text(config, text)));
    LT_TRY(lt_mesh_resolve(config, c));
    int64_t ranks = 1;
    const int extent[] = {c->data, c->depth, c->rows, c->columns};
    for (int i = 0; i < 4; i++)
        ranks = ranks > MOST ? ranks : ranks * extent[i];
    if (ranks != lt_comm_size(comm))
        return lt_fail(LT_E_ARG, "mesh %s (data, depth, rows, columns) needs %lld%s ranks, got %d",
                       mesh_text(c, text), (long long)ranks, ranks > MOST ? " or more" : "",
                       lt_comm_size(comm));
    return LT_OK;
}

/* Returns a rank's group along an axis: its index without that axis' coordinates. */
static int split_color(const lt_mesh_config *c, lt_mesh_axis axis, int rank)
{
    const int grid = c->rows * c->columns, j = rank % c->columns, i = rank / c->columns % c->rows;
    const int k = rank / grid % c->depth, copy = rank / grid / c->depth;
    switch (axis) {
    case LT_MESH_DATA:
        return rank % (c->depth * grid);
    case LT_MESH_DEPTH:
        return copy * grid + rank % grid;
    case LT_MESH_COLUMN:
        return (copy * c->depth + k) * c->columns + j;
    case LT_MESH_ROW:
        return (copy * c->depth + k) * c->rows + i;
    case LT_MESH_REPLICAS:
        return rank % grid;
    case LT_MESH_MODEL:
    case LT_MESH_AXES:
        break;
    }
    return copy;
}

lt_status lt_mesh_new(lt_mesh **out, lt_comm *comm, const lt_mesh_config *config)
{
    lt_mesh_config c;
    LT_TRY(check_config(comm, config, &c));
    lt_mesh *mesh = NULL;
    LT_TRY(LT_ALLOC(&mesh, 1));
    mesh->config = c;
    lt_status st = LT_OK;
    for (int a = 0; a < LT_MESH_AXES && !st; a++) {
        lt_comm *group = NULL;
        st = lt_comm_split(comm, split_color(&c, (lt_mesh_axis)a, lt_comm_rank(comm)), 0, &group);
        if (!st)
            st = lt_mesh_exchange_open(&mesh->axis[a], group);
    }
    if (st)
        lt_mesh_free(&mesh);
    else
        *out = mesh;
    return st;
}

void lt_mesh_free(lt_mesh **mesh)
{
    for (int a = LT_MESH_AXES; *mesh && a-- > 0;)
        lt_mesh_exchange_close(&(*mesh)->axis[a]);
    lt_free(*mesh);
    *mesh = NULL;
}

lt_mesh_config lt_mesh_config_of(const lt_mesh *mesh)
{
    return mesh->config;
}

lt_comm *lt_mesh_comm(const lt_mesh *mesh, lt_mesh_axis axis)
{
    return mesh->axis[axis].comm;
}

lt_process_group *lt_mesh_group(lt_mesh *mesh, lt_mesh_axis axis)
{
    return &mesh->axis[axis].base;
}

uint64_t lt_mesh_bytes(const lt_mesh *mesh)
{
    uint64_t bytes = 0;
    for (int a = 0; a < LT_MESH_AXES; a++)
        bytes += lt_comm_bytes(mesh->axis[a].comm);
    return bytes;
}
