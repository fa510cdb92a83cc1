#!/usr/bin/env python3
"""Run folders: ownership, contents, and reports of lost data.

    runs.py TRAIN_RESNET50 [ROW]
"""
import json
import os
import re
import resource
import shutil
import signal
import sys
import time

import trainer
from trainer import (ERROR, INTERRUPTED, NOISE, OK, SMALL, USAGE, Skip, checkpoint, complete_steps, content, digest, fails, has_step, metadata_of, records,
                     run, run_rows, same, start, steps_of, wait_for, write_state)

FLAGS = [*NOISE, *SMALL, "--optim", "sgd", "--sched", "constant", "--no-tensorboard"]
NETWORKLESS = [f for i, f in enumerate(FLAGS) if not {"--arch", "--width"} & {f, FLAGS[i - 1]}]
LINES = ["--progress", "lines"]
FOR_EVER = ["--epochs", "100000", "--eval-every", "0"]


def at(cwd, *names):
    return os.path.join(cwd, *names)


def state(cwd, folder, step):
    return json.loads(content(checkpoint(cwd, folder, step, "state.json")))


def config(cwd, folder):
    with open(at(cwd, folder, "config.yaml")) as f:
        return dict(line.rstrip("\n").split(": ", 1) for line in f if ": " in line)


def edit_state(cwd, folder, step, change):
    """Changes the text of state.json, and updates its checksum."""
    path = checkpoint(cwd, folder, step, "state.json")
    text = content(path).decode()
    changed = change(text)
    assert changed != text, "nothing changed"
    write_state(path, changed)


def without_id(text):
    return re.sub(r'"run":"[0-9a-f]{32}","network":"[^"]*",', "", text)


def catches(p, number):
    """Returns whether a process has a handler for a signal."""
    with open(f"/proc/{p.pid}/status") as f:
        caught = re.search(r"^SigCgt:\s*(\w+)", f.read(), re.M)
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def finish(p):
    """Returns what the process wrote to stderr."""
    return trainer.finish(p)[1]


# --- ownership of a folder -------------------------------------------------------------------------

def early_stopping_ends_a_run_and_a_resume_keeps_its_count(cwd):
    flags = [*FLAGS, "--epochs", "9", "--lr", "0", "--output", "run", "--early-stop"]
    p = run(*flags, "val_top1:3", *LINES, cwd=cwd)  # OK: the exit status is 0
    assert "early_stop ended the run at step" in p.stderr, p.stderr
    ended, epochs = (records(cwd, "run", event) for event in ("ended", "epoch"))
    assert len(epochs) == 4 and [(r["step"], r["by"]) for r in ended] == [(epochs[-1]["step"], "early_stop")]
    last = epochs[-1]["step"]
    assert state(cwd, "run", last)["hooks"]["early_stop.val_top1_count"] == 3 and state(cwd, "run", last)["ended_by"] == "early_stop"
    assert os.path.exists(at(cwd, "run", "model.safetensors"))
    p = run(*flags, "val_top1:3", "--resume", "auto", *LINES, cwd=cwd)
    assert "a larger patience" in p.stderr and not has_step(cwd, "run", last + 1), p.stderr
    run(*flags, "val_top1:5", "--resume", "auto", cwd=cwd)
    assert len(records(cwd, "run", "epoch")) == 6
    run(*flags, "off", "--resume", "auto", cwd=cwd)
    assert len(records(cwd, "run", "epoch")) == 9


def early_stopping_rejects_what_cannot_end_a_run(cwd):
    for text, says in (("val_acc:3", "unknown metric 'val_acc'; metrics: train_loss, val_loss, train_top1, val_top1, val_top5"),
                       ("", "unknown metric ''"),
                       *((text, f"got '{text}', want METRIC:PATIENCE") for text in ("val_loss", "val_loss:0", "val_loss:", "val_loss:2:-1",
                                                                          "val_loss:2:", "val_loss:2:nan", "val_loss:1e3"))):
        fails(*FLAGS, "--early-stop", text, cwd=cwd, code=USAGE, says=says)
    fails(*FLAGS, "--early-stop", "val_loss:3", "--eval-every", "-1", cwd=cwd, code=USAGE, says="--eval-every is -1")
    fails(*FLAGS, "--early-stop", "val_loss:3", "--eval", "--weights", "w", cwd=cwd, code=USAGE, says="contradict")


