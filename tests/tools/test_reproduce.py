#!/usr/bin/env python3
"""tools/reproduce as its users run it: the smoke plan, kills, bad plans, holes, redrawing.

    tests/tools/test_reproduce.py TRAIN_RESNET50 [--kills N] [--only ROW]
"""
import csv
import difflib
import glob
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from reproduce_support import ERROR, ROOT, TINY, TOOL, USAGE, options, read, refused, reproduce, run_rows, same_tree, write  # noqa: E402
from reproduce_lib import fingerprint  # noqa: E402
from reproduce_lib.measures import Run, epochs_to  # noqa: E402
from reproduce_lib.metric import METRICS  # noqa: E402


def check_transfer(tables):
    """Each row of transfer.csv by trials.csv: both optimizers with the settings that the first one chose."""
    def rows(name):
        return list(csv.DictReader(io.StringIO(read(tables, name))))
    trials, found = rows("trials.csv"), rows("transfer.csv")
    score = {(t["optimizer"], t["settings"]): t["top-1, %"] for t in trials}
    best = {t["optimizer"]: t["settings"] for t in trials if t[""] == "chosen"}
    assert {(row["settings of"], row["taken by"]) for row in found} == {(a, b) for a in best for b in best if a != b}
    for row in found:
        at, other = best[row["settings of"]], row["taken by"]
        assert row["best of its trials"] == at and row["with these"] == score[other, at], row
        assert row["top-1, %"] == score[row["settings of"], at] and row["with its own best"] == score[other, best[other]], row


def as_users_call_it(cwd, *args):
    """Runs the tool as a separate process with the real trainer; returns its output."""
    line = [sys.executable, TOOL, *args, "--threads", "1", "--out", os.path.join(cwd, "out"), "--train", options.program]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout


def keys_of(cwd, name):
    """event -> keys of the records and files of the first cell's run that reproduce reads."""
    run = os.path.join(cwd, "out", "cells", name, "run")
    found = {record["event"]: set(record) for record in map(json.loads, read(run, "metrics.jsonl").splitlines())}
    return {**found, "env": set(json.loads(read(run, "env.json"))),
            "config": {line.partition(":")[0] for line in read(run, "config.yaml").splitlines()}}


def the_stub_writes_what_the_trainer_writes(cwd):
    """Names of cells are equal too, so rows with the stub hold for the trainer."""
    arm = "[arm roots]\noptim = shampoo\nprecondition-frequency = 1\nlr = 1e-4 .. 1e-2\n"
    for folder in ("real", "stub"):
        os.makedirs(os.path.join(cwd, folder))
    plan = write(cwd, "both.ini", TINY + arm)
    as_users_call_it(os.path.join(cwd, "real"), plan, "--only", "trial roots 2 1")
    reproduce(plan, "--only", "trial roots 2 1", cwd=os.path.join(cwd, "stub"), program=options.stub)
    (name,), names = (os.listdir(os.path.join(cwd, folder, "out", "cells")) for folder in ("real", "stub"))
    assert [name] == names, f"{name} and {names}"
    real, stub = (keys_of(os.path.join(cwd, folder), name) for folder in ("real", "stub"))
    assert real["config"] == stub["config"], real["config"] ^ stub["config"]
    for event in ("step", "epoch", "env"):
        assert stub[event] <= real[event], f"{event}: the trainer writes no {stub[event] - real[event]}"
    real, stub = (json.loads(read(cwd, folder, "out", "metrics", name + ".json")) for folder in ("real", "stub"))
    del real["config"]["output"], stub["config"]["output"]
    assert (real["steps"], real["epoch_keys"]) == (stub["steps"], stub["epoch_keys"]), (real, stub)
    for key in ("config", "settings"):
        assert real[key] == stub[key], [(key, k, v, stub[key].get(k)) for k, v in real[key].items() if stub[key].get(k) != v]
    assert set(real) == set(stub) and real["roots"].keys() == stub["roots"].keys(), set(real) ^ set(stub)
    assert all((a is None) == (b is None) for a, b in zip(real["epochs"][-1], stub["epochs"][-1])), stub["epochs"]


