#!/usr/bin/env python3
"""tools/reproduce on several ranks, on several devices, and installed.

    tests/tools/test_reproduce_places.py TRAIN_RESNET50 [--mpirun FILE] [--build FOLDER] [--only ROW]
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from reproduce_support import (ERROR, INTERRUPTED, ROOT, TINY, TOOL, options, read, refused, reproduce, run_rows,  # noqa: E402
                               same_tree, write)
from rows import Skip  # noqa: E402

SHARED = (TINY.replace("trials     = 2", "trials     = 1\nglobal-batch = 16").replace("batch-size = 16", "batch-size = 4")
          .replace("budgets    = 1 2", "budgets    = 2").replace("[common]", "[common]\nlimit-train-batches = 2"))


def launcher(real=False):
    """mpirun; else, as the stub's other ranks would do nothing, a script that starts rank 0."""
    if not real and not options.everything:
        return options.launcher
    if not options.mpirun or not shutil.which(options.mpirun):
        raise Skip("no mpirun")
    return options.mpirun


def on_ranks(ranks, real=False):
    return ["--ranks", str(ranks), "--mpirun", launcher(real)]


def metrics_of(cwd):
    names = sorted(os.listdir(os.path.join(cwd, "out", "metrics")))
    return {name[:-5]: json.loads(read(cwd, "out", "metrics", name)) for name in names}


def logs_of(cwd):
    return [read(path) for path in sorted(glob.glob(os.path.join(glob.escape(cwd), "out", "cells", "*", "log.txt")))]


def folder(cwd, name):
    path = os.path.join(cwd, name)
    os.makedirs(path)
    return path


def ranks_share_the_global_batch_and_are_no_other_cells(cwd):
    plan, one, two = write(cwd, "shared.ini", SHARED), folder(cwd, "one"), folder(cwd, "two")
    reproduce(plan, *on_ranks(2), cwd=two)
    reproduce(plan, cwd=one)
    alone, together = metrics_of(one), metrics_of(two)
    assert list(alone) == list(together) and len(alone) == 4, f"{list(alone)} and {list(together)}"
    assert all("2 ranks" in log and "16 images per update" in log for log in logs_of(two)), logs_of(two)
    for name, metrics in alone.items():
        assert metrics["steps"] == together[name]["steps"] == 4, f"{metrics['steps']} and {together[name]['steps']} updates"
        assert (metrics["config"]["grad-accum"], together[name]["config"]["grad-accum"]) == ("4", "2")
    assert "0 cells to run" in reproduce(plan, cwd=two).stdout, "other ranks make other cells"
    evaluated = write(cwd, "evaluated.ini", SHARED.replace("[common]", "[common]\nlimit-eval-batches = 4"))
    for ranks, batches in (1, 4), (2, 2):
        lines = reproduce(evaluated, "--dry-run", *(on_ranks(ranks) if ranks > 1 else ()), cwd=folder(cwd, f"evaluated{ranks}")).stdout
        assert f"--limit-eval-batches {batches} " in lines, lines


def a_global_batch_that_ranks_cannot_make_is_refused(cwd):
    for text, ranks, says in ((SHARED.replace("[common]", "[common]\nlimit-eval-batches = 3"), 2, "limit-eval-batches 3 is no multiple of 2 ranks"),
                              (SHARED, 3, "global-batch 16 is no multiple of 3 ranks"), (TINY, 2, "names no global-batch"),
                              (SHARED + "[sweep s]\narm = one\nbudget = 2\nbatch-size = 4 16\n", 2, "2 ranks with 16 samples each")):
        refused(text, says, cwd, ERROR, *on_ranks(ranks))