def a_plateau_lowers_the_rate_and_a_resume_keeps_it(cwd):
    flags = [*FLAGS, "--epochs", "6", "--lr", "1e-7", "--sched", "plateau", "--gamma", "0.5", "--sched-kwargs", "patience=1", "--sched-kwargs", "metric=val_top1"]
    p = run(*flags, "--output", "whole", *LINES, cwd=cwd)
    per_epoch = [r["lr"] for r in records(cwd, "whole", "step")][::12]
    assert per_epoch == [1e-7] * 3 + [5e-8] * 2 + [2.5e-8] and "the learning rate is now 5e-08" in p.stderr, (per_epoch, p.stderr)
    last = records(cwd, "whole", "epoch")[-1]["step"]
    assert state(cwd, "whole", last)["hooks"]["plateau.val_top1_reductions"] == 2
    run(*flags, "--output", "parts", "--max-steps", "36", cwd=cwd)
    run(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", last)
    fails(*flags, "--sched-kwargs", "metric=val_acc", cwd=cwd, code=USAGE, says="--sched-kwargs metric: unknown metric 'val_acc'")
    fails(*FLAGS, "--sched-kwargs", "pct-start=0.5", cwd=cwd, code=USAGE, says="--pct-start: needs --sched onecycle, but it is constant")
    fails(*FLAGS, "--warmup-steps", "9", "--max-steps", "8", cwd=cwd, code=USAGE, says="--warmup-steps 9: longer than the run of 8 steps")
    run(*FLAGS, "--warmup-steps", "2", "--max-steps", "2", cwd=cwd)
    fails(*FLAGS, "--warmup-steps", "9", "--warmup-epochs", "1", cwd=cwd, code=USAGE, says="contradict each other")


def save_top_keeps_the_best_checkpoints(cwd):
    flags = [*FLAGS, "--epochs", "6", "--lr", "0.05", "--keep", "1", "--output", "run", "--save-top", "3"]
    run(*flags, "--max-steps", "36", cwd=cwd)
    run(*flags, "--resume", "auto", cwd=cwd)
    epochs = sorted(records(cwd, "run", "epoch"), key=lambda r: -r["val_top1"])
    assert len({r["val_top1"] for r in epochs}) > 2
    last = max(r["step"] for r in epochs)
    top = [r["step"] for r in epochs][:3]
    assert [t["step"] for t in state(cwd, "run", last)["top"]] == top, (top, state(cwd, "run", last)["top"])
    kept = complete_steps(at(cwd, "run"))
    assert kept == sorted({*top, last}), (kept, top)
    run(*flags, "--epochs", "8", "--save-top", "1", "--resume", "auto", cwd=cwd)
    epochs = records(cwd, "run", "epoch")
    best = max(epochs, key=lambda r: (r["val_top1"], -r["step"]))["step"]
    last = max(r["step"] for r in epochs)
    assert complete_steps(at(cwd, "run")) == sorted({best, last}) and not state(cwd, "run", last).get("top"), complete_steps(at(cwd, "run"))
    assert "no --output: neither checkpoints nor weights were saved" in run(*FLAGS, "--max-steps", "1", *LINES, cwd=cwd).stderr


def a_folder_with_a_run_is_rejected_or_the_run_is_renamed(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd)
    before = {name: digest(at(cwd, "run", name)) for name in ("config.yaml", "env.json", "metrics.jsonl", "model.safetensors")}
    other = [*FLAGS, "--max-steps", "1", "--lr", "0.5", "--output", "run"]
    fails(*other, cwd=cwd, code=USAGE, says="run: holds a run; --resume auto continues it, --overwrite renames it to old-N")
    assert before == {name: digest(at(cwd, "run", name)) for name in before} and "lock" not in os.listdir(at(cwd, "run"))
    fails(*other, "--overwrite", "--resume", "auto", cwd=cwd, code=USAGE, says="contradict")
    with open(at(cwd, "run", "notes.txt"), "w") as f:
        f.write("the user's own")
    for n in (1, 2):
        os.makedirs(at(cwd, "run", "checkpoints", "step-7.tmp-999999999"))  # left by a killed save
        p = run(*other, *LINES, "--overwrite", cwd=cwd)
        assert not [name for name in os.listdir(at(cwd, "run", f"old-{n}", "checkpoints")) if "tmp" in name]
        assert f"moved the previous run from run to run/old-{n}" in p.stderr, p.stderr
    assert before == {name: digest(at(cwd, "run", "old-1", name)) for name in before}
    assert os.path.exists(at(cwd, "run", "old-1", "checkpoints", "step-2")) and os.path.exists(at(cwd, "run", "notes.txt"))
    assert os.listdir(at(cwd, "run", "checkpoints")).count("step-2") == 0 and len(steps_of(cwd, "run")) == 1
    run(*other, "--max-steps", "2", "--resume", "auto", cwd=cwd)
    weights = digest(at(cwd, "run", "model.safetensors"))
    shutil.rmtree(at(cwd, "run", "checkpoints"))  # no checkpoint to resume
    p = run(*other, *LINES, "--lr", "0.25", "--resume", "auto", cwd=cwd)
    assert "moved the previous run from run to run/old-3" in p.stderr, p.stderr
    assert digest(at(cwd, "run", "old-3", "model.safetensors")) == weights and len(steps_of(cwd, at("run", "old-3"))) == 2
    os.mkdir(at(cwd, "empty"))  # control: the folder has no run
    shutil.copy(at(cwd, "run", "config.yaml"), at(cwd, "empty"))
    run("--config", "empty/config.yaml", "--output", "empty", cwd=cwd)


def runs_mixed_in_a_folder_are_told_apart_by_id(cwd):
    """Earlier versions mixed runs in a folder: the checkpoint with the highest step belongs to another run."""
    flags = [*FLAGS, "--keep", "0", "--checkpoint-every", "2"]
    run(*flags, "--max-steps", "8", "--output", "a", cwd=cwd)
    run(*flags, "--max-steps", "4", "--seed", "1", "--output", "b", cwd=cwd)
    for step in (6, 8):
        shutil.copytree(at(cwd, "a", "checkpoints", f"step-{step}"), at(cwd, "b", "checkpoints", f"step-{step}"))
    shutil.copytree(at(cwd, "b"), at(cwd, "c"), symlinks=True)
    resume = [*flags, "--seed", "1", *LINES, "--resume", "auto"]
    p = run(*resume, "--max-steps", "5", "--keep", "1", "--output", "b", cwd=cwd)
    assert "resumed from b/checkpoints/step-4: step 4" in p.stderr, p.stderr
    left = {n for n in os.listdir(at(cwd, "b", "checkpoints")) if n.startswith("step-")}
    assert {"step-5", "step-6", "step-8"} <= left and "step-2" not in left, left
    with open(checkpoint(cwd, "c", 4), "r+b") as f:  # damaged: uses the one before it, not the other run's
        f.truncate(100)
    p = run(*resume, "--max-steps", "5", "--output", "c", cwd=cwd)
    assert "resumed from c/checkpoints/step-2: step 2" in p.stderr and "DAMAGED" in p.stderr, p.stderr
    os.remove(at(cwd, "c", "checkpoints", "latest"))
    p = run(*resume, "--max-steps", "6", "--output", "c", cwd=cwd)
    assert "resumed from c/checkpoints/step-5: step 5" in p.stderr, p.stderr
    fails(*flags, "--output", "b", "--resume", "a/checkpoints/step-6", "--max-steps", "8", cwd=cwd, code=USAGE, says="b: holds another run than a/")
    run(*flags, "--output", "fork", "--resume", "a/checkpoints/step-6", "--max-steps", "8", cwd=cwd)
    same(cwd, "a", "fork", 8)


def a_copied_folder_without_links_resumes(cwd):
    """cp -rL replaces the links latest and best by folders."""
    flags = [*FLAGS, "--keep", "1", "--output"]
    run(*flags, "run", "--max-steps", "2", cwd=cwd)
    os.rename(at(cwd, "run", "checkpoints", "step-2"), at(cwd, "step-2"))
    for name in ("copy", "only"):
        os.makedirs(at(cwd, name, "checkpoints"))
        for link in ("latest", "best", "step-2")[:3 if name == "copy" else 2]:
            shutil.copytree(at(cwd, "step-2"), at(cwd, name, "checkpoints", link))
        p = run(*flags, name, *LINES, "--max-steps", "3", "--resume", "auto" if name == "copy" else "only/checkpoints/latest", cwd=cwd)
        assert "step 2, epoch 1" in p.stderr, p.stderr
        found = at(cwd, name, "checkpoints")
        assert os.readlink(at(found, "latest")) == "step-3" and os.readlink(at(found, "best")) in ("step-2", "step-3")
        assert os.path.exists(at(found, "best", "state.json")), os.listdir(found)


def every_record_has_the_id_of_its_run(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd)
    run(*FLAGS, "--max-steps", "2", "--output", "other", cwd=cwd)
    same(cwd, "run", "other", 2)  # the id is not stored in the weights
    run(*FLAGS, "--max-steps", "3", "--output", "run", "--resume", "auto", cwd=cwd)
    want = json.loads(content(cwd, "run", "env.json"))["run"]
    assert re.fullmatch("[0-9a-f]{32}", want), want
    assert {r.get("run") for r in records(cwd, "run")} == {want} == {state(cwd, "run", s)["run"] for s in (2, 3)}
    assert want not in {r["run"] for r in records(cwd, "other")}
    edit_state(cwd, "other", 2, without_id)  # like a folder of an earlier version
    os.remove(at(cwd, "other", "env.json"))
    run(*FLAGS, "--max-steps", "3", "--output", "other", "--resume", "auto", cwd=cwd)
    same(cwd, "run", "other", 3)
    assert re.fullmatch("[0-9a-f]{32}", state(cwd, "other", 3)["run"])


def flags_changed_at_a_resume_are_listed(cwd):
    run(*FLAGS, "--max-steps", "2", "--param-group", "^fc:lr=1", "--output", "run", cwd=cwd)
    resume = [*FLAGS, "--max-steps", "3", "--lr", "0.5", "--mean", "0.485,0.456,0.406", "--output", "run", "--resume"]
    p = run(*resume, "auto", *LINES, cwd=cwd)
    want = "mean (none) -> 0.485,0.456,0.406, max-steps 2 -> 3, lr 0.1 -> 0.5, param-group ^fc:lr=1 -> (none)"
    assert f"\nflags that changed: {want}\n" in p.stderr, p.stderr
    assert [r.get("changed") for r in records(cwd, "run") if r["event"] == "resume"] == [want]
    p = run(*resume, "run/checkpoints/latest", *LINES, cwd=cwd)  # control
    assert "resumed" in p.stderr and "changed" not in p.stderr, p.stderr
    p = run(*NETWORKLESS, *resume[len(FLAGS):], "auto", *LINES, cwd=cwd)  # the checkpoint defines the network
    assert "resumed" in p.stderr and "changed" not in p.stderr, p.stderr
    assert config(cwd, "run")["arch"] == "resnet10"


def changed_settings_of_the_state_are_a_warning(cwd):
    """Those that the optimizer's own rows name: --beta1 is in Adam's state, not in Lion's."""
    warning = "the saved optimizer state was computed with other settings, and continues as if with the new ones: "
    for optim, more, says in (("adamw", ["--beta1", "0.8", "--weight-decay", "0.1"], "beta1 0.9 -> 0.8"), ("lion", ["--beta1", "0.8"], None),
                              ("adagrad", ["--iterate-averaging", "tail", "--opt-kwargs", "tail-start=2"], "tail-start 1 -> 2")):
        flags = [*FLAGS, "--optim", optim, "--output", optim, *more[:2] * (optim == "adagrad")]
        run(*flags, "--max-steps", "2", cwd=cwd)
        p = run(*flags, *more[2 * (optim == "adagrad"):], "--max-steps", "3", "--resume", "auto", *LINES, cwd=cwd)
        assert "flags that changed: " in p.stderr and (warning in p.stderr) == bool(says), p.stderr
        assert not says or f"{warning}{says}\n" in p.stderr, p.stderr


def different_kernels_at_a_resume_are_reported(cwd):
    generic, own = {"LATHER_CPU_ISA": "generic"}, {"LATHER_CPU_ISA": "generic", "LATHER_CPU_KERNELS": "builtin"}
    resumes = lambda: [r.get("changed") for r in records(cwd, "run") if r["event"] == "resume"]  # noqa: E731
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd, env=generic)
    assert (state(cwd, "run", 2)["cpu_isa"], state(cwd, "run", 2)["cpu_kernels"]) == ("generic", "auto")
    found = json.loads(content(cwd, "run", "env.json"))
    assert found["cpu_isa"] == "generic" and found["cpu_kernels"] == "auto", found
    resume = [*FLAGS, *LINES, "--max-steps", "3", "--output", "run", "--resume"]
    warning = "results may differ in the last bits: "
    p = run(*resume, "auto", cwd=cwd, env=own)
    assert p.stderr.count(f"{warning}cpu_kernels auto -> builtin\n") == 1, p.stderr
    assert resumes() == ["max-steps 2 -> 3, cpu_kernels auto -> builtin"]
    p = run(*resume, "auto", cwd=cwd, env=own)  # control
    assert "resumed" in p.stderr and warning not in p.stderr and resumes()[1:] == [None], p.stderr
    edit_state(cwd, "run", 3, lambda t: re.sub('"cpu_isa":"generic"', '"cpu_isa":"vax"', t))  # another machine
    p = run(*resume, "auto", cwd=cwd, env=own)
    assert f"{warning}cpu_isa vax -> generic\n" in p.stderr and resumes()[-1] == "cpu_isa vax -> generic", p.stderr
    edit_state(cwd, "run", 3, lambda t: re.sub('"cpu_(model|isa|kernels)":"[^"]*",', "", t))  # like an earlier version
    p = run(*resume, "auto", cwd=cwd, env=generic)
    assert "resumed" in p.stderr and warning not in p.stderr and resumes()[-1] is None, p.stderr


