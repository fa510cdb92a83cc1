#!/usr/bin/env python3
"""Evaluation concurrent with training: train_mlp evaluate --watch RUN.

    watch.py TRAIN_MLP MPIRUN|none [ROW]
"""
import fcntl
import os
import re
import shutil
import signal
import sys

import trainer
from trainer import (INTERRUPTED, NOISE, SOURCE, USAGE, checkpoint, content, epochs_of, fails, records, run, run_ranks, run_rows, start, wait_for)

sys.path.insert(0, os.path.join(SOURCE, "tools"))
from report_lib.records import read_metrics  # noqa: E402

LAUNCHER = sys.argv[2]
FLAGS = [*NOISE, "--hidden", "8", "--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic", "--optim", "sgd",
         "--sched", "constant", "--no-tensorboard", "--epochs", "4", "--keep", "0"]
NEVER = ["--eval-every", "-1"]
WATCH = ["evaluate", "--progress", "off", "--watch"]
STEPS = [6, 12, 18, 24]  # ends of the epochs


def evaluations(cwd, folder="run"):
    file = "metrics-eval.jsonl"
    return records(cwd, folder, file=file) if os.path.exists(os.path.join(cwd, folder, file)) else []


def steps(cwd, folder="run"):
    return [r["step"] for r in evaluations(cwd, folder)]


def values(records, part="val_"):
    return [(r["step"], r["epoch"], {k: v for k, v in r.items() if k.startswith(part) and not k.startswith("val_raw")}) for r in records]


def wait_for_polls(p):
    """Waits until the process has slept twice more, so has polled for a checkpoint and the end of the run."""
    def sleeps():
        with open(f"/proc/{p.pid}/task/{p.pid}/status") as f:
            return int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", f.read()).group(1))
    last = sleeps() + 2
    wait_for(p, lambda: p.poll() is None and sleeps() >= last)
    assert p.poll() is None, p.communicate()


def finish(p, code=0):
    return trainer.finish(p, code)[1]


