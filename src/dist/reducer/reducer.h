/* Making reducers by what a command line says. */
#ifndef LT_DIST_REDUCER_H
#define LT_DIST_REDUCER_H

#include "lather/ext/reducer.h"

/* What a reducer is made of. */
typedef struct lt_reducer_config {
    lt_comm *comm;
    lt_device *device;
    const lt_nodes *nodes; /* NULL: not known */
    const lt_params *params;
    const char *allreduce; /* "auto", "flat", "two-level"; NULL: flat */
    const char *compress;  /* "KIND:ARGUMENT"; NULL, "off": none, so that allreduce decides */
} lt_reducer_config;

/* Configured, its buckets not yet laid out. Collective. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_reducer_new(lt_reducer **out, const lt_reducer_config *config);
/* The buckets are its own from now on, and freed with it: makes own of each, and opens it. Collective. */
LT_MUST_CHECK lt_status lt_reducer_open(lt_reducer *reducer);
void lt_reducer_free(lt_reducer **reducer);

#endif