# --- one process --------------------------------------------------------------------------------

def a_second_process_is_rejected(cwd):
    flags = [*FLAGS, *FOR_EVER, "--checkpoint-every", "2", "--output", "run"]
    with start(*flags, cwd=cwd) as first:
        try:
            wait_for(first, lambda: has_step(cwd, "run", 5))
            for more in (["--resume", "auto"], ["--overwrite"], []):
                p = run(*flags, *more, cwd=cwd, code=ERROR)
                text = p.stderr.splitlines()[-1]
                assert re.fullmatch(rf"train_resnet50: run: is being written by pid {first.pid} on \S+ since \S+Z", text), text
            assert run(*NOISE, "--eval", "--weights", "run/checkpoints/latest/model.safetensors", "--threads", "1", cwd=cwd).stdout
        finally:
            first.kill()  # its lock becomes stale
            first.communicate()
    assert os.path.exists(at(cwd, "run", "lock"))
    last = len(steps_of(cwd, "run"))
    run(*flags, "--max-steps", str(last + 3), "--resume", "auto", cwd=cwd)
    assert [r["step"] for r in steps_of(cwd, "run")] == list(range(1, last + 4))
    assert not os.path.exists(at(cwd, "run", "lock"))


def only_one_of_many_processes_trains(cwd):
    flags = [*FLAGS, "--max-steps", "30", "--resume", "auto", "--output", "run"]
    all_of_them = [start(*flags, cwd=cwd) for _ in range(4)]
    said = [(finish(p), p.returncode) for p in all_of_them]
    assert {code for _, code in said} <= {OK, ERROR} and any(code == OK for _, code in said), said
    assert all(("is being written by" in text) == (code == ERROR) for text, code in said), said
    assert [r["step"] for r in steps_of(cwd, "run")] == list(range(1, 31)), "records are mixed"
    assert len({r["run"] for r in records(cwd, "run")}) == 1


