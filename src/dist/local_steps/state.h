/* Private declarations of local steps. */
#ifndef LT_DIST_LOCAL_STEPS_STATE_H
#define LT_DIST_LOCAL_STEPS_STATE_H

#include "dist/reducer/sparse_codec.h"

#include "lather/detail/backend.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/local_steps.h"

typedef enum lt_outer_values { LT_OUTER_F32, LT_OUTER_BF16, LT_OUTER_2BIT } lt_outer_values;

/* Compression of the outer step: --outer-compress. */
typedef struct lt_outer_compression {
    double density; /* fraction of a shard that is sent; 0: uncompressed */
    lt_outer_values values;
} lt_outer_compression;

struct lt_local_steps {
    lt_comm *node, *peers; /* ranks of this node; its peers in others; owned */
    lt_device *device;
    lt_local_steps_config config;
    lt_outer_compression compression;
    const lt_params *all; /* all parameters of the model; borrowed */
    lt_param **param;     /* [params] trained parameters */
    int64_t *begin;       /* [params + 1] element offset of each parameter in their concatenation */
    size_t params;
    int64_t statistics; /* number of elements of running statistics */
    int groups, group, locals, local;
    int *rank;      /* [groups * locals] ranks in the communicator of all groups */
    int64_t *count; /* [locals] elements of each rank's shard */
    int64_t first;  /* element offset of this rank's shard */
    int64_t since;  /* inner steps in this round */
    lt_local_steps_bytes sent;
    /* Shards that this rank holds: */
    lt_tensor *start;    /* values at the beginning of the round */
    lt_tensor *momentum; /* outer momentum; NULL if unused */
    lt_tensor *residual; /* error feedback; NULL if uncompressed */
    lt_tensor *change;   /* start - value, during an outer step */

    lt_tensor *statistic; /* all running statistics, during an outer step */
    lt_tensor *
        *whole[3]; /* [params] whole start, momentum, residual between unfold and fold; else NULL */
};

/* flat_buffer.c: operations on elements concatenated in the order of params and of memory. */
/* y = alpha x + beta y */
LT_MUST_CHECK lt_status lt_local_axpby(const lt_local_steps *local, double alpha, lt_view x,
                                       double beta, lt_view y);
/* Copy this rank's shard of the values to shard; copy whole, all elements, to the values. */
LT_MUST_CHECK lt_status lt_local_pack(const lt_local_steps *local, lt_tensor *shard);
LT_MUST_CHECK lt_status lt_local_unpack(const lt_local_steps *local, const lt_tensor *whole);
/* Gathers the shards of a group's ranks; free *whole. Collective within the group. */
LT_MUST_CHECK lt_status lt_local_gather(const lt_local_steps *local, const lt_tensor *shard,
                                        lt_tensor **whole);
/* Makes running statistics equal on all ranks. Collective. */
LT_MUST_CHECK lt_status lt_local_merge_statistics(lt_local_steps *local);

/* sparse.c: parses --outer-compress. */
LT_MUST_CHECK lt_status lt_outer_compression_parse(lt_outer_compression *out, const char *text);
/* Adds change to the error feedback, sends its largest elements and sets change to their mean over groups. Collective
 * among peers. */
LT_MUST_CHECK lt_status lt_local_allreduce_sparse(lt_local_steps *local);

#endif
