"""Memory that a plan predicts, against the peak of a process with the same flags."""
import os
import subprocess

from plan import plan
from trainer import OK, PROGRAM, needs_plain_memory

OVERHEAD = 100 << 20  # bytes of a process that a plan does not count: program, libraries and their kernels, the loader's batches (docs/guides/plan.md)
OF_STEP = 0.2  # tolerance, relative to the difference of two batches or optimizers: workspace of kernels, which no plan counts, grows with the batch too (161 MiB of tensors, 181 to 185 of the process)
PEAKS = 16 << 20  # bytes that peaks of equal runs differ by: 465 and 474 MiB, by how far the loader was ahead


def peak_of(cwd, *words):
    """Most bytes that a run of some steps has in memory. meson's MALLOC_PERTURB_ writes to all that is allocated, used or not."""
    env = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
    p = subprocess.Popen([PROGRAM, *words, "--max-steps", "2", "--eval-every", "-1", "--checkpoint-every", "0", "--no-tensorboard", "--progress", "off"], cwd=cwd,
                         env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    assert os.waitstatus_to_exitcode(status) == OK, (status, words)
    p.returncode = OK
    return 1024 * usage.ru_maxrss


def is_near_peak(said, real, overhead=OVERHEAD):
    """Compares {(optimizer, batch): bytes}, and differences of two that share the optimizer or the batch."""
    differ = [(a, b) for a in said for b in said if a < b and (a[0] == b[0]) != (a[1] == b[1])]
    return (all(0 < real[k] - said[k] < overhead for k in said)
            and all(abs(said[a] - said[b] - real[a] + real[b]) < max(OF_STEP * abs(said[a] - said[b]), PEAKS) for a, b in differ))


def memory(cwd, *words, batches, optims, overhead=OVERHEAD):
    """Returns predicted and measured bytes."""
    needs_plain_memory()
    found = plan(cwd, *words, "--goal", "deadline=1d", "--max-steps", "2", "--ranks", "1", "--vary", "batch-size=" + ",".join(map(str, batches)), "--vary", "optim=" + ",".join(optims),
                 "--profile-seconds", "0.02", profile_file="own.json")
    said = {(c["optim"], c["batch_size"]): c["memory_bytes"] for c in found["candidates"]}
    assert len(said) == len(batches) * len(optims), said
    real = {(optim, batch): peak_of(cwd, *words, "--optim", optim, "--batch-size", str(batch)) for optim, batch in said}
    print({k: (round(said[k] / 2 ** 20), round(real[k] / 2 ** 20)) for k in said}, "MiB predicted, and of the process")
    assert is_near_peak(said, real, overhead), (said, real)
    return said, real


def must_fail(said, real, overhead=OVERHEAD, **controls):
    """Controls: bytes that a plan must not omit, by optimizer and batch."""
    for name, less in controls.items():
        assert not is_near_peak({k: said[k] - less(*k) for k in said}, real, overhead), name
