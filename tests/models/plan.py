"""plan: predictions from profiles and runs whose numbers are chosen so that the result can be computed by hand.

    plan.py TRAIN_MLP MPIRUN|none [ROW]
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from rows import MPI, Skip, run_rows  # noqa: E402
from trainer import ERROR, NAME, OK, PROGRAM, TIMEOUT, USAGE, fails, needs_plain_memory, run  # noqa: E402

MPIRUN = sys.argv[2]
REPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "report")
DATA = ["--data", "synthetic:1600:16:3", "--optim", "sgd", "--batch-size", "16", "--threads", "1", "--workers", "1"]
# Network cards of 1e9 bytes per second without latency, one rank per machine.
LINK = ["--link", "0,8", "--link-between", "0,8"]
FIXED, PER_SAMPLE, UPDATE, BUCKET = 0.01, 0.001, 0.001, 1_000_000


def profile(**more):
    """One bucket that is ready at the end of backward, so that its communication is exposed."""
    numbers = {"format": 1, "program": NAME, "model": "mlp", "samples_hash": "0", "fixed": FIXED, "per_sample": PER_SAMPLE,
               "backward": 0.5, "load_per_sample": 0, "parameter_bytes": 4 * BUCKET, "activation_bytes": 0, "layers": 0,
               "hidden": 0, "tokens": 0, "samples": 1600, "spent": 0, "batch_sizes": [16], "batch_seconds": [0.026],
               "step_seconds": [0.026], "buckets": [{"elements": BUCKET, "ready": 1, "rows": 0, "columns": 0, "dense": BUCKET}],
               "optimizers": [{"name": "sgd", "block": 0, "update": UPDATE, "refresh": 0, "state_bytes": 0, "blocks": []}]}
    return {**numbers, **more}


def write(cwd, numbers, name="p.json"):
    with open(os.path.join(cwd, name), "w") as f:
        json.dump(numbers, f)
    return name


def plan(cwd, *args, profile_file="p.json", json_out=True, **environment):
    p = subprocess.run([PROGRAM, "plan", *DATA, *LINK, "--step-profile", profile_file, *(["--json", "-"] if json_out else []), *args],
                       cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **environment})
    assert p.returncode == OK, f"exit {p.returncode}: {p.stderr[-500:]}"
    return json.loads(p.stdout) if json_out else p.stdout


def refuses(cwd, *args, says, code=USAGE, once=""):
    text = subprocess.run([PROGRAM, "plan", *DATA, *LINK, "--step-profile", "p.json", *args], cwd=cwd, capture_output=True,
                          text=True, timeout=TIMEOUT)
    assert text.returncode == code, f"exit {text.returncode}, want {code}: {text.stderr}"
    line = text.stderr.splitlines()[-1]
    for part in [says] if isinstance(says, str) else says:
        assert part in line, f"'{line}' does not say '{part}'"
    assert not once or line.count(once) == 1, line


def near(a, b, tol=1e-9):
    assert a is not None and abs(a - b) <= tol * abs(b), f"{a}, want {b}"


def step(ranks, batch=16):
    """All-reduce of a bucket: each rank sends and receives 2 (m - 1) / m of it."""
    return FIXED + PER_SAMPLE * batch + UPDATE + 2 * (ranks - 1) / ranks * 4 * BUCKET / 1e9


def by_ranks(found):
    return {c["ranks"]: c for c in found["candidates"]}


def seconds_of_steps_are_as_computed_by_hand(cwd):
    """Without a deadline the fastest wins; a step takes the seconds of the formulas."""
    write(cwd, profile())
    found = plan(cwd, "--goal", "deadline=10h", "--epochs", "1", "--ranks", "1..4")
    for ranks, c in by_ranks(found).items():
        near(c["step_seconds"]["value"], step(ranks), 1e-6)
        near(c["seconds"], step(ranks) * 100 / ranks, 1e-6)
        assert c["step_seconds"]["rests_on"] == "model", c
    assert sorted(by_ranks(found)) == [1, 2, 4]


def deadlines_choose_the_cheapest_that_meets_them(cwd):
    """2.7 s on one rank, 1.55 s on two (3.1 rank seconds), 0.825 s on four (3.3)."""
    write(cwd, profile())
    for deadline, ranks in (("10s", 1), ("2s", 2), ("1s", 4)):
        found = plan(cwd, "--goal", f"deadline={deadline}", "--epochs", "1", "--ranks", "1..4", "--price", "3600")
        assert found["candidates"][0]["ranks"] == ranks, (deadline, found["candidates"][0])
        near(found["candidates"][0]["price"], step(ranks) * 100, 1e-6)
    assert len(found["dropped"]) == 2 and all("deadline" in d["why"] for d in found["dropped"])
    refuses(cwd, "--goal", "deadline=0.1s", "--epochs", "1", "--ranks", "1..2",
            says=["no candidate is left of 2", "1: 1 ranks, batch 16, sgd, flat: takes", "; 1: 2 ranks, batch 32, sgd, flat: takes", "deadline is 2.78e-05 h"])


def a_cost_needs_known_steps(cwd):
    """Without known steps the cost is "-", with the reason; a run that reached the goal has a price."""
    runs(cwd)
    words = ["--goal", "loss=1", "--ranks", "1", "--price", "3600"]
    (one,) = plan(cwd, *words)["candidates"]
    assert one["price"] is None and one["seconds"] is None, one
    text = plan(cwd, *words, json_out=False)
    assert re.search(r"sgd, flat +27 ms +\? +2.7 s +- ", text) and "the table is per epoch, and the cost of a run is unknown" in text, text
    (one,) = plan(cwd, *words, "--from", "m1")["candidates"]
    near(one["price"], 500 * 0.04)
    assert "is unknown" not in plan(cwd, *words[:-2], json_out=False)  # without --price


def each_reason_is_given_once(cwd):
    """With their counts; a message holds as many whole reasons as fit."""
    write(cwd, profile())
    refuses(cwd, "--goal", "loss=1", "--ranks", "1,2", "--vary", "optim=shampoo", "--vary", "batch-size=8,16,32,64",
            says=["no candidate is left of 8: 8: 1 ranks, batch 8, shampoo f ", "flat and others: the profile has no optimizer shampoo"], once="no optimizer")
    write(cwd, profile(activation_bytes=2 ** 30))  # each batch needs different memory
    words = [PROGRAM, "plan", *DATA, *LINK, "--step-profile", "p.json", "--goal", "loss=1", "--ranks", "1", "--memory", "1", "--vary", "batch-size=" + ",".join(str(2 + i) for i in range(16))]
    none = subprocess.run([*words, "--json", "none.json"], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    text = none.stderr.splitlines()[-1]
    reasons = text.split(" is left of 16: ")[1].split("; ")
    assert all(r.startswith("1: 1 ranks, batch ") and r.endswith(", and has 1") for r in reasons[:-1]) and reasons[-1] == f"and {17 - len(reasons)} other reasons", text
    assert len(reasons) > 8, text
    with open(os.path.join(cwd, "none.json")) as f:
        found = json.load(f)  # has all reasons, as the table
    assert none.returncode == USAGE and not found["candidates"] and not found["goal_is_known"], (none, found)
    whole = {f"  1: 1 ranks, batch {2 + i}, sgd, flat: a rank needs " for i in range(16)}
    assert len({d["why"] for d in found["dropped"]}) == 16 and all(none.stdout.count(w) == 1 for w in whole) and "dropped: 16 of 16" in none.stdout, none.stdout
    p = subprocess.run([sys.executable, REPORT, "none.json"], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == OK and p.stdout == "none.html\n", p.stderr
    table = plan(cwd, "--goal", "loss=1", "--ranks", "1", "--memory", "2.5", "--vary", "batch-size=2,4", json_out=False)
    assert "\ndropped: 1 of 2\n  1: 1 ranks, batch 4, sgd, flat: a rank needs" in table, table


def candidates_vary_flags_and_are_rejected_with_reasons(cwd):
    write(cwd, profile())
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1,2,4", "--vary", "batch-size=8,16", "--vary",
                 "optim=sgd,shampoo", "--vary", "tensor-parallel=1,2")
    assert not found["goal_is_known"]
    kept = {(c["ranks"], c["batch_size"]) for c in found["candidates"]}
    assert kept == {(r, b) for r in (1, 2, 4) for b in (8, 16)}, kept
    reasons = " ".join(d["why"] for d in found["dropped"])
    assert "no optimizer shampoo" in reasons and "multiple of 2" in reasons, reasons
    assert all(c["steps"]["value"] is None and "not enough measurements" in c["steps"]["why"] for c in found["candidates"])
    best = found["candidates"][0]
    assert (best["ranks"], best["batch_size"]) == (4, 16), best
    near(best["epoch_seconds"], step(4) * 25, 1e-6)


def candidates_that_training_refuses_are_rejected(cwd):
    """Less data than an update is rejected with the message of training; other epochs are counted as training counts them."""
    write(cwd, profile(samples=100))
    words = ["--data", "synthetic:100:16:3", "--batch-size", "16", "--epochs", "4"]
    found = plan(cwd, *words, "--goal", "loss=1", "--ranks", "1,2,8")
    assert sorted(by_ranks(found)) == [1, 2], found["candidates"]
    (fell,) = found["dropped"]
    says = "--batch-size 16 x --grad-accum 1 on 8 ranks: synthetic:100:16:3 has only 100 images to train on"
    assert fell["ranks"] == 8 and fell["why"] == says, fell
    fails(*words, "--batch-size", "128", says="--batch-size 128 x --grad-accum 1 on 1 ranks: synthetic:100:16:3 has only 100 images to train on", code=USAGE, cwd=cwd)
    refuses(cwd, *words, "--goal", "deadline=1h", "--ranks", "8", says=["no candidate is left of 1", says])


def steps_of_an_epoch_are_those_of_training(cwd):
    """100 images are 6 batches of 16, 3 on two ranks, or one update of 4 micro-batches; the last step of metrics.jsonl is the predicted one."""
    write(cwd, profile(samples=100))
    words = ["--data", "synthetic:100:16:3", "--batch-size", "16", "--epochs", "2.5"]
    for more, ranks, epoch, steps in (([], 1, 6, 15), ([], 2, 3, 8), (["--grad-accum", "4"], 1, 1, 3), (["--limit-train-batches", "5"], 1, 5, 13),
                                      (["--limit-train-batches", "5", "--grad-accum", "2"], 1, 2, 5), (["--overfit-batches", "2"], 1, 2, 5), (["--max-steps", "7"], 1, 6, 7)):
        (c,) = plan(cwd, *words, *more, "--goal", "deadline=1d", "--ranks", str(ranks))["candidates"]
        assert c["steps"]["value"] == steps, (more, c["steps"], steps)
        near(c["epoch_seconds"], c["step_seconds"]["value"] * epoch)
        if ranks == 1:
            run(*DATA, *words, *more, "--progress", "off", "--log-every", "1", "--output", "run", "--overwrite", cwd=cwd)
            with open(os.path.join(cwd, "run", "metrics.jsonl")) as f:
                assert [r["step"] for r in map(json.loads, f) if r["event"] == "step"][-1] == steps, (more, steps)


def a_global_batch_is_kept(cwd):
    write(cwd, profile())
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1..4", "--vary", "batch-size=8,16,32", "--global-batch", "32")
    assert {(c["ranks"], c["batch_size"]) for c in found["candidates"]} == {(1, 32), (2, 16), (4, 8)}, found["candidates"]
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--global-batch", "5", says="--global-batch 5: the ranks have 16 together")


def weights_and_optimizers_take_the_memory_that_was_predicted(cwd):
    """SGD's momentum and AdamW's two moments."""
    from plan_memory import memory, must_fail  # it imports this file
    words, overhead = [*DATA, "--hidden", "16384", "--batch-size", "8"], 44 << 20  # no convolutions; gradients are 51 MiB
    said, real = memory(cwd, *words, batches=(8,), optims=["sgd", "adamw"], overhead=overhead)
    parameters = said["adamw", 8] - said["sgd", 8]
    must_fail(said, real, overhead, moment=lambda optim, batch: parameters * (optim == "adamw"), gradients=lambda optim, batch: parameters)


def a_rank_s_memory_is_a_limit(cwd):
    write(cwd, profile())
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--memory", "0.001", says=["no candidate", "GiB", "and has 0.001"])


def the_command_runs_as_it_stands(cwd):
    write(cwd, profile())
    out = subprocess.run([PROGRAM, "plan", *DATA, *LINK, "--step-profile", "p.json", "--goal", "loss=1", "--ranks", "1",
                          "--vary", "batch-size=16", "--max-steps", "2", "--progress", "off"], cwd=cwd,
                         capture_output=True, text=True, timeout=TIMEOUT)
    assert out.returncode == OK, out.stderr
    last = out.stdout.splitlines()[-1]
    assert last.startswith(PROGRAM) and "--goal" not in last and last.count("batch-size") == 1, last
    assert subprocess.run(last, shell=True, cwd=cwd, capture_output=True, timeout=TIMEOUT).returncode == OK, last
    found = plan(cwd, "--goal", "loss=1", "--ranks", "8", "--ranks-per-node", "4", "--simulate", "--nodes", "2")
    assert found["candidates"][0]["command"].startswith(f"mpirun -n 8 --map-by ppr:4:node {PROGRAM} "), found["candidates"]
    assert found["candidates"][0]["exchange"] == "two-level"
    found = plan(cwd, "--goal", "loss=1", "--ranks", "2", "--ranks-per-node", "4")
    assert found["candidates"][0]["command"].endswith("--ranks-per-node 4 --ranks-per-node=2"), found["candidates"]


# --- Runs ---


def make_run(cwd, name, ranks, reached, seconds, noise=None, compress="off", losses=None, steps=5, tensor="1", device="cpu", threads="1"):
    """Writes a run folder with given numbers: the loss falls to 1 at step `reached`, or is `losses`."""
    os.makedirs(os.path.join(cwd, name), exist_ok=True)
    with open(os.path.join(cwd, "base", "config.yaml")) as f:
        config = f.read().replace("compress: off\ncompress-", f"compress: {compress}\ncompress-").replace("\ntensor-parallel: 1\n", f"\ntensor-parallel: {tensor}\n")
    config = config.replace("\ndevice: cpu\nthreads: 1\n", f"\ndevice: {device}\nthreads: {threads}\n")
    with open(os.path.join(cwd, name, "config.yaml"), "w") as f:
        f.write(config)
    with open(os.path.join(cwd, name, "env.json"), "w") as f:
        json.dump({"ranks": ranks}, f)
    with open(os.path.join(cwd, name, "metrics.jsonl"), "w") as f:
        for i in range(1, steps + 1):
            more = {"noise_scale": noise} if noise else {}
            f.write(json.dumps({"event": "step", "step": i, "loss": 2, "seconds": seconds if i > 2 else 9, **more}) + "\n")
        points = losses or [(reached // 2, 1.5), (reached, 1.0), (2 * reached, 0.9)]
        for i, (at, loss) in enumerate(points):
            f.write(json.dumps({"event": "epoch", "epoch": i, "step": at, "val_loss": loss, "val_top1": 100 * (2 - loss)}) + "\n")
        f.write('{"event":"step","step"')  # cut off by a kill


def base(cwd):
    run(*DATA, "--max-steps", "1", "--progress", "off", "--output", "base", cwd=cwd)
    with open(os.path.join(cwd, "base", "env.json")) as f:
        assert json.load(f)["ranks"] == 1


def runs(cwd, **numbers):
    """steps(B) = 100 (1 + 64 / B) on 1, 2 and 4 ranks; and the profile."""
    write(cwd, profile())
    base(cwd)
    for ranks, reached in ((1, 500), (2, 300), (4, 200)):
        make_run(cwd, f"m{ranks}", ranks, reached, 0.04, **numbers)


def factors(seconds):
    """Corrections of a rank's own work in step() and of its communication: least squares of relative errors and, with weight 0.05, of both factors - 1."""
    rows = [(step(1) / t, (step(m) - step(1)) / t, 1) for m, t in seconds.items()] + [(0.05, 0, 0.05), (0, 0.05, 0.05)]
    aa, ab, bb, ay, by = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
    det = aa * bb - ab * ab
    found = (ay * bb - by * ab) / det, (by * aa - ay * ab) / det
    assert min(found) > 0, found  # else they would be others
    return found


