"""Rows of a test program: functions of a fresh folder, whose names are sentences."""
import atexit
import contextlib
import fcntl
import os
import resource
import shutil
import subprocess
import tempfile
import time

SKIPPED = 77
PATIENCE = float(os.environ.get("LATHER_TEST_PATIENCE", "1"))  # factor of time limits: sanitizers and emulators make programs several times as slow
# Environment of an mpirun that a test starts: as root, more ranks than processors, none bound to one that another test's ranks use too; where a rank has
# failed the others are ended at once, not after two seconds; messages by memory, without a search for network cards.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_btl_base_warn_component_unused": "0", "OMPI_MCA_odls_base_sigkill_timeout": "0",
       "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_WAIT_POLICY": "passive"}
MEMORY, FREE = "/dev/shm", 2 << 30  # bytes that folders of rows may take
LOCKS = []  # descriptors, held as long as this process is there


def is_locked(folder):
    """Returns True if another process has locked the folder; otherwise locks it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return True
    LOCKS.append(lock)
    return False


def use_memory():
    """Places the folders of rows in memory if enough is free: a checkpoint waits for the disk ten times, most of the time of a small run. The folders may contain
    programs. Removes the folders of killed tests."""
    try:
        memory = os.statvfs(MEMORY)
    except OSError:
        return
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or memory.f_bavail * memory.f_frsize < FREE or memory.f_flag & os.ST_NOEXEC:
        return
    for name in os.listdir(MEMORY):
        with contextlib.suppress(OSError):
            if name.startswith("lather-rows-") and not is_locked(os.path.join(MEMORY, name)):
                shutil.rmtree(os.path.join(MEMORY, name))
    begun = tempfile.mkdtemp(prefix="lather-begun-", dir=MEMORY)
    is_locked(begun)  # before it has the name that others remove
    folder = begun.replace("lather-begun-", "lather-rows-")
    os.rename(begun, folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder


use_memory()
FAILURES = (AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired)


def full(row):
    """Marks a row that runs in ./check --full only: decorator of a row."""
    row.full = True
    return row


class Skip(Exception):
    """Raised by a row that cannot run here, with the reason."""


def needs_plain_memory():
    """Skips a row that measures the memory of processes, where other memory is added."""
    if {"LATHER_SANITIZED", "QEMU_LD_PREFIX"} & set(os.environ):
        raise Skip("sanitizers and emulators take memory and time")


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

    Open MPI 4 removes the folder of a user's sessions with the last of them, and a mpirun of a concurrent test that starts at that moment fails: each test has a separate folder."""
    with tempfile.TemporaryDirectory(prefix="lather-mpi-") as sessions:
        os.environ["OMPI_MCA_orte_tmpdir_base"] = sessions
        everything = os.environ.get("LATHER_TEST_FULL") == "1"
        found = [run_row(row, prefix) for row in rows
                 if only == row.__name__ or only is None and (everything or not getattr(row, "full", False))]
    if False in found or not found:
        return 1
    return 0 if True in found else SKIPPED
