"""Shared code of the tests of tools/reproduce: calls of the tool, files, rows.

A row is a function of a fresh folder. Prints cmocka's lines. Exit status 77 where the trainer is not there."""
import argparse
import filecmp
import os
import random
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "tools", "reproduce")
sys.path[:0] = [os.path.join(ROOT, "tests", "support"), os.path.dirname(TOOL)]
import rows  # noqa: E402

OK, ERROR, USAGE, INTERRUPTED, CANNOT = 0, 1, 2, 3, 77

TINY = """[plan]
data       = synthetic:32:16:4
budgets    = 1 2
trials     = 2
seeds      = 1
baseline   = one
challenger = two
[common]
arch       = resnet10
width      = 4
batch-size = 16
deterministic = true
[arm one]
optim        = sgd
lr           = 0.01 .. 1
[arm two]
optim        = adamw
lr           = 1e-4 .. 1e-2
"""


def call(line, cwd, main=None):
    """The tool (main: of another than reproduce) in a child that has its modules already: starting Python and importing them takes
    longer than most calls."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as none:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            code = 70
            try:
                os.chdir(cwd)
                for file, number in ((none, 0), (out, 1), (err, 2)):
                    os.dup2(file.fileno(), number)
                code = (main or tool.main)(line)
            except SystemExit as end:
                code = end.code
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(line, code, out.read(), err.read())


def reproduce(*args, cwd, code=OK, program=None):
    """program: the trainer. Without one the stub, or, where all rows run, the real one."""
    line = [*args, "--threads", "1", "--out", os.path.join(cwd, "out")]
    line += [] if "--redraw" in args else ["--train", program or options.trainer]
    p = call(line, cwd)
    failed = "".join(line for line in p.stdout.splitlines(True) if "FAILED" in line)
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {failed} {p.stdout[-300:]} {p.stderr[-700:]}"
    return p


def refused(text, says, cwd, code=USAGE, *args):
    path = write(cwd, "bad.ini", text)
    said = reproduce(path, *args, cwd=cwd, code=code, program=options.program).stderr
    assert says in said and said.count("\n") == 1, f"'{said}' does not say '{says}' in one line"
    assert not os.path.exists(os.path.join(cwd, "out", "cells")), "cells were run"


def write(cwd, name, text):
    path = os.path.join(cwd, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def same_tree(a, b):
    """Names of files that differ, or are in one folder only."""
    found = []
    compared = filecmp.dircmp(a, b)
    found += compared.left_only + compared.right_only
    _, differ, errors = filecmp.cmpfiles(a, b, compared.common_files, shallow=False)
    found += differ + errors
    for name in compared.common_dirs:
        found += [os.path.join(name, f) for f in same_tree(os.path.join(a, name), os.path.join(b, name))]
    return found


def make_stub(folder):
    """stub_trainer.py under the trainer's name, started without what Python usually looks for."""
    path = os.path.join(folder, os.path.basename(options.program))
    with open(os.path.join(ROOT, "tests", "tools", "stub_trainer.py"), encoding="utf-8") as file:
        write(folder, path, f"#!{sys.executable} -SE\n{file.read()}\nsys.exit(main({options.program!r}, {folder!r}))\n")
    os.chmod(path, 0o755)
    return path


LAUNCHER = """#!/bin/sh
ranks=1
while :; do
    case $1 in
    -n) ranks=$2 ;;
    --host | -x) ;;
    *) break ;;
    esac
    shift 2
done
OMPI_COMM_WORLD_SIZE=$ranks OMPI_COMM_WORLD_RANK=0 exec "$@"
"""


def run_rows(chosen):
    """The exit status."""
    with tempfile.TemporaryDirectory(prefix="lather-stub-") as folder:
        options.stub = make_stub(folder)
        options.launcher = write(folder, "mpirun", LAUNCHER)
        os.chmod(options.launcher, 0o755)
        options.everything = os.environ.get("LATHER_TEST_FULL") == "1" or options.only is not None
        options.trainer = options.program if options.everything else options.stub
        return rows.run_rows(chosen, "lather-reproduce-", options.only)


parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--kills", type=int, default=4)
parser.add_argument("--longest", type=float, default=0, help="seconds before a kill; 0: so that most come before the end")
parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
parser.add_argument("--mpirun", default="", help="the launcher of the MPI that was built for")
parser.add_argument("--build", default="", help="the build folder, to install from")
parser.add_argument("--only")
options = parser.parse_args()
options.program = os.path.abspath(options.program)
if not os.access(options.program, os.X_OK):
    print(f"{options.program} is not there")
    sys.exit(CANNOT)
# Root may start ranks here: a test's machine is often a container.
os.environ.update(OMP_WAIT_POLICY="passive", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_btl_vader_single_copy_mechanism="none")

from reproduce_lib import main as tool  # noqa: E402 (it keeps the environment for trainers)