def the_step_of_one_rank_counts_for_any_communication(cwd):
    """It exchanges nothing: a run on one rank measured it for gradients sent in 16 bits too."""
    write(cwd, profile())
    base(cwd)
    make_run(cwd, "m1", 1, 500, 0.04)
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1,2", "--vary", "grad-comm-dtype=f32,bf16", "--from", "m1")["candidates"]
    of = {(c["ranks"], "16 bit" in c["setting"]): c["step_seconds"] for c in found}
    assert len(of) == 4, of.keys()
    for sixteen in (False, True):
        assert of[1, sixteen]["rests_on"] == "measured" and of[1, sixteen]["value"] == 0.04, of
    near(of[2, True]["value"], 0.04 + 2e-3, 0.01)  # half of the bytes of 4 ms


def steps_by_batch_are_fitted(cwd):
    runs(cwd)
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "1..8", "--from", "m1", "m2", "m4"))
    for ranks, steps in ((1, 500), (2, 300), (4, 200)):
        assert found[ranks]["steps"]["value"] == steps and found[ranks]["steps"]["rests_on"] == "measured"
        assert found[ranks]["step_seconds"]["rests_on"] == "measured"
        near(found[ranks]["seconds"], 0.04 * steps)
        assert " m2" not in found[ranks]["command"] and " m1" not in found[ranks]["command"], found[ranks]["command"]
    near(found[8]["steps"]["value"], 150, 1e-6)
    assert found[8]["steps"]["rests_on"] == "extrapolated" and found[8]["steps"]["beyond"] == 2
    own, exchange = factors({1: 0.04, 2: 0.04, 4: 0.04})
    near(found[8]["step_seconds"]["value"], 0.04 * (own * step(1) + exchange * (step(8) - step(1))) / (own * step(1) + exchange * (step(4) - step(1))), 1e-6)


