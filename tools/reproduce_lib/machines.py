"""Placement of cells: words before a trainer's command line, and the number of cells that the slots hold.

Paths are the same on all machines: they share --out, the data and the program."""
import os
import tempfile

from .plan import PlanError, number


class Sessions:
    """Environments of mpirun. Open MPI 4 removes the folder of a user's sessions with the last of them, and a mpirun that starts just then fails
    ("ORTE_ERROR_LOG: Error in file session_dir.c"): each slot has a separate folder, removed with the tool (other machines keep
    an empty one in /tmp)."""

    def __init__(self):
        self.folder = None

    def environment(self, slot):
        self.folder = self.folder or tempfile.TemporaryDirectory(prefix="lather-mpi-")
        return {"OMPI_MCA_orte_tmpdir_base": os.path.join(self.folder.name, str(slot))}


class Here:
    """This machine; several ranks by mpirun."""
    stop_by_launcher = False

    def __init__(self, jobs, ranks, mpirun):
        self.jobs, self.most = jobs or 1, jobs or 1
        self.words = [mpirun, "-n", str(ranks)] if ranks > 1 else []
        self.sessions = Sessions()

    def launcher(self, _slot):
        return self.words

    def environment(self, slot):
        return self.sessions.environment(slot) if self.words else {}


class Machines:
    """Machines with slots, by mpirun or srun. A cell's ranks are on one of them, so that no cell waits for a part of itself.
    most: cells on one machine."""
    stop_by_launcher = True  # which hands signals on to ranks on other machines

    def __init__(self, jobs, ranks, machines):
        capacity = [slots // ranks for _, slots in machines]
        # In turn, so that few cells are on different machines.
        self.place = [name for i in range(max(capacity, default=0)) for (name, _), cells in zip(machines, capacity) if i < cells]
        if not self.place:
            raise PlanError(f"--ranks: no machine has {ranks} slots")
        if jobs > len(self.place):
            raise PlanError(f"--jobs: {jobs} cells of {ranks} ranks; the slots hold {len(self.place)}")
        self.ranks, self.jobs = ranks, jobs or len(self.place)
        used = self.place[:self.jobs]
        self.most = max(used.count(name) for name in used)

    def environment(self, _slot):
        return {}


class ByMpirun(Machines):
    """Open MPI's."""

    def __init__(self, jobs, ranks, mpirun, hosts):
        self.mpirun = mpirun
        machines = {}
        for word in (hosts or f"localhost:{len(os.sched_getaffinity(0))}").split(","):
            name, _, slots = word.partition(":")
            machines[name] = machines.get(name, 0) + number(slots or "1", f"--hosts {word}", 1, 100000, True)
        super().__init__(jobs, ranks, list(machines.items()))
        self.sessions = Sessions()

    def launcher(self, slot):
        return [self.mpirun, "--host", f"{self.place[slot]}:{self.ranks}", "-x", "OMP_WAIT_POLICY", "-n", str(self.ranks)]

    def environment(self, slot):
        return self.sessions.environment(slot)


class BySlurm(Machines):
    """Steps in the allocation that this process is in."""

    def __init__(self, jobs, ranks):
        try:
            nodes, tasks = (int(os.environ[name]) for name in ("SLURM_JOB_NUM_NODES", "SLURM_NTASKS"))
        except (KeyError, ValueError):
            raise PlanError("--on slurm: not in an allocation of tasks (salloc -n 8, sbatch -n 8)") from None
        super().__init__(jobs, ranks, [(str(node), tasks // nodes) for node in range(nodes)])

    def launcher(self, slot):
        kind = "--mpi=pmix" if self.ranks > 1 else "--mpi=none"
        return ["srun", "--overlap", "--kill-on-bad-exit=1", kind, "-N", "1", "-r", self.place[slot], "-n", str(self.ranks)]


def machines_of(on, jobs, ranks, mpirun, hosts):
    """jobs: 0: as many as the slots hold. Errors: PlanError."""
    if hosts and on != "mpirun":
        raise PlanError("--hosts is of --on mpirun")
    if on == "local":
        return Here(jobs, ranks, mpirun)
    return BySlurm(jobs, ranks) if on == "slurm" else ByMpirun(jobs, ranks, mpirun, hosts)