# --- reports of lost data -------------------------------------------------------------

def small_files(limit):
    def set_limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return set_limit


def a_lost_last_checkpoint_is_an_error(cwd):
    flags = [*FLAGS, "--max-steps", "3", "--eval-every", "0", "--output", "run"]
    p = start(*flags, cwd=cwd, preexec_fn=small_files(60000))
    text = finish(p)
    assert p.returncode == ERROR, text
    assert text.count("checkpoint of step 3 not written: ") == 1 and "File too large" in text, text
    failed = [r for r in records(cwd, "run") if r["event"] == "checkpoint_failed"]
    assert [r["step"] for r in failed] == [3] and "File too large" in failed[0]["error"], failed
    os.makedirs(at(cwd, "other", "checkpoints", "latest"))  # blocks the link; the weights are written
    fails(*flags[:-1], "other", cwd=cwd, says="other: the checkpoint of the last step, 3, is missing")
    assert os.path.exists(at(cwd, "other", "model.safetensors"))


def an_intermediate_checkpoint_that_fails_is_reported(cwd):
    flags = [*FLAGS, *FOR_EVER, "--width", "16", "--checkpoint-every", "1", "--output", "run"]
    p = start(*flags, cwd=cwd, preexec_fn=small_files(400000))  # enough for the records of a thousand steps, not for weights
    try:
        wait_for(p, lambda: os.path.exists(at(cwd, "run", "metrics.jsonl")) and b'"checkpoint_failed"' in content(cwd, "run", "metrics.jsonl"))
        resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(p, lambda: os.path.exists(at(cwd, "run", "checkpoints", "latest")))
        p.send_signal(signal.SIGTERM)
    finally:
        text = finish(p)
    assert p.returncode == INTERRUPTED and "not written" in text, text  # the last checkpoint is saved
    last = re.search(r"^saved step (\d+); --resume auto continues$", text, re.M)
    assert last and os.path.exists(checkpoint(cwd, "run", last.group(1))), text


