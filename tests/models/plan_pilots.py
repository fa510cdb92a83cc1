"""plan --pilots: trial runs of plan, whose measurements replace the predictions of the profile.

    plan_pilots.py TRAIN_MLP MPIRUN|none [ROW]
"""
import json
import math
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from plan import DATA, LINK, MPIRUN, base, loss_at, make_run, plan, profile, refuses, runs, write  # noqa: E402
from rows import MPI, Skip, full, run_rows  # noqa: E402
from trainer import PROGRAM, TIMEOUT, USAGE, fails, run  # noqa: E402

ONE = ["--goal", "loss=1", "--ranks", "1", "--pilots", "auto"]


def mean_step(folder):
    """Mean seconds of a step, without the first two."""
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        seconds = [r["seconds"] for r in map(json.loads, f) if r["event"] == "step"]
    assert len(seconds) > 10, seconds
    return sum(seconds[2:]) / len(seconds[2:])


def a_pilot_measures_what_was_predicted(cwd):
    """A step that the profile predicts at 27 ms takes some 0.1 ms."""
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "10000", "--pilot-dir", "kept", "--pilot-budget", "50%", "--output", "run", "--resume", "auto")
    best, made = found["candidates"][0], found["pilots"]["made"]
    truth = mean_step(os.path.join(cwd, "kept", "pilot-1"))
    assert best["step_seconds"]["rests_on"] == "measured" and abs(best["step_seconds"]["value"] / truth - 1) < 1e-6, (best, truth)
    assert len(made) == 1 and made[0]["failed"] is None and abs(made[0]["predicted_seconds"] - 0.027) < 1e-9, made
    assert made[0]["rank_seconds"] > 10 * truth and found["pilots"]["rank_seconds"] == made[0]["rank_seconds"]
    assert abs(best["seconds"] / (truth * 1e6) - 1) < 1e-6 and "as the flags say" in best["steps"]["why"], best
    assert "leads" in found["pilots"]["no_more"] and found["runs"][0]["pilot"] and not found["runs"][0]["points"]
    assert "--pilot" not in best["command"], best["command"]
    text = plan(cwd, *ONE, "--epochs", "10000", json_out=False)
    assert "pilots: 1, " in text and "predicted 27 ms" in text, text
    again = plan(cwd, "--goal", "loss=1", "--ranks", "1", "--from", "kept/pilot-1")
    assert again["candidates"][0]["step_seconds"]["rests_on"] == "measured"


def the_budget_is_kept(cwd):
    """5 % of a run of 2.7 s are less than a pilot takes."""
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "1", "--pilot-dir", "kept")
    assert not found["pilots"]["made"] and os.listdir(os.path.join(cwd, "kept")) == [], found["pilots"]
    assert "budget: a pilot of 1 ranks, sgd, flat" in found["pilots"]["no_more"] and "0.135 left" in found["pilots"]["no_more"]
    assert found["candidates"][0]["step_seconds"]["rests_on"] == "model"


def the_profile_counts_against_the_budget(cwd):
    """If this plan measured it. Half of the run would pay many pilots, but not a profile with two processes."""
    found = plan(cwd, *ONE, "--max-steps", "20", "--pilot-budget", "50%", "--profile-seconds", "0.3", "--profile-ranks", "2", profile_file="own.json")
    spent, run_of = found["profile"]["spent_seconds"], found["pilots"]["run_rank_seconds"]
    assert abs(found["pilots"]["profile_rank_seconds"] / (2 * spent) - 1) < 1e-9 and spent > 0.1, found["pilots"]
    assert 2 * spent > 0.5 * run_of and not found["pilots"]["made"] and ", 0 left" in found["pilots"]["no_more"], found["pilots"]
    found = plan(cwd, *ONE, "--max-steps", "200000", "--pilot-budget", "50%", profile_file="own.json")
    assert found["pilots"]["profile_rank_seconds"] == 0 and len(found["pilots"]["made"]) == 1, found["pilots"]


