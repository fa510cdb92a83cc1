/* Checks hosts before ranks start on them. */
#ifndef LT_LAUNCH_HOST_CHECK_H
#define LT_LAUNCH_HOST_CHECK_H

#include "launch/hosts.h"
#include "launch/launch.h"

/* The line that `lather node --check` prints about its host. */
typedef struct lt_host_report {
    double time;         /* seconds since 1970 */
    double disk, memory; /* free bytes: of the working folder's file system, of the machine */
    int ended;           /* processes of earlier attempts that were ended */
    char version[32];
    char kernels[128]; /* instruction sets of the CPU kernels */
} lt_host_report;

/* Parses a report. Returns false if the text has none. */
bool lt_host_report_parse(const char *text, lt_host_report *out);
/* Returns true if ranks can run there; else writes the reason. from, to: time() of the launcher before and after. */
bool lt_host_report_permits(const lt_host_report *report, double from, double to, char *why,
                            size_t size);

/* Checks all hosts at once within 5 s, and logs a line for each whose state changed, or for each the first time. Ends
 * processes of the task's earlier attempts there; task: NULL if there were none. *back: hosts that are no longer left out;
 * one that was left out 3 times is not taken back. */
LT_MUST_CHECK lt_status lt_launch_hosts_check(const lt_launch *launch, const lt_task *task,
                                              int *back);
/* Main function of `lather node --check`. */
int lt_launch_host_check_main(int argc, char *const *argv);

#endif