def what_a_failed_rank_said_is_in_the_report(cwd):
    fake = write(cwd, "fake", f"""#!/bin/sh
case " $* " in *" --optim adamw "*" --output "*cells*) echo "train_resnet50: some trouble" >&2 && exit 1 ;; esac
exec {options.trainer} "$@"
""")
    os.chmod(fake, 0o755)
    wild = SHARED.replace("0.01 .. 1\n", "1e5 .. 1e6\nmomentum = 0\nnorm-weight-decay = true\nweight-decay = 1e5\n")
    said = reproduce(write(cwd, "ranks.ini", wild), *on_ranks(2, real=True), cwd=cwd, code=ERROR, program=fake).stdout
    assert "FAILED" in said and "some trouble" in said and "one 2 seed 1  diverged" in said, said
    page = read(cwd, "out", "ranks", "report.html")
    assert "some trouble" in page and "mpirun detected" not in page, "mpirun's own remarks hide the reason"


def stop_and_go_on(cwd, *flags):
    plan = write(cwd, "long.ini", SHARED.replace("budgets    = 2", "budgets    = 60"))
    line = [sys.executable, TOOL, plan, "--only", "trial one*", "--threads", "1", "--out", os.path.join(cwd, "out"), "--train",
            options.trainer, *on_ranks(2, real=True), *flags]
    os.environ["LATHER_STUB_PACE"] = "0.01"
    p = subprocess.Popen(line, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not any("epoch 3:" in log for log in logs_of(cwd)) and p.poll() is None and time.monotonic() < end:
        time.sleep(0.02)  # waits for a line of the log
    p.send_signal(signal.SIGTERM)
    assert p.wait(timeout=120) == INTERRUPTED, f"exit status {p.returncode}"
    del os.environ["LATHER_STUB_PACE"]
    reproduce(plan, "--only", "trial one*", *on_ranks(2, real=True), *flags, cwd=cwd)
    log = logs_of(cwd)[0].split("\n$ ")
    assert len(log) == 2 and "epoch 1:" not in log[1] and "epoch 3:" not in log[1], "it started from the beginning"
    assert [m["steps"] for m in metrics_of(cwd).values()] == [120]


def ranks_that_are_stopped_resume(cwd):
    stop_and_go_on(cwd)


def ranks_on_machines_that_are_stopped_resume(cwd):
    stop_and_go_on(cwd, "--on", "mpirun", "--hosts", "localhost:2")


def results_of(cwd):
    """Results other than seconds: the training losses, and steps, losses and accuracies of each epoch."""
    return {name: (m["loss"], [epoch[:7] for epoch in m["epochs"]]) for name, m in metrics_of(cwd).items()}


def cells_on_machines_are_those_of_this_one(cwd):
    """Every table and page has the same bytes as that of a run without --on, also when it is drawn again."""
    plan, here, there = write(cwd, "places.ini", TINY), folder(cwd, "here"), folder(cwd, "there")
    reproduce(plan, "--no-clock", cwd=here)
    on = ["--on", "mpirun", "--hosts", "localhost:2", "--mpirun", launcher()]
    lines = reproduce(plan, *on, "--dry-run", cwd=there).stdout
    assert lines.count("--host localhost:1 ") == 4, lines
    shutil.rmtree(os.path.join(there, "out"))
    reproduce(plan, *on, "--no-clock", cwd=there)
    assert all(" --host localhost:1 " in log for log in logs_of(there)) and len(logs_of(there)) == len(logs_of(here)) == 8
    for again in (False, True):
        if again:
            reproduce(plan, "--redraw", "--no-clock", cwd=there)
        assert not same_tree(os.path.join(here, "out", "places"), os.path.join(there, "out", "places")), "the reports differ"
    assert results_of(here) == results_of(there), "losses or accuracies differ"


def machines_without_slots_are_refused(cwd):
    for flags, says in ((("--on", "mpirun", "--hosts", "a:2,b:1,a:1", "--jobs", "5"), "5 cells of 1 ranks; the slots hold 4"),
                        (("--on", "mpirun", "--hosts", "a:x"), "--hosts a:x"), (("--hosts", "a"), "--hosts is of --on mpirun"),
                        (("--on", "slurm"), "not in an allocation")):
        refused(TINY, says, cwd, 2, *flags)
    refused(SHARED, "no machine has 4 slots", cwd, 2, "--on", "mpirun", "--hosts", "a:2,b:2", "--ranks", "4")


def jobs_take_devices_in_turn(cwd):
    plan = write(cwd, "turns.ini", TINY)
    reproduce(plan, "--jobs", "2", "--devices", "cpu,ref", "--only", "trial*", cwd=cwd)
    used = {metrics["config"]["device"] for metrics in metrics_of(cwd).values()}
    assert used == {"cpu", "ref"}, used
    assert "4 done" in reproduce(plan, "--dry-run", cwd=cwd).stdout, "another device makes another cell"


def a_device_that_is_not_there_is_refused(cwd):
    refused(TINY, "--devices: nosuch: train_resnet50: device: no device 'nosuch'", cwd, ERROR, "--jobs", "2", "--devices", "cpu,nosuch")
    said = reproduce(write(cwd, "later.ini", TINY), "--devices", "nosuch", "--dry-run", cwd=cwd, program=options.program).stdout  # a plan for another machine
    assert said.count("--device nosuch") == 4 and "no estimate" in said, said


def installed_it_finds_all_of_its_files(cwd):
    if not options.build or not shutil.which("meson"):
        raise Skip("no build folder to install from, or no meson")
    top, other = os.path.join(cwd, "in stalled"), folder(cwd, "else where")
    done = subprocess.run(["meson", "install", "-C", options.build, "--no-rebuild", "--quiet", "--destdir", top], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:] + done.stdout[-500:]
    program = glob.glob(os.path.join(top, "**", "bin", "train_resnet50"), recursive=True)[0]
    prefix = os.path.dirname(os.path.dirname(program))
    env = {name: value for name, value in os.environ.items() if name not in ("LATHER_TRAIN", "LD_LIBRARY_PATH")}

    def call(*line):
        p = subprocess.run(line, cwd=other, env=env, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, check=False)
        assert p.returncode == 0, f"exit {p.returncode}: {p.stderr[-500:]}"
        return p.stdout
    said = call(program, "reproduce", "smoke", "--only", "trial * 1", "--threads", "1", "--out", "the out")
    assert said.count(" %  ") == 2 and os.path.exists(os.path.join(other, "the out", "smoke", "report.html")), said
    said = call(os.path.join(prefix, "bin", "lather-reproduce"), "smoke", "--dry-run", "--out", "the out")
    assert program in said and "2 done" in said, said
    for name in ("lather", "lather-inspect"):
        assert " " in call(os.path.join(prefix, "bin", name), "--version")
    installed = os.listdir(os.path.join(prefix, "share", "lather", "recipes"))
    text = write(cwd, "a.txt", "A text to divide into sequences. " * 2000)
    for family, data in (("resnet50", "synthetic"), ("vit", "synthetic"), ("speedrun", "synthetic"), ("gpt", text)):
        for recipe in os.listdir(os.path.join(ROOT, "models", family, "recipes")):
            installed.remove(recipe)
            trainer = os.path.join(prefix, "bin", f"train_{family}")
            assert "optim: " in call(trainer, "--recipe", recipe[:-5], "--data", data, "--print-config"), recipe
    assert not installed, installed


sys.exit(run_rows([ranks_share_the_global_batch_and_are_no_other_cells, a_global_batch_that_ranks_cannot_make_is_refused,
                   what_a_failed_rank_said_is_in_the_report, cells_on_machines_are_those_of_this_one,
                   machines_without_slots_are_refused, ranks_on_machines_that_are_stopped_resume,
                   ranks_that_are_stopped_resume, jobs_take_devices_in_turn,
                   a_device_that_is_not_there_is_refused, installed_it_finds_all_of_its_files]))