def a_pilot_that_overruns_is_stopped_and_ignored(cwd):
    """A step of a thousand micro-batches, which the profile predicts at a microsecond each."""
    write(cwd, profile(samples=160000, fixed=1e-6, per_sample=1e-12, optimizers=[{**profile()["optimizers"][0], "update": 1e-9}]))
    found = plan(cwd, *ONE, "--max-steps", "3000", "--grad-accum", "1000", "--data", "synthetic:160000:16:3", "--pilot-budget", "45", "--pilot-dir", "kept")
    (made,) = found["pilots"]["made"]
    assert "stopped after" in made["failed"] and made["step_seconds"] is None and made["rank_seconds"] > 1.3, made
    assert not found["runs"] and found["candidates"][0]["step_seconds"]["rests_on"] == "model", found["candidates"]


def a_pilot_that_fails_is_named_and_ignored(cwd):
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "1000", "--pilot-dir", "kept", "--data", "nowhere")
    (made,) = found["pilots"]["made"]
    assert "exit status 1: see kept/pilot-1.log" in made["failed"], made
    with open(os.path.join(cwd, "kept", "pilot-1.log")) as f:
        assert "nowhere" in f.read()
    assert not found["runs"] and found["candidates"][0]["step_seconds"]["rests_on"] == "model", found["candidates"]
    text = plan(cwd, *ONE, "--epochs", "1000", "--data", "nowhere", json_out=False, TMPDIR=cwd)  # the log of a failed one is kept
    assert "failed, and is not used: exit status 1: see " in text, text


def the_budget_is_a_share_of_the_cheapest_run(cwd):
    """By the profile four ranks are fastest, 21 ms, with three times the rank-seconds of one, 27 ms: 5 % of their 160 would pay a pilot of four, 5 % of the 51 of one rank pay two at most."""
    write(cwd, profile())
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1,2,4", "--vary", "batch-size=16,8,4", "--global-batch", "16", "--max-steps", "1900", "--pilots", "auto", "--pilot-budget", "5%")
    made = found["pilots"]["made"]
    assert made and made[0]["ranks"] < 4, found["pilots"]


def the_cheapest_number_of_ranks_is_tried_first(cwd):
    """A run measured one rank, the best: by its noise scale more ranks need the same steps, of 31 to 33 ms instead of 27."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    write(cwd, profile())
    base(cwd)
    make_run(cwd, "m1", 1, 500, 0.027, noise=1e-6)
    pilots = plan(cwd, "--goal", "loss=1", "--ranks", "1,2,3,4", "--from", "m1", "--extrapolate", "--pilots", "auto", "--pilot-budget", "100%")["pilots"]
    assert pilots["made"] and pilots["made"][0]["ranks"] == 2 and not pilots["made"][0]["failed"], pilots


def two_ranks_measure_the_noise_scale(cwd):
    """By the profile they are as fast as one: communication is negligible."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    write(cwd, profile(buckets=[{"elements": 1000, "ready": 1, "rows": 0, "columns": 0, "dense": 1000}]))
    os.mkdir(os.path.join(cwd, "temporary"))
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1,2", "--pilots", "auto", "--epochs", "30000", "--pilot-budget", "100%", TMPDIR=os.path.join(cwd, "temporary"))
    made = {q["ranks"]: q for q in found["pilots"]["made"]}
    assert sorted(made) == [1, 2] and not any(q["failed"] for q in made.values()), found["pilots"]
    of_two = next(r for r in found["runs"] if r["ranks"] == 2)
    steps = next(c for c in found["candidates"] if c["ranks"] == 2)["steps"]
    if of_two["noise_scale"]:
        phi = of_two["noise_scale"]
        assert abs(steps["value"] / (3e6 * (1 + phi / 32) / (1 + phi / 16)) - 1) < 1e-6 and "of a pilot" in steps["why"], steps
    else:
        assert steps["value"] is None, steps
    assert os.listdir(os.path.join(cwd, "temporary")) == []


