#!/usr/bin/env python3
"""Whether `plan` chooses well: every algorithm at every number of ranks is run to a loss, then `plan` is shown some of
these runs and asked for the rest. Prints two Markdown tables for each problem.

    tools/bench_plan_choice.py --program BUILD/tests/models/train_mlp --output DIR [--problems convex,network] [--part 0.25]
    tools/bench_plan_choice.py --program BUILD/tests/models/train_mlp --output DIR --pilots [--length 2000] [--hidden N] [--lr RATE]

--pilots: of each problem, ranks share --slots cores and a batch of 512, so that more of them pay until the cores are used. `plan --pilots auto` is asked for a run of --length steps (logistic regression: 8 times as many); SGD and Shampoo, gradients sent in
32 and 16 bits (four algorithms), on 1, 2, 4 and 8 ranks. The truth: the mean step of each of the sixteen in runs of some seconds, and the steps to the goal of SGD and of Shampoo, each run once on one rank, as all ranks
together take the same batches. Printed: the table, chosen by best, what pilots and profile took of the chosen run, and what pilots of courses said of the loss at the end of SGD's and
Shampoo's long runs, in log10.

Without it:

Ranks are processes of this machine (mpirun), each a node of its own, a thread each; --comm-model holds their messages back as a slow
link would. A rank has the same batch whatever their number. First table: algorithm, ranks, seconds to the goal
(steps to it, times the mean step); what `plan` says of each from the runs of the same algorithm on the *other*
numbers of ranks. Second: what `plan` chooses from the first --part of the runs on 1, 2 and 8 ranks, as if they had been stopped there, the
seconds that this set-up really took, and those of the best; and what those runs cost beside the chosen one.
Runs are made in --turns parts, each goes on where it was. A run that is in --output is not made again."""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

SIZES = (1, 2, 4, 8)
PILOTS = (1, 2, 8)
WHOLE = 20  # steps, of which Shampoo's roots and local steps are parts
LINK = "200,0.05"
LR = "RATE"  # of the problem
COMMON = ["--batch-size", "16", "--threads", "1", "--workers", "1", "--sched", "constant", "--warmup-epochs", "0", "--label-smoothing", "0",
          "--augment", "none", "--ranks-per-node", "1", "--log-every", "1", "--data", "fashion-mnist"]
ALGORITHMS = {
    "SGD": ["--optim", "sgd", "--lr", LR],
    "SGD, top-k 5 %": ["--optim", "sgd", "--lr", LR, "--compress", "topk:0.05"],
    "SGD, 4 local steps": ["--optim", "sgd", "--lr", LR, "--local-steps", "4", "--outer-lr", "1", "--outer-momentum", "0"],
    "Shampoo": ["--optim", "shampoo", "--lr", LR, "--precondition-frequency", "20", "--weight-decay", "1e-4"],
}
PROBLEMS = {"convex": ["--hidden", "0"], "network": ["--hidden", "32"]}
RATES = {"convex": "0.002", "network": "0.01"}  # at 0.02 logistic regression with a batch of 16 never comes to rest
GOALS = {"convex": "train_loss=0.65", "network": "train_loss=0.55"}


def mpirun(ranks):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_mpi_yield_when_idle="1")
    return ["mpirun", "-n", str(ranks)], env


def needs_nodes(flags):
    return "--compress" in flags or "--local-steps" in flags


def cells(flags_of):
    return [(name, ranks) for name in flags_of for ranks in SIZES if ranks > 1 or not needs_nodes(flags_of[name])]


def flags_of_run(a, problem, name, steps=None):
    own = [RATES[problem] if word == LR else word for word in ALGORITHMS[name]]
    return [*PROBLEMS[problem], *COMMON, *own, "--max-steps", str(steps or a.steps), "--comm-model", LINK]


def folder(a, problem, name, ranks):
    return os.path.join(a.output, problem, f"{list(ALGORITHMS).index(name)}-{ranks}")


def count_steps(folder_of):
    """Of a run that was ended; 0: there is none."""
    try:
        with open(os.path.join(folder_of, "metrics.jsonl"), encoding="utf-8") as f:
            return [json.loads(line)["step"] for line in f if '"event":"step"' in line][-1]
    except (FileNotFoundError, IndexError):
        return 0