def own_work_and_communication_are_corrected_separately(cwd):
    """A rank's own work takes 1.5 times as long as modelled, communication as long as modelled: the run on one rank shows the first, that on four the second."""
    write(cwd, profile(fixed=0, per_sample=1e-4))
    base(cwd)
    own, whole = 16e-4 + UPDATE, 4 * BUCKET / 1e9
    seconds = {ranks: 1.5 * own + 2 * (ranks - 1) / ranks * whole for ranks in (1, 2, 4)}
    for ranks in (1, 4):
        make_run(cwd, f"m{ranks}", ranks, 500, seconds[ranks])
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "1,2,4", "--from", "m1", "m4"))
    assert found[2]["step_seconds"]["rests_on"] == "interpolated", found[2]
    near(found[2]["step_seconds"]["value"], seconds[2], 0.01)  # one factor for both, between 1.5 and 1.15, would be 10 % above
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "1,2", "--from", "m1"))
    near(found[2]["step_seconds"]["value"], seconds[2], 0.01)  # a run without communication does not correct it


def runs_with_another_device_or_threads_do_not_measure_the_step(cwd):
    """They still give the steps to the goal. A run with --threads 0 has the number of threads of its checkpoint."""
    write(cwd, profile())
    base(cwd)
    os.makedirs(os.path.join(cwd, "all", "checkpoints", "latest"))
    write(cwd, {"ranks": 1, "threads": 2}, os.path.join("all", "checkpoints", "latest", "state.json"))
    for name, device, threads in (("m1", "cpu", 1), ("ref", "ref", 1), ("many", "cpu", 4096), ("all", "cpu", 0), ("none", "cpu", 0)):
        make_run(cwd, name, 1, 500, 0.04, device=device, threads=threads)
    for name, device, threads, basis in (("m1", "cpu", 1, "measured"), ("m1", "cpu", 2, "model"), ("m1", "ref", 1, "model"), ("ref", "ref", 1, "measured"),
                                         ("ref", "cpu", 1, "model"), ("many", "cpu", 0, "model"), ("all", "cpu", 0, "measured"), ("all", "cpu", 1, "model"),
                                         ("all", "cpu", 2, "measured"), ("none", "cpu", 2, "model"), ("none", "cpu", 0, "measured")):
        (c,) = plan(cwd, "--goal", "loss=1", "--ranks", "1", "--device", device, "--threads", str(threads), "--from", name)["candidates"]
        assert c["step_seconds"]["rests_on"] == basis and c["steps"]["rests_on"] == "measured", (name, device, threads, c)
        assert basis == "measured" or c["step_seconds"]["why"] == "the system model alone", c


def runs_of_other_batches_scale_the_model(cwd):
    """A rank with 16 samples takes 1.5 times as long as modelled; so is predicted for two ranks with 8 each, without a run."""
    write(cwd, profile(fixed=0, per_sample=1e-4))
    base(cwd)
    make_run(cwd, "m1", 1, 500, 1.5 * (16e-4 + UPDATE))
    words = ["--goal", "loss=1", "--ranks", "2", "--batch-size", "8"]
    (two,) = plan(cwd, *words, "--from", "m1")["candidates"]
    near(two["step_seconds"]["value"], 1.5 * (8e-4 + UPDATE) + 4 * BUCKET / 1e9, 0.01)
    assert two["step_seconds"]["rests_on"] == "model", two["step_seconds"]
    (two,) = plan(cwd, *words, "--batch-size", "16", "--from", "m1")["candidates"]
    assert two["step_seconds"]["rests_on"] == "extrapolated", two["step_seconds"]


def extrapolation_by_more_than_two_is_rejected(cwd):
    """In samples per rank, global batch, or steps; --extrapolate accepts it and reports the factor."""
    write(cwd, profile())
    base(cwd)
    make_run(cwd, "m1", 1, 500, 0.04)
    make_run(cwd, "n1", 1, 500, 0.04, noise=64)
    one = ["--goal", "loss=1", "--ranks", "1", "--from"]
    found = plan(cwd, *one, "m1", "--vary", "batch-size=4,8,16,32,1600")
    assert sorted(c["batch"] for c in found["candidates"]) == [8, 16, 32] and found["candidates"][0]["batch"] == 16, found["candidates"]
    assert [d["why"].split(",")[0] for d in found["dropped"]] == ["100 times beyond what runs measured", "4 times beyond what runs measured"], found["dropped"]
    (far,) = plan(cwd, *one, "m1", "--batch-size", "1600", "--extrapolate")["candidates"]
    assert far["step_seconds"]["beyond"] == 100 and far["step_seconds"]["why"] == "the system model, scaled to runs of other batches", far
    refuses(cwd, *one, "n1", "--grad-accum", "8", says="no candidate is left of 1: 1: 1 ranks, batch 128, sgd, flat: 8 times beyond what runs measured, more than 2: --extrapolate")


def steps_far_beyond_runs_are_weaker_than_the_model(cwd):
    """A step without a run, at eight times the batch of the run that reached the goal; a goal after more than twice the steps of the runs."""
    runs(cwd, noise=64)
    text = plan(cwd, "--goal", "loss=1", "--ranks", "8", "--shard-optimizer", "--from", "m1", "--extrapolate", json_out=False)
    assert "extrapolated x8\n" in text and "model only" not in text and "\nstep: the system model alone; modelled" in text, text
    for ranks in (1, 2, 4, 8):
        make_run(cwd, f"c{ranks}", ranks, 0, 0.04, compress='"topk:0.01"', losses=[(i, loss_at(i, ranks)) for i in range(10, 310, 10)])
    far = ["--goal", "loss=0.01", "--ranks", "4", "--compress", "topk:0.01", "--from", "c1,c2,c4,c8"]
    refuses(cwd, *far, says=["no candidate is left of 1", "times beyond what runs measured, more than 2"])
    (kept,) = plan(cwd, *far, "--extrapolate")["candidates"]
    assert kept["step_seconds"]["rests_on"] == "measured" and kept["steps"]["rests_on"] == "extrapolated" and kept["steps"]["beyond"] > 2, kept


def nodes_of_one_machine_share_its_slots(cwd):
    """Four ranks, each a node: two slots of one machine are half a slot for each; with two slots each, none is shared."""
    write(cwd, profile())
    words = ["--goal", "deadline=1d", "--epochs", "1", "--ranks", "4", "--ranks-per-node", "1"]
    (apart,), (half,), (shared,) = (plan(cwd, *words, *more)["candidates"] for more in (["--slots", "2"], ["--slots", "0.5"], ["--slots", "2", "--one-machine"]))
    assert shared["modelled"] == half["modelled"], (shared["modelled"], half["modelled"])
    near(shared["modelled"]["compute"], 2 * apart["modelled"]["compute"])
    assert [plan(cwd, *words, "--slots", "2", *more)["machine"]["one_machine"] for more in ([], ["--one-machine"])] == [False, True]


def no_step_is_shorter_than_its_loader(cwd):
    """3.2 ms, while the runs would correct a rank's own work to less than half of that."""
    write(cwd, profile(fixed=0, per_sample=1e-4, load_per_sample=2e-4))
    base(cwd)
    for ranks in (2, 4):
        make_run(cwd, f"m{ranks}", ranks, 500, 1e-3 + 2 * (ranks - 1) / ranks * 4 * BUCKET / 1e9)
    (one,) = plan(cwd, "--goal", "loss=1", "--ranks", "1", "--from", "m2", "m4")["candidates"]
    near(one["step_seconds"]["value"], 16 * 2e-4)
    assert one["step_seconds"]["rests_on"] == "extrapolated", one["step_seconds"]