def points_of(folder):
    """(step, loss): means over a twentieth of the run, reduced to at most 200 windows."""
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        loss = [r["loss"] for r in map(json.loads, f) if r["event"] == "step"]
    window = len(loss) // 20 + 5
    points = [(i, sum(loss[i - window:i]) / window) for i in range(window, len(loss) + 1)]
    edges = [i * len(points) // 200 for i in range(201)] if len(points) > 200 else range(len(points) + 1)
    return [tuple(sum(v) / len(v) for v in zip(*points[a:b])) for a, b in zip(edges, edges[1:])]


def power(folder, last):
    """(exponent, means of logarithms) of loss = a step^-b through the second half of the first `last` steps."""
    x, y = zip(*((math.log(i), math.log(v)) for i, v in points_of(folder) if last <= 2 * i <= 2 * last))
    mean = [sum(v) / len(v) for v in (x, y)]
    return sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y)) / sum((a - mean[0]) ** 2 for a in x), mean


def power_steps(folder, goal, last):
    """Steps to a loss by the power law."""
    slope, mean = power(folder, last)
    assert slope < 0, slope
    return max(math.exp((math.log(goal) - mean[1]) / slope + mean[0]), last)


def profile_of(step):
    """Two optimizers whose steps take `step` seconds."""
    return profile(samples=60000, fixed=step, per_sample=1e-6 * step, optimizers=[{**profile()["optimizers"][0], "name": name, "update": 1e-5 * step} for name in ("sgd", "adamw")])


TWO = ["--goal", "train_loss=0.4", "--ranks", "1", "--pilots", "auto", "--vary", "optim=sgd,adamw", "--sched", "cosine", "--warmup-epochs", "0", "--lr", "0.003", "--data", "fashion-mnist"]


def need_fashion_mnist():
    if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
        raise Skip("dataset-fashion-mnist is not installed")


def check_class_steps(cwd, found, made, goal=0.4, why="power law of the loss "):
    """Each class by its own pilot, all through the same steps."""
    folder = {q["setting"]: os.path.join(cwd, "kept", f"pilot-{i + 1}") for i, q in enumerate(made)}
    last = min(points_of(f)[-1][0] for f in folder.values())
    for c in found["candidates"]:
        truth = power_steps(folder[c["setting"]], goal, last)
        assert abs(c["steps"]["value"] / truth - 1) < 1e-3 and why in c["steps"]["why"] and f"by a pilot of {last:.0f} steps" in c["steps"]["why"], (c["steps"], truth)
    assert len({c["steps"]["value"] for c in found["candidates"]}) == 2, found["candidates"]
    return folder


def pilots_predict_the_steps_of_each_optimizer(cwd):
    """sgd and adamw with 330000 steps of 0.1 ms: a sixteenth is 2.06 s, of which 2 pay two starts, and the rest 312 steps of each. So the minimum of 400 is used, with the learning rates of the whole run."""
    need_fashion_mnist()
    write(cwd, profile_of(1e-4))
    found = plan(cwd, "--goal", "train_loss=0.6", *TWO[2:], "--max-steps", "330000", "--pilot-budget", "100%", "--pilot-dir", "kept", "--extrapolate")
    made = [q for q in found["pilots"]["made"] if q["of"] == "loss"]
    assert [q["steps"] for q in made] == [400, 400] and not any(q["failed"] for q in made), found["pilots"]
    assert sorted(q["setting"].split(",")[0] for q in made) == ["adamw", "sgd"] and found["pilots"]["made"][:2] == made, made
    for folder in check_class_steps(cwd, found, made, 0.6).values():
        rates = read(cwd, folder, "step")
        assert abs(rates[-1]["lr"] / 0.003 - 0.5 * (1 + math.cos(math.pi * 399 / 330000))) < 1e-6, rates[-1]["lr"]