def remove_while_it_grows(path):
    """Retries, as the run may create a file between the listing of a folder and its removal."""
    deadline = time.monotonic() + 60
    while os.path.exists(path):
        shutil.rmtree(path, ignore_errors=True)
        assert time.monotonic() < deadline, f"{path} cannot be removed"


def a_removed_folder_is_noticed(cwd):
    def delete():
        remove_while_it_grows(at(cwd, "run"))

    def move():
        os.rename(at(cwd, "run"), at(cwd, "moved"))

    def empty():
        paths = [at(cwd, "run", name) for name in os.listdir(at(cwd, "run"))]
        for path in sorted(paths, key=os.path.isdir):  # files first: their absence stops the run from making folders again
            remove_while_it_grows(path) if os.path.isdir(path) else os.remove(path)

    for remove in (delete, move, empty):
        p = start(*FLAGS, *FOR_EVER, "--output", "run", cwd=cwd)
        try:
            wait_for(p, lambda: has_step(cwd, "run", 3))
            remove()
        finally:
            text = finish(p)
        assert p.returncode == ERROR and "run: was deleted or moved while the run was writing to it" in text, text
        assert not os.path.exists(at(cwd, "run", "checkpoints")), "a new incomplete run folder exists"
        shutil.rmtree(at(cwd, "run"), ignore_errors=True)