def steps_by_the_noise_scale(cwd):
    runs(cwd, noise=64)
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "1..2", "--from", "m1"))
    near(found[2]["steps"]["value"], 300, 1e-9)
    assert "noise scale 64" in found[2]["steps"]["why"], found[2]["steps"]


def the_noise_scale_of_a_run_that_did_not_reach_the_goal(cwd):
    """Together with the steps of a run that did."""
    runs(cwd)
    make_run(cwd, "n2", 2, 0, 0.04, noise=64, losses=[(5, 2)])
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "1..2", "--from", "m1,n2"))
    near(found[2]["steps"]["value"], 300, 1e-9)
    assert "noise scale 64 of a run that did not reach it" in found[2]["steps"]["why"], found[2]["steps"]


def loss_at(step, ranks):
    """Hemingway's model with log10 loss = 0.6 - 0.4 log i + 0.1 log m."""
    return 10 ** (0.6 - 0.4 * math.log(step) + 0.1 * math.log(ranks))


def lossy_runs_are_predicted_by_ranks(cwd):
    """By compressed runs on four numbers of ranks, none of which reached the goal."""
    write(cwd, profile())
    base(cwd)
    for ranks in (1, 2, 4, 8):
        make_run(cwd, f"c{ranks}", ranks, 0, 0.04, compress='"topk:0.01"',
                 losses=[(i, loss_at(i, ranks)) for i in range(10, 310, 10)])
    args = ["--goal", "loss=0.02", "--extrapolate", "--from", "c1,c2,c4,c8"]
    found = by_ranks(plan(cwd, *args, "--ranks", "1..16", "--compress", "topk:0.01"))
    for ranks in (1, 2, 4, 8, 16):
        truth = math.exp((0.6 + 0.1 * math.log(ranks) - math.log10(0.02)) / 0.4)
        near(found[ranks]["steps"]["value"], truth, 0.01)
        assert "loss fitted to runs of 1 to 8 ranks" in found[ranks]["steps"]["why"], found[ranks]
        assert found[ranks]["steps"]["rests_on"] == "extrapolated", found[ranks]
        near(found[ranks]["steps"]["beyond"], max(ranks / 8, truth / 300), 0.01)
    found = by_ranks(plan(cwd, "--goal", "loss=0.05", "--from", "c1,c2,c4,c8", "--ranks", "16", "--compress", "topk:0.01"))
    assert "loss fitted" in found[16]["steps"]["why"], found[16]  # all four reached it, but batch sizes do not predict lossy runs
    found = plan(cwd, *args, "--ranks", "2", "--vary", "compress=off,topk:0.01")
    assert [c["exchange"] for c in found["candidates"]] == ["topk", "flat"]  # the other one's steps are unknown
    assert len(found["runs"][0]["points"]) == 30 and len(found["runs"][0]["fitted"]) > 20


def a_run_on_one_machine_is_lossless(cwd):
    """So it counts as a run of top-k on one rank: with runs on 2 and 4 it predicts 8. With another momentum or batch per rank it does not count."""
    write(cwd, profile())
    base(cwd)
    points = {m: [(i, loss_at(i, m)) for i in range(10, 310, 10)] for m in (1, 2, 4)}
    make_run(cwd, "m1", 1, 0, 0.04, losses=points[1])
    for m in (2, 4):
        make_run(cwd, f"c{m}", m, 0, 0.04, compress='"topk:0.01"', losses=points[m])
    args = ["--goal", "loss=0.05", "--ranks", "8", "--compress", "topk:0.01", "--from"]
    (one,) = plan(cwd, *args, "m1,c2,c4")["candidates"]
    near(one["steps"]["value"], math.exp((0.6 + 0.1 * math.log(8) - math.log10(0.05)) / 0.4), 0.01)
    assert "loss fitted to runs of 1 to 4 ranks" in one["steps"]["why"], one["steps"]
    make_run(cwd, "m2", 2, 0, 0.04, losses=points[2])  # two machines with plain gradients
    for names, more in (("m2,c2,c4", []), ("m1,c2,c4", ["--batch-size", "8"]), ("m1,c2,c4", ["--momentum", "0.5"])):
        (one,) = plan(cwd, *args, names, *more)["candidates"]
        assert one["steps"]["value"] is None, one["steps"]


def a_lossless_epoch_is_ranked_first(cwd):
    """Over this slow link top-k has the faster step, but its number of steps is unknown."""
    write(cwd, profile())
    found = plan(cwd, "--goal", "loss=1", "--ranks", "4", "--vary", "compress=topk:0.01,off", "--link-between", "0,0.1")
    first, second = found["candidates"]
    assert (first["exchange"], second["exchange"]) == ("flat", "topk")
    assert second["step_seconds"]["value"] < first["step_seconds"]["value"]


def candidates_that_send_more_bytes_are_rejected(cwd):
    """ViT-B in 2 x 2 x 2 against data parallelism over the same ranks, and top-k of a density at which its message is larger: both are rejected with the verdict."""
    write(cwd, profile(layers=12, hidden=768, tokens=197, buckets=[{"elements": 85_000_000, "ready": 1, "rows": 0, "columns": 0, "dense": 0}]))
    words = ["--goal", "loss=1", "--ranks", "8", "--ranks-per-node", "4", "--simulate"]
    found = plan(cwd, *words, "--vary", "tensor-parallel=1,2x2x2", "--memory", "9")
    (first,), (second,) = found["candidates"], found["dropped"]
    assert first["tensor_parallel"] == 1 and first["verdict"] is None
    assert first["modelled"]["seconds"] < second["modelled"]["seconds"], found
    assert "tensor 2x2x2" in second["setting"] and "a rank receives" in second["why"] and "and there are 3152; without it a step is predicted to take" in second["why"], second
    found = plan(cwd, *words, "--vary", "compress=topk:0.98,off,topk:0.01")
    of = {c["setting"]: c for c in found["candidates"]}
    assert sorted(of) == ["sgd, topk 0.01", "sgd, two-level"] and of["sgd, topk 0.01"]["modelled"]["seconds"] < of["sgd, two-level"]["modelled"]["seconds"], of
    assert found["candidates"][0]["exchange"] == "two-level" and "density 0.01 sends" in of["sgd, topk 0.01"]["verdict"], found["candidates"]
    (sparse,) = found["dropped"]
    assert sparse["setting"] == "sgd, topk 0.98" and "top-k with density 0.98 sends " in sparse["why"], sparse


def candidates_that_send_more_bytes_are_kept_where_needed(cwd):
    """The candidate is kept if the plain model does not fit, if a replica's samples are no multiple of its ranks, or if links within nodes make it faster."""
    big = {"layers": 12, "hidden": 768, "tokens": 197, "activation_bytes": 0}
    write(cwd, profile(**big, parameter_bytes=2 ** 30))
    words = ["--goal", "loss=1", "--ranks", "8", "--tensor-parallel", "2x2x2", "--simulate"]
    refuses(cwd, *words, says=["no candidate is left of 1: 1: 8 ranks, batch 16, sgd, flat, tensor 2x2x2: a rank receives", "without it a step is predicted to take"], code=USAGE)
    refuses(cwd, *words, "--memory", "2.1", says="without it a step is predicted")
    (kept,) = plan(cwd, *words, "--memory", "1.9")["candidates"]  # values and gradients are 2 GiB, a quarter of it sharded
    assert kept["memory_bytes"] == 2 ** 29 and "pays below" in kept["verdict"], kept
    (kept,) = plan(cwd, *words, "--batch-size", "20")["candidates"]
    assert kept["tensor_parallel"] == 8 and "pays below" in kept["verdict"], kept
    write(cwd, profile(**{**big, "tokens": 1600}, buckets=[{"elements": 85_000_000, "ready": 1, "rows": 0, "columns": 0, "dense": 0}]))
    near_by = ["--goal", "loss=1", "--ranks", "16", "--ranks-per-node", "8", "--simulate", "--link", "0,8000000", "--tensor-parallel", "8"]
    (kept,) = plan(cwd, *near_by)["candidates"]  # each node has one replica, whose gradients are sharded by 8
    assert "pays below" in kept["verdict"], kept
    refuses(cwd, *near_by, "--link", "0,8", says="without it a step is predicted")