@full
def the_first_pilot_leaves_budget_for_the_second(cwd):
    """A profile with six times the true seconds of a step gives the first pilot 3000 steps, and the second fewer; one with a thousand times pays only the first, and steps are the flags'.
    Steps must take equal times in all attempts: on a busy machine it is tried again."""
    need_fashion_mnist()
    words = [*TWO, "--pilot-budget", "100%", "--extrapolate"]
    for _ in range(8):
        write(cwd, profile_of(1e-4))
        short = plan(cwd, *TWO[2:4], "--goal", "loss=0.4", *TWO[4:6], *TWO[8:], "--max-steps", "200000", "--pilot-budget", "100%", "--pilot-dir", "kept")
        step = 6 * short["pilots"]["made"][0]["step_seconds"]
        write(cwd, profile_of(step))
        found = plan(cwd, *words, "--max-steps", str(int(16 * (2 / step + 2 * 3000))), "--pilot-dir", "kept")
        if all(0.7 < 6 * q["step_seconds"] / step < 1.4 for q in found["pilots"]["made"]):
            break
    else:
        raise Skip("equal steps take other times on this machine")
    made = [q for q in found["pilots"]["made"] if q["of"] == "loss"]
    assert len(made) == 2 and not any(q["failed"] for q in made) and abs(made[0]["steps"] - 3000) < 10, (step, found["pilots"])
    assert 400 <= made[1]["steps"] < 2500, (step, made)
    check_class_steps(cwd, found, made)
    write(cwd, profile_of(1000 * step))
    found = plan(cwd, *words, "--max-steps", "8000", "--pilot-dir", "kept")
    assert [q["of"] for q in found["pilots"]["made"]].count("loss") == 1, found["pilots"]
    assert all("as the flags say" in c["steps"]["why"] for c in found["candidates"]), found["candidates"]


def compare_classes(cwd, goal, given, own):
    """Classes are compared at the training loss that is predicted for the flags' own optimizer after their steps. Returns the printed plan."""
    need_fashion_mnist()
    write(cwd, profile_of(1e-4))
    text = plan(cwd, "--goal", goal, *TWO[2:6], "--vary", "optim=adamw,sgd", *TWO[8:], "--optim", given, "--max-steps", "330000", "--pilot-budget", "100%", "--pilot-dir", "kept", "--extrapolate", "--json", "plan.json", json_out=False)
    with open(os.path.join(cwd, "plan.json")) as f:
        found = json.load(f)
    pilots = found["pilots"]
    made = [q for q in pilots["made"] if q["of"] == "loss"]
    assert [q["steps"] for q in made] == [400, 400] and not any(q["failed"] for q in made), pilots
    folder = os.path.join(cwd, "kept", f"pilot-{1 + next(i for i, q in enumerate(made) if q['setting'].startswith(own))}")
    last = points_of(folder)[-1][0]
    slope, mean = power(folder, last)
    loss = math.exp(mean[1] + slope * (math.log(330000) - mean[0]))
    assert abs(pilots["course_loss"] / loss - 1) < 1e-4 and pilots["course_steps"] == 330000 and pilots["course_of"] == f"{own}, flat", (pilots, loss)
    check_class_steps(cwd, found, made, pilots["course_loss"], "to a training loss of ")
    of = {c["optim"]: c["steps"] for c in found["candidates"]}
    assert abs(of[own]["value"] / 330000 - 1) < 1e-6 and all(e["rests_on"] == "model" and "the flags' 330000 steps" in e["why"] for e in of.values()), of
    assert not any((r["points"] and not goal.startswith("train")) or r["steps_to_goal"] for r in found["runs"]), found["runs"]
    return text


def goals_of_evaluations_compare_optimizers_at_the_flags_end(cwd):
    """If the flags' optimizer is not among the choices, at the loss of the first of --vary. A training loss of a pilot below a goal of evaluations does not count."""
    compare_classes(cwd, "loss=9", "sgd", "sgd")
    text = compare_classes(cwd, "top1=75", "adagrad", "adamw")
    assert "are compared at a training loss of " in text and ", predicted of adamw, flat after the 330000 steps that the flags give" in text, text


