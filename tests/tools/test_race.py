#!/usr/bin/env python3
"""tools/race as its users run it: runs, verification, kills, the board, bad tasks and entries.

    tests/tools/test_race.py TRAIN_RESNET50 [--only ROW]
"""
import argparse
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from reproduce_support import ERROR, OK, ROOT, USAGE, call, options, read, run_rows, write  # noqa: E402
from race_lib import main as tool  # noqa: E402
from race_lib.result import Result, cpu_seconds, summarize  # noqa: E402
from race_lib.task import find_task  # noqa: E402
from race_lib.work import Work  # noqa: E402
from reproduce_lib.launch import LaunchError  # noqa: E402
from reproduce_lib.plan import PlanError  # noqa: E402
from reproduce_lib.stats import sign_flip  # noqa: E402
from stormlib import complete_steps  # noqa: E402

TASKS = os.path.join(ROOT, "models", "resnet50", "tasks")
RESULTS = os.path.join("runs", "race", "results")


def race(command, *args, cwd, code=OK):
    trains = [] if command == "board" else ["--train", options.program, "--threads", "1"]
    p = call([command, *args, *trains], cwd, tool.main)
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stdout[-900:]} {p.stderr[-700:]}"
    return p.stdout + p.stderr


def own_task(cwd, name="smoke", **changes):
    """A copy of the smoke task whose values are changed; returns its path."""
    text = read(TASKS, "smoke.ini")
    for key, value in changes.items():
        key = key.replace("_", "-")
        lines = [f"{key} = {value}" if line.partition("=")[0].strip() == key else line for line in text.split("\n")]
        text = "\n".join(lines)
    shutil.copytree(os.path.join(TASKS, "smoke"), os.path.join(cwd, name), dirs_exist_ok=True)
    return write(cwd, f"{name}.ini", text)


def content(cwd, entry, seed):
    return json.loads(read(cwd, RESULTS, "smoke", entry, f"seed-{seed}.json"))


def change(cwd, entry, seed, function):
    found = content(cwd, entry, seed)
    function(found)
    write(cwd, os.path.join(RESULTS, "smoke", entry, f"seed-{seed}.json"), json.dumps(found))


def a_race_runs_to_a_board(cwd):
    race("run", "smoke", "nesterov", cwd=cwd)
    race("run", "smoke", "shampoo", "--seeds", "3", cwd=cwd)
    assert ": 0 runs to do, 3 done" in race("run", "smoke", "shampoo", "--seeds", "3", cwd=cwd)
    found = content(cwd, "shampoo", 3)
    assert [step for step, _ in found["hashes"]] == [0, 4, 8, 12, 16] and len(found["weights_sha256"]) == 64, found["hashes"]
    assert cwd not in json.dumps(found), "a path of this machine is in a result"
    race("board", cwd=cwd)
    page, image = read(cwd, "runs", "race", "results.md"), os.path.join(cwd, RESULTS, "smoke", "curves.svg")
    assert page.count("<!-- race smoke -->") == 1 and "of 3" in page and "of 2" in page and "![Curves of smoke](results/smoke/curves.svg)" in page, page
    assert "<polyline" in read(image)
    write(cwd, os.path.join("runs", "race", "results.md"), page.replace("# Race\n", "# Race\n\nOwn words.\n"))
    assert race("board", "smoke", "--check", cwd=cwd) == ""
    change(cwd, "shampoo", 1, lambda result: result["epochs"][-1].__setitem__(result["epoch_keys"].index("val_top1"), 40))
    said = race("board", "--check", cwd=cwd, code=ERROR)
    assert said.count("is not what the results give") == 2, said
    assert "Own words." in read(cwd, "runs", "race", "results.md"), "--check wrote the page"


