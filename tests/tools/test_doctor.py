#!/usr/bin/env python3
"""doctor: each rule with a run that triggers it and one that must not; records of other versions; messages and statuses.

    test_doctor.py DOCTOR-PROGRAM [LATHER-PROGRAM]
"""
import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"), os.path.dirname(os.path.realpath(sys.argv[1]))]

import optim_stats_files as files  # noqa: E402
import test_report_damaged as damaged  # noqa: E402
from report_lib import doctor, doctor_rules  # noqa: E402
from rows import run_rows  # noqa: E402

TRIES = 150
DOCTOR = os.path.abspath(sys.argv[1])
SHAPES = [("conv1.weight", [32, 72]), ("bn1.weight", [32]), ("layer1.0.conv1.weight", [64, 72]), ("wte.weight", [500, 64]), ("fc.weight", [10, 64])]
SETTINGS = {"optim": "shampoo", "lr": 0.1, "beta2": 0.999, "epsilon": 1e-6, "precondition-frequency": 50, "start-preconditioning-step": -1,
            "max-preconditioner-dim": 1024, "grafting": "sgd", "preconditioner": "root"}
RULE = {name: i for i, name in enumerate(files.RULES)}


def loss_of(step):
    return 2.3 * math.exp(-step / 150) + 0.3 + 0.05 * math.sin(1.7 * step)


def warmed_up(step):
    return 0.1 * min(1, step / 60) * (1 + math.cos(math.pi * step / 300)) / 2


