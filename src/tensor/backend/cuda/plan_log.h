/* Log of autotuning, LATHER_PLAN_LOG=FILE: a table of the candidates of each execution plan, to find out why a step is
 * slow or wrong. Lines are appended; processes may share the file. */
#ifndef LT_CUDA_PLAN_LOG_H
#define LT_CUDA_PLAN_LOG_H

#include "cuda.h"

/* A candidate. */
typedef struct lt_plan_line {
    const char *key;    /* identifies the operation: form, dtype, shape */
    const char *kind;   /* "hopper", "older", "compiled", "composed", "algorithm", "from disk" */
    int candidate;      /* its number among the candidates of the key */
    long long engine;   /* the library's number; -1: unknown */
    size_t workspace;   /* bytes */
    float milliseconds; /* time of one run; 0: not timed; < 0: failed */
    bool chosen;
    const char *note; /* how it was built, or why it failed; may be NULL */
} lt_plan_line;

/* Returns whether LATHER_PLAN_LOG is set. */
bool lt_plan_log_is_enabled(void);
/* Appends a line. If the file cannot be written, warns once. */
void lt_plan_log(const lt_cuda *c, const lt_plan_line *line);
/* Appends a comment line, "# cuda:N what: text". */
void lt_plan_log_remark(const lt_cuda *c, const char *what, const char *text);

#endif