def a_measured_step_overrules_the_verdict(cwd):
    write(cwd, profile(layers=12, hidden=768, tokens=197))
    base(cwd)
    make_run(cwd, "m8", 8, 500, 0.04, tensor="2x2x2")
    words = ["--goal", "loss=1", "--ranks", "8", "--tensor-parallel", "2x2x2", "--simulate"]
    refuses(cwd, *words, says="without it a step is predicted")
    (kept,) = plan(cwd, *words, "--from", "m8")["candidates"]
    assert kept["step_seconds"]["rests_on"] == "measured" and kept["verdict"], kept


def ernest(ranks):
    return 0.01 + 0.1 / ranks + 0.002 * math.log(ranks) + 0.001 * ranks


def runs_predict_an_optimizer_that_the_profile_lacks(cwd):
    """From four numbers of ranks, by Ernest's model; with three the candidate is rejected."""
    write(cwd, profile(optimizers=[{**profile()["optimizers"][0], "name": "adamw"}]))
    base(cwd)
    for ranks in (1, 2, 4, 8):
        make_run(cwd, f"m{ranks}", ranks, 500, ernest(ranks), steps=9)
    words = ["--goal", "loss=1", "--ranks", "2,6,16", "--vary", "optim=sgd,adamw", "--from"]
    found = plan(cwd, *words, "m1,m2,m4,m8")
    of = {(c["optim"], c["ranks"]): c for c in found["candidates"]}
    assert len(of) == 6 and not found["dropped"], found
    for ranks, basis in ((2, "measured"), (6, "interpolated"), (16, "extrapolated")):
        c = of["sgd", ranks]
        near(c["step_seconds"]["value"], ernest(ranks), 1e-6)
        near(c["epoch_seconds"], ernest(ranks) * (100 // ranks), 1e-6)
        assert c["step_seconds"]["rests_on"] == basis and c["memory_bytes"] is None and set(c["modelled"].values()) == {None}, c
        assert of["adamw", ranks]["step_seconds"]["rests_on"] == "model" and of["adamw", ranks]["ernest_seconds"] is None, of
    assert "Ernest's model of runs alone, as the profile does not have sgd" in of["sgd", 6]["step_seconds"]["why"], of["sgd", 6]
    text = plan(cwd, *words[:3], "6", "--from", "m1,m2,m4,m8", json_out=False)
    assert "step  by Ernest      steps" in text and "    33.4 ms    33.4 ms " not in text and "        ?  interpolated" in text and "modelled" not in text, text
    found = plan(cwd, *words, "m1,m2,m4", "--extrapolate")
    assert {d["why"] for d in found["dropped"]} == {"the profile has no optimizer sgd of block size 0, and Ernest's model needs runs on 4 different numbers of ranks, found 3"} and len(found["dropped"]) == 3, found["dropped"]


def ernest_s_model_is_a_column_of_the_table(cwd):
    """A column of the table, if some candidate has enough runs."""
    runs(cwd)
    words = ["--goal", "loss=1", "--ranks", "2", "--vary", "batch-size=16,8"]
    assert "by Ernest" not in plan(cwd, *words, "--from", "m1,m2,m4", json_out=False)
    make_run(cwd, "m8", 8, 200, 0.04)
    rows = {line.split()[1]: line for line in plan(cwd, *words, "--from", "m1,m2,m4,m8", json_out=False).splitlines() if line.lstrip().startswith("2 ")}
    assert rows["32"].split("flat")[1].split()[:4] == ["40", "ms", "40", "ms"] and rows["16"].split("flat")[1].split()[2] == "?", rows


def links_are_read_from_a_file(cwd):
    write(cwd, profile())
    write(cwd, {"benchmark": "links", "within": {"latency_us": 3, "gbit": 40}, "between": {"latency_us": 0, "gbit": 4}}, "links.json")
    found = plan(cwd, "--goal", "loss=1", "--ranks", "2", "--link", "links.json", "--link-between", "0,8")
    near(found["candidates"][0]["step_seconds"]["value"], step(2), 1e-6)  # the flag counts
    near(found["machine"]["within"]["gbit"], 40)
    near(found["machine"]["within"]["gather_gbit"], 40)


def a_link_has_a_separate_all_gather_bandwidth(cwd):
    write(cwd, profile())
    for name, more in (("even", {}), ("faster", {"gather_gbit": 16}), ("bad", {"gather_gbit": -1})):
        write(cwd, {"within": {"latency_us": 0, "gbit": 8}, "between": {"latency_us": 0, "gbit": 8, **more}}, f"{name}.json")

    def exposed(file, *more):
        p = subprocess.run([PROGRAM, "plan", *DATA, "--link", file, "--step-profile", "p.json", "--goal", "loss=1", "--ranks", "2", "--json", "-", *more], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
        assert p.returncode == OK, p.stderr
        return json.loads(p.stdout)["candidates"][0]["modelled"]["exposed"]
    mean, whole = exposed("even.json"), exposed("even.json", "--shard-optimizer")
    near(exposed("faster.json"), mean)
    near(exposed("faster.json", "--shard-optimizer"), mean + (whole - mean) / 2)
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--link", "bad.json", says=["--link bad.json", "between: latency_us 0, gbit 8, gather_gbit -1"], code=ERROR)


def communication_takes_time_of_shared_cores(cwd):
    """Copies of 4 MB each way at 2 ns per byte, 2 messages each way of 1 ms, selection at 3 ns per element, 1 ns per byte on a link within a node.
    Links take no time."""
    write(cwd, profile(copy=2e-9, select=3e-9))
    write(cwd, {"within": {"latency_us": 0, "gbit": 8e6}, "between": {"latency_us": 0, "gbit": 8e6, "core_us": 1000}}, "links.json")
    write(cwd, {"within": {"latency_us": 0, "gbit": 8e6, "core_us": -1}, "between": None}, "bad.json")
    args = ["plan", *DATA, "--link", "links.json", "--link-between", "0,8000000", "--step-profile", "p.json", "--goal", "loss=1", "--ranks", "2", "--json", "-"]

    def exposed(*more):
        p = subprocess.run([PROGRAM, *args, *more], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
        assert p.returncode == OK, p.stderr
        return json.loads(p.stdout)["candidates"][0]["modelled"]["exposed"]
    near(exposed("--slots", "1"), 2 * 4e6 * 2e-9 + 4e-3, 1e-3)
    write(cwd, {"within": {"latency_us": 0, "gbit": 8e6, "core_us_mib": 1048.576}, "between": {"latency_us": 0, "gbit": 8e6, "core_us": 1000}}, "carried.json")
    near(exposed("--slots", "1", "--link", "carried.json"), 2 * 4e6 * 2e-9 + 4e-3, 1e-3)  # nodes of one rank
    near(exposed("--slots", "2", "--ranks-per-node", "2", "--link", "carried.json"), 2 * 4e6 * (2e-9 + 1e-9) + 4e-3, 1e-3)
    near(exposed("--slots", "0.5"), 2 * (2 * 4e6 * 2e-9 + 4e-3), 1e-3)
    assert exposed() < 1e-4 and exposed("--slots", "2") < 1e-4  # communication has its own core
    sparse = 10000 * 4 + 10000 * 2 + 2 * 245  # bytes of 1 %
    near(exposed("--slots", "1", "--compress", "topk:0.01"), 3e-3 + 2 * (sparse * 2e-9 + 1e-3), 1e-3)
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--link", "bad.json", says=["--link bad.json", "within: core_us is -1"], code=ERROR)
    write(cwd, {"within": {"latency_us": 0, "gbit": 8e6, "core_us_mib": -2}, "between": None}, "bad.json")
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--link", "bad.json", says=["--link bad.json", "within: core_us_mib is -2"], code=ERROR)


def steps_over_batches_are_drawn(page, reached):
    """100 (1 + 64 / B), from the smallest batch to that of eight ranks, 128, through each run that reached the goal."""
    chart = page[page.index("Steps to the goal: S_min"):]
    chart = chart[:chart.index("</svg>")]
    assert "S_min 100, phi 64, steps a + c / batch of 3 runs" in chart, chart
    dots = {float(b): (float(x), float(y), float(steps)) for x, y, b, steps in re.findall(r'<circle[^>]*cx="([\d.]+)"[^>]*cy="([\d.]+)"[^>]*>\s*<title>reached: ([\d.e+]+), ([\d.e+]+)<', chart)}
    assert {b: d[2] for b, d in dots.items()} == reached, (dots, chart)
    line = [tuple(float(v) for v in p.split(",")) for p in re.search(r'<polyline class="s0" points="([^"]*)"', chart).group(1).split()]
    scale = (dots[64][0] - dots[16][0]) / math.log(64 / 16), (dots[64][1] - dots[16][1]) / math.log(200 / 500)
    for x, y in line:
        batch = 16 * math.exp((x - dots[16][0]) / scale[0])
        assert abs(dots[16][1] + scale[1] * math.log(100 * (1 + 64 / batch) / 500) - y) < 0.2, (batch, x, y)
    assert abs(line[-1][0] - dots[16][0] - scale[0] * math.log(128 / 16)) < 0.2, line


def a_page_shows_models_and_measured_points(cwd):
    runs(cwd)
    plan(cwd, "--goal", "loss=1", "--ranks", "1..8", "--from", "m1,m2,m4", "--json", "plan.json", json_out=False)
    p = subprocess.run([sys.executable, REPORT, "plan.json"], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == OK and p.stdout == "plan.html\n", p.stderr
    with open(os.path.join(cwd, "plan.html")) as f:
        page = f.read()
    for text in ("Seconds of a step", "loss: fitted (lines), measured (dots)", "extrapolated x2", "<h2>Candidates</h2>", f"mpirun -n 8 {PROGRAM}"):
        assert text in page, text
    assert page.count("measured: ") == 3 + 9, page.count("measured: ")  # steps of three runs, three losses of each
    steps_over_batches_are_drawn(page, {16: 500, 32: 300, 64: 200})
    write(cwd, {"format": 1}, "none.json")
    p = subprocess.run([sys.executable, REPORT, "none.json"], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == ERROR and "none.json: no plan" in p.stderr, p.stderr


def unknown_steps_have_a_reason(cwd):
    runs(cwd)
    found = by_ranks(plan(cwd, "--goal", "loss=0.5", "--ranks", "1..2", "--from", "m1,m2"))
    assert found[1]["seconds"] is None and "none of 2 runs" in found[1]["steps"]["why"], found[1]
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "2", "--from", "m1"))
    assert found[2]["steps"]["value"] is None and "2 batches, or a noise scale" in found[2]["steps"]["why"], found[2]
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "2", "--from", "m1,m2", "--clip-grad", "1"))
    assert "no run of" in found[2]["steps"]["why"], found[2]  # another convergence class
    found = plan(cwd, "--goal", "loss=1", "--ranks", "2", "--from", "m1,m2", "--vary", "compress=topk:0.01")
    assert not found["goal_is_known"]  # batch sizes do not predict lossy runs
    lossy = ["--goal", "loss=1", "--ranks", "8", "--ranks-per-node", "1", "--compress", "topk:0.01", "--extrapolate", "--from"]
    for ranks in (1, 2, 4, 8):
        make_run(cwd, f"c{ranks}", ranks, 0, 0.04, compress='"topk:0.01"', losses=[(i, loss_at(i, ranks) + 1.5) for i in range(10, 310, 10)])
    for names, says in (("c2,c4", "needs a run on 8 ranks that reached loss 1, or runs with this --batch-size on 3 numbers of ranks, found 2"),
                        ("c1,c2,c4", "the loss fitted to runs on 3 numbers of ranks does not predict when loss is 1"),
                        ("c1,c2,c4,c8", "the loss fitted to runs on 4 numbers of ranks does not predict when loss is 1")):
        (one,) = plan(cwd, *lossy, names)["candidates"]
        assert one["steps"]["value"] is None and says in one["steps"]["why"], one["steps"]
    for i, ranks in enumerate((8, 16)):  # Ernest's model needs four numbers of ranks
        found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "2", "--from", ",".join(["m1", "m2", "m4", *(f"m{8 * 2 ** k}" for k in range(i))])))
        assert (found[2]["ernest_seconds"] is None) == (i == 0), found[2]
        make_run(cwd, f"m{ranks}", ranks, 200, 0.04)