def run_of(folder, settings=None, stats=None, step=None, epoch=None, blocks=1, finished=False):
    """Writes a run of 300 steps without faults but those given: settings; numbers of stats (False: no file); a function that changes the record of
    a step; members of the epoch's record; whether it has final weights."""
    os.makedirs(f"{folder}/checkpoints/latest", exist_ok=True)
    if finished:
        damaged.write(f"{folder}/model.safetensors", b"")
    with open(f"{folder}/config.yaml", "w", encoding="utf-8") as file:
        file.writelines(f"{key}: {value}\n" for key, value in {**SETTINGS, **(settings or {})}.items())
    with open(f"{folder}/metrics.jsonl", "w", encoding="utf-8") as file:
        for i in range(1, 301):
            record = {"event": "step", "step": i, "epoch": 0, "loss": loss_of(i), "lr": warmed_up(i), "seconds": 0.1, "gradient_norm": 0.5}
            if step:
                step(record)
            file.write(json.dumps(record) + "\n")
            if i in (150, 300):
                found = {"event": "epoch", "epoch": i // 150 - 1, "step": i, "train_loss": 0.6, "train_top1": 85, "val_loss": 0.5, "val_top1": 86, **(epoch or {})}
                file.write(json.dumps({k: v[i // 300] if isinstance(v, tuple) else v for k, v in found.items()}) + "\n")
    with open(f"{folder}/checkpoints/latest/state.json", "w", encoding="utf-8") as file:
        file.write('{"classes":10}')
    if stats is not False:
        head = files.header(SHAPES)
        head["tables"][1]["rows"] = [row for row in head["tables"][1]["rows"] for _ in range(blocks)]
        files.write(f"{folder}/optim_stats.bin", head, [(i, files.healthy(stats)) for i in range(10, 301, 10)])
    return folder


def all_but(name, otherwise):
    """A rule for the matrices but one of that name."""
    return lambda i, row: RULE["root" if row.get("name") == name or len(row["shape"]) < 2 else otherwise]


def jump(record):
    if record["step"] % 60 == 59:
        record["loss"] *= 4


def grows(record):
    record["loss"] = 2.3 + record["step"] / 100


def overflows(last):
    def change(record):
        record["loss_scale"] = 1024.0
        if record["step"] % 20 == 5 and record["step"] < last:
            record["skipped"] = 1
    return change


def skips(every):
    return lambda record: record.update(skipped=1) if record["step"] % every == 0 else None


def no_warmup(record):
    record["lr"] = 0.1 * (1 + math.cos(math.pi * record["step"] / 300)) / 2


def flat(record):
    record["loss"] = 2.303 - 1e-5 * record["step"]


def slow(record):
    record["loss"] = 2.303 - 1e-3 * record["step"]


RATIO, FACTOR = ("parameter", "update_ratio"), "factor"
SMALL_EPSILON = {(FACTOR, "epsilon"): 1e-14, **{(FACTOR, f"q{q}"): 10.0 ** (1.5 * q - 16) for q in range(9)}}
# Rule, keywords of run_of() that trigger it (and nothing that comes before it), keywords near them that do not.
TABLE = [
    ("root_failures", {"step": lambda r: r.update(shampoo_root_failures=r["step"] // 300)}, {"step": lambda r: r.update(shampoo_root_failures=0)}),
    ("root_failures", {"stats": {(FACTOR, "failures"): 2}}, {"stats": {(FACTOR, "failures"): 0}}),
    ("fallback", {"stats": {("parameter", "rule"): all_but("conv1.weight", "diagonal")}}, {"stats": {("parameter", "rule"): all_but("wte.weight", "diagonal")}}),
    ("fallback", {"settings": {"optim": "muon"}, "stats": {("parameter", "rule"): RULE["adamw"]}},
     {"settings": {"optim": "adamw"}, "stats": {("parameter", "rule"): RULE["adamw"]}}),
    ("no_roots", {"settings": {"precondition-frequency": 400}, "finished": True}, {"settings": {"precondition-frequency": 400}}),
    ("no_roots", {"settings": {"start-preconditioning-step": 301}, "finished": True}, {"settings": {"start-preconditioning-step": 50}, "finished": True}),
    ("grafting_missing", {"settings": {"grafting": "none"}, "stats": {RATIO: 0.4}}, {"settings": {"grafting": "none"}, "stats": {RATIO: 1e-3}}),
    ("epsilon_large", {"settings": {"epsilon": 1}, "stats": {(FACTOR, "below_epsilon"): 1, (FACTOR, "epsilon"): 1}},
     {"stats": {(FACTOR, "below_epsilon"): 0.95, (FACTOR, "epsilon"): lambda i, row: 1 if i == 0 else 1e-5}}),
    ("frequency", {"settings": {"beta2": 0.9, "precondition-frequency": 200}}, {"settings": {"beta2": 0.95, "precondition-frequency": 40}}),
    ("frequency", {"settings": {"beta2": 0.95, "precondition-frequency": 100}}, {"settings": {"beta2": 1, "precondition-frequency": 100}}),
    ("late_roots", {"settings": {"start-preconditioning-step": 200}}, {"settings": {"start-preconditioning-step": 55}}),
    ("late_roots", {"settings": {"start-preconditioning-step": 200}}, {"settings": {"start-preconditioning-step": 200}, "step": no_warmup}),
    ("small_blocks", {"settings": {"max-preconditioner-dim": 8}, "blocks": 40}, {"settings": {"max-preconditioner-dim": 8}, "blocks": 4}),
    ("lr_high", {"step": grows}, {"step": slow}),
    ("lr_high", {"stats": {RATIO: 0.4}}, {"stats": {RATIO: lambda i, row: 0.4 if i == 0 else 2e-3}}),
    ("lr_low", {"stats": {RATIO: 1e-7}}, {"stats": {RATIO: 1e-4}}),
    ("lr_low", {"stats": False, "step": flat}, {"stats": False, "step": slow}),
    ("lr_low", {"stats": {("parameter", "consecutive_cosine"): 0.995}, "step": flat}, {"step": flat}),
    ("edge", {"step": jump}, {"step": lambda r: jump(r) if r["step"] < 100 else None}),
    ("edge", {"stats": {("parameter", "consecutive_cosine"): -0.6}}, {"stats": {("parameter", "consecutive_cosine"): -0.1}}),
    ("grafting_undoes", {"stats": {("block", "update_cosine"): 0.999}}, {"settings": {"grafting": "none"}, "stats": {("block", "update_cosine"): 0.999}}),
    ("epsilon_small", {"stats": SMALL_EPSILON}, {"stats": {**SMALL_EPSILON, (FACTOR, "epsilon"): 1e-8}}),
    ("rank_one", {"stats": {(FACTOR, "effective_rank"): 1.1}}, {"stats": {(FACTOR, "effective_rank"): 2}}),
    ("rank_one", {"settings": {"optim": "muon"}, "stats": {(FACTOR, "effective_rank"): 1.1}}, {"stats": {(FACTOR, "effective_rank"): 0}}),  # 0: no gradient
    ("skipped_steps", {"step": overflows(300)}, {"step": overflows(100)}),
    ("skipped_steps", {"step": skips(20)}, {"step": skips(200)}),
    ("dead_units", {"stats": {("parameter", "zero_gradient_rows"): lambda i, row: 0.7 if i == 0 else 0}},
     {"stats": {("parameter", "zero_gradient_rows"): lambda i, row: 0.9 if row["name"] == "wte.weight" else 0.2}}),
    ("saturated", {"epoch": {"val_loss": 3.5, "val_top1": 60}}, {"epoch": {"val_loss": 3.5, "val_top1": 11}}),
    ("overfit", {"epoch": {"train_top1": 99, "val_top1": 70, "val_loss": (0.8, 1.2)}}, {"epoch": {"train_top1": 99, "val_top1": 70, "val_loss": (1.2, 1.1)}}),
    ("overfit", {"epoch": {"train_top1": 99, "val_top1": 70, "val_loss": (0.8, 1.2)}},
     {"epoch": {"train_top1": 99, "val_top1": 70, "val_loss": (0.8, 1.2), "val_is_train": 1}}),
    ("no_stats", {"stats": False}, {}),
    ("old_records", {"step": lambda r: r.pop("gradient_norm")}, {}),
]


def findings(folder, **changes):
    return doctor.examine(doctor_rules.Rules(run_of(folder, **changes)))


def each_rule_has_a_run_that_triggers_it_first_and_one_that_does_not(folder):
    for i, (rule, wrong, sound) in enumerate(TABLE):
        found = findings(f"{folder}/wrong{i}", **wrong)
        assert found and found[0]["rule"] == rule, f"row {i}: want {rule}, found {[(one['rule'], one['text']) for one in found]}"
        assert all(one["text"] and "nan" not in one["text"] for one in found), found
        found = findings(f"{folder}/sound{i}", **sound)
        assert all(one["severity"] == "note" and one["rule"] != rule for one in found), f"row {i}: {rule}: {found}"
    assert {row[0] for row in TABLE} == set(doctor_rules.RULES), set(doctor_rules.RULES) ^ {row[0] for row in TABLE}


def nothing_is_said_of_a_sound_run(folder):
    run = run_of(folder)
    done = subprocess.run([DOCTOR, run, run], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("nothing alarming") == 2 and "warning" not in done.stdout, done


def nothing_is_said_of_the_runs_of_the_ablation(folder):
    """Committed runs have losses of a few steps, numbers of epochs and settings: enough for the rules that need no --optim-stats."""
    source, count = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/results/ablation/metrics"), 0
    run = run_of(folder, stats=False)
    for name in sorted(os.listdir(source)):
        with open(os.path.join(source, name), encoding="utf-8") as file:
            cell = json.load(file)
        records = [{"event": "step", "step": step, "loss": loss} for step, loss in cell["loss"]]
        records += [{"event": "epoch", **dict(zip(cell["epoch_keys"], epoch))} for epoch in cell["epochs"]]
        damaged.write(f"{run}/metrics.jsonl", damaged.lines_of(records))
        damaged.write(f"{run}/config.yaml", "".join(f"{key}: {value}\n" for key, value in {**cell["config"], **cell["settings"]}.items()).encode())
        found = [one for one in doctor.examine(doctor_rules.Rules(run)) if one["severity"] != "note"]
        assert not found, (name, found)
        count += 1
    assert count > 100


def small_updates_at_the_end_of_a_schedule_are_no_evidence(folder):
    def rules(*records):
        run = run_of(folder, stats=False)
        files.write(f"{run}/optim_stats.bin", files.header(SHAPES), [(step, files.healthy({RATIO: ratio})) for step, ratio in records])
        return [one["rule"] for one in doctor.examine(doctor_rules.Rules(run))]
    assert rules((298, 1e-7), (300, 1e-7)) == [] and rules((100, 1e-3), (300, 1e-7)) == [] and rules((100, 1e-7), (300, 1e-7)) == ["lr_low"]


def a_plugin_is_proposed_flags_that_it_has(folder):
    wrong = {"stats": {(FACTOR, "below_epsilon"): 1, (FACTOR, "epsilon"): 1}}
    relative = doctor_rules.RELATIVE
    for settings, flags in ({"optim": "mine"}, []), ({"optim": "mine", "epsilon-rule": "before"}, [relative]), ({}, [relative]):
        found = findings(f"{folder}/{len(os.listdir(folder))}", settings=settings, **wrong)
        assert (found[0]["rule"], found[0]["flags"]) == ("epsilon_large", flags), found


def prints_sentences_or_json(folder):
    run = run_of(folder, settings={"grafting": "none"}, stats={RATIO: 0.4, ("parameter", "consecutive_cosine"): math.nan})
    done = subprocess.run([DOCTOR, run], capture_output=True, text=True)
    assert "300 steps, 30 records" in done.stdout and "at most 2.634, and step 10 changes the median matrix by 0.4 of its norm: without grafting lr 0.1 is" in done.stdout, done
    assert "try --grafting sgd or --grafting adam or --lr 0.001" in done.stdout, done
    found = json.loads(subprocess.run([DOCTOR, "--json", run], capture_output=True, text=True).stdout, parse_constant=lambda name: 1 / 0)
    first = found["runs"][0]["findings"][0]
    assert (first["rule"], first["severity"], first["flags"][0]) == ("grafting_missing", "error", "--grafting sgd") and 0.39 < first["evidence"]["ratio"] < 0.41


def other_versions_are_named_and_files_that_cannot_be_read(folder):
    run = run_of(folder)
    with open(f"{run}/optim_stats.bin", "r+b") as file:
        data = file.read().replace(b'"format": 1', b'"format": 2')
        file.seek(0)
        file.write(data)
    done = subprocess.run([DOCTOR, run], capture_output=True, text=True)
    assert done.returncode == 0 and "optim_stats.bin: format 2, this program reads 1" in done.stdout and "nothing alarming" in done.stdout, done
    os.remove(f"{run}/config.yaml")
    assert subprocess.run([DOCTOR, run], capture_output=True).returncode == 0
    with open(f"{run}/metrics.jsonl", "w", encoding="utf-8") as file:
        file.write('{"event":"step","step":"x"}\n{"event":7}\n[]\n{"torn')
    for arguments, status, said in (([run], 1, "metrics.jsonl: no steps"), ([f"{run}/none"], 1, "none/metrics.jsonl: No such file"),
                                    ([f"{run}/checkpoints"], 1, "checkpoints: is not a run folder, which has a metrics.jsonl"), ([], 2, "usage"), (["--bogus"], 2, "usage")):
        done = subprocess.run([DOCTOR, *arguments], capture_output=True, text=True)
        assert done.returncode == status and said in done.stderr and "Traceback" not in done.stderr, done


def damaged_records_are_findings_or_one_line(folder):
    rng, statuses = random.Random(42), []
    for i in range(TRIES):
        run = run_of(f"{folder}/{i}", stats=False)
        with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
            records = [json.loads(line) for line in file][::10]
        damaged.write(f"{run}/metrics.jsonl", damaged.damage(damaged.lines_of(damaged.mutate(records, rng)), rng))
        damaged.write(f"{run}/optim_stats.bin", damaged.damage(damaged.stats_of(damaged.mutate(damaged.STATS, rng) if i % 2 else damaged.STATS), rng))
        said, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            statuses.append(doctor.main([run, "--json"]))
        assert statuses[-1] == 0 and json.loads(printed.getvalue(), parse_constant=lambda name: 1 / 0) or said.getvalue().count("\n") == 1, said.getvalue()
    assert TRIES // 2 < statuses.count(0) < TRIES, statuses


def an_output_that_takes_nothing_is_one_line_and_a_reader_that_stops_none(folder):
    run, read, write = run_of(folder), *os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as full, open(write, "wb") as closed:
        done = subprocess.run([DOCTOR, run], stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, "doctor: stdout: No space left on device\n"), done
        done = subprocess.run([DOCTOR, run], stdout=closed, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done


def lather_starts_it(folder):
    if len(sys.argv) > 2:
        done = subprocess.run([sys.argv[2], "doctor", "--json", run_of(folder)], capture_output=True, text=True)
        assert done.returncode == 0 and json.loads(done.stdout)["runs"][0]["findings"] == [], done
        assert subprocess.run([sys.argv[2], "doctor"], capture_output=True).returncode == 2
        assert subprocess.run([sys.argv[2], "report", "--help"], capture_output=True, text=True).stdout.startswith("usage: report")
        unknown = subprocess.run([sys.argv[2], "heal"], capture_output=True, text=True)
        assert unknown.returncode == 2 and unknown.stderr.startswith("lather: no command 'heal'\nusage: lather launch"), unknown


if __name__ == "__main__":
    sys.exit(run_rows([each_rule_has_a_run_that_triggers_it_first_and_one_that_does_not, nothing_is_said_of_a_sound_run,
                       nothing_is_said_of_the_runs_of_the_ablation,
                       small_updates_at_the_end_of_a_schedule_are_no_evidence, a_plugin_is_proposed_flags_that_it_has, prints_sentences_or_json,
                       other_versions_are_named_and_files_that_cannot_be_read, damaged_records_are_findings_or_one_line,
                       an_output_that_takes_nothing_is_one_line_and_a_reader_that_stops_none, lather_starts_it], "lather-doctor-"))