def a_result_is_verified_or_rejected(cwd):
    task = own_task(cwd)
    race("run", task, "nesterov", "--seeds", "1", cwd=cwd)
    other = "avx2" if " avx2 " in read("/proc/cpuinfo") else "generic"
    os.environ["LATHER_CPU_ISA"] = other
    try:
        said = race("verify", task, "nesterov", cwd=cwd)
    finally:
        del os.environ["LATHER_CPU_ISA"]
    assert "equal: 5 hashes of weights and optimizer state, from step 0 to step 16" in said and "equal: 16 metrics" in said, said
    race("board", task, cwd=cwd)
    assert f", {other} |" in read(cwd, "runs", "race", "results.md"), "the board does not name the processor of the verification"
    changed = read(cwd, "smoke", "nesterov.ini").replace("lr     = 0.1", "lr     = 0.1\nsched = step\nstep-epochs = 2\ngamma = 0.9")
    write(cwd, os.path.join("smoke", "nesterov.ini"), changed.replace("= step\nstep-epochs = 2\ngamma = 0.9", "= constant"))
    race("run", task, "nesterov", "--seeds", "1", cwd=cwd)
    write(cwd, os.path.join("smoke", "nesterov.ini"), changed)
    change(cwd, "nesterov", 1, lambda result: result["env"].__setitem__("version", "0.0.9"))
    said = race("verify", task, "nesterov", cwd=cwd, code=ERROR)
    for text in ("different at step 12, equal at step 8", "first tensor that differs: conv1.weight", "epoch 3 of 4 is the first that differs",
                 "sched: constant in the result, step in the repetition", "version: 0.0.9 in the result"):
        assert text in said, f"'{text}' is not in {said}"
    said = race("board", task, cwd=cwd, code=USAGE)
    assert "seed-1.json: gamma is (absent) in the result, 0.9 in " in said and said.count("\n") == 1, said
    shutil.rmtree(os.path.join(cwd, "runs", "race", "cells"))
    assert "first tensor" not in race("verify", task, "nesterov", cwd=cwd, code=ERROR)
    assert "no result of seed 2" in race("verify", task, "nesterov", "--seed", "2", cwd=cwd, code=USAGE)


def kill_all(process):
    """The tool and its run, at once."""
    children = read("/proc", str(process.pid), "task", str(process.pid), "children").split()
    process.send_signal(signal.SIGKILL)
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    process.wait()