def goals_where_higher_is_better(cwd):
    """A higher top-1 is better: it is 50, then 100."""
    runs(cwd)
    found = by_ranks(plan(cwd, "--goal", "top1=75", "--ranks", "1", "--from", "m1"))
    assert found[1]["steps"]["value"] == 500, found[1]


def the_longest_run_with_the_same_flags_measures_the_step(cwd):
    runs(cwd)
    make_run(cwd, "longer", 2, 300, 0.05, steps=9)
    make_run(cwd, "short", 2, 300, 0.07, steps=3)
    found = plan(cwd, "--goal", "loss=1", "--ranks", "2", "--vary", "shard-optimizer=false,true", "--from", "m1", "m2", "longer", "short")
    seconds = {c["setting"]: c["step_seconds"] for c in found["candidates"]}
    near(seconds["sgd, flat"]["value"], 0.05)
    assert [seconds[k]["rests_on"] for k in ("sgd, flat", "sgd, flat, sharded state")] == ["measured", "model"], seconds


def flags_that_need_several_ranks_are_profiled(cwd):
    """The flags are of a run on several machines; its parts are measured at one rank."""
    for flags in (["--allreduce", "two-level"], ["--local-steps", "4"], ["--compress", "topk:0.1"]):
        found = plan(cwd, "--goal", "loss=1", "--ranks", "4", "--ranks-per-node", "2", "--profile-seconds", "0.05", *flags, profile_file=f"{flags[0]}.json")
        assert found["candidates"][0]["ranks"] == 4 and not found["dropped"], found
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--vary", "optim=shampoo", "--vary", "precondition-frequency=auto",
            says=["no candidate is left of 1", "--precondition-frequency auto is gone since 0.2"])
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--optim", "shampoo", "--precondition-budget", "3%",
            says=["--precondition-budget is gone since 0.2: use --precondition-frequency"])
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--vary", "drop-compute=soon,auto", says=["no candidate is left of 2", "expected off, auto", "plan needs a number of seconds"])


def real_runs(cwd):
    """Measured steps of two ranks, and the page of the plan."""
    write(cwd, profile())
    if MPIRUN == "none":
        raise Skip("no MPI")
    common = [*DATA, "--epochs", "2", "--progress", "off", "--lr", "0.05"]
    run(*common, "--output", "r1", cwd=cwd)
    p = subprocess.run([MPIRUN, "-n", "2", PROGRAM, *common, "--output", "r2"], cwd=cwd, env={**os.environ, **MPI}, capture_output=True, text=True,
                       timeout=TIMEOUT)
    assert p.returncode == OK, p.stderr
    found = by_ranks(plan(cwd, "--lr", "0.05", "--goal", "train_loss=9", "--ranks", "1..4", "--from", "r1,r2"))
    assert found[2]["step_seconds"]["rests_on"] == "measured" and found[4]["step_seconds"]["beyond"] == 2, found
    assert found[2]["steps"]["value"] >= 1


def a_mean_step_covers_whole_periods(cwd):
    """A refresh of roots in each fourth update takes 1 s, the end of a round of 3 local steps 0.3 s: means over parts of twelve steps are biased. The first two steps and the last incomplete period of each start are not counted."""
    shampoo = ["--optim", "shampoo", "--precondition-frequency", "4", "--local-steps", "3", "--ranks-per-node", "2"]
    blocks = {"optimizers": [{"name": "shampoo", "block": 1024, "update": UPDATE, "refresh": 0.1, "state_bytes": 0, "blocks": []}]}
    write(cwd, profile(**blocks))
    run(*DATA, *shampoo[:4], "--max-steps", "1", "--progress", "off", "--output", "base", cwd=cwd)
    for name, steps in (("whole", 14), ("more", 14 + 11), ("part", 13)):
        os.makedirs(os.path.join(cwd, name))
        with open(os.path.join(cwd, "base", "config.yaml")) as f:
            config = f.read().replace("\nlocal-steps: 0\n", "\nlocal-steps: 3\n").replace("\nranks-per-node: 0\n", "\nranks-per-node: 2\n")
        assert "local-steps: 3" in config and "ranks-per-node: 2" in config, config
        with open(os.path.join(cwd, name, "config.yaml"), "w") as f:
            f.write(config)
        with open(os.path.join(cwd, name, "env.json"), "w") as f:
            json.dump({"ranks": 4}, f)
        with open(os.path.join(cwd, name, "metrics.jsonl"), "w") as f:
            for i in range(1, steps + 1):
                seconds = 9 if i <= 2 else 0.01 + (1 if i % 4 == 0 else 0) + (0.3 if i % 3 == 0 else 0)
                f.write(json.dumps({"event": "step", "step": i, "loss": 2, "seconds": seconds}) + "\n")
    shutil.copytree(os.path.join(cwd, "part"), os.path.join(cwd, "resumed"))
    with open(os.path.join(cwd, "resumed", "metrics.jsonl"), "a") as f, open(os.path.join(cwd, "whole", "metrics.jsonl")) as whole:
        f.write(json.dumps({"event": "resume", "step": 13}) + "\n" + whole.read())
    for name in ("whole", "more", "resumed"):
        (best,) = plan(cwd, *shampoo, "--goal", "loss=1", "--ranks", "4", "--from", name)["candidates"]
        near(best["step_seconds"]["value"], 0.01 + 1 / 4 + 0.3 / 3)
        assert best["step_seconds"]["rests_on"] == "measured"
    (best,) = plan(cwd, *shampoo, "--goal", "loss=1", "--ranks", "4", "--from", "part")["candidates"]
    assert best["step_seconds"]["rests_on"] == "model", best


