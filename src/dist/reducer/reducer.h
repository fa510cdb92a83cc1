/* Construction of reducers from --allreduce and --compress. */
#ifndef LT_DIST_REDUCER_H
#define LT_DIST_REDUCER_H

#include "lather/ext/reducer.h"

typedef struct lt_reducer_config {
    lt_comm *comm;
    lt_device *device;
    const lt_nodes *nodes; /* nodes of the ranks; NULL if unknown */
    const lt_params *params;
    const char
        *allreduce; /* "auto", "flat", "two-level"; NULL: flat; used without compression only */
    const char *compress; /* "KIND:ARGUMENT"; NULL or "off": no compression */
} lt_reducer_config;

/* Makes and configures a reducer without buckets. Collective. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_reducer_new(lt_reducer **out, const lt_reducer_config *config);
/* Opens a reducer whose buckets are laid out; it owns them from now on. Collective. */
LT_MUST_CHECK lt_status lt_reducer_open(lt_reducer *reducer);
void lt_reducer_free(lt_reducer **reducer);

#endif