@full
def a_training_goal_out_of_reach_compares_optimizers_too(cwd):
    compare_classes(cwd, "train_loss=1e-9", "sgd", "sgd")


def a_loss_that_does_not_fall_predicts_nothing(cwd):
    """With learning rate 0 the loss is noise, which rises in these 400 steps: unknown steps if a training loss is the goal, else the flags'."""
    need_fashion_mnist()
    write(cwd, profile_of(1e-4))
    still = ["--lr", "0", "--seed", "2", "--max-steps", "330000", "--pilot-budget", "100%", "--pilot-dir", "kept"]
    found = plan(cwd, *TWO, *still)
    folder = os.path.join(cwd, "kept", "pilot-1")
    assert power(folder, points_of(folder)[-1][0])[0] > 0, found["pilots"]
    assert all(c["steps"]["value"] is None for c in found["candidates"]), found["candidates"]
    found = plan(cwd, "--goal", "loss=0.4", *TWO[2:], *still)
    assert all("as the flags say" in c["steps"]["why"] for c in found["candidates"]) and found["pilots"]["course_loss"] is None, found


def without_pilots_steps_are_those_of_the_flags(cwd):
    """398 steps are too few; and a single class."""
    write(cwd, profile_of(1e-4))
    for more in (["--max-steps", "83184", *TWO], ["--max-steps", "83184", "--goal", "loss=0.4", *TWO[2:]], ["--max-steps", "330000", *TWO[:6], *TWO[8:]]):
        found = plan(cwd, *more, "--pilot-budget", "100%")
        assert not any(q["of"] == "loss" for q in found["pilots"]["made"]), found["pilots"]
        assert all("as the flags say" in c["steps"]["why"] for c in found["candidates"]), found["candidates"]
        assert found["pilots"]["course_loss"] is None and found["pilots"]["course_of"] is None, found["pilots"]


def losses(cwd, number):
    return [r["loss"] for r in read(cwd, f"kept/pilot-{number}", "step")]


def slowdown_of(lossy, lossless):
    """exp(D / b): D the mean of log(loss / loss) at equal steps, b the power of the lossless one, in the second half."""
    last = min(len(lossy), len(lossless))
    steps = [i for i in range(1, last + 1) if 2 * i >= last]
    x, y = [math.log(i) for i in steps], [math.log(lossless[i - 1]) for i in steps]
    mean = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y)) / sum((a - mean[0]) ** 2 for a in x)
    apart = sum(math.log(lossy[i - 1] / lossless[i - 1]) for i in steps) / len(steps)
    assert slope < 0, slope
    return max(1, math.exp(apart / -slope))


LOSSY = ["--ranks-per-node", "1", "--link-between", "1000,0.05", "--comm-model", "1000,0.05", "--hidden", "0", "--batch-size", "128", "--pilots", "auto", *TWO[8:], "--max-steps", "330000",
         "--pilot-budget", "100%", "--pilot-dir", "kept", "--extrapolate"]
OF_TOPK = ["--ranks", "2,8", "--vary", "batch-size=128,32", "--global-batch", "256", "--vary", "compress=off,topk:0.01"]


