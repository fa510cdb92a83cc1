"""Rows of a test program: functions of a fresh folder, whose names are sentences."""
import os
import subprocess
import tempfile
import time

SKIPPED = 77
FAILURES = (AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired)


def full(row):
    """Marks a row that runs in ./check --full only: decorator of a row."""
    row.full = True
    return row


class Skip(Exception):
    """Raised by a row that cannot run here, with the reason."""


def run_row(row, prefix):
    """Prints cmocka's line. Whether it passed; None: it cannot run here."""
    name, begin = row.__name__.replace("_", " "), time.monotonic()
    with tempfile.TemporaryDirectory(prefix=prefix) as cwd:
        try:
            row(cwd)
        except Skip as why:
            print(f"[  SKIPPED ] {name}: {why}", flush=True)
            return None
        except FAILURES as why:
            print(f"{type(why).__name__}: {why}\n[  FAILED  ] {name}", flush=True)
            return False
    print(f"[       OK ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
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
