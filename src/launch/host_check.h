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
    int shares;          /* 1: it sees the launcher's run folder */
    char version[32], build[32];
    char kernels[128]; /* instruction sets of the CPU kernels */
} lt_host_report;

/* Parses a report. Returns false if the text has none. */
bool lt_host_report_parse(const char *text, lt_host_report *out);
/* Returns true if ranks can run there; else writes the reason. from, to: time() of the launcher before and after. */
bool lt_host_report_permits(const lt_host_report *report, double from, double to, char *why,
                            size_t size);

/* Checks that run. */
typedef struct lt_host_checks lt_host_checks;
/* Starts checks of all hosts, or only of those that are left out; they end within 5 s. Processes of the task's earlier
 * attempts on these hosts are killed; task: NULL: none. */
LT_MUST_CHECK lt_status lt_host_checks_start(lt_host_checks **out, const lt_launch *launch,
                                             const lt_task *task, bool left_out);
/* Reads their output for at most `seconds`. Returns true if all have ended, or their time is up. */
bool lt_host_checks_poll(lt_host_checks *checks, double seconds);
/* Returns true if the host was checked and ranks can run there; call after the end. */
bool lt_host_checks_permit(const lt_host_checks *checks, int host);
void lt_host_checks_free(lt_host_checks **checks);

/* Checks all hosts at once within 5 s, and logs a line for each whose state changed, or for each the first time. Ends
 * processes of the task's earlier attempts there; task: NULL if there were none. *back: hosts that are no longer left out;
 * one that was left out 3 times is not taken back. */
LT_MUST_CHECK lt_status lt_launch_hosts_check(const lt_launch *launch, const lt_task *task,
                                              int *back);
/* Main function of `lather node --check`. */
int lt_launch_host_check_main(int argc, char *const *argv);

#endif
