"""Rows of a test program: functions of a fresh folder, whose names are sentences."""
import os
import resource
import subprocess
import tempfile
import time

SKIPPED = 77
# Environment of an mpirun that a test starts: as root, more ranks than processors, none bound to one that another test's ranks use too; where a rank has
# failed the others are ended at once, not after two seconds; messages by memory, without a search for network cards.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_btl_base_warn_component_unused": "0", "OMPI_MCA_odls_base_sigkill_timeout": "0",
       "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_WAIT_POLICY": "passive"}
FREE = 2 << 30  # bytes that folders of rows may take


def use_memory():
    """Folders of rows are in memory where there is enough: a checkpoint waits for the disk ten times, which is most of what a small run takes. Programs may be in them."""
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return
    if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) and shm.f_bavail * shm.f_frsize >= FREE and not shm.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"


use_memory()
FAILURES = (AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired)


def full(row):
    """Marks a row that runs in ./check --full only: decorator of a row."""
    row.full = True
    return row


class Skip(Exception):
    """Raised by a row that cannot run here, with the reason."""


def core_seconds():
    """Core-seconds of this process and of its children that have ended."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def run_row(row, prefix):
    """Prints cmocka's line, with seconds by the clock and core-seconds. Whether it passed; None: it cannot run here."""
    name, begin, used = row.__name__.replace("_", " "), time.monotonic(), core_seconds()
    with tempfile.TemporaryDirectory(prefix=prefix) as cwd:
        try:
            row(cwd)
        except Skip as why:
            print(f"[  SKIPPED ] {name}: {why}", flush=True)
            return None
        except FAILURES as why:
            print(f"{type(why).__name__}: {why}\n[  FAILED  ] {name}", flush=True)
            return False
    print(f"[       OK ] {name} ({time.monotonic() - begin:.1f} s, {core_seconds() - used:.1f} core-s)", flush=True)
    return True


def run_rows(rows, prefix, only=None):
    """The exit status. only: the name of one. Rows marked full run if named, or with LATHER_TEST_FULL=1.

    Open MPI 4 removes the folder of a user's sessions with the last of them, and a mpirun that starts just then, of a test beside this one, fails: this one has its own."""
    with tempfile.TemporaryDirectory(prefix="lather-mpi-") as sessions:
        os.environ["OMPI_MCA_orte_tmpdir_base"] = sessions
        everything = os.environ.get("LATHER_TEST_FULL") == "1"
        found = [run_row(row, prefix) for row in rows
                 if only == row.__name__ or only is None and (everything or not getattr(row, "full", False))]
    if False in found or not found:
        return 1
    return 0 if True in found else SKIPPED