def a_killed_run_has_the_hashes_of_an_unbroken_one(cwd):
    for name in ("calm", "storm"):
        os.makedirs(os.path.join(cwd, name))
    task = own_task(cwd, max_steps=160)
    entry = write(cwd, "long.ini", "[entry]\ntuning-runs = 0\n[settings]\noptim = adamw\nepochs = 40\n")
    race("run", task, entry, "--seeds", "1", cwd=os.path.join(cwd, "calm"))
    line = [sys.executable, os.path.join(ROOT, "tools", "race"), "run", task, entry, "--seeds", "1", "--train", options.program, "--threads", "1"]
    process = subprocess.Popen(line, cwd=os.path.join(cwd, "storm"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs = os.path.join(glob.escape(cwd), "storm", "runs", "race", "cells", "*", "run")
    while not any(map(complete_steps, glob.glob(runs))) and process.poll() is None:
        time.sleep(0.002)
    assert process.poll() is None, "the run ended before the kill"
    kill_all(process)
    assert not glob.glob(os.path.join(glob.escape(cwd), "storm", RESULTS, "*", "*"))
    race("run", task, entry, "--seeds", "1", cwd=os.path.join(cwd, "storm"))
    assert len(glob.glob(os.path.join(glob.escape(cwd), "storm", "runs", "race", "cells", "*"))) == 1
    assert "resume" in read(glob.glob(os.path.join(glob.escape(cwd), "storm", "runs", "race", "cells", "*", "run", "metrics.jsonl"))[0])
    calm, storm = (content(os.path.join(cwd, name), "long", 1) for name in ("calm", "storm"))
    assert len(calm["hashes"]) == 41, calm["hashes"]
    for key in ("id", "hashes", "weights_sha256"):
        assert calm[key] == storm[key], f"{key} differs"
    assert [row[1:6] for row in calm["epochs"]] == [row[1:6] for row in storm["epochs"]]


def made(task, rows, status="done", env=(), seed=1):
    """A result with rows of (step, top-1)."""
    return Result(task, seed, {"status": status, "config": {}, "epoch_keys": ["step", "val_top1", "val_loss", "cpu_seconds"],
                               "epochs": [[*row, 50 - row[1], cpu] for row, cpu in zip(rows, (6, 12, 2, 12))], "env": dict(env), "optimizer_bytes": 1, "hashes": [[0, "a"]]})


def scores_are_of_the_first_evaluation_at_the_target(cwd):
    task = find_task(own_task(cwd))
    run = made(task, [(4, 25.9), (8, 26), (12, 20), (16, 30)])
    assert (run.steps, run.core_seconds, run.all_core_seconds, run.final) == (8, 12.0, 24.0, 30), vars(run)
    assert cpu_seconds([{"seconds": 2.0, "eval_seconds": 1.0}], 3) == [9.0]
    records = [{"event": "epoch", "step": 4, "cpu_seconds": 10.0}, {"event": "resume", "step": 4}, {"event": "epoch", "step": 8, "cpu_seconds": 10.5},
               {"event": "epoch", "step": 12, "cpu_seconds": 20.0}, {"event": "resume", "step": 12}, {"event": "epoch", "step": 16, "cpu_seconds": 40.0}]
    write(cwd, "config.yaml", "seed: 1\n")
    write(cwd, "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    found = summarize(argparse.Namespace(id="a", settings={}), cwd, "done")
    spent = cpu_seconds([dict(zip(found["epoch_keys"], row)) for row in found["epochs"]], 1)
    assert spent == [10.0, 10.5, 9.5, 40.0], found["epochs"]
    assert not made(task, [(4, 25), (20, 30)]).is_reached(), "reached after the last step of the budget"
    assert made(task, [(4, 30)], "diverged").final == 0
    loss = find_task(own_task(cwd, "lower", metric="loss", target=24))
    run = made(loss, [(4, 25.9), (8, 26), (12, 27)])
    assert (run.steps, run.final) == (8, -23), vars(run)
    assert sign_flip([3, 1, 2, 5, 1]) == 2 / 32 and sign_flip([0, 0]) == 1 and sign_flip([1, -1, 2]) == 1 / 2 + 1 / 4
    assert sign_flip([1] * 13) < 0.01 < 0.5 < sign_flip([1, -1] * 7)


def entries_of_other_builds_are_marked(cwd):
    race("run", "smoke", "nesterov", cwd=cwd)
    race("run", "smoke", "shampoo", "--seeds", "1", cwd=cwd)
    race("board", cwd=cwd)
    assert "Another build" not in read(cwd, "runs", "race", "results.md")
    own = content(cwd, "shampoo", 1)["env"]["build_id"]
    change(cwd, "shampoo", 1, lambda result: result["env"].__setitem__("git_commit", "0" * 40))  # of the working folder, not of the program
    race("board", cwd=cwd)
    assert "Another build" not in read(cwd, "runs", "race", "results.md")
    change(cwd, "shampoo", 1, lambda result: result["env"].__setitem__("build_id", "0123456789abcdef"))
    race("board", cwd=cwd)
    page = read(cwd, "runs", "race", "results.md")
    assert "Shampoo\u2020 |" in page and "momentum\u2020" not in page and "build_id 0123456789abcdef" in page and f"build_id {own}" in page, page
    race("verify", "smoke", "shampoo", cwd=cwd)
    race("board", cwd=cwd)
    assert "Another build" not in read(cwd, "runs", "race", "results.md"), "a verification with this build does not count"
    write(cwd, os.path.join(RESULTS, "smoke", "nesterov", "seed-2.json"), '{"hashes": []}')
    assert "seed-2.json: not a result of " in race("board", cwd=cwd, code=USAGE)
    os.remove(os.path.join(cwd, RESULTS, "smoke", "nesterov", "seed-2.json"))
    change(cwd, "shampoo", 1, lambda result: result["data"].__setitem__("samples", 63))
    said = race("board", cwd=cwd, code=USAGE)
    assert "have 63 samples, fingerprint cbba7599fa884c21; those of task smoke have 64 samples, fingerprint cbba7599fa884c21" in said, said


def a_run_that_diverged_fails_and_is_not_verified(cwd):
    entry = write(cwd, "wild.ini", "[entry]\ntuning-runs = 3\n[settings]\noptim = sgd\nlr = 1e6\nmomentum = 0\nnesterov = false\n"
                  "norm-weight-decay = true\nweight-decay = 1e5\n")
    assert "diverged" in race("run", "smoke", entry, "--seeds", "1", cwd=cwd)
    assert "the run diverged after step 0" in race("verify", "smoke", entry, cwd=cwd)
    race("board", cwd=cwd)
    page = read(cwd, "runs", "race", "results.md")
    assert "| 1 | wild | 0 of 1 | > 16 [> 16, > 16] |  | – | 0.00 [0.00, 0.00] | no |" in page, page


def bad_tasks_and_entries_are_refused(cwd):
    def entry(settings, head="tuning-runs = 0"):
        return lambda: write(cwd, "own.ini", f"[entry]\n{head}\n[settings]\n{settings}\n")
    plugin = write(cwd, "own.c", "int nothing;\n")
    own = hashlib.sha256(read(plugin).encode()).hexdigest()
    other = own_task(cwd, "other", data="synthetic:32:16:4")
    for args, says, code in (
            (["smoke", entry("width = 8")], "width = 8 is not free in task smoke, which fixes width = 4", USAGE),
            (["smoke", entry("mixup-alpha = 1")], "mixup-alpha = 1 is not free in task smoke; see [free] of ", USAGE),
            (["smoke", entry("lr = fast")], "--lr: 'fast' is not a number", USAGE),
            (["smoke", entry("data = x")], "data: given by the tool", USAGE),
            (["smoke", entry("max-steps = 17")], "max-steps = 17 is more than the budget of task smoke, 16", USAGE),
            (["smoke", entry("", "author = x")], "'tuning-runs' is missing", USAGE),
            (["smoke", entry("", "tuning-runs = 0\nplugin = no.c")], "no.c: No such file", USAGE),
            (["smoke", entry("", "tuning-runs = 0\nplugin = own.c\nsha256 = 12")], f"own.c has SHA-256 {own}, the entry says sha256 = 12", USAGE),
            (["smoke", entry("", f"tuning-runs = 0\nplugin = own.c\nsha256 = {own}")], "own.c is code that this run would load: --allow-plugin", USAGE),
            (["smoke", "nestorov"], "no entry 'nestorov'", USAGE), (["smok", "nesterov"], "no task 'smok'", USAGE),
            ([lambda: own_task(cwd, "bad", metric="top5"), "nesterov"], "metric: got 'top5', want one of top1, loss", USAGE),
            ([lambda: own_task(cwd, "bad", fingerprint="7"), "nesterov"], "fingerprint: got '7', want 16 hexadecimal digits", USAGE),
            ([lambda: own_task(cwd, "bad", sections="Optimiser"), "nesterov"], "'Optimiser' is no section", USAGE),
            ([other, "nesterov"], "the data have 32 samples, fingerprint", ERROR)):
        said = race("run", *(arg() if callable(arg) else arg for arg in args), cwd=cwd, code=code)
        assert says in said and said.splitlines()[-1].startswith("race: ") and "Traceback" not in said, f"'{said}' does not say '{says}'"
    assert not os.path.exists(os.path.join(cwd, "runs", "race", "cells")), "cells were run"
    assert "no results" in race("board", cwd=cwd, code=USAGE)


def a_plugin_is_compiled_and_verified(cwd):
    text = read(ROOT, "examples", "plugin_signum.c") + "\nLT_PLUGIN_REPRODUCIBLE;\n"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    write(cwd, "plugin_signum.c", text)
    entry = write(cwd, "signum.ini", f"[entry]\ntuning-runs = 0\nplugin = plugin_signum.c\nsha256 = {sha256}\n[settings]\noptim = signum\nlr = 0.001\nepochs = 1\n")
    race("run", "smoke", entry, "--seeds", "1", "--allow-plugin", cwd=cwd)
    assert content(cwd, "signum", 1)["settings"]["plugin-sha256"] == sha256
    assert "equal: 2 hashes" in race("verify", "smoke", entry, "--allow-plugin", cwd=cwd)
    race("board", cwd=cwd)
    assert "optim=signum plugin=plugin_signum.c" in read(cwd, "runs", "race", "results.md")


def shipped_tasks_and_entries_fit_their_programs(cwd):
    """Each entry's flags are free ones of the task's program, which resolves them with the task's; the package of missing data is named."""
    paths, models = sorted(glob.glob(os.path.join(glob.escape(ROOT), "models", "*", "tasks", "*.ini"))), os.path.dirname(os.path.dirname(options.program))
    assert len(paths) >= 5, paths

    def works(path):
        task = find_task(path)
        program = os.path.join(models, path.split(os.sep)[-3], task.program) if path.startswith(ROOT) else options.program
        for entry in task.entries():
            yield Work(argparse.Namespace(task=path, entry=entry, out=cwd, results=None, data=None, train=program, threads=1, jobs=1, on="local", hosts="",
                                          checkpoint_every=0, allow_plugin=False))
    for path in paths:
        cells = [work.cell(1) for work in works(path)]
        assert len(cells) >= 2 and len({cell.id for cell in cells}) == len(cells), f"{path}: {len(cells)} entries"
    os.environ["LATHER_KJV"] = os.path.join(cwd, "absent")
    try:
        next(works(next(path for path in paths if path.endswith("gpt-text.ini")))).check_data()
        raise AssertionError("gpt-text runs without its text")
    except LaunchError as error:
        assert "install Debian's package bible-kjv-text" in str(error), error
    finally:
        del os.environ["LATHER_KJV"]
    task = own_task(cwd, "gone", width="4\nremoved-flag = 1")
    try:
        next(works(task)).cell(1)
        raise AssertionError("a flag that the program lacks is accepted")
    except PlanError as error:
        assert "--removed-flag: no such option" in str(error), error


def the_committed_board_is_drawn_from_committed_results(cwd):
    results = os.path.join(ROOT, "docs", "results", "race")
    if os.path.isdir(results):
        race("board", "--check", "--results", results, cwd=cwd)


sys.exit(run_rows([a_race_runs_to_a_board, a_result_is_verified_or_rejected, a_killed_run_has_the_hashes_of_an_unbroken_one,
                   scores_are_of_the_first_evaluation_at_the_target, entries_of_other_builds_are_marked,
                   a_run_that_diverged_fails_and_is_not_verified, bad_tasks_and_entries_are_refused, a_plugin_is_compiled_and_verified,
                   shipped_tasks_and_entries_fit_their_programs, the_committed_board_is_drawn_from_committed_results]))