def prepare_lossy(cwd):
    """Over a link of 1 ms and 0.05 Gbit/s a plain step of two ranks takes 7 ms, top-k 2 and 4 local steps 1.8 each."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    need_fashion_mnist()
    write(cwd, {**profile_of(1e-4), "buckets": [{"elements": 7850, "ready": 1, "rows": 0, "columns": 0, "dense": 7850}]})


def lossy_steps(cwd, name, *more):
    """The slowdown of lossy communication by pilots on two ranks. Returns the estimates of steps, the pilots and the slowdown."""
    found = plan(cwd, "--goal", "loss=0.4", *LOSSY, *more)
    made = found["pilots"]["made"]
    number = {q["setting"]: i + 1 for i, q in enumerate(made) if q["steps"] >= 102 and q["ranks"] == 2}
    assert sorted(number) == ["sgd, flat", name] and not any(q["failed"] for q in made), made
    of = {(c["setting"], c["ranks"]): c["steps"] for c in found["candidates"]}
    truth = slowdown_of(losses(cwd, number[name]), losses(cwd, number["sgd, flat"]))
    assert abs(made[number[name] - 1]["slowdown"] / truth - 1) < 1e-6 and truth > 1.001, (made, truth)
    assert abs(of[name, 2]["value"] / (330000 * truth) - 1) < 1e-6 and of[name, 2]["rests_on"] == "model", (of, truth)
    assert "times those of sgd, flat by a pilot: as the flags say" in of[name, 2]["why"], of
    assert all(q["slowdown"] is None for q in made if "flat" in q["setting"]) and of["sgd, flat", 2]["value"] == 330000, made
    return of, made, truth


@full
def pilots_measure_the_slowdown_of_top_k(cwd):
    """A lossy pilot and a lossless one measure the slowdown; on eight ranks, which are too slow for a pilot, it is a power of the ranks. Never fewer steps."""
    prepare_lossy(cwd)
    name = "sgd, topk 0.01"
    of, made, truth = lossy_steps(cwd, name, *OF_TOPK)
    if not any(q["ranks"] == 8 for q in made):
        assert abs(of[name, 8]["value"] / (330000 * truth ** 3) - 1) < 1e-6 and "by pilots on other ranks" in of[name, 8]["why"], (of, truth)


@full
def pilots_measure_the_slowdown_of_local_steps(cwd):
    """For a run more than twice as long as a pilot it needs --extrapolate, and no pilot is run."""
    prepare_lossy(cwd)
    lossy_steps(cwd, "sgd, local-steps 4", "--ranks", "2", "--vary", "local-steps=0,4")
    found = plan(cwd, "--goal", "loss=0.4", *LOSSY[:-1], "--ranks", "2", "--vary", "local-steps=0,4")
    assert [c["setting"] for c in found["candidates"]] == ["sgd, flat", "sgd, local-steps 4"] and not found["dropped"], found
    assert found["candidates"][1]["steps"]["value"] is None and "a pilot of 200 steps cannot predict 330000; --extrapolate allows it" in found["candidates"][1]["steps"]["why"], found["candidates"]
    assert all(q["setting"] == "sgd, flat" and q["steps"] > 0 for q in found["pilots"]["made"]), "a pilot was run that cannot be used"
    found = plan(cwd, "--goal", "deadline=1d", *LOSSY, *OF_TOPK)  # no metric: the flags' steps, and nothing to compare
    assert all(c["steps"]["value"] == 330000 for c in found["candidates"]) and all(q["slowdown"] is None for q in found["pilots"]["made"]), found["pilots"]


def read(cwd, folder, event):
    with open(os.path.join(cwd, folder, "metrics.jsonl")) as f:
        return [r for r in map(json.loads, f) if r["event"] == event]


AUTO = [*DATA, *LINK, "--plan", "auto", "--goal", "loss=0.5", "--ranks", "1", "--vary", "batch-size=8,32", "--step-profile", "p.json", "--pilots", "auto", "--pilot-budget", "50%", "--epochs", "4",
        "--progress", "off", "--output", "run"]


def plan_auto_trains_with_what_it_chose(cwd):
    """The steps of batch 32 are unknown, so it chooses 8; the flags have 16. A resume repeats the choice without planning."""
    write(cwd, profile())
    out = run(*AUTO, cwd=cwd).stdout
    with open(os.path.join(cwd, "run", "config.yaml")) as f:
        config = f.read()
    assert "\nbatch-size: 8\n" in config and not any(f"\n{key}:" in config for key in ("plan", "goal", "vary", "pilots")), config
    assert re.search("^pilots: [1-9]", out, re.M) and out.splitlines()[-1].endswith("--batch-size=8"), out
    events, epochs = read(cwd, "run", "plan"), read(cwd, "run", "epoch")
    assert [e["step"] for e in events] == [200, 400, 600, 800] == [e["step"] for e in epochs], events
    spent = 0
    for event, epoch in zip(events, epochs):
        spent += epoch["seconds"]
        assert abs(event["measured_seconds"] - spent) < 1e-6 and abs(event["measured_step_seconds"] - spent / event["step"]) < 1e-9, event
        assert abs(event["predicted_seconds"] - 800 * event["predicted_step_seconds"]) < 1e-6 and event["steps"] <= 800, event
        assert abs(event["left_seconds"] - max(event["steps"] - event["step"], 0) * event["measured_step_seconds"]) < 1e-9, event
    more = run(*AUTO, "--epochs", "5", "--resume", "auto", cwd=cwd)
    assert "--plan auto: continues with the flags of run/config.yaml" in more.stderr and "pilots" not in more.stdout, more
    assert read(cwd, "run", "epoch")[-1]["step"] == 1000 and len(read(cwd, "run", "plan")) == 4
    run(*DATA, "--epochs", "1", "--progress", "off", "--output", "usual", cwd=cwd)
    assert not read(cwd, "usual", "plan")


def epochs_predict_the_remaining_steps(cwd):
    """loss = a step^-b predicts the steps to a goal that the epochs approach, at most the run's 800."""
    write(cwd, profile())
    goal = [word.replace("loss=0.5", "loss=1.1145") for word in AUTO]  # 1.1166 after the first epoch, 1.1136 after the fourth
    run(*goal, "--lr", "1e-4", "--warmup-epochs", "0", "--sched", "constant", "--max-steps", "800", cwd=cwd)
    events, epochs = read(cwd, "run", "plan"), read(cwd, "run", "epoch")
    assert [e["steps"] for e in events[:2]] == [800, 800], events  # two points are too few
    x, y = [math.log(e["step"]) for e in epochs], [math.log(e["val_loss"]) for e in epochs]
    mean_x, mean_y = sum(x) / 4, sum(y) / 4
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)
    steps = math.exp((math.log(1.1145) - mean_y) / slope + mean_x)
    assert slope < 0 and steps < 750, (slope, steps)
    assert abs(events[-1]["steps"] / steps - 1) < 1e-6, (events[-1], steps)