def compressed_state_is_counted_as_a_run_counts_it(cwd):
    """The bytes of each choice are those of optimizer_bytes; a run of another choice does not measure its step."""
    usual = [*DATA, "--data", "synthetic:1600:8:3", "--optim", "shampoo", "--precondition-frequency", "2", "--hidden", "64", "--max-steps", "4", "--progress", "off"]
    choices = {"": [], ", packed-factors true": ["--packed-factors"], ", state-dtype bf16": ["--state-dtype", "bf16"],
               ", state-dtype bf16, state-memory adam": ["--state-dtype", "bf16", "--state-memory", "adam"]}
    kept = {}
    for i, (name, flags) in enumerate(choices.items()):
        run(*usual, *flags, "--output", f"run{i}", cwd=cwd)
        with open(os.path.join(cwd, f"run{i}", "metrics.jsonl")) as f:
            kept[name] = [r for r in map(json.loads, f) if r["event"] == "epoch"][-1]["optimizer_bytes"]
    found = plan(cwd, *usual[len(DATA):-4], "--goal", "loss=1", "--ranks", "1", "--vary", "state-dtype=f32,bf16", "--vary", "state-memory=any,adam", "--vary",
                 "packed-factors=off,on", "--profile-seconds", "0.02", "--from", "run0,run1,run2", profile_file="own.json")
    of = {c["setting"].split(", flat")[1]: c for c in found["candidates"]}
    assert len(of) == 8 and kept[", packed-factors true"] < kept[""] and kept[", state-dtype bf16"] < kept[""], (of.keys(), kept)
    for name in choices:
        assert of[""]["memory_bytes"] - of[name]["memory_bytes"] == kept[""] - kept[name], (name, of, kept)
    measured = {name for name, c in of.items() if c["step_seconds"]["rests_on"] == "measured"}
    assert measured == {"", ", packed-factors true", ", state-dtype bf16"}, measured
    assert {"--state-memory=adam", "--state-dtype=bf16", "--packed-factors"} <= set(of[", state-dtype bf16, state-memory adam, packed-factors true"]["flags"]), of


def other_processes_train_while_a_profile_is_measured(cwd):
    """Two more processes of the program train, and end with it."""
    needs_plain_memory()
    p = subprocess.Popen([PROGRAM, "plan", *DATA, *LINK, "--goal", "loss=1", "--ranks", "1", "--profile-ranks", "3", "--profile-seconds", "0.2", "--step-profile", "own.json"],
                         cwd=cwd, stdout=subprocess.PIPE, text=True)
    seen = {}
    while p.poll() is None:
        try:
            with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
                for child in f.read().split():
                    with open(f"/proc/{child}/schedstat") as s:
                        seen[child] = int(s.read().split()[0])
        except OSError:
            pass
        time.sleep(0.002)
    assert p.returncode == OK and len(seen) == 2 and all(seen.values()), (p.returncode, seen)
    with open(os.path.join(cwd, "own.json")) as f:
        assert json.load(f)["ranks"] == 3
    assert not [child for child in seen if os.path.exists(f"/proc/{child}")]
    for ranks in ("0", "1025", "x"):
        refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--profile-ranks", ranks, says="--profile-ranks")
    refuses(cwd, "--goal", "loss=1", "--ranks", "1", "--profile-ranks", "2", "--data", "nowhere", "--step-profile", "none.json", says="--profile-ranks 2: a process did not start", code=ERROR)


def a_profile_waits_for_the_other_processes(cwd):
    """The measuring process waits for the others: if one is killed, it is an error, not a profile, and not an endless wait."""
    p = subprocess.Popen([PROGRAM, "plan", *DATA, *LINK, "--goal", "loss=1", "--ranks", "1", "--profile-ranks", "3", "--hidden", "1024", "--batch-size", "128", "--profile-seconds", "60", "--step-profile", "none.json"],
                         cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    core_seconds = 0
    while core_seconds < 0.3:  # it is measuring
        assert p.poll() is None, p.communicate()
        with open(f"/proc/{p.pid}/schedstat") as f:
            core_seconds = 1e-9 * int(f.read().split()[0])
        time.sleep(0.01)
    with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
        os.kill(int(f.read().split()[1]), signal.SIGKILL)
    said = p.communicate(timeout=60)[1]
    assert p.returncode == ERROR and "--profile-ranks 3: a process has ended" in said, (p.returncode, said)
    assert not os.path.exists(os.path.join(cwd, "none.json"))


def ranks_that_share_a_core_count_cpu_time(cwd):
    """Two and five on one processor, with batches longer than a time slice: by the clock five would take 2.5 times as long, less where the processor has other work."""
    def of(ranks):
        plan(cwd, "--goal", "loss=1", "--ranks", "1", "--threads", "1", "--hidden", "1024", "--batch-size", "128", "--profile-ranks", str(ranks), "--profile-seconds", "0.02", profile_file=f"{ranks}.json")
        with open(os.path.join(cwd, f"{ranks}.json")) as f:
            return json.load(f)["batch_seconds"][-1]
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        two, five = of(2), of(5)
    finally:
        os.sched_setaffinity(0, processors)
    assert five < 1.25 * two, (two, five)  # their CPU time is equal within some percent


# --- Bad input ---


VARIED = ["batch-size", "grad-accum", "precondition-frequency", "max-preconditioner-dim", "local-steps", "backup-workers", "num-trainers-per-group", "optim",
          "allreduce", "compress", "shard-optimizer", "shard-gradients", "grad-comm-dtype", "tensor-parallel", "drop-compute", "state-dtype", "state-memory"]


def ranks_that_do_not_fit_a_candidate(cwd):
    write(cwd, profile())
    for ranks, per_node, flags, says in (("6", "6", ["--tensor-parallel", "4"], "--tensor-parallel 4: 6 ranks are not a multiple of 4"),
                                         ("2", "1", ["--backup-workers", "2"], "--backup-workers 2: there are 2 ranks"),
                                         ("4", "4", ["--allreduce", "two-level"], "--allreduce two-level: 1 machines of 4 ranks have one level"),
                                         ("2", "2", ["--local-steps", "4"], "--local-steps 4: needs several machines, has 1"),
                                         ("6", "4", [], "6 ranks do not fill machines of 4"),
                                         ("2", "1", ["--shard-params"], "--shard-params: plan has no cost model of it")):
        refuses(cwd, "--goal", "loss=1", "--ranks", ranks, "--ranks-per-node", per_node, *flags, says=["no candidate is left of 1", says])
    launched = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    p = subprocess.run([PROGRAM, "plan", *DATA, *LINK, "--step-profile", "p.json", "--goal", "loss=1", "--ranks", "1", "--epochs", "1", "--pilots", "auto"],
                       cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **launched})
    assert p.returncode == USAGE and "--pilots: start plan as a single process, not as one of several ranks (mpi)" in p.stderr, p