def lock(path):
    """Locks a file like a training process; closing the file releases it."""
    file = open(path, "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


def is_held(path):
    """Returns whether a process holds the lock."""
    with open(path, "a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def checkpoints(cwd, folder="run"):
    return sorted(n for n in os.listdir(os.path.join(cwd, folder, "checkpoints")) if n not in ("latest", "best"))


def make_unfinished(cwd, folder="run"):
    """Makes a run whose process was killed: the final weights are missing."""
    run(*FLAGS, *NEVER, "--output", folder, cwd=cwd)
    os.remove(os.path.join(cwd, folder, "model.safetensors"))


def end(cwd, folder="run"):
    """Completes an unfinished run like the last action of training."""
    shutil.copyfile(checkpoint(cwd, folder, STEPS[-1]), os.path.join(cwd, folder, "model.safetensors"))


def results_equal_those_of_a_run_that_evaluates_itself(cwd):
    for ema in ([], ["--ema-decay", "0.9"]):
        alone, watched = f"alone{len(ema)}", f"watched{len(ema)}"
        run(*FLAGS, *ema, "--output", alone, cwd=cwd)
        trainer = start(*FLAGS, *ema, *NEVER, "--output", watched, cwd=cwd)
        wait_for(trainer, lambda: os.path.exists(os.path.join(cwd, watched, "checkpoints", "latest")))
        run(*WATCH, watched, cwd=cwd)
        finish(trainer)
        found, want = evaluations(cwd, watched), epochs_of(cwd, alone)
        assert values(found) == values(want) and len(want) == 4, f"{found}\n{want}"
        assert not any("val_loss" in r for r in epochs_of(cwd, watched)), "the run evaluated itself"
        assert all(("val_raw_loss" in r) == bool(ema) for r in found), found
        if ema:  # results of the weights without averages
            assert [r["val_raw_loss"] for r in found] == [r["val_loss"] for r in evaluations(cwd, "watched0")]
        a, b = read_metrics(os.path.join(cwd, alone)), read_metrics(os.path.join(cwd, watched))
        assert a.of("val_loss") == b.of("val_loss") and a.of("val_top1") == b.of("val_top1") and b.eval_seconds == 0
        assert set(checkpoints(cwd, watched)) == {f"step-{s}" for s in STEPS}, "unexpected files"


def steps_that_the_run_evaluated_are_skipped(cwd):
    run(*FLAGS, "--eval-every", "2", "--output", "run", cwd=cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == [6, 18], steps(cwd)
    merged = [x for x, _ in read_metrics(os.path.join(cwd, "run")).of("val_loss")]
    assert merged == STEPS, merged


def a_restart_continues(cwd):
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


def a_killed_evaluation_leaves_whole_lines(cwd):
    make_unfinished(cwd)
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: len(steps(cwd)) >= 2)
    p.kill()
    p.communicate()
    path = os.path.join(cwd, "run", "metrics-eval.jsonl")
    lines = content(path).decode().splitlines(True)
    with open(path, "w") as f:  # truncates the last line
        f.write("".join(lines[:-1]) + lines[-1][:40])
    end(cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == STEPS and set(checkpoints(cwd)) == {f"step-{s}" for s in STEPS}, (steps(cwd), checkpoints(cwd))


def removed_damaged_and_incomplete_checkpoints_are_skipped(cwd):
    make_unfinished(cwd)
    folder = os.path.join(cwd, "run", "checkpoints")
    with open(checkpoint(cwd, "run", 12), "r+b") as f:
        f.truncate(200)
    os.remove(checkpoint(cwd, "run", 6, "state.json"))  # like a copy in progress
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


def a_checkpoint_is_readable_while_the_run_removes_it(cwd):
    """With --keep 1, the run removes each checkpoint as soon as the next one exists."""
    trainer = start(*FLAGS, *NEVER, "--keep", "1", "--epochs", "60", "--output", "run", cwd=cwd)
    wait_for(trainer, lambda: os.path.exists(os.path.join(cwd, "run", "checkpoints", "latest")))
    text = run(*WATCH, "run", cwd=cwd).stderr
    finish(trainer)
    found = steps(cwd)
    assert found == sorted(set(found)) and found[-1] == 360, found
    assert all("was removed" in line for line in text.splitlines() if "not evaluated" in line), text


def hard_links_keep_a_checkpoint_removed_during_evaluation(cwd):
    run(*FLAGS, *NEVER, "--ema-decay", "0.9", "--output", "run", cwd=cwd)
    p = start(*WATCH, "run", "--data", "synthetic:8000:16:3", cwd=cwd)  # slow; the averages are read after the weights' part
    wait_for(p, lambda: os.path.exists(os.path.join(cwd, "run", "checkpoints", "evaluated", "optim.safetensors")))
    shutil.rmtree(os.path.join(cwd, "run", "checkpoints", "step-6"))
    text = finish(p)
    assert steps(cwd) == STEPS and "not evaluated" not in text, (steps(cwd), text)
    assert set(checkpoints(cwd)) == {f"step-{s}" for s in STEPS[1:]}


def watching_continues_while_a_run_is_trained_further(cwd):
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    with lock(os.path.join(cwd, "run", "lock")):
        p = start(*WATCH, "run", cwd=cwd)
        wait_for(p, lambda: steps(cwd) == STEPS)
        wait_for_polls(p)  # does not end while a process trains the run
    finish(p)
    weights = os.path.join(cwd, "run", "model.safetensors")
    os.utime(weights, (1, 1))  # time of an earlier completion; the resumed run was killed
    p = start(*WATCH, "run", cwd=cwd)
    wait_for(p, lambda: p.poll() is None and is_held(os.path.join(cwd, "run", "lock-eval")))
    wait_for_polls(p)  # weights older than the newest checkpoint do not complete the run
    os.utime(weights)
    assert "no process trains it: waiting" in finish(p)


def watching_waits_for_a_run_to_start(cwd):
    p = start(*WATCH, "run", "--watch-wait", "200", cwd=cwd)
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    finish(p)
    assert steps(cwd) == STEPS, steps(cwd)


def a_resume_from_an_earlier_step_removes_later_records(cwd):
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    run(*WATCH, "run", cwd=cwd)
    run(*FLAGS, *NEVER, "--output", "run", "--resume", "run/checkpoints/step-12", "--epochs", "3", cwd=cwd)
    assert steps(cwd) == [6, 12], steps(cwd)
    run(*WATCH, "run", cwd=cwd)
    assert steps(cwd) == [6, 12, 18], steps(cwd)
    run(*FLAGS, *NEVER, "--output", "run", "--overwrite", "--epochs", "1", cwd=cwd)
    assert steps(cwd) == [] and steps(cwd, "run/old-1") == [6, 12, 18]


def errors_are_a_single_line(cwd):
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


def a_hostile_folder_causes_no_harm(cwd):
    """RUN belongs to another user: links in place of written files, pipes in place of read files, a modified config."""
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
        assert content(victim) == b"precious", name

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
    run(*FLAGS, *NEVER, "--output", "run", cwd=cwd)
    shutil.copytree(os.path.join(cwd, "run"), os.path.join(cwd, "alone"), symlinks=True)
    run(*WATCH, "alone", cwd=cwd)
    run_ranks(LAUNCHER, 2, *WATCH, "run", cwd=cwd)
    a, b = evaluations(cwd), evaluations(cwd, "alone")
    assert [(r["step"], r["val_top1"]) for r in a] == [(r["step"], r["val_top1"]) for r in b] and len(a) == 4, (a, b)
    assert all(abs(x["val_loss"] - y["val_loss"]) < 1e-6 for x, y in zip(a, b)), (a, b)


ROWS = [results_equal_those_of_a_run_that_evaluates_itself, steps_that_the_run_evaluated_are_skipped, a_restart_continues,
        a_killed_evaluation_leaves_whole_lines, removed_damaged_and_incomplete_checkpoints_are_skipped, a_checkpoint_is_readable_while_the_run_removes_it,
        hard_links_keep_a_checkpoint_removed_during_evaluation, watching_continues_while_a_run_is_trained_further, watching_waits_for_a_run_to_start,
        a_resume_from_an_earlier_step_removes_later_records, errors_are_a_single_line, a_hostile_folder_causes_no_harm,
        two_ranks_evaluate_together]

sys.exit(run_rows(ROWS, "lather-watch-", *sys.argv[3:4]))