def the_plan_s_model_of_the_loss_is_refitted(cwd):
    """Runs on 1, 2 and 4 ranks have log10 loss = 0.6 - 0.4 log i + 0.1 log m; each epoch shifts it to the measured losses, from the first on, where a power law needs three epochs."""
    write(cwd, profile())
    base(cwd)
    for ranks in (1, 2, 4):
        make_run(cwd, f"m{ranks}", ranks, 0, 0.04, losses=[(i, loss_at(i, ranks)) for i in range(10, 310, 10)])
    run(*DATA, *LINK, "--plan", "auto", "--goal", "loss=1.1", "--ranks", "1", "--step-profile", "p.json", "--from", "m1,m2,m4", "--lr", "1e-4", "--epochs", "4", "--progress", "off", "--output", "run", cwd=cwd)
    above = []
    for event, epoch in zip(read(cwd, "run", "plan"), read(cwd, "run", "epoch")):
        above.append(math.log10(epoch["val_loss"] / loss_at(epoch["step"], 1)))
        steps = math.exp((0.6 + sum(above) / len(above) - math.log10(1.1)) / 0.4)
        assert steps < 399 and abs(event["steps"] / steps - 1) < 0.03, (event, steps)
    assert len(above) == 4, above


def plan_auto_with_other_ranks_prints_the_command(cwd):
    write(cwd, profile())
    p = run(*[w.replace("8,32", "16") for w in AUTO], "--ranks", "2", "--pilot-budget", "0.0001%", cwd=cwd, code=USAGE)
    assert "--plan auto: the best candidate has 2 ranks, this run has 1: start it by the command above" in p.stderr, p.stderr
    last = p.stdout.splitlines()[-1]
    assert last.startswith(f"mpirun -n 2 {PROGRAM} ") and "--plan" not in last and "auto" not in last and last.endswith("--batch-size=16"), last
    assert not os.path.exists(os.path.join(cwd, "run"))
    for env, more, says in (({}, ["--pilots", "off"], "--plan auto: no measurements: add runs by --from, or --pilots auto"),
                            ({"OMPI_COMM_WORLD_SIZE": "2"}, [], "each rank plans independently")):
        p = subprocess.run([PROGRAM, *AUTO, *more], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=TIMEOUT)
        assert p.returncode == USAGE and says in p.stderr, p
    fails(*DATA, "--plan", "auto", "--pilots", "auto", "--ranks", "1", "--epochs", "1", cwd=cwd, says="--goal: missing", code=USAGE)
    fails(*DATA, "--plan", "soon", cwd=cwd, says="--plan", code=USAGE)
    text = run("--plan", "auto", "--help", cwd=cwd).stdout
    assert "--pilot-budget" in text and "--plan auto" in text, text