def the_smoke_plan_runs_to_a_report(cwd):
    said = reproduce("smoke", cwd=cwd).stdout
    assert re.search(r"\d+ cells to run", said) and "by this calibration" in said, said[:300]
    out = os.path.join(cwd, "out")
    page = read(out, "smoke", "report.html")
    assert page.count("<svg") >= 8 and not re.search(r"(src|href)=.?http|@import|url\(", page), "it needs something from outside"
    assert 'name="viewport"' in page and page.count('class="verdict"') == 2, "no page for a phone, or no verdicts"
    arms = ("sgd-nesterov", "shampoo-sgd")
    figures = {"accuracy-budget", "accuracy-epochs-2", "accuracy-epochs-3", "accuracy-time-3", "accuracy-seconds-3", "ratio-epochs",
               "ratio-seconds", "step-time", "optimizer-memory", "sweep-lr-nesterov", "sweep-lr-shampoo", "sweep-frequency-block"}
    figures |= {f"trials-{arm}" for arm in arms}
    drawn = os.listdir(os.path.join(out, "smoke", "figures"))
    assert set(drawn) == {f"{name}.{kind}" for name in figures for kind in ("svg", "csv")}, sorted(drawn)
    for name in os.listdir(os.path.join(out, "metrics")):
        assert os.path.getsize(os.path.join(out, "metrics", name)) <= 20000, f"{name} is large"
        assert os.path.exists(os.path.join(out, "cells", name[:-5], "DONE")), f"{name} without DONE"
    assert len(os.listdir(os.path.join(out, "smoke", "tables"))) >= 12
    check_transfer(os.path.join(out, "smoke", "tables"))
    said = reproduce("smoke", cwd=cwd).stdout
    assert "0 cells to run" in said, "finished cells were run again"
    first = os.path.join(cwd, "first")
    shutil.copytree(os.path.join(out, "smoke"), first)
    reproduce("smoke", "--redraw", cwd=cwd)
    assert not same_tree(first, os.path.join(out, "smoke")), "redrawn differently"
    shutil.rmtree(os.path.join(out, "cells"))
    reproduce("smoke", "--redraw", cwd=cwd)
    assert not same_tree(first, os.path.join(out, "smoke")), "drawn differently from the metrics alone"
    metrics = os.path.join(out, "metrics", sorted(os.listdir(os.path.join(out, "metrics")))[0])
    changed = json.loads(read(metrics))
    changed["epochs"][-1][changed["epoch_keys"].index("val_top1")] += 1
    write(cwd, metrics, json.dumps(changed))
    reproduce("smoke", "--redraw", cwd=cwd)
    assert same_tree(first, os.path.join(out, "smoke")), "another accuracy changed nothing"


def kill_at_random(cwd, kills):
    """Starts the plan again and again and kills it; returns how many of these were at work when killed."""
    line = [sys.executable, TOOL, "smoke", "--threads", "1", "--out", os.path.join(cwd, "out"), "--train", options.trainer]
    hit, rng = 0, random.Random(options.seed)
    for _ in range(kills):
        p = subprocess.Popen(line, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p.wait(rng.uniform(0.2, options.longest))
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL if rng.random() < 0.8 else signal.SIGTERM)
            p.wait()
            hit += 1
    return hit


