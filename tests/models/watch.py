#!/usr/bin/env python3
"""Evaluation beside training: train_mlp evaluate --watch RUN.

    watch.py TRAIN_MLP MPIRUN|none [ROW]
"""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

from rows import MPI, Skip, run_rows  # noqa: E402
from trainer import INTERRUPTED, NOISE, PROGRAM, TIMEOUT, USAGE, checkpoint, epochs_of, fails, run  # noqa: E402

from report_lib.records import read_metrics  # noqa: E402

LAUNCHER = sys.argv[2]
FLAGS = [*NOISE, "--hidden", "8", "--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic", "--optim", "sgd",
         "--sched", "constant", "--no-tensorboard", "--epochs", "4", "--keep", "0"]
NEVER = ["--eval-every", "-1"]
WATCH = ["evaluate", "--progress", "off", "--watch"]
STEPS = [6, 12, 18, 24]  # ends of the epochs


def evaluations(cwd, folder="run"):
    path = os.path.join(cwd, folder, "metrics-eval.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]


def steps(cwd, folder="run"):
    return [r["step"] for r in evaluations(cwd, folder)]


def values(records, part="val_"):
    return [(r["step"], r["epoch"], {k: v for k, v in r.items() if k.startswith(part) and not k.startswith("val_raw")}) for r in records]


def start(*args, cwd):
    return subprocess.Popen([PROGRAM, *args], cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(p, what):
    end = time.monotonic() + TIMEOUT
    while not what() and p.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert what(), f"it never came: {p.poll()}"


def wait_for_looks(p):
    """Until it has slept twice more: as often it looked for a checkpoint or an end, and went on."""
    def sleeps():
        with open(f"/proc/{p.pid}/task/{p.pid}/status") as f:
            return int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", f.read()).group(1))
    last = sleeps() + 2
    wait_for(p, lambda: p.poll() is None and sleeps() >= last)
    assert p.poll() is None, p.communicate()


def finish(p, code=0):
    text = p.communicate(timeout=TIMEOUT)[1]
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {text[-500:]}"
    return text


def lock(path):
    """As a process that trains holds it; closing it ends that."""
    file = open(path, "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


def is_held(path):
    """Whether a process holds the lock."""
    with open(path, "a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def checkpoints(cwd, folder="run"):
    return sorted(n for n in os.listdir(os.path.join(cwd, folder, "checkpoints")) if n not in ("latest", "best"))


def make_unfinished(cwd, folder="run"):
    """A run whose process is gone: its weights are missing."""
    run(*FLAGS, *NEVER, "--output", folder, cwd=cwd)
    os.remove(os.path.join(cwd, folder, "model.safetensors"))


def end(cwd, folder="run"):
    """What a run's last act makes of an unfinished one."""
    shutil.copyfile(checkpoint(cwd, folder, STEPS[-1]), os.path.join(cwd, folder, "model.safetensors"))


def numbers_are_those_of_a_run_that_evaluates_itself(cwd):
    for ema in ([], ["--ema-decay", "0.9"]):
        own, beside = f"own{len(ema)}", f"beside{len(ema)}"
        run(*FLAGS, *ema, "--output", own, cwd=cwd)
        trainer = start(*FLAGS, *ema, *NEVER, "--output", beside, cwd=cwd)
        wait_for(trainer, lambda: os.path.exists(os.path.join(cwd, beside, "checkpoints", "latest")))
        run(*WATCH, beside, cwd=cwd)
        finish(trainer)
        found, want = evaluations(cwd, beside), epochs_of(cwd, own)
        assert values(found) == values(want) and len(want) == 4, f"{found}\n{want}"
        assert not any("val_loss" in r for r in epochs_of(cwd, beside)), "the run evaluated itself"
        assert all(("val_raw_loss" in r) == bool(ema) for r in found), found
        if ema:  # what the weights themselves make, without averages
            assert [r["val_raw_loss"] for r in found] == [r["val_loss"] for r in evaluations(cwd, "beside0")]
        a, b = read_metrics(os.path.join(cwd, own)), read_metrics(os.path.join(cwd, beside))
        assert a.of("val_loss") == b.of("val_loss") and a.of("val_top1") == b.of("val_top1") and b.eval_seconds == 0
        assert set(checkpoints(cwd, beside)) == {f"step-{s}" for s in STEPS}, "something was left"


def what_the_run_evaluated_is_not_evaluated_again(cwd):
    run(*FLAGS, "--eval-every", "2", "--output", "run", cwd=cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == [6, 18], steps(cwd)
    merged = [x for x, _ in read_metrics(os.path.join(cwd, "run")).of("val_loss")]
    assert merged == STEPS, merged


def a_restart_goes_on(cwd):
    make_unfinished(cwd)
    shutil.move(os.path.join(cwd, "run", "checkpoints", "step-18"), os.path.join(cwd, "aside"))
    shutil.move(os.path.join(cwd, "run", "checkpoints", "step-24"), os.path.join(cwd, "aside24"))
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: steps(cwd) == [6, 12])
    p.send_signal(signal.SIGTERM)
    assert "stopped; the same command continues" in finish(p, INTERRUPTED)
    shutil.move(os.path.join(cwd, "aside"), os.path.join(cwd, "run", "checkpoints", "step-18"))
    shutil.move(os.path.join(cwd, "aside24"), os.path.join(cwd, "run", "checkpoints", "step-24"))
    end(cwd)
    for _ in range(2):
        run(*WATCH, "run", cwd=cwd)
        assert steps(cwd) == STEPS, steps(cwd)


def a_killed_one_leaves_whole_lines(cwd):
    make_unfinished(cwd)
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: len(steps(cwd)) >= 2)
    p.kill()
    p.communicate()
    path = os.path.join(cwd, "run", "metrics-eval.jsonl")
    with open(path) as f:
        lines = f.read().splitlines(True)
    with open(path, "w") as f:  # the last one, cut off
        f.write("".join(lines[:-1]) + lines[-1][:40])
    end(cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == STEPS and set(checkpoints(cwd)) == {f"step-{s}" for s in STEPS}, (steps(cwd), checkpoints(cwd))


def what_is_removed_or_damaged_is_passed_over(cwd):
    """And an incomplete one is no checkpoint."""
    make_unfinished(cwd)
    folder = os.path.join(cwd, "run", "checkpoints")
    with open(checkpoint(cwd, "run", 12), "r+b") as f:
        f.truncate(200)
    os.remove(checkpoint(cwd, "run", 6, "state.json"))  # as a copy that goes on
    os.remove(checkpoint(cwd, "run", 18, "optim.safetensors"))
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: steps(cwd) == [24])
    shutil.rmtree(os.path.join(folder, "step-24"))
    os.symlink("step-12", os.path.join(folder, "l"))
    os.replace(os.path.join(folder, "l"), os.path.join(folder, "latest"))
    end_weights = os.path.join(cwd, "run", "model.safetensors")
    shutil.copyfile(checkpoint(cwd, "run", 6), end_weights)
    text = finish(p)
    assert steps(cwd) == [24] and text.count("step 12 is not evaluated") == 1 and "damaged" in text, text
    assert text.count("step 18 is not evaluated") == 1 and "step 6 " not in text, text


def a_checkpoint_stays_readable_while_the_run_removes_it(cwd):
    """keep 1: the run removes each as soon as the next one is there."""
    trainer = start(*FLAGS, *NEVER, "--keep", "1", "--epochs", "60", "--output", "run", cwd=cwd)
    wait_for(trainer, lambda: os.path.exists(os.path.join(cwd, "run", "checkpoints", "latest")))
    text = run(*WATCH, "run", cwd=cwd).stderr
    finish(trainer)
    found = steps(cwd)
    assert found == sorted(set(found)) and found[-1] == 360, found
    assert all("was removed" in line for line in text.splitlines() if "not evaluated" in line), text


def links_keep_what_is_removed_in_the_middle(cwd):
    run(*FLAGS, *NEVER, "--ema-decay", "0.9", "--output", "run", cwd=cwd)
    p = start(*WATCH, "run", "--data", "synthetic:8000:16:3", cwd=cwd)  # it takes a while; the averages are read behind the weights' part
    wait_for(p, lambda: os.path.exists(os.path.join(cwd, "run", "checkpoints", "evaluated", "optim.safetensors")))
    shutil.rmtree(os.path.join(cwd, "run", "checkpoints", "step-6"))
    text = finish(p)
    assert steps(cwd) == STEPS and "not evaluated" not in text, (steps(cwd), text)
    assert set(checkpoints(cwd)) == {f"step-{s}" for s in STEPS[1:]}


def a_run_that_is_trained_further_has_not_ended(cwd):
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    with lock(os.path.join(cwd, "run", "lock")):
        p = start(*WATCH, "run", cwd=cwd)
        wait_for(p, lambda: steps(cwd) == STEPS)
        wait_for_looks(p)  # it does not end while a process holds the run
    finish(p)
    weights = os.path.join(cwd, "run", "model.safetensors")
    os.utime(weights, (1, 1))  # of an earlier end; the run was killed since
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: p.poll() is None and is_held(os.path.join(cwd, "run", "lock-eval")))
    wait_for_looks(p)  # weights older than the newest checkpoint are no end
    os.utime(weights)
    assert "no process trains it: waiting" in finish(p)


def it_waits_for_a_run_to_begin(cwd):
    p = start(*WATCH, "run", "--watch-wait", "200", cwd=cwd)
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    finish(p)
    assert steps(cwd) == STEPS, steps(cwd)


def a_run_that_goes_on_from_an_earlier_step_drops_later_records(cwd):
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    run(*WATCH, "run", cwd=cwd)
    run(*FLAGS, *NEVER, "--output", "run", "--resume", "run/checkpoints/step-12", "--epochs", "3", cwd=cwd)
    assert steps(cwd) == [6, 12], steps(cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == [6, 12, 18], steps(cwd)
    run(*FLAGS, *NEVER, "--output", "run", "--overwrite", "--epochs", "1", cwd=cwd)
    assert steps(cwd) == [] and steps(cwd, "run/old-1") == [6, 12, 18]


def errors_are_one_line(cwd):
    fails(*WATCH, "none", cwd=cwd, code=USAGE, says="--watch: none: No such file or directory")
    os.mkdir(os.path.join(cwd, "empty"))
    fails(*WATCH, "empty", cwd=cwd, code=USAGE, says="--watch: empty: holds no run")
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    fails(*WATCH, "run", "--output", "other", cwd=cwd, code=USAGE, says="--watch and --output contradict each other")
    fails(*WATCH, "run", "--weights", "other", cwd=cwd, code=USAGE, says="--watch and --weights contradict each other")
    fails("evaluate", *NOISE, cwd=cwd, code=USAGE, says="--eval: needs --weights or --watch")
    fails(*WATCH, "run", "--data", "synthetic:48:16:4", cwd=cwd, says="the weights have 3 classes, but the data has 4")
    os.remove(os.path.join(cwd, "run", "model.safetensors"))
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: steps(cwd) == STEPS)
    fails(*WATCH, "run", cwd=cwd, says="run: is being evaluated by pid")
    p.send_signal(signal.SIGTERM)
    finish(p, INTERRUPTED)


def a_hostile_folder_writes_nothing_and_stops_nothing(cwd):
    """RUN is another user's: links at the names that are written there, pipes at those that are read, settings of his own."""
    run(*FLAGS, *NEVER, "--epochs", "1", "--output", "run", cwd=cwd)
    victim = os.path.join(cwd, "victim")

    def attempt(name, make, code, says):
        folder = os.path.join(cwd, "copy")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(cwd, "run"), folder, symlinks=True)
        with open(victim, "w") as f:
            f.write("precious")
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))
        make(os.path.join(folder, name))
        p = start(*WATCH, "copy", cwd=cwd)
        text = finish(p, code)
        assert says in text, text
        with open(victim) as f:
            assert f.read() == "precious", name

    def link(path):
        os.symlink(victim, path)

    attempt("lock-eval", link, 1, "lock-eval: a symbolic link")
    attempt("lock-eval", lambda path: os.link(victim, path), 1, "lock-eval: has another name")
    attempt("metrics-eval.jsonl", link, 0, "")  # read, then replaced
    attempt("metrics-eval.jsonl", os.mkfifo, 1, "metrics-eval.jsonl: not a regular file, but a pipe")
    attempt("lock", os.mkfifo, 0, "")
    evil = {"output": "evil-output", "overwrite": "true", "profile": "evil-profile", "save-logits": "evil-logits",
            "eval-json": "evil-json", "weights": "/etc/passwd", "device": "none", "threads": "4000", "max-image-pixels": "5000000000"}
    config = os.path.join(cwd, "run", "config.yaml")
    with open(config) as f:
        lines = [line for line in f if line.split(":")[0] not in evil]
    with open(config, "w") as f:
        f.write("".join([*lines, *(f"{name}: {value}\n" for name, value in evil.items())]))
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == STEPS[:1] and not [n for n in os.listdir(cwd) if n.startswith("evil")], os.listdir(cwd)


