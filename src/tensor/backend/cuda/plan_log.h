/* LATHER_PLANS=FILE: what a library's plans were chosen from, as a table for whoever looks for the reason of
 * a slow or wrong step. Lines are added; processes may share the file. */
#ifndef LT_CUDA_PLAN_LOG_H
#define LT_CUDA_PLAN_LOG_H

#include "cuda.h"

/* A candidate of a key. */
typedef struct lt_plan_line {
    const char *key;    /* what is planned: form, dtype, shape */
    const char *kind;   /* "hopper", "older", "compiled", "composed", "algorithm", "from disk" */
    int candidate;      /* its number among those of the key */
    long long engine;   /* the library's number for it; -1: none */
    size_t workspace;   /* bytes */
    float milliseconds; /* of a run; 0: it was not timed; < 0: it did not run */
    bool chosen;
    const char *note; /* how it was made, or why it did not run; NULL: nothing to say */
} lt_plan_line;

/* Whether anybody asked. */
bool lt_plan_log_wanted(void);
/* A line; that the file cannot be written is logged once, and no failure. */
void lt_plan_log(const lt_cuda *c, const lt_plan_line *line);
/* A line that is none of the table's, behind '#': the device, the library. */
void lt_plan_log_remark(const lt_cuda *c, const char *what, const char *text);

#endif
