/* Ranks that the launcher assigned (mpirun of Open MPI or MPICH, srun, torchrun), read from the environment variables
 * that each launcher documents. */

#include "dist/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Returns the environment variable's value if it is a whole number >= 0, else -1. */
static int number(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return -1;
    char *end;
    long n = strtol(text, &end, 10);
    enum { MOST = 1 << 24 };
    return *end || n < 0 || n > MOST ? -1 : (int)n;
}

/* Returns true in a job step of srun; a batch script alone has Slurm's other variables too. */
static bool in_step(void)
{
    return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("PMI_FD");
}

int lt_launched_size(void)
{
    int size = number("OMPI_COMM_WORLD_SIZE");
    if (size < 0)
        size = number("PMI_SIZE");
    if (size < 0 && in_step())
        size = number("SLURM_NTASKS");
    return size;
}

/* Returns true if torchrun, which uses no MPI, started this process. */
static bool by_torchrun(void)
{
    return number("WORLD_SIZE") > 1 && number("RANK") >= 0 && getenv("MASTER_ADDR");
}

const char *lt_comm_launched_kind(void)
{
    if (lt_launched_size() > 1)
        return "mpi";
    return by_torchrun() ? "nccl" : "self";
}

/* Parses Slurm's tasks per node, "4(x2),3" for 4, 4 and 3 tasks on nodes 0 to 2. Returns -1 if invalid. */
static int tasks_of_node(const char *text, int node)
{
    while (text && *text) {
        char *end;
        long tasks = strtol(text, &end, 10), repeat = 1;
        if (end == text || tasks < 1)
            return -1;
        if (!strncmp(end, "(x", 2))
            repeat = strtol(end + 2, &end, 10);
        if (node < repeat)
            return (int)tasks;
        node -= (int)repeat;
        end += *end == ')';
        text = *end == ',' ? end + 1 : NULL;
    }
    return -1;
}

void lt_comm_launched_local(int *rank, int *size)
{
    int node = number("SLURM_NODEID");
    *rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
    *size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (*rank < 0 || *size < 1) {
        *rank = number("MPI_LOCALRANKID");
        *size = number("MPI_LOCALNRANKS");
    }
    if ((*rank < 0 || *size < 1) && in_step()) {
        *rank = number("SLURM_LOCALID");
        *size = tasks_of_node(getenv("SLURM_TASKS_PER_NODE"), node < 0 ? 0 : node);
    }
    if ((*rank < 0 || *size < 1) && by_torchrun()) {
        *rank = number("LOCAL_RANK");
        *size = number("LOCAL_WORLD_SIZE");
    }
    if (*rank < 0 || *size < 1 || *rank >= *size) {
        *rank = 0;
        *size = 1;
    }
}