def two_ranks_evaluate_together(cwd):
    if LAUNCHER == "none":
        raise Skip("no MPI in this build")
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    shutil.copytree(os.path.join(cwd, "run"), os.path.join(cwd, "alone"), symlinks=True)
    run(*WATCH, "alone", cwd=cwd)
    p = subprocess.run([LAUNCHER, "-n", "2", PROGRAM, *WATCH, "run"], cwd=cwd, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == 0, p.stderr[-600:]
    a, b = evaluations(cwd), evaluations(cwd, "alone")
    assert [(r["step"], r["val_top1"]) for r in a] == [(r["step"], r["val_top1"]) for r in b] and len(a) == 4, (a, b)
    assert all(abs(x["val_loss"] - y["val_loss"]) < 1e-6 for x, y in zip(a, b)), (a, b)


ROWS = [numbers_are_those_of_a_run_that_evaluates_itself, what_the_run_evaluated_is_not_evaluated_again, a_restart_goes_on,
        a_killed_one_leaves_whole_lines, what_is_removed_or_damaged_is_passed_over, a_checkpoint_stays_readable_while_the_run_removes_it,
        links_keep_what_is_removed_in_the_middle, a_run_that_is_trained_further_has_not_ended, it_waits_for_a_run_to_begin,
        a_run_that_goes_on_from_an_earlier_step_drops_later_records, errors_are_one_line, a_hostile_folder_writes_nothing_and_stops_nothing,
        two_ranks_evaluate_together]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-watch-", sys.argv[3] if len(sys.argv) > 3 else None))
