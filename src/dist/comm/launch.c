/* Ranks that the launcher assigned (mpirun of Open MPI or MPICH, srun, torchrun), read from the environment variables
 * that each launcher documents. */

#include "dist/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Returns the environment variable's value if it is a whole number >= 0, else -1. */
static int env_number(const char *name)
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
static bool is_in_srun_step(void)
{
    return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("PMI_FD");
}

int lt_launched_size(void)
{
    int size = env_number("OMPI_COMM_WORLD_SIZE");
    if (size < 0)
        size = env_number("PMI_SIZE");
    if (size < 0 && is_in_srun_step())
        size = env_number("SLURM_NTASKS");
    return size;
}

/* Returns true if torchrun, which uses no MPI, started this process. */
static bool is_torchrun(void)
{
    return env_number("WORLD_SIZE") > 1 && env_number("RANK") >= 0 && getenv("MASTER_ADDR");
}

const char *lt_comm_launched_kind(void)
{
    if (lt_launched_size() > 1)
        return "mpi";
    return is_torchrun() ? "nccl" : "self";
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
    int node = env_number("SLURM_NODEID");
    *rank = env_number("OMPI_COMM_WORLD_LOCAL_RANK");
    *size = env_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (*rank < 0 || *size < 1) {
        *rank = env_number("MPI_LOCALRANKID");
        *size = env_number("MPI_LOCALNRANKS");
    }
    if ((*rank < 0 || *size < 1) && is_in_srun_step()) {
        *rank = env_number("SLURM_LOCALID");
        *size = tasks_of_node(getenv("SLURM_TASKS_PER_NODE"), node < 0 ? 0 : node);
    }
    if ((*rank < 0 || *size < 1) && is_torchrun()) {
        *rank = env_number("LOCAL_RANK");
        *size = env_number("LOCAL_WORLD_SIZE");
    }
    if (*rank < 0 || *size < 1 || *rank >= *size) {
        *rank = 0;
        *size = 1;
    }
}