def plan_auto_of_two_ranks_trains(cwd):
    """Each rank plans from the same files: 300 steps with batch 32 are measured, with 16 they are unknown."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    runs(cwd)
    p = subprocess.run([MPIRUN, "-n", "2", PROGRAM, *DATA, *LINK, "--plan", "auto", "--goal", "loss=1", "--ranks", "2", "--vary", "batch-size=8,16", "--from", "m2", "--step-profile", "p.json",
                        "--memory", "4", "--epochs", "2", "--progress", "off", "--output", "run"], cwd=cwd, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == 0, p
    assert p.stdout.count("goal: loss <= 1") == 1 and p.stdout.rstrip().endswith("--batch-size=16"), p.stdout
    with open(os.path.join(cwd, "run", "config.yaml")) as f:
        assert "\nbatch-size: 16\n" in f.read()
    with open(os.path.join(cwd, "run", "env.json")) as f:
        assert json.load(f)["ranks"] == 2
    assert [e["step"] for e in read(cwd, "run", "plan")] == [50, 100]


def bad_input(cwd):
    write(cwd, profile())
    for text in ("0", "-5%", "101%", "much", "5%%", "nan"):
        refuses(cwd, *ONE, "--epochs", "1", "--pilot-budget", text, says=f"--pilot-budget {text}: want percent, above 0 and at most 100")
    refuses(cwd, *ONE, says=["--pilot-budget 5%: the length of the run is unknown", "not enough measurements: no run", "--epochs or --max-steps"])
    refuses(cwd, *ONE, "--epochs", "1", "--simulate", says="--pilots: cannot run with --simulate, which plans for other machines")
    refuses(cwd, *ONE[2:], says="--goal: missing")


ROWS = [a_pilot_measures_what_was_predicted, the_budget_is_kept, the_profile_counts_against_the_budget, a_pilot_that_overruns_is_stopped_and_ignored, a_pilot_that_fails_is_named_and_ignored,
        the_budget_is_a_share_of_the_cheapest_run, the_cheapest_number_of_ranks_is_tried_first, two_ranks_measure_the_noise_scale,
        pilots_predict_the_steps_of_each_optimizer, the_first_pilot_leaves_budget_for_the_second, goals_of_evaluations_compare_optimizers_at_the_flags_end, a_training_goal_out_of_reach_compares_optimizers_too, a_loss_that_does_not_fall_predicts_nothing, without_pilots_steps_are_those_of_the_flags, pilots_measure_the_slowdown_of_top_k, pilots_measure_the_slowdown_of_local_steps, plan_auto_trains_with_what_it_chose, epochs_predict_the_remaining_steps, the_plan_s_model_of_the_loss_is_refitted,
        plan_auto_with_other_ranks_prints_the_command, plan_auto_of_two_ranks_trains, bad_input]


if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-pilots-", sys.argv[3] if len(sys.argv) > 3 else None))