def train(a, problem, name, ranks, steps):
    """Goes on up to so many steps, whole periods of roots and local steps; a minute in which the machine has other work so hits a part of each run."""
    out = folder(a, problem, name, ranks)
    if count_steps(out) >= steps:
        return
    words, env = mpirun(ranks)
    done = subprocess.run([*words, a.program, *flags_of_run(a, problem, name, steps), "--eval-every", "-1", "--no-tensorboard", "--progress", "off", "--resume", "auto",
                           "--output", out], capture_output=True, text=True, env=env, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {ranks} ranks: {done.stderr.strip().splitlines()[-1]}")


def cut(source, target, part):
    """A run as it was after the first part of its steps."""
    os.makedirs(target, exist_ok=True)
    for file in ("config.yaml", "env.json"):
        shutil.copy(os.path.join(source, file), target)
    with open(os.path.join(source, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [line for line in f if '"event":"step"' in line or '"event":"resume"' in line]
    with open(os.path.join(target, "metrics.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(lines[:math.ceil(len(lines) * part)])
    return target


def plan(a, problem, runs, ranks, names):
    """What plan says of algorithms on these ranks, from these runs: {(name, ranks): candidate}, the best first."""
    found = {}
    for name in names:  # each with flags of its own: the lists are joined here
        own = [r for r in runs if r[0] == name]
        if not own:
            continue
        some = [str(r) for r in ranks if r > 1 or not needs_nodes(ALGORITHMS[name])]
        words = [a.program, "plan", *flags_of_run(a, problem, name), "--goal", GOALS[problem], "--ranks", ",".join(some), "--slots", str(a.slots), "--one-machine",
                 "--link-between", LINK, "--from", ",".join(r[1] for r in own), "--step-profile",
                 os.path.join(a.output, f"profile-{problem}-{list(ALGORITHMS).index(name)}.json"), "--profile-seconds", "4", "--extrapolate", "--json", "-"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            found[name, 0] = done.stderr.strip().splitlines()[-1]
            continue
        for c in json.loads(done.stdout)["candidates"]:
            found[name, c["ranks"]] = c
    return found


def truth(a, problem):
    """{(name, ranks): (steps, step seconds)} of what was run, as plan reads it."""
    out = {}
    for name in ALGORITHMS:
        runs = [folder(a, problem, name, r) for n, r in cells(ALGORITHMS) if n == name]
        words = [a.program, "plan", *flags_of_run(a, problem, name), "--goal", GOALS[problem], "--ranks", "2", "--from", ",".join(runs), "--step-profile",
                 os.path.join(a.output, f"profile-{problem}-{list(ALGORITHMS).index(name)}.json"), "--profile-seconds", "4", "--extrapolate", "--json", "-"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        for r in json.loads(done.stdout)["runs"]:
            if not r["steps_to_goal"]:
                print(f"{problem}: {name} on {r['ranks']} ranks did not reach {GOALS[problem]} in {a.steps} steps", file=sys.stderr)
            out[name, r["ranks"]] = (r["steps_to_goal"] or math.inf, r["step_seconds"])
    return out


def of_one_rank(a, problem, name):
    """What sends less between nodes loses nothing on one: SGD's run there is one of its runs."""
    return [(name, folder(a, problem, "SGD", 1))] if needs_nodes(ALGORITHMS[name]) else []


def held_out(a, problem, real):
    print(f"\n{problem}: {GOALS[problem]}\n")
    print("| algorithm | ranks | steps | ms a step | seconds | predicted ms | ratio | predicted steps | log10 |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    times, losses = [], []
    for name, ranks in cells(ALGORITHMS):
        steps, seconds = real[name, ranks]
        others = [(name, folder(a, problem, name, r)) for n, r in cells(ALGORITHMS) if n == name and r != ranks] + of_one_rank(a, problem, name)
        c = plan(a, problem, others, [ranks], [name]).get((name, ranks))
        said = c["step_seconds"]["value"] if c else None
        told = c["steps"]["value"] if c else None
        times += [said / seconds] if said else []
        losses += [abs(math.log10(told / steps))] if told and steps < math.inf else []
        print(f"| {name} | {ranks} | {steps:.0f} | {1e3 * seconds:.2f} | {steps * seconds:.2f} | " +
              (f"{1e3 * said:.2f} | {said / seconds:.2f} | " if said else "- | - | ") +
              (f"{told:.0f} | {math.log10(told / steps):+.2f} |" if told and steps < math.inf else "- | - |"))
    if times:
        print(f"\nSeconds of a step: median error {100 * statistics.median(abs(t - 1) for t in times):.0f} %, largest {100 * max(abs(t - 1) for t in times):.0f} %."
              + (f" Steps: mean error {statistics.mean(losses):.2f}, largest {max(losses):.2f} in log10." if losses else ""))


def choice(a, problem, real):
    pilots = [(name, ranks) for name, ranks in cells(ALGORITHMS) if ranks in PILOTS]
    runs = [(name, cut(folder(a, problem, name, ranks), folder(a, problem, name, ranks) + "-part", a.part)) for name, ranks in pilots]
    said = plan(a, problem, runs, SIZES, list(ALGORITHMS))
    known = {k: c["seconds"] for k, c in said.items() if k[1] and c["seconds"]}
    for k, c in said.items():
        if not k[1]:
            print(f"\n{k[0]}: {c}")
    if not known:
        print("\nnothing is known of the steps to the goal")
        return
    chosen = min(known, key=known.get)
    seconds = {k: s * t for k, (s, t) in real.items()}
    best = min(seconds, key=seconds.get)
    cost = sum(r * a.part * a.steps * real[n, r][1] for n, r in pilots)
    print(f"\nChosen from the first {100 * a.part:g} % of the runs on {', '.join(map(str, PILOTS))} ranks: {chosen[0]} on {chosen[1]} ranks, predicted {known[chosen]:.2f} s, "
          f"really {seconds[chosen]:.2f} s; best: {best[0]} on {best[1]} ranks, {seconds[best]:.2f} s. Ratio {seconds[chosen] / seconds[best]:.2f}. "
          f"Those runs took {cost:.0f} rank-seconds, the chosen one {chosen[1] * seconds[chosen]:.0f}.")


# --- Pilots ---

GLOBAL_BATCH = 512
WIDE = ["--threads", "1", "--workers", "1", "--sched", "constant", "--warmup-epochs", "0", "--label-smoothing", "0", "--augment", "none",
        "--data", "fashion-mnist", "--weight-decay", "1e-4"]
# A rate, and how many times --length a run has: a step of logistic regression is short.
PILOT_PROBLEMS = {"convex": ("0.005", 8), "network": ("0.02", 1)}
QUIET = ["--eval-every", "-1", "--no-tensorboard", "--progress", "off", "--overwrite"]


def add_problem_options(p):
    p.add_argument("--hidden", type=int, default=1024, help="units of the network that pilots are of")
    p.add_argument("--lr", help="of SGD and of Shampoo alike")


def flags_of_problem(a, problem):
    return ["--hidden", "0" if problem == "convex" else str(a.hidden), "--lr", a.lr or PILOT_PROBLEMS[problem][0]]


def wide_run(a, problem, optim, dtype, ranks, steps, name):
    """Runs it, or finds it run: a step's mean seconds, as plan takes it, and the losses."""
    out = os.path.join(a.output, problem, name)
    words, env = mpirun(ranks) if ranks > 1 else ([], None)
    if not os.path.exists(os.path.join(out, "model.safetensors")):
        subprocess.run([*words, a.program, *WIDE, *flags_of_problem(a, problem), "--optim", optim, "--grad-comm-dtype", dtype, "--batch-size", str(GLOBAL_BATCH // ranks),
                        "--max-steps", str(steps), "--output", out, *QUIET], check=True, env=env, timeout=7200, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        records = [r for r in map(json.loads, f) if r["event"] == "step"]
    timed = [r["seconds"] for r in records[2:]]
    return sum(timed) / len(timed), [r["loss"] for r in records]


def steps_to(losses, goal, window=None):
    """By the mean of as many losses; None: of the last twentieth, as plan smooths it."""
    window = window or len(losses) // 20 + 5
    for i in range(window, len(losses) + 1):
        if sum(losses[i - window:i]) / window <= goal:
            return i
    return math.inf


def loss_of_pilot(points, last, steps):
    """By a power of the step through the second half of the first `last` steps, as plan reads it; None: it does not fall."""
    x, y = zip(*((math.log(i), math.log(v)) for i, v in points if last <= 2 * i <= 2 * last))
    mean = statistics.mean(x), statistics.mean(y)
    slope = sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y)) / sum((a - mean[0]) ** 2 for a in x)
    return math.exp(mean[1] + slope * (math.log(steps) - mean[0])) if slope < 0 else None


def held_out_losses(said, ends):
    """Of each course's pilot: the loss at the end of the long run, of which the pilot is the beginning. ends: {optimizer: (steps, loss)}."""
    of = {r["setting"].split(",")[0].split(" ")[0]: r["points"] for r in said["runs"] if r["pilot"] and r["points"]}
    last = min((points[-1][0] for points in of.values()), default=0)
    for name, (steps, loss) in ends.items():
        told = loss_of_pilot(of[name], last, steps) if name in of else None
        if told:
            print(f"\nLoss of {name} behind {steps} steps by its pilot of {last:.0f}: {told:.4g}, really {loss:.4g}: {math.log10(told / loss):+.2f} in log10.")


def pilots(a, problem):
    os.makedirs(os.path.join(a.output, problem), exist_ok=True)
    length = PILOT_PROBLEMS[problem][1] * a.length
    _, losses = wide_run(a, problem, "sgd", "f32", 1, length, "long-sgd")
    window = len(losses) // 20 + 5
    goal = sum(losses[-window:]) / window
    steps, ends = {"sgd": steps_to(losses, goal)}, {"sgd": (len(losses), goal)}
    _, losses = wide_run(a, problem, "shampoo", "f32", 1, length // 4, "long-shampoo")
    steps["shampoo"] = steps_to(losses, goal)
    window = len(losses) // 20 + 5
    ends["shampoo"] = (len(losses), sum(losses[-window:]) / window)
    words = [a.program, "plan", *WIDE, *flags_of_problem(a, problem), "--vary", "optim=sgd,shampoo", "--vary", "grad-comm-dtype=f32,bf16", "--vary",
             "batch-size=" + ",".join(str(GLOBAL_BATCH // r) for r in SIZES), "--global-batch", str(GLOBAL_BATCH), "--ranks-per-node", "8", "--ranks", ",".join(map(str, SIZES)), "--goal", f"train_loss={goal:.6g}",
             "--max-steps", str(length), "--slots", str(a.slots), "--profile-seconds", "0.3", "--pilots", "auto", "--pilot-budget", "5%", "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    said = json.loads(done.stdout)
    predicted = {(c["optim"], "16 bit" in c["setting"], c["ranks"]): c for c in said["candidates"]}
    print(f"\n{problem}: {len(predicted)} set-ups. Goal: a training loss of {goal:.4g}\n\n| optimizer | gradients | ranks | ms a step | predicted ms | rests on | steps | seconds |\n| --- | --- | --: | --: | --: | --- | --: | --: |")
    seconds = {}
    for optim in ("sgd", "shampoo"):
        for dtype in ("f32", "bf16"):
            for ranks in SIZES:
                step, _ = wide_run(a, problem, optim, dtype, ranks, 102, f"step-{optim}-{dtype}-{ranks}")  # two whole rounds of roots
                key = (optim, dtype == "bf16", ranks)
                seconds[key] = step * steps[optim]
                c = predicted.get(key)
                print(f"| {optim} | {dtype} | {ranks} | {1e3 * step:.2f} | " + (f"{1e3 * c['step_seconds']['value']:.2f} | {c['step_seconds']['rests_on']}" if c else "- | fell") +
                      (f" | {steps[optim]} | {seconds[key]:.1f} |" if steps[optim] < math.inf else f" | > {length // 4} | > {step * length / 4:.1f} |"))
    first = said["candidates"][0]
    chosen, best = (first["optim"], "16 bit" in first["setting"], first["ranks"]), min(seconds, key=seconds.get)
    run = chosen[2] * seconds[chosen]
    cost, profiled = said["pilots"]["rank_seconds"], said["pilots"]["profile_rank_seconds"]
    for q in said["pilots"]["made"]:
        print(f"\nPilot of a {q['of']}: {q['setting']} on {q['ranks']} ranks, {q['steps']} steps, {q['rank_seconds']:.2f} rank-seconds" + (f": {q['failed']}" if q["failed"] else ""), end="")
    print(f"\n\nNo more: {said['pilots']['no_more']}\n\nChosen: {first['setting']} on {chosen[2]} ranks, {seconds[chosen]:.1f} s; best: {best[0]}, {'bf16' if best[1] else 'f32'}, on {best[2]} ranks, "
          f"{seconds[best]:.1f} s. Ratio {seconds[chosen] / seconds[best]:.2f}. Pilots {cost:.2f} rank-seconds, profile {profiled:.2f}: {100 * cost / run:.1f} % and "
          f"{100 * profiled / run:.1f} % of the chosen run's {run:.0f}.")
    held_out_losses(said, ends)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--output", required=True)
    p.add_argument("--problems", default="convex,network")
    p.add_argument("--steps", type=int, default=400, help="of each run")
    p.add_argument("--turns", type=int, default=1, help="in which these are made, all runs by turns")
    p.add_argument("--part", type=float, default=0.25, help="of a run that plan is shown before it chooses")
    p.add_argument("--goal", action="append", default=[], metavar="PROBLEM:METRIC=VALUE")
    p.add_argument("--pilots", action="store_true", help="let plan make its runs by itself")
    p.add_argument("--length", type=int, default=2000, help="steps of the run that --pilots plans")
    add_problem_options(p)
    p.add_argument("--slots", type=int, default=os.cpu_count(), help="ranks that compute at full speed together")
    a = p.parse_args()
    if a.pilots:
        a.program = os.path.abspath(a.program)
        for problem in a.problems.split(","):
            pilots(a, problem)
        return 0
    GOALS.update(g.split(":", 1) for g in a.goal)
    a.program = os.path.abspath(a.program)
    for problem in a.problems.split(","):
        for part in range(a.turns):
            for name, ranks in cells(ALGORITHMS):
                train(a, problem, name, ranks, a.steps * (part + 1) // a.turns // WHOLE * WHOLE)
        real = truth(a, problem)
        held_out(a, problem, real)
        choice(a, problem, real)
    return 0


if __name__ == "__main__":
    sys.exit(main())
