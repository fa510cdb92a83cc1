"""Ranks on devices cuda:0, cuda:1, ... that are stand-ins on the host (tests/cuda/standin): what tests of several
programs share."""
import os
import socket
import subprocess
import tempfile
import time

import rows

TIMEOUT = 100 * rows.PATIENCE
ENV = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", OMPI_MCA_btl_vader_single_copy_mechanism="none",
           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_btl_base_warn_component_unused="0",
           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")


def modules(build, folder):
    """The stand-in's module and MPI's, in one folder; false: there is no stand-in."""
    ENV.update(LATHER_PLUGIN_PATH=folder, XDG_CACHE_HOME=os.path.join(folder, "plans"))
    for path in ("tests/cuda/standin/liblather-cuda.so", "liblather-mpi.so"):
        if os.path.exists(os.path.join(build, path)):
            os.symlink(os.path.join(build, path), os.path.join(folder, os.path.basename(path)))
    return os.path.exists(os.path.join(folder, "liblather-cuda.so"))


def environment(cwd, order, devices):
    return dict(ENV, LATHER_STANDIN=order, LATHER_STANDIN_DEVICES=str(devices), TMPDIR=cwd)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Ranks:
    """Ranks started as by torchrun: each is a separate process, which a test can inspect."""

    def __init__(self, count, args, cwd, order="now", devices=None):
        env = dict(environment(cwd, order, devices or count), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        self.process = [
            subprocess.Popen([*args], cwd=cwd, env=dict(env, RANK=str(r), LOCAL_RANK=str(r), LATHER_STANDIN_SEED=str(r + 1)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(count)]

    def finish(self):
        """(exit status, stderr) of each rank."""
        end = time.monotonic() + TIMEOUT
        try:
            said = [p.communicate(timeout=max(1, end - time.monotonic()))[1] for p in self.process]
        except subprocess.TimeoutExpired:
            for p in self.process:
                p.kill()
            said = [p.communicate()[1] for p in self.process]
            raise AssertionError("hangs: " + " | ".join(s[-300:] for s in said)) from None
        return [(p.returncode, s) for p, s in zip(self.process, said)]


def by_mpi(launcher, count, args, cwd, order):
    return subprocess.run([launcher, "-n", str(count), *args], cwd=cwd, env=environment(cwd, order, count),
                          capture_output=True, text=True, timeout=TIMEOUT, check=False)


def expect(got, *codes):
    want = codes if len(codes) > 1 else codes * len(got)
    assert tuple(c for c, _ in got) == tuple(want), f"{[c for c, _ in got]}, want {list(want)}: " + " | ".join(
        s[-400:] for _, s in got)


def run_rows(chosen, build, prefix, only=None):
    """Exit status, and cmocka's lines. only: the name of one row."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        if not modules(build, folder):
            print(f"{build}: no stand-in")
            return rows.SKIPPED
        return rows.run_rows(chosen, prefix, only)