def bad_input(cwd):
    runs(cwd)
    one = ["--goal", "loss=1", "--ranks", "1"]
    refuses(cwd, "--ranks", "1", says="--goal: missing")
    refuses(cwd, "--goal", "los=1", says="--goal los: no metric of this program; known: loss, train_loss, top1, top5, deadline")
    refuses(cwd, "--goal", "loss=", says="--goal loss=: want METRIC=NUMBER")
    refuses(cwd, "--goal", "deadline=6y", says="--goal deadline=6y: want a time")
    refuses(cwd, "--goal", "deadline=6h", says="--goal deadline: the length of the run is unknown")
    refuses(cwd, "--goal", "loss=1", "--goal", "loss=2", says="the goal is loss=1 already")
    refuses(cwd, "--goal", "loss=1", "--ranks", "4..1", says="--ranks 4..1: want A..B")
    refuses(cwd, "--goal", "loss=1", "--ranks", "4,2", says="--ranks 4,2: 2 after 4")
    refuses(cwd, "--goal", "loss=1", "--ranks", "1..64", "--nodes", "4", says="--ranks 64: --nodes 4 of --ranks-per-node 1 have 4")
    refuses(cwd, *one, "--link", "5", says="--link 5: neither", code=USAGE)
    refuses(cwd, *one, "--link-between", "50,-1", says="--link-between 50,-1: want LATENCY_US,GBIT")
    refuses(cwd, *one, "--vary", "lr=1,2", says="--vary lr=1,2: not one of batch-size")
    refuses(cwd, *one, "--vary", "optim", says="--vary optim: want FLAG=VALUE")
    refuses(cwd, *one, "--vary", "optim=sgd", "--vary", "optim=adam", says="optim is varied already")
    refuses(cwd, *one, "--vary", "optim=sgd,,adam", says="--vary optim=sgd,,adam: want 1 to 16 values of at most 31 bytes")
    refuses(cwd, *one, "--vary", "batch-size=" + ",".join(map(str, range(1, 18))), says=",17: want 1 to 16 values of at most 31 bytes")
    refuses(cwd, *one, "--vary", "compress=" + "x" * 32, says="x: want 1 to 16 values of at most 31 bytes")
    refuses(cwd, *one, *(word for axis in range(17) for word in ("--vary", f"{VARIED[axis]}=1")), says="--vary: more than 16 flags")
    refuses(cwd, *one, "--vary", "shard-optimizer=maybe", says="--vary shard-optimizer=maybe: want on or off")
    most = ",".join(map(str, range(1, 17)))
    refuses(cwd, "--goal", "loss=1", "--ranks", "1..16", *(word for flag in VARIED[:3] for word in ("--vary", f"{flag}={most}")), says="--vary: 20480 candidates, at most 20000 are possible")
    refuses(cwd, "--goal", "deadline=1h", "--goal", "deadline=2h", says="--goal deadline=2h: a second deadline")
    refuses(cwd, "--goal", "loss=1", "--ranks", ",".join(map(str, range(1, 66))), says=",65: more than 64 numbers")
    refuses(cwd, *one, "--from", "m1,,m2", says="--from m1,,m2: want run folders separated by commas")
    os.remove(os.path.join(cwd, "m4", "config.yaml"))
    refuses(cwd, *one, "--from", "m4", says=["--from m4: not a run folder: ", "m4/config.yaml"])
    refuses(cwd, *one, "m1", says="'m1': an argument without a flag")
    refuses(cwd, *one, "--from", "nowhere", says=["--from nowhere", "ranks"])
    refuses(cwd, "--goal", "loss=1", "--ranks", "8", "--from", "m1,m2", says="--ranks 8: more than twice the 2 ranks")
    for name, seconds in (("zero", 0), ("negative", -0.5)):
        make_run(cwd, name, 1, 500, seconds)
        refuses(cwd, *one, "--from", name, says=f"--from {name}: step 3 took {seconds} s, want more than 0", code=ERROR)
    refuses(cwd, *one, "--from", "m1", "--hidden", "33", says="--from m1: a run of other data or another model: --hidden is '32'")
    refuses(cwd, *one, "--from", "m1", "--data", "synthetic:99:16:3",
            says="--from m1: a run of other data or another model: --data is 'synthetic:1600:16:3' there, 'synthetic:99:16:3' here")
    found = by_ranks(plan(cwd, "--goal", "loss=1", "--ranks", "8", "--from", "m1,m2", "--extrapolate"))
    assert found[8]["steps"]["beyond"] == 4, found


def bad_profiles(cwd):
    write(cwd, profile())
    one = ["--goal", "loss=1", "--ranks", "1"]
    for more, says in (({"fixed": -1}, "'fixed' is -1"), ({"format": 2}, "'format' is 2, want 1"),
                       ({"batch_seconds": [0]}, "'batch_seconds': number 0 is not above 0"),
                       ({"batch_sizes": [1, 2]}, "'batch_sizes' has 2 numbers, 'batch_seconds' 1"),
                       ({"batch_sizes": [1] * 1000}, "'batch_sizes' has 1000 numbers, want at most "),
                       ({"optimizers": 1}, "'optimizers' is missing, or not an array")):
        write(cwd, profile(**more), "bad.json")
        refuses(cwd, *one, "--step-profile", "bad.json", says=["--step-profile bad.json", says], code=ERROR)
    write(cwd, profile(program="train_other"), "bad.json")
    refuses(cwd, *one, "--step-profile", "bad.json", says="measured by train_other, but this program is")
    write(cwd, profile(samples_hash="5"), "bad.json")
    refuses(cwd, *one, "--step-profile", "bad.json", says="with other flags of data or model")


def a_profile_is_measured_and_kept(cwd):
    args = ["--goal", "loss=1", "--ranks", "1", "--vary", "optim=sgd,shampoo", "--profile-seconds", "0.2"]
    found = plan(cwd, *args, profile_file="own.json")
    with open(os.path.join(cwd, "own.json")) as f:
        own = json.load(f)
    assert [o["name"] for o in own["optimizers"]] == ["sgd", "shampoo"]
    shampoo = own["optimizers"][1]
    near(sum(b["update"] for b in shampoo["blocks"]), shampoo["update"])
    near(sum(b["refresh"] for b in shampoo["blocks"]), shampoo["refresh"])
    assert shampoo["refresh"] > 0 and shampoo["state_bytes"] > own["optimizers"][0]["state_bytes"]
    assert own["batch_sizes"] == [8, 16, 32] and own["samples"] == 1600
    numbers = 3 * 16 * 16 * 32 + 32 + 32 * 3 + 3  # parameters of the perceptron
    assert sum(b["elements"] for b in own["buckets"]) == numbers and own["parameter_bytes"] == 4 * numbers and own["staging"] > 0
    assert all(0 < b["ready"] <= 1 for b in own["buckets"]) and 0 < own["backward"] < 1
    assert all(0 < own[k] < 1e-5 for k in ("select", "factor", "copy")), own
    again = plan(cwd, *args, profile_file="own.json")
    assert again["candidates"] == found["candidates"]  # read, not measured again
    args = ["--goal", "loss=1", "--ranks", "1", "--optim", "shampoo", "--precondition-frequency", "20", "--factor-frequency", "20"]
    (seldom,) = plan(cwd, *args, "--profile-seconds", "0.1", profile_file="seldom.json")["candidates"]  # factors are updated less often than a profile is long
    assert seldom["modelled"]["update"] > 0, seldom


ROWS = [seconds_of_steps_are_as_computed_by_hand, deadlines_choose_the_cheapest_that_meets_them, a_cost_needs_known_steps, each_reason_is_given_once, candidates_vary_flags_and_are_rejected_with_reasons,
        candidates_that_training_refuses_are_rejected, steps_of_an_epoch_are_those_of_training, a_rank_s_memory_is_a_limit, weights_and_optimizers_take_the_memory_that_was_predicted, a_global_batch_is_kept, the_command_runs_as_it_stands, steps_by_batch_are_fitted,
        own_work_and_communication_are_corrected_separately, the_step_of_one_rank_counts_for_any_communication, nodes_of_one_machine_share_its_slots, no_step_is_shorter_than_its_loader, runs_with_another_device_or_threads_do_not_measure_the_step, runs_of_other_batches_scale_the_model, extrapolation_by_more_than_two_is_rejected, steps_far_beyond_runs_are_weaker_than_the_model, steps_by_the_noise_scale, the_noise_scale_of_a_run_that_did_not_reach_the_goal, lossy_runs_are_predicted_by_ranks, a_run_on_one_machine_is_lossless,
        a_lossless_epoch_is_ranked_first, candidates_that_send_more_bytes_are_rejected, candidates_that_send_more_bytes_are_kept_where_needed, a_measured_step_overrules_the_verdict,
        runs_predict_an_optimizer_that_the_profile_lacks, ernest_s_model_is_a_column_of_the_table, links_are_read_from_a_file, a_link_has_a_separate_all_gather_bandwidth, communication_takes_time_of_shared_cores, a_page_shows_models_and_measured_points,
        unknown_steps_have_a_reason, goals_where_higher_is_better, bad_input, ranks_that_do_not_fit_a_candidate, bad_profiles, a_profile_is_measured_and_kept,
        flags_that_need_several_ranks_are_profiled, the_longest_run_with_the_same_flags_measures_the_step,
        a_mean_step_covers_whole_periods, compressed_state_is_counted_as_a_run_counts_it, other_processes_train_while_a_profile_is_measured, a_profile_waits_for_the_other_processes, ranks_that_share_a_core_count_cpu_time, real_runs]


if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-plan-", sys.argv[3] if len(sys.argv) > 3 else None))