def an_interrupted_run_reports_its_checkpoint(cwd):
    for more, want in ((["--output", "run"], r"^saved step (\d+); --resume auto continues$"),
                       (["--output", "bar", "--progress", "bar"], r"^saved step (\d+); --resume auto continues$"),
                       ([], r"^stopped at step (\d+); without --output nothing is saved$")):
        p = start(*FLAGS, *FOR_EVER, *more, cwd=cwd)
        try:
            wait_for(p, lambda: has_step(cwd, more[1], 2) if more else catches(p, signal.SIGINT))
            p.send_signal(signal.SIGINT)
        finally:
            text = finish(p)
        last = re.search(want, text, re.M)
        assert p.returncode == INTERRUPTED and last, (p.returncode, text)
        assert not more or os.path.exists(checkpoint(cwd, more[1], last.group(1))), text


def an_unwritable_folder_is_reported_with_path_and_reason(cwd):
    flags = [*FLAGS, "--max-steps", "1", "--output"]
    for limit, file in ((0, "lock"), (200, "config.yaml")):
        p = start(*flags, "full/run", cwd=cwd, preexec_fn=small_files(limit))
        text = finish(p)
        assert p.returncode == ERROR and f"full/run/{file}: " in text and "File too large" in text, text
        assert not os.path.exists(at(cwd, "full", "run")), os.listdir(at(cwd, "full", "run"))
    os.mkdir(at(cwd, "closed"), mode=0o555)
    if os.getuid() == 0:
        os.chmod(cwd, 0o755)
        try:
            p = start(*flags, "closed/run", cwd=cwd, user=65534)
        except PermissionError:
            raise Skip("another user cannot run the program")
    else:
        p = start(*flags, "closed/run", cwd=cwd)
    text = finish(p)
    assert p.returncode == ERROR and "closed/run: Permission denied" in text, text


def a_run_too_short_for_shampoo_roots_warns(cwd):
    flags = [*NOISE, *SMALL, *LINES, "--optim", "shampoo", "--max-steps", "3"]
    want = "shampoo: its first inverse roots come at step {}, but this run has 3"
    for more, step in (([], 50), (["--precondition-frequency", "4"], 4), (["--precondition-frequency", "2", "--start-preconditioning-step", "4"], 4)):
        assert want.format(step) in run(*flags, *more, cwd=cwd).stderr
    assert "first roots" not in run(*flags, "--precondition-frequency", "3", cwd=cwd).stderr  # control


# --- weights and resume -------------------------------------------------------------------------

def fine_tuning_is_safe_to_restart(cwd):
    run(*FLAGS, "--max-steps", "1", "--output", "base", cwd=cwd)
    weights = at(cwd, "w.safetensors")
    shutil.copy(at(cwd, "base", "model.safetensors"), weights)
    flags = [*NETWORKLESS, "--data", "synthetic:16:16:5", "--seed", "3", *LINES]
    tune = [*flags, "--weights", weights, "--reset-head"]
    run(*tune, "--max-steps", "8", "--output", "whole", cwd=cwd)
    for name in ("typed", "config", "bare"):
        p = run(*tune, "--max-steps", "3", "--output", name, "--resume", "auto", cwd=cwd)
        assert re.search("^resnet10: 0.02 M parameters", p.stderr, re.M), p.stderr
    os.remove(weights)  # no longer needed
    run(*tune, "--max-steps", "8", "--output", "typed", "--resume", "auto", cwd=cwd)
    run("--config", "config/config.yaml", "--max-steps", "8", "--resume", "auto", cwd=cwd)
    run(*flags, "--max-steps", "8", "--output", "bare", "--resume", "auto", cwd=cwd)
    for name in ("typed", "config", "bare"):
        same(cwd, "whole", name, 8)
        assert config(cwd, name)["arch"] == "resnet10" and config(cwd, name)["width"] == "4" and config(cwd, name)["stem"] == "small"
        assert state(cwd, name, 8)["arch"] == "resnet10" and state(cwd, name, 8)["classes"] == 5
        assert state(cwd, name, 8)["network"] == "depths 1,1,1,1 width 4 stem small channels 3"
        found = metadata_of(checkpoint(cwd, name, 8))
        assert [found[k] for k in ("arch", "depths", "width", "stem", "channels", "classes")] == ["resnet10", "1,1,1,1", "4", "small", "3", "5"]
    fails(*tune, "--output", "other", "--resume", "whole", cwd=cwd, code=USAGE, says="contradict")
    fails(*tune, "--output", "new", "--resume", "auto", cwd=cwd, says="w.safetensors")  # no checkpoint: needs the weights
    assert not os.path.exists(at(cwd, "new"))