def killed_at_random_moments_it_gives_the_same_report(cwd):
    """One storm, with a fifth of the kills unless all rows run."""
    kills = options.kills if options.everything else max(4, options.kills // 5)
    calm, storm = os.path.join(cwd, "calm"), os.path.join(cwd, "storm")
    os.makedirs(calm)
    os.makedirs(storm)
    os.environ["LATHER_STUB_PACE"] = "0.002"
    begin = time.monotonic()
    reproduce("smoke", "--no-clock", cwd=calm)
    options.longest = options.longest or max(0.6, (time.monotonic() - begin) / kills)
    hit = 0
    for _ in range(3):  # the calm run may have been the slower one: then most kills come too late
        hit = kill_at_random(storm, kills)
        if hit >= kills / 2:
            break
        shutil.rmtree(os.path.join(storm, "out"))
        options.longest = max(0.3, options.longest / 2)
    os.makedirs(os.path.join(storm, "out", "smoke"), exist_ok=True)  # a busy machine may not have come so far
    with open(os.path.join(storm, "out", "smoke", "plan.json.tmp-9999999"), "w", encoding="utf-8") as half:
        half.write("{")  # as one that was killed while it wrote
    assert hit >= kills / 2, f"only {hit} of {kills} kills came before the end"
    reproduce("smoke", "--no-clock", cwd=storm)
    differ = same_tree(os.path.join(calm, "out", "smoke"), os.path.join(storm, "out", "smoke"))
    if differ:
        pages = [read(f, "out", "smoke", "report.html").splitlines() for f in (calm, storm)]
        print("\n".join(difflib.unified_diff(*pages, n=0, lineterm="")))
    assert not differ, f"seed {options.seed}: {differ} differ after {hit} kills"
    page = read(storm, "out", "smoke", "report.html")
    assert "step-time" not in page and "indicative" not in page.split("<pre>")[0], "seconds are in it"


def files_of_the_user_in_out_are_left_alone(cwd):
    """Also where their names end as temporary ones do, or lie in folders that reproduce draws into."""
    plan, stored = "recommended", os.path.join(ROOT, "docs", "results", "ablation")
    mine = ("notes.tmp-9999999", "thesis/draft.tmp-9999999", f"{plan}/tables/mine.csv", f"{plan}/figures/mine/deep.svg", "metrics/notes.txt.tmp-9999999")
    for name in mine:
        os.makedirs(os.path.dirname(os.path.join(cwd, "out", name)), exist_ok=True)
        write(cwd, os.path.join("out", name), "mine")
    reproduce(plan, "--redraw", "--from", stored, cwd=cwd)
    folder = os.path.join(cwd, "out", plan)
    write(cwd, os.path.join(folder, "drawn.json"), json.dumps(["tables/old.csv", *json.loads(read(folder, "drawn.json"))]))
    write(cwd, os.path.join(folder, "tables", "old.csv"), "old")
    reproduce(plan, "--redraw", "--from", stored, cwd=cwd)
    assert not os.path.exists(os.path.join(folder, "tables", "old.csv")), "a table of an earlier drawing is left"
    for name in mine:
        assert read(cwd, "out", name) == "mine", name


def plans_with_cells_in_common_run_them_once(cwd):
    one = write(cwd, "one.ini", TINY)
    assert "4 cells" not in reproduce(one, "--only", "trial*", cwd=cwd).stdout.split("cells to run")[1]
    two = write(cwd, "two.ini", TINY.replace("seeds      = 1", "seeds      = 2"))
    said = reproduce(two, "--dry-run", cwd=cwd).stdout
    assert "4 done" in said, said
    reproduce(one, cwd=cwd)
    said = reproduce(two, cwd=cwd).stdout
    assert "4 cells to run" in said and "8 done" in said, said


MOMENTA = TINY + "[sweep momenta]\narm = one\nbudget = 2\nmomentum = 0.5 0.9\n"  # 0.9 is the trainer's default


def a_default_that_is_spelt_out_makes_no_other_cell(cwd):
    plan = write(cwd, "spelt.ini", MOMENTA)
    reproduce(plan, cwd=cwd)
    listed = reproduce(plan, "--list", cwd=cwd).stdout
    assert re.search(r"final one 2 seed 1; sweep momenta momentum=0.9$", listed, re.M), listed
    names = sorted(os.listdir(os.path.join(cwd, "out", "metrics")))
    assert len(names) == 9, f"{len(names)} cells"
    configs = [json.loads(read(cwd, "out", "metrics", name))["config"] for name in names]
    assert len({json.dumps({k: v for k, v in c.items() if k != "output"}) for c in configs}) == 9, "two cells are the same run"
    page = read(cwd, "out", "spelt", "report.html")
    shutil.rmtree(os.path.join(cwd, "out", "cells"))
    reproduce(plan, "--redraw", cwd=cwd)
    assert read(cwd, "out", "spelt", "report.html") == page, "drawn differently without the trainer"


def values_of_a_list_make_another_cell(cwd):
    halves = "".join(f"[arm {name}]\noptim = shampoo\nlr = 0.01 .. 1\ninverse-exponent = {values}\n" for name, values in (("half", "2:0.5,0.5"), ("third", "2:0.3,0.3")))
    listed = reproduce(write(cwd, "lists.ini", TINY + halves), "--list", cwd=cwd).stdout
    assert all(re.search(rf" trial {name} 2 1$", listed, re.M) for name in ("half", "third")), listed


def change_metrics(cwd, change):
    """change(metrics) -> the name of its file."""
    folder = os.path.join(cwd, "out", "metrics")
    for name in os.listdir(folder):
        metrics = json.loads(read(folder, name))
        os.unlink(os.path.join(folder, name))
        new = change(metrics)
        write(folder, new + ".json", json.dumps(metrics))


def finished_cells_count_under_any_name(cwd):
    plan = write(cwd, "older.ini", MOMENTA)
    reproduce(plan, cwd=cwd)
    shutil.rmtree(os.path.join(cwd, "out", "cells"))
    record = os.path.join(cwd, "out", "older", "plan.json")
    write(cwd, record, json.dumps({**json.loads(read(record)), "cells": {}}))

    def name_by_settings(metrics):  # as of before names were hashes of the resolved config
        metrics["config"].pop("exif", None)  # and the trainer had fewer flags
        text = json.dumps({"data": metrics["data"], "settings": metrics["settings"]}, sort_keys=True)
        metrics["id"] = hashlib.sha256(text.encode()).hexdigest()[:12]
        return metrics["id"]
    change_metrics(cwd, name_by_settings)
    listed = reproduce(plan, "--redraw", "--list", cwd=cwd).stdout  # without the trainer by settings alone
    assert "final one 2 seed 1\n" in listed and listed.count("done") == 9, listed
    said = reproduce(plan, cwd=cwd).stdout  # the trainer resolves equal configurations
    assert "0 cells to run" in said and "9 done" in said, said

    def changed_default(metrics):
        if metrics["settings"]["optim"] == "sgd":
            metrics["config"]["dampening"] = "0.125"
        return metrics["id"]
    change_metrics(cwd, changed_default)
    said = reproduce(plan, cwd=cwd, code=USAGE).stderr
    assert "dampening 0.125, this program takes 0" in said, said


def a_cell_of_a_preset_that_had_no_list_is_refused(cwd):
    arm = "[arm roots]\noptim = shampoo\npreset = transformer\nlr = 1e-4 .. 1e-2\n"
    plan = write(cwd, "preset.ini", TINY + arm)
    reproduce(plan, "--only", "trial roots 2 1", cwd=cwd)
    assert "1 done" in reproduce(plan, "--dry-run", cwd=cwd).stdout

    def drop_list(metrics):
        assert metrics["config"].pop("inverse-exponent") == '"2:0.5,0.5"', metrics["config"]
        return metrics["id"]
    shutil.rmtree(os.path.join(cwd, "out", "cells"))
    change_metrics(cwd, drop_list)
    said = reproduce(plan, "--dry-run", cwd=cwd, code=USAGE).stderr
    assert 'was run with inverse-exponent none, this program takes "2:0.5,0.5"' in said, said


def a_seed_gives_every_arm_the_same_start(cwd):
    reproduce(write(cwd, "start.ini", TINY), cwd=cwd, program=options.program)
    first = {"0": set(), "1": set()}
    for name in os.listdir(os.path.join(cwd, "out", "metrics")):
        settings = json.loads(read(cwd, "out", "metrics", name))["settings"]
        steps = read(cwd, "out", "cells", name[:-5], "run", "metrics.jsonl").split("\n")
        first[settings["seed"]].add(json.loads(steps[0])["loss"])
    assert len(first["0"]) == len(first["1"]) == 1, f"first losses of the arms: {first}"
    assert first["0"] != first["1"], "another seed changes nothing"


def a_cell_that_fails_leaves_a_hole_and_the_rest_goes_on(cwd):
    fake = write(cwd, "fake", f"""#!/bin/sh
case " $* " in *" --optim adamw "*" --output "*cells*) [ -e broken ] && echo "some trouble" >&2 && exit 1 ;; esac
exec {options.trainer} "$@"
""")
    os.chmod(fake, 0o755)
    plan = write(cwd, "holes.ini", TINY)
    write(cwd, "broken", "")
    said = reproduce(plan, cwd=cwd, code=ERROR, program=fake).stdout
    assert said.count("FAILED") == 2 and said.count("final one") == 2, said
    page = read(cwd, "out", "holes", "report.html")
    assert "Missing results" in page and "some trouble" in page
    failed = glob.glob(os.path.join(cwd, "out", "**", "failed", "*.json"), recursive=True)
    assert failed
    with open(failed[0]) as f:
        said = json.load(f)
    with open(failed[0], "w") as f:
        json.dump({**said, "code": "<b>1"}, f)
    reproduce(plan, "--redraw", cwd=cwd)
    assert "&lt;b&gt;1" in read(cwd, "out", "holes", "report.html")
    os.unlink(os.path.join(cwd, "broken"))
    reproduce(plan, cwd=cwd, program=fake)
    assert "Missing results" not in read(cwd, "out", "holes", "report.html"), "the hole is still there"


def a_run_that_diverges_counts_as_nothing_learnt(cwd):
    plan = write(cwd, "wild.ini", TINY.replace("0.01 .. 1\n", "0.5 .. 1e6\nmomentum = 0\nnorm-weight-decay = true\nweight-decay = 1e5\n"))
    said = reproduce(plan, cwd=cwd).stdout
    assert "diverged" in said and "diverged" in read(cwd, "out", "wild", "report.html"), said


def a_run_that_ends_early_has_the_epochs_of_the_others(cwd):
    del cwd

    def made(epochs, steps, status):
        return Run({"epoch_keys": ["epoch", "step", "val_top1", "seconds"], "epochs": [[e, 100 * (e + 1), 10.0 * (e + 1), 1.0] for e in range(epochs)],
                    "settings": {"epochs": "10"}, "steps": steps, "status": status}, METRICS["top1"])

    whole, diverged = made(10, 1000, "done"), made(5, 550, "diverged")
    for runs in [whole] * 3, [whole, whole, diverged], [diverged, whole, whole]:
        assert epochs_to([runs], 30) == 3, [run.curve for run in runs]


def a_plan_may_compare_losses(cwd):
    claim = "[claim a]\ntext = It does.\nmeasure = gain 2 2\nat-least = -100\n"
    plan = write(cwd, "loss.ini", TINY.replace("[plan]\n", "[plan]\nmetric = loss\n") + claim)
    reproduce(plan, cwd=cwd)
    page, trials = read(cwd, "out", "loss", "report.html"), read(cwd, "out", "loss", "tables", "trials.csv").split("\n")
    assert "Final loss in nats" in page and "top-1" not in page.replace("--target-top1", ""), "the page is about an accuracy"
    for label in ("one", "two"):
        rows = [line.rsplit(",", 4) for line in trials if line.startswith(label)]
        chosen = [float(row[1]) for row in rows if row[3] == "chosen"]
        assert len(rows) == 2 and chosen == [min(float(row[1]) for row in rows)] and chosen[0] > 0, f"not the smallest loss: {rows}"
    assert re.search(r"-?\d\.\d{4} nats", read(cwd, "out", "loss", "tables", "claims.md")), "a claim without its unit"
    assert not re.search(r">-\d", "".join(re.findall(r'class="title".*?</svg>', page, re.S)).split("claim")[0]), "an axis of negative losses"


def roots_are_counted_and_their_time_compared(cwd):
    head = "[plan]\ndata = synthetic:64:16:4\nbudgets = 3\nseeds = 2\nbaseline = all\nchallenger = some\nclock = indicative\n"
    common = "[common]\narch = resnet10\nwidth = 4\nbatch-size = 16\noptim = shampoo\nlr = 0.01\n"
    arms = "[arm all]\nprecondition-frequency = 1\n[arm some]\nprecondition-frequency = 2\n"
    claims = "[claim most]\ntext = It does.\nmeasure = roots\nat-most = 1000000\n[claim none]\ntext = It does.\nmeasure = roots\nat-most = 0\n"
    plan = write(cwd, "roots.ini", head + common + arms + claims)
    reproduce(plan, cwd=cwd)
    every, some = list(csv.reader(io.StringIO(read(cwd, "out", "roots", "tables", "roots.csv"))))[1:]
    assert int(every[1]) > int(some[1]) > 0, (every, some)
    assert every[3].startswith("100 ") and float(some[2]) > 0, (every, some)
    verdicts = [row[4] for row in list(csv.reader(io.StringIO(read(cwd, "out", "roots", "tables", "claims.csv"))))[1:]]
    assert verdicts == ["holds", "does not hold"], verdicts


def orthogonal_updates_count_where_they_were_timed(cwd):
    stored = os.path.join(cwd, "stored")
    shutil.copytree(os.path.join(ROOT, "docs", "results", "ablation"), stored)

    def muon():
        reproduce("cifar10", "--redraw", "--from", stored, cwd=cwd)
        table = csv.reader(io.StringIO(read(cwd, "out", "cifar10", "tables", "target.csv")))
        return next(row[3:] for row in table if row[0] == "Muon")
    assert muon() == ["not recorded", "not recorded"], muon()
    assert not os.path.exists(os.path.join(cwd, "out", "cifar10", "tables", "roots.csv")), "roots that were not counted"
    for path in glob.glob(os.path.join(glob.escape(stored), "metrics", "*.json")):
        found = json.loads(read(path))
        if found["settings"].get("optim") == "muon":
            found["clock"]["share"]["muon_seconds"] = 0.2
            write(os.path.dirname(path), os.path.basename(path), json.dumps(found))
    longer, fewer = muon()
    assert longer.startswith("+25.0 ["), longer
    ratio = next(row[-1] for row in csv.reader(io.StringIO(read(cwd, "out", "cifar10", "tables", "epochs-to-target.csv"))) if row[0] == "Muon")
    assert abs(float(fewer.split()[0]) * 1.25 - float(ratio.split()[0])) < 0.02, (fewer, ratio)


def another_data_set_is_refused_with_both_fingerprints(cwd):
    plan = write(cwd, "data.ini", TINY)
    reproduce(plan, "--only", "trial one*", cwd=cwd)
    here = json.loads(read(cwd, "out", "data", "plan.json"))["data"]
    said = reproduce(plan, "--data", "synthetic:48:16:4", cwd=cwd, code=ERROR).stderr
    assert here in said and len(set(re.findall(r"\b[0-9a-f]{16}\b", said))) == 2, said


def the_check_fails_when_a_claim_stops_holding(cwd):
    claim = "[claim a]\ntext = It does.\nmeasure = gain 2 2\nat-least = -100\n"
    tiny = TINY.replace("seeds      = 1", "seeds      = 2")
    plan = write(cwd, "claims.ini", tiny + claim)
    reproduce(plan, "--check", cwd=cwd, code=ERROR)
    reproduce(plan, "--redraw", "--write-bands", cwd=cwd)
    reproduce(plan, "--redraw", "--check", cwd=cwd)
    write(cwd, "claims.ini", tiny + claim.replace("-100", "100"))
    assert "claim a: held" in reproduce(plan, "--redraw", "--check", cwd=cwd, code=ERROR).stderr
    write(cwd, "claims.ini", tiny + claim)
    bands = os.path.join(cwd, "out", "claims", "bands.json")
    stored = json.loads(read(bands))
    stored["accuracy"]["one 2"][0] += 50
    write(cwd, bands, json.dumps(stored))
    assert "accuracy of one 2" in reproduce(plan, "--redraw", "--check", cwd=cwd, code=ERROR).stderr


def wrong_plans_are_refused(cwd):
    rows = [("[common]", "[common]\nwdith = 3", "width"), ("optim        = sgd", "optim = sgd\ngrafting = sgd", "grafting"),
            ("budgets    = 1 2", "budgets = 0 2", "budgets"), ("budgets    = 1 2", "budgets = 2 1", "rising"),
            ("[common]", "[common]\nwarmup-epochs = 1.5", "warm-up"), ("trials     = 2", "trials = 0", "trials"),
            ("trials     = 2", "trails = 2", "did you mean 'trials'"), ("seeds      = 1", "seeds = -1", "seeds"),
            ("baseline   = one", "baseline = on", "did you mean 'one'"), ("[arm two]", "[arm one]", "already exists"),
            ("[common]", "[common]\nseed = 1", "given by the tool"), ("0.01 .. 1\n", "1 .. 0.01\n", "not below"),
            ("0.01 .. 1\n", "0.01 .. 1\nmomentum = 0.1 .. 0.9\n", "equal tuning"), ("[arm two]", "[arms two]", "[arms two]"),
            ("[arm one]", "[sweep s]\narm = one\nbudget = 2\nlr = x1 x1\n[arm one]", "twice"),
            ("[arm one]", "[sweep s]\narm = one\nbudget = 2\nmomentum = 0.5 0.50\n[arm one]", "twice"),
            ("[arm one]", "[sweep s]\narm = one\nbudget = 2\nmomentun = 0.5\n[arm one]", "momentum"),
            ("[arm two]\noptim        = adamw\nlr           = 1e-4 .. 1e-2", "[arm two]\noptim = sgd\nmomentum = 0.9\nlr = 0.01 .. 1",
             "has the settings of [arm one]"),
            ("[plan]\n", "[plan]\nmetric = los\n", "metric"), ("[arm one]", "[sweep s]\narm = one\nbudget = 3\nlr = x1\n[arm one]", "is not in budgets"),
            ("[arm one]", "[claim c]\ntext = t\nmeasure = gain 3 1\nat-least = 0\n[arm one]", "is not in budgets")]
    for old, new, says in rows:
        assert old in TINY
        refused(TINY.replace(old, new, 1), says, cwd)
    refused(TINY.replace("[arm two]\noptim        = adamw\nlr           = 1e-4 .. 1e-2", "[arm two]\noptim        = sgd\nlr           = 0.01 .. 1"),
            "would be there twice", cwd)
    assert "no plan" in reproduce("nothing", cwd=cwd, code=USAGE).stderr


def only_list_and_seeds_choose_cells(cwd):
    plan = write(cwd, "choose.ini", TINY)
    said = reproduce(plan, "--list", cwd=cwd).stdout
    assert said.count("trial") == 4 and "and 4 cells" in said, said
    said = reproduce(plan, "--list", "--seeds", "3", cwd=cwd).stdout
    assert "and 12 cells" in said, said
    name = reproduce(plan, "--list", cwd=cwd).stdout.split()[0]
    said = reproduce(plan, "--only", name, "--dry-run", cwd=cwd).stdout
    assert said.count("--resume auto") == 1 and name in said, said


def shipped_plans_are_sound(cwd):
    """Each with its own program, and data that this program reads. But where all rows run with one trial and one seed: other trials
    and seeds are other numbers in the same settings."""
    names, models = [], os.path.dirname(os.path.dirname(options.program))
    corpus = write(cwd, "corpus.txt", "A text to divide into sequences. " * 200)
    for path in sorted(glob.glob(os.path.join(glob.escape(ROOT), "models", "*", "plans", "*.ini"))):
        name, family = os.path.basename(path)[:-4], os.path.basename(os.path.dirname(os.path.dirname(path)))
        program = re.search(r"^program += (\w+)$", read(path), re.M)
        program = os.path.join(models, family, program.group(1)) if program else options.program
        data = corpus if family == "gpt" else "synthetic:4096:32:10"
        if options.everything:
            reproduce(name, "--data", data, "--list", cwd=cwd, program=program)
        else:
            path = write(cwd, name + ".ini", re.sub(r"^trials +=.*", "trials = 1", read(path), flags=re.M))
        reproduce(name if options.everything else path, "--data", data, "--dry-run", "--only", "nothing",
                  *([] if options.everything else ["--seeds", "1"]), cwd=cwd, program=program)
        names.append(name)
    assert {"smoke", "fashion-mnist", "cifar10", "imagenette", "paper-imagenet", "vit-cifar10", "gpt-chars"} <= set(names), names


def a_named_text_has_the_fingerprint_of_its_file(cwd):
    path = os.path.join(cwd, "bible.data")
    os.environ["LATHER_KJV"] = path
    try:
        said = reproduce("gpt-chars", "--list", cwd=cwd, code=ERROR).stderr
        assert f"{path}: no data there" in said, said
        prints = []
        for text in ("In the beginning", "In the beginning", "In the ending 12"):
            write(cwd, "bible.data", text)
            prints.append((fingerprint.fingerprint("kjv"), fingerprint.fingerprint(path)))
        assert prints[0] == prints[1] and prints[0][0] == prints[0][1] != prints[2][0], prints
        assert fingerprint.images("kjv") is None
    finally:
        del os.environ["LATHER_KJV"]


def committed_results_redraw_byte_for_byte(cwd):
    stored = os.path.join(ROOT, "docs", "results", "ablation")
    plans = [n for n in sorted(os.listdir(stored)) if os.path.exists(os.path.join(stored, n, "report.html"))]
    assert len(plans) > 9, "no results"
    for plan in plans if options.everything else plans[::3]:
        bands = os.path.exists(os.path.join(stored, plan, "bands.json"))
        reproduce(plan, "--redraw", *(["--check"] if bands else []), "--from", stored, cwd=cwd)
        made = os.path.join(cwd, "out", plan)
        differ = [n for n in same_tree(made, os.path.join(stored, plan)) if n not in ("plan.json", "bands.json", "drawn.json")]
        assert not differ, f"{plan}: {differ}: tools/reproduce {plan} --redraw --out docs/results/ablation"


def numbers_of(text):
    """Means with deviations, and values with intervals, without signs."""
    return set(re.findall(r"\d+\.\d+ ± \d+\.\d+", text)) | set(re.findall(r"\d\.\d\d \[[^\]]*\]", text.replace("+", "").replace("×", "")))


def numbers_on_the_page_of_results_are_those_of_the_tables(cwd):
    folder, tables = os.path.join(ROOT, "docs", "results"), ""
    for path in glob.glob(os.path.join(glob.escape(folder), "ablation", "*", "tables", "*.md")):
        tables += read(path).replace(" points", "")
    quoted, known = numbers_of(read(folder, "ablation.md")), numbers_of(tables)
    assert len(quoted) > 30, f"only {len(quoted)} numbers were found"
    assert quoted <= known, f"in no table: {sorted(quoted - known)}"
    assert not numbers_of("85.19 ± 0.85 and 1.15 [1.11, 1.18]") & known, "numbers that are in no table are found"


ROWS = [the_stub_writes_what_the_trainer_writes, the_smoke_plan_runs_to_a_report, killed_at_random_moments_it_gives_the_same_report, files_of_the_user_in_out_are_left_alone, plans_with_cells_in_common_run_them_once,
        a_default_that_is_spelt_out_makes_no_other_cell, values_of_a_list_make_another_cell, finished_cells_count_under_any_name,
        a_cell_of_a_preset_that_had_no_list_is_refused, a_seed_gives_every_arm_the_same_start,
        a_cell_that_fails_leaves_a_hole_and_the_rest_goes_on, a_run_that_diverges_counts_as_nothing_learnt,
        a_run_that_ends_early_has_the_epochs_of_the_others, a_plan_may_compare_losses, roots_are_counted_and_their_time_compared, orthogonal_updates_count_where_they_were_timed,
        another_data_set_is_refused_with_both_fingerprints, the_check_fails_when_a_claim_stops_holding, wrong_plans_are_refused,
        only_list_and_seeds_choose_cells, shipped_plans_are_sound, a_named_text_has_the_fingerprint_of_its_file, committed_results_redraw_byte_for_byte,
        numbers_on_the_page_of_results_are_those_of_the_tables]

sys.exit(run_rows(ROWS))