def fine_tuning_of_earlier_versions_resumes(cwd):
    """They recorded resnet50 of width 64 for any --weights."""
    run(*FLAGS, "--max-steps", "4", "--output", "run", cwd=cwd)
    run(*FLAGS, "--max-steps", "2", "--output", "old", cwd=cwd)
    path = at(cwd, "old", "config.yaml")
    text = content(path).decode()
    text = text.replace("arch: resnet10\n", "arch: resnet50\n").replace("width: 4\n", "width: 64\n").replace("max-steps: 2", "max-steps: 4")
    with open(path, "w") as f:
        f.write(text + "weights: gone.safetensors\n")
    edit_state(cwd, "old", 2, lambda t: without_id(t).replace('"arch":"resnet10"', '"arch":"resnet50"'))
    run("--config", "old/config.yaml", "--resume", "auto", cwd=cwd)
    same(cwd, "run", "old", 4)
    assert state(cwd, "old", 4)["arch"] == "resnet10" == config(cwd, "old")["arch"]
    fails("--config", "old/config.yaml", "--resume", "auto", "--arch", "resnet50", "--max-steps", "5", cwd=cwd, code=USAGE,
          says="--arch resnet50: old/checkpoints/step-4/model.safetensors holds another model, resnet10 of width 4")


def a_resumed_run_keeps_earlier_traces(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", "--profile", "t.json", "--resume", "auto", cwd=cwd)
    assert not {"profile", "resume", "overwrite", "save-logits"} & set(config(cwd, "run")), config(cwd, "run")
    first = digest(at(cwd, "t.json"))
    run("--config", "run/config.yaml", "--max-steps", "3", "--resume", "auto", cwd=cwd)
    assert digest(at(cwd, "t.json")) == first
    for n in (1, 2):
        run("--config", "run/config.yaml", "--max-steps", str(3 + n), "--resume", "auto", "--profile", "t.json", cwd=cwd)
        assert os.path.exists(at(cwd, f"t.old-{n}.json"))
    assert digest(at(cwd, "t.old-1.json")) == first != digest(at(cwd, "t.json"))


def data_that_changes_within_an_epoch_is_an_error(cwd):
    flags = [*(f for f in FLAGS if f not in NOISE), "--epochs", "2"]
    run("--data", "synthetic:48:16:3", *flags, "--max-steps", "14", "--output", "run", cwd=cwd)  # 12 steps an epoch
    shutil.copytree(at(cwd, "run"), at(cwd, "old"), symlinks=True)
    more = ["--data", "synthetic:64:16:3", *flags, "--resume", "auto"]
    fails(*more, "--output", "run", cwd=cwd, code=USAGE, says="was saved within epoch 2 of 48 images, but the data now has 64; --data-changed continue restarts")
    assert [r["step"] for r in steps_of(cwd, "run")][-1] == 14, "records were lost"
    p = run(*more, *LINES, "--data-changed", "continue", "--log-every", "1", "--output", "run", cwd=cwd)
    shown = re.findall(r"epoch (\d+)/(\d+)  step (\d+)/(\d+)", p.stderr)
    assert shown == [("2", "2", str(n), "30") for n in range(15, 31)], shown  # 14 steps, then a whole epoch of 16
    assert "data that changed: 48 -> 64 images; epoch 2 begins with it" in p.stderr, p.stderr
    assert [r["changed"] for r in records(cwd, "run") if r["event"] == "resume"] == ["data synthetic:48:16:3 -> synthetic:64:16:3, max-steps 14 -> 0, data 48 -> 64 images"]
    assert state(cwd, "run", 30)["data_samples"] == 64 and "data-changed" not in config(cwd, "run")
    run("--data", "synthetic:48:16:3", *flags, "--resume", "auto", "--output", "same", cwd=cwd)  # control: the same data
    edit_state(cwd, "old", 14, lambda t: re.sub(r',"data_samples":48,"data_hash":[0-9]+', "", t))
    run(*more, "--output", "old", cwd=cwd)  # like an earlier version: not compared


def data_that_grew_between_epochs_is_reported(cwd):
    flags = [*("cosine" if f == "constant" else f for f in FLAGS if f not in NOISE), "--warmup-epochs", "1", "--epochs", "4", "--keep", "0"]
    run("--data", "synthetic:48:16:3", *flags, "--max-steps", "24", "--output", "run", cwd=cwd)
    p = run("--data", "synthetic:64:16:3", *flags, *LINES, "--resume", "auto", "--output", "run", cwd=cwd)
    assert "data that changed: 48 -> 64 images; epoch 3 begins with it" in p.stderr, p.stderr
    run("--data", "synthetic:64:16:3", *flags, "--output", "whole", cwd=cwd)
    got, whole = [r["lr"] for r in steps_of(cwd, "run")], [r["lr"] for r in steps_of(cwd, "whole")]
    assert len(got) == 2 * 12 + 2 * 16 and got[24:] == whole[32:], "the schedule does not follow epochs"
    assert [r["epoch"] for r in records(cwd, "run") if r["event"] == "epoch"] == [0, 1, 2, 3]
    run("--data", "synthetic:64:16:3", *flags, "--batch-size", "8", "--resume", "run/checkpoints/step-24", "--output", "twice", cwd=cwd)
    assert len(steps_of(cwd, "twice")) == 2 * 8, "not two epochs of half the steps"


def a_run_without_checkpoints_is_renamed_with_a_warning(cwd):
    flags = [*FLAGS, "--max-steps", "2", "--resume", "auto", "--output", "run"]
    assert "found no checkpoint" not in run(*flags, cwd=cwd).stderr  # control: a new run
    os.remove(at(cwd, "run", "model.safetensors"))
    shutil.rmtree(at(cwd, "run", "checkpoints"))
    p = run(*flags, cwd=cwd)
    assert "--resume auto found no checkpoint: starts a new run; moved the previous run from run to run/old-1" in p.stderr, p.stderr
    assert len(steps_of(cwd, at("run", "old-1"))) == 2


def symbolic_links_in_place_of_run_files_are_not_followed(cwd):
    run(*FLAGS, "--max-steps", "1", "--output", "run", cwd=cwd)
    victim = at(cwd, "victim")
    with open(victim, "w") as f:
        f.write("precious")
    os.symlink(victim, at(cwd, "run", "eval.json"))
    run("--eval", *NETWORKLESS, "--weights", "run/model.safetensors", "--output", "run", cwd=cwd)
    assert not os.path.islink(at(cwd, "run", "eval.json"))
    os.mkdir(at(cwd, "other"))
    os.symlink(victim, at(cwd, "other", "blocks.txt"))
    fails(*FLAGS[:-5], "--no-tensorboard", "--optim", "shampoo", "--max-steps", "1", "--output", "other", cwd=cwd, says="other/blocks.txt: a symbolic link")
    assert content(victim) == b"precious"


ROWS = [a_folder_with_a_run_is_rejected_or_the_run_is_renamed, runs_mixed_in_a_folder_are_told_apart_by_id,
        a_copied_folder_without_links_resumes, every_record_has_the_id_of_its_run, flags_changed_at_a_resume_are_listed,
        changed_settings_of_the_state_are_a_warning, different_kernels_at_a_resume_are_reported,
        a_second_process_is_rejected,
        only_one_of_many_processes_trains, a_lost_last_checkpoint_is_an_error, an_intermediate_checkpoint_that_fails_is_reported,
        a_removed_folder_is_noticed, an_interrupted_run_reports_its_checkpoint, an_unwritable_folder_is_reported_with_path_and_reason,
        a_run_too_short_for_shampoo_roots_warns, fine_tuning_is_safe_to_restart, fine_tuning_of_earlier_versions_resumes,
        a_resumed_run_keeps_earlier_traces, data_that_changes_within_an_epoch_is_an_error, data_that_grew_between_epochs_is_reported,
        a_run_without_checkpoints_is_renamed_with_a_warning,
        early_stopping_ends_a_run_and_a_resume_keeps_its_count, early_stopping_rejects_what_cannot_end_a_run,
        a_plateau_lowers_the_rate_and_a_resume_keeps_it, save_top_keeps_the_best_checkpoints,
        symbolic_links_in_place_of_run_files_are_not_followed]

sys.exit(run_rows(ROWS, "lather-runs-", *sys.argv[2:3]))
