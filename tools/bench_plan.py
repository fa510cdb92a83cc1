#!/usr/bin/env python3
"""Measures how well `plan` predicts and chooses; prints Markdown tables.

    tools/bench_plan.py steps --build BUILD [--grid 1x1,2x1,4x1,4x2,4x4] [--rate 200mbit] [--only 'two-level;tensor'] [--rounds 3]
    tools/bench_plan.py held-out --program BUILD/tests/models/train_mlp --output DIR [--problems convex,network] [--part 0.25]
    tools/bench_plan.py pilots --program BUILD/tests/models/train_mlp --output DIR [--lossy] [--length N] [--hidden N] [--lr RATE]

steps: seconds of a step on nodes of tools/netbed (as root), predicted by `plan --simulate` from a profile and `bench links` alone.
All nodes share this machine's processors (--slots), and a profile is measured in each round, of one rank among all that run. The
bandwidth between nodes is measured under the traffic of the config (`bench exchange`: two-level, which top-k and owners use too, or
flat), at most the TCP payload of --rate; that of the all-gather of owners by `bench links`. A row is the round with the median of
predicted / measured; it is good between 0.9 and 1.1 if the rows of one rank (1x1), which communicate nothing, are near 1. Exit
status 77: nodes cannot be created here.

held-out: four algorithms train on 1, 2, 4 and 8 ranks to a training loss; `plan` predicts each number of ranks from the runs on the
others, then chooses from the first --part of the runs on 1, 2 and 8 ranks.

pilots: `plan --pilots auto` chooses among SGD and Shampoo with a global batch of 512 on 1, 2, 4 and 8 ranks, with gradients sent in 32
or 16 bits; with --lossy, with plain gradients, top-k of 5 % or 4 local steps over a modelled link. Measured are a step of each candidate,
in whole periods of root refreshes, and the steps of SGD and Shampoo to the loss that SGD has after --length steps (logistic regression:
8 times as many), on one rank, as all ranks together take the same batches. A lossy candidate is only run if it could win with 0.8
times these steps. Also printed: the loss predicted by pilots of optimizers.

Ranks of held-out and pilots are processes of this machine (mpirun) with one thread each. Runs in --output are not repeated."""
import json
import math
import os
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench"))
from turns import MPI, QUIET, bench, command, head, main, nodes, payload_rate, row, run, steps_of, train  # noqa: E402

SIZES = (1, 2, 4, 8)
WARM = 2  # first steps, which are not timed
FLAGS = ["--eval-every", "-1", "--no-tensorboard", "--progress", "off"]
PLAIN = ["--threads", "1", "--workers", "1", "--sched", "constant", "--warmup-epochs", "0", "--label-smoothing", "0", "--augment", "none", "--data", "fashion-mnist"]
POLITE = dict(MPI, OMPI_MCA_mpi_yield_when_idle="1")


def on_ranks(ranks, *words, patience=900):
    """Runs a program on ranks of this machine."""
    run([*(["mpirun", "-n", ranks] if ranks > 1 else []), *words], patience, env=POLITE)


def values(folder, key):
    return [r[key] for r in steps_of(folder)]


# --- steps ---

ROOTS = 3  # steps between refreshes of Shampoo's roots
LEAST_SECONDS = 10  # least duration of the measured steps
NO_LINK = {"latency_us": 1, "gbit": 100, "core_us": 0}
# name: (flags, traffic by which the link is measured)
LEVELS = {"flat": (["--allreduce", "flat"], "flat"), "two-level": (["--allreduce", "two-level"], "two-level"), "topk": (["--compress", "topk:0.01"], "two-level")}


class Model:
    """A program with its model and data; period: steps between refreshes of roots."""

    def __init__(self, a, folder, program, words, optim=("sgd",), period=1):
        self.path = os.path.join(a.build, "models", program)
        self.a, self.folder, self.period = a, folder, period
        self.words = [*words, "--optim", *optim, "--threads", "1", "--workers", "1"]
        self.profile = os.path.join(folder, f"{os.path.basename(program)}-{optim[0]}.json")

    def length(self, step_seconds):
        steps = max(self.a.steps, math.ceil(LEAST_SECONDS / step_seconds))
        return ["--max-steps", str(-(-steps // self.period) * self.period + WARM)]

    def plan(self, *words):
        return run([self.path, "plan", *self.words, "--goal", "deadline=1d", "--step-profile", self.profile, *self.length(1), *words], self.a.patience, env=QUIET)

    def measure_profile(self, ranks):
        if os.path.exists(self.profile):
            os.remove(self.profile)
        self.plan("--profile-seconds", str(self.a.profile_seconds), "--profile-ranks", str(ranks))

    def predict(self, nodes, ranks, links, flags):
        """The system model's parts. Tensor parallelism is planned next to the plain config, or its rejection would be an error."""
        file = os.path.join(self.folder, "links.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump({kind: links.get(kind) or NO_LINK for kind in ("within", "between")}, f)
        is_tensor = flags[:1] == ["--tensor-parallel"]
        said = json.loads(self.plan(*(["--vary", f"tensor-parallel=1,{flags[1]}"] if is_tensor else flags), "--simulate", "--ranks", str(nodes * ranks), "--ranks-per-node", str(ranks),
                                    "--link", file, "--slots", f"{os.cpu_count() / nodes:g}", "--json", "-"))
        return next(c["modelled"] for c in [*said["candidates"], *said["dropped"]] if ("tensor" in c["setting"]) == is_tensor)

    def measure(self, flags, launcher, about):
        """The seconds of each period, per step."""
        records = train(self.path, *self.words, *flags, *self.length(about), launcher=launcher, skipped=WARM, patience=self.a.patience, env=dict(os.environ))
        seconds = [r["seconds"] for r in records]
        return [statistics.mean(seconds[i:i + self.period]) for i in range(0, len(seconds), self.period)]


def rows_of(a, models, nodes, ranks):
    """(name, model, flags, traffic) of a grid."""
    images, words, shampoo = models
    if nodes * ranks == 1:
        rows = [("one rank", images, [], None), ("one rank of GPT", words, [], None), ("one rank, owner", shampoo, [], None)]
    else:
        rows = [(name, images, *LEVELS[name]) for name in LEVELS if name == "flat" or (nodes > 1 and (ranks > 1 or name == "topk"))]
        rows += [(f"tensor {n}", words, ["--tensor-parallel", str(n)], "flat") for n in (2, 4) if n == nodes * ranks]
        rows.append(("owners", shampoo, ["--shard-optimizer"], "two-level"))
    return [r for r in rows if not a.only or any(w in r[0] for w in a.only.split(";"))]


def measure_links(a, to, nodes_count, ranks):
    """{traffic: links}, the best of three tries, as other load only slows a link."""
    best, found = {}, {}
    for kind, count in (("within", 2), ("between", ranks + 1)):
        tries = [bench(a.build, "links", "--threads", 1, launcher=[*to, "-n", count, "--"], patience=a.patience).get(kind) for _ in range(3)]
        if any(tries):
            best[kind] = {"gbit": max(t["gbit"] for t in tries), **{key: min(t[key] for t in tries) for key in ("latency_us", "core_us", "core_us_mib")}}
    for traffic in ("flat", "two-level") if ranks > 1 and nodes_count > 1 else ("flat",):
        said = bench(a.build, "exchange", "--threads", 1, "--elements", 3200000, "--steps", 3, "--reducer", traffic, launcher=[*to, "--"], patience=a.patience)
        busy = 8e-6 * said["reducers"][0]["bytes_between"] / nodes_count / said["reducers"][0]["milliseconds"]
        gbit = min(payload_rate(a.rate), busy)
        found[traffic] = {**best, "between": {**best["between"], "gbit": gbit, "gather_gbit": max(gbit, best["between"]["gbit"])}}
        print(f"{nodes_count}x{ranks} {traffic}: {found[traffic]}", file=sys.stderr, flush=True)
    return found


def measure_grid(a, rows, grid, links, launcher):
    nodes_count, ranks = grid
    rounds = [[] for _ in rows]  # (ratio, predicted, measured seconds) of each row
    for _ in range(a.rounds):
        for model in dict.fromkeys(row[1] for row in rows):
            model.measure_profile(nodes_count * ranks)
        for (name, model, flags, traffic), found in zip(rows, rounds):
            cost = model.predict(nodes_count, ranks, links.get(traffic) or links.get("flat", {}), flags)
            taken = model.measure(flags, launcher, cost["seconds"])
            found.append((cost["seconds"] / statistics.median(taken), cost, taken))
            print(f"{nodes_count}x{ranks} {name}: predicted / measured {found[-1][0]:.2f}", file=sys.stderr, flush=True)
    for (name, *_), found in zip(rows, rounds):
        ratio, cost, taken = sorted(found, key=lambda f: f[0])[(len(found) - 1) // 2]
        parts = [cost[k] for k in ("compute", "update", "exposed", "waiting", "seconds")] + [statistics.median(taken), min(taken)]
        row(f"{nodes_count}x{ranks}", name, *(f"{1e3 * part:.0f}" for part in parts), f"{ratio:.2f}")


@command(build=str, grid="1x1,2x1,4x1,4x2,4x4", rate="200mbit", burst=131072, steps=6, rounds=3, profile_seconds=10.0, only="", patience=400.0)
def steps(a):
    a.build = os.path.abspath(a.build)
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("the quick brown fox jumps over the lazy dog. " * (205 * (max(a.steps, 100) + WARM) + 100))
        data = ["--data", "synthetic:20000:32:100", "--arch", "resnet18", "--batch-size", "4"]
        gpt = ["--data", text, "--seq-len", "128", "--positions", "128", "--layers", "4", "--width", "256", "--heads", "4", "--batch-size", "8"]
        models = (Model(a, folder, "resnet50/train_resnet50", data), Model(a, folder, "gpt/train_gpt", gpt),
                  Model(a, folder, "resnet50/train_resnet50", data, ["shampoo", "--max-preconditioner-dim", "256", "--precondition-frequency", str(ROOTS)], ROOTS))
        print(f"{os.cpu_count()} processors for all ranks, {a.rate} between nodes, ResNet-18 on 32 x 32, 4 images a rank; a GPT of 4 layers of width 256, 8 x 128 tokens a replica; ms; "
              f"{a.rounds} rounds of {a.steps} steps\n")
        head("grid", "config", "computing", "update", "exposed", "waiting", "predicted", "measured", "fastest", "predicted / measured")
        for grid in (tuple(map(int, g.split("x"))) for g in a.grid.split(",")):
            rows = rows_of(a, models, *grid)
            if grid == (1, 1):
                measure_grid(a, rows, grid, {}, [])
                continue
            with nodes("plan", *grid, a.rate, "--burst", a.burst) as to:
                measure_grid(a, rows, grid, measure_links(a, to, *grid), [*to, "--"])


# --- held-out ---

PERIOD = 20  # steps, a multiple of Shampoo's periods and of rounds of local steps
LINK = "200,0.05"
ALGORITHMS = {"SGD": ["--optim", "sgd"], "SGD, top-k 5 %": ["--optim", "sgd", "--compress", "topk:0.05"],
              "SGD, 4 local steps": ["--optim", "sgd", "--local-steps", "4", "--outer-lr", "1", "--outer-momentum", "0"],
              "Shampoo": ["--optim", "shampoo", "--precondition-frequency", "20", "--weight-decay", "1e-4"]}
# flags and goal
PROBLEMS = {"convex": (["--hidden", "0", "--lr", "0.002"], "train_loss=0.65"), "network": (["--hidden", "32", "--lr", "0.01"], "train_loss=0.55")}


class Algorithm:
    """An algorithm with its runs on several numbers of ranks."""

    def __init__(self, a, problem, name):
        self.a, self.problem, self.name = a, problem, name
        self.ranks = SIZES if name in ("SGD", "Shampoo") else SIZES[1:]  # the others need several nodes
        self.words = [*PROBLEMS[problem][0], *PLAIN, *ALGORITHMS[name], "--batch-size", "16", "--ranks-per-node", "1", "--log-every", "1", "--comm-model", LINK]

    def folder(self, ranks):
        return os.path.join(self.a.output, self.problem, f"{list(ALGORITHMS).index(self.name)}-{ranks}")

    def train(self, ranks, count):
        """Continues the run up to `count` steps."""
        if len(steps_of(self.folder(ranks))) < count:
            on_ranks(ranks, self.a.program, *self.words, "--max-steps", count, *FLAGS, "--resume", "auto", "--output", self.folder(ranks))

    def cut(self, ranks):
        """A copy of the run as it was after the first part of its steps."""
        source, target = self.folder(ranks), self.folder(ranks) + "-part"
        os.makedirs(target, exist_ok=True)
        for file in ("config.yaml", "env.json"):
            shutil.copy(os.path.join(source, file), target)
        with open(os.path.join(source, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [line for line in f if '"event":"step"' in line or '"event":"resume"' in line]
        with open(os.path.join(target, "metrics.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(lines[:math.ceil(len(lines) * self.a.part)])
        return target

    def plan(self, folders, ranks):
        profile = os.path.join(self.a.output, f"profile-{self.problem}-{list(ALGORITHMS).index(self.name)}.json")
        return json.loads(run([self.a.program, "plan", *self.words, "--max-steps", str(self.a.steps), "--goal", PROBLEMS[self.problem][1], "--ranks", ",".join(map(str, ranks)), "--slots", str(self.a.slots),
                                "--one-machine", "--link-between", LINK, "--from", ",".join(folders), "--step-profile", profile, "--profile-seconds", "4", "--extrapolate", "--json", "-"], 300))


def print_held_out(all_of, real):
    """Predictions of each number of ranks from the runs on the others; of lossy algorithms also from SGD's run on one rank."""
    print("| algorithm | ranks | steps | ms a step | seconds | predicted ms | ratio | predicted steps | log10 |\n| --- |" + " --: |" * 8)
    times, losses = [], []
    for of in all_of:
        for ranks in of.ranks:
            count, seconds = real[of.name, ranks]
            others = [of.folder(r) for r in of.ranks if r != ranks] + ([] if of.ranks == SIZES else [all_of[0].folder(1)])
            (c,) = of.plan(others, [ranks])["candidates"] or [None]
            said, told = (c["step_seconds"]["value"], c["steps"]["value"]) if c else (None, None)
            is_known = told and count < math.inf
            times += [said / seconds] if said else []
            losses += [abs(math.log10(told / count))] if is_known else []
            print(f"| {of.name} | {ranks} | {count:.0f} | {1e3 * seconds:.2f} | {count * seconds:.2f} | " + (f"{1e3 * said:.2f} | {said / seconds:.2f} | " if said else "- | - | ") +
                  (f"{told:.0f} | {math.log10(told / count):+.2f} |" if is_known else "- | - |"))
    print(f"\nSeconds of a step: median error {100 * statistics.median(abs(t - 1) for t in times):.0f} %, largest {100 * max(abs(t - 1) for t in times):.0f} %."
          + (f" Steps: mean error {statistics.mean(losses):.2f}, largest {max(losses):.2f} in log10." if losses else ""))


SHARED = {"program": str, "output": str, "problems": "convex,network", "slots": os.cpu_count()}


@command(**SHARED, steps=400, part=0.25)
def held_out(a):
    a.program = os.path.abspath(a.program)
    for problem in a.problems.split(","):
        all_of = [Algorithm(a, problem, name) for name in ALGORITHMS]
        for of in all_of:
            for ranks in of.ranks:
                of.train(ranks, a.steps // PERIOD * PERIOD)
        real = {(of.name, r["ranks"]): (r["steps_to_goal"] or math.inf, r["step_seconds"]) for of in all_of for r in of.plan([of.folder(r) for r in of.ranks], [2])["runs"]}
        print(f"\n{problem}: {PROBLEMS[problem][1]}\n")
        print_held_out(all_of, real)
        shown = [(of, ranks) for of in all_of for ranks in of.ranks if ranks != 4]
        known = {(of.name, c["ranks"]): c["seconds"] for of in all_of for c in of.plan([of.cut(r) for o, r in shown if o is of], of.ranks)["candidates"] if c["seconds"]}
        if not known:
            print("\nno candidate has known steps to the goal")
            continue
        seconds = {k: count * step for k, (count, step) in real.items()}
        chosen, best = min(known, key=known.get), min(seconds, key=seconds.get)
        cost = sum(ranks * a.part * a.steps * real[of.name, ranks][1] for of, ranks in shown)
        print(f"\nChosen from the first {100 * a.part:g} % of the runs on 1, 2 and 8 ranks: {chosen[0]} on {chosen[1]} ranks, predicted {known[chosen]:.2f} s, measured {seconds[chosen]:.2f} s; best: {best[0]} on "
              f"{best[1]} ranks, {seconds[best]:.2f} s. Ratio {seconds[chosen] / seconds[best]:.2f}. Those runs took {cost:.0f} rank-seconds, the chosen one {chosen[1] * seconds[chosen]:.0f}.")


# --- pilots ---

GLOBAL_BATCH = 512
OPTIMIZERS = ("sgd", "shampoo")
RATES = {"convex": ("0.005", 8), "network": ("0.02", 1)}  # learning rate, factor of --length
LOSSLESS = {"f32": [], "bf16": ["--grad-comm-dtype", "bf16"]}
LOSSY = {"plain": [], "top-k 5 %": ["--compress", "topk:0.05"], "4 local steps": ["--local-steps", "4"]}
TIMED = 100 + WARM  # two whole periods of roots and of local steps
LEAST = 0.8  # least ratio to the optimizer's dense steps: a lossy candidate is not expected to need fewer


def tail(losses):
    window = len(losses) // 20 + 5
    return sum(losses[-window:]) / window


def steps_to(losses, goal, window):
    """Steps until the mean loss over a window, smoothed as in `plan`, reaches the goal."""
    return next((i for i in range(window, len(losses) + 1) if sum(losses[i - window:i]) / window <= goal), math.inf)


def fit_power(points):
    """(slope, mean of log step, mean of log loss)."""
    x, y = zip(*((math.log(i), math.log(v)) for i, v in points))
    mean = statistics.mean(x), statistics.mean(y)
    return sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y)) / sum((a - mean[0]) ** 2 for a in x), *mean


class Pilots:
    """A problem with its measured runs; a cell is (optimizer, kind of gradients, ranks)."""

    def __init__(self, a, problem):
        self.a, self.problem, self.kinds = a, problem, LOSSY if a.lossy else LOSSLESS
        self.words = [*PLAIN, "--weight-decay", "1e-4", "--hidden", "0" if problem == "convex" else str(a.hidden), "--lr", a.lr or RATES[problem][0]]
        self.words += ["--ranks-per-node", "1", "--comm-model", a.link] if a.lossy else []
        self.length = RATES[problem][1] * a.length
        self.cells = [(o, kind, r) for o in OPTIMIZERS for kind in self.kinds for r in SIZES if r > 1 or not a.lossy or kind == "plain"]

    def folder(self, what, cell):
        return os.path.join(self.a.output, self.problem, f"{what}-{cell[0]}-{list(self.kinds).index(cell[1])}-{cell[2]}")

    def train(self, what, cell, count):
        """Returns a step's mean seconds, as plan counts them, and the losses."""
        out = self.folder(what, cell)
        if len(steps_of(out)) < count:
            on_ranks(cell[2], self.a.program, *self.words, "--optim", cell[0], *self.kinds[cell[1]], "--batch-size", GLOBAL_BATCH // cell[2], "--max-steps", count,
                     "--output", out, "--overwrite", *FLAGS, patience=7200)
        return statistics.mean(values(out, "seconds")[WARM:]), values(out, "loss")[:count]

    def add_lossy_steps(self, goal, window, found, step):
        """Runs the lossy cells that may win, the fastest first; found[cell] = None for the others."""
        best = min(step[c] * found[c[0]] for c in self.cells if c[1] == "plain")
        for cell in sorted((c for c in self.cells if c[1] != "plain"), key=lambda c: step[c] * min(found[c[0]], self.length)):
            found[cell] = None
            if LEAST * step[cell] * min(found[cell[0]], self.length) < best:
                found[cell] = steps_to(self.train("long", cell, math.ceil(best / step[cell] / 100) * 100)[1], goal, window)
                best = min(best, step[cell] * found[cell])

    def plan(self, goal):
        vary = ["--vary", "compress=off,topk:0.05", "--vary", "local-steps=0,4", "--one-machine", "--link-between", self.a.link] if self.a.lossy else ["--vary", "grad-comm-dtype=f32,bf16", "--ranks-per-node", "8"]
        return json.loads(run([self.a.program, "plan", *self.words, *vary, "--vary", "optim=sgd,shampoo", "--vary", "batch-size=" + ",".join(str(GLOBAL_BATCH // r) for r in SIZES), "--global-batch", str(GLOBAL_BATCH),
                                "--ranks", ",".join(map(str, SIZES)), "--goal", f"train_loss={goal:.6g}", "--max-steps", str(self.length), "--slots", str(self.a.slots), "--profile-seconds", "0.3", "--pilots", "auto",
                                "--pilot-budget", "5%", "--json", "-"], 300))

    def cell_of(self, c):
        if not self.a.lossy:
            return c["optim"], "bf16" if "16 bit" in c["setting"] else "f32", c["ranks"]
        return c["optim"], {"topk": "top-k 5 %", "local-steps": "4 local steps"}.get(c["exchange"], "plain") if c["ranks"] > 1 else "plain", c["ranks"]

    def report(self, goal, said, step, found):
        predicted, seconds = {}, {}
        for c in said["candidates"]:
            predicted.setdefault(self.cell_of(c), c)
        print(f"\n{self.problem}: {len(step)} candidates. Goal: a training loss of {goal:.4g}\n\n| optimizer | gradients | ranks | ms a step | predicted ms | rests on | steps | predicted steps | log10 | seconds |\n"
              "| --- | --- | --: | --: | --: | --- | --: | --: | --: | --: |")
        for cell in self.cells:
            count, c = found.get(cell, found[cell[0]]), predicted.get(cell)
            is_known, told = count is not None and math.isfinite(count), c["steps"]["value"] if c else None
            seconds[cell] = step[cell] * count if is_known else math.inf
            print(f"| {cell[0]} | {cell[1]} | {cell[2]} | {1e3 * step[cell]:.2f} | " + (f"{1e3 * c['step_seconds']['value']:.2f} | {c['step_seconds']['rests_on']}" if c else "- | rejected") +
                  f" | {'-' if count is None else count if is_known else 'more'} | {f'{told:.0f}' if told else '-'} | {f'{math.log10(told / count):+.2f}' if told and is_known else '-'} | "
                  f"{f'{seconds[cell]:.1f}' if is_known else '-'} |")
        for q in said["pilots"]["made"]:
            print(f"\nPilot for the {q['of']}: {q['setting']} on {q['ranks']} ranks, {q['steps']} steps, {q['rank_seconds']:.2f} rank-seconds" +
                  (f", {q['slowdown']:.3f} times the steps" if q["slowdown"] else "") + (f": {q['failed']}" if q["failed"] else ""), end="")
        chosen, best = self.cell_of(said["candidates"][0]), min(seconds, key=seconds.get)
        run, cost, profile = chosen[2] * seconds[chosen], said["pilots"]["rank_seconds"], said["pilots"]["profile_rank_seconds"]
        print(f"\n\nEnded: {said['pilots']['no_more']}\n\nChosen: {', '.join(chosen[:2])}, on {chosen[2]} ranks, {seconds[chosen]:.1f} s; best: {', '.join(best[:2])}, on {best[2]} ranks, {seconds[best]:.1f} s. Ratio "
              f"{seconds[chosen] / seconds[best]:.2f}. Pilots {cost:.2f} rank-seconds, profile {profile:.2f}: {100 * cost / run:.1f} % and {100 * profile / run:.1f} % of the chosen run's {run:.0f}.")

    def report_losses(self, said, ends):
        """The loss at the end of the long run of each optimizer, predicted by the power law of its pilot. ends: {optimizer: losses}."""
        of = {r["setting"].split(",")[0].split(" ")[0]: r["points"] for r in said["runs"] if r["pilot"] and r["points"]}
        last = min((points[-1][0] for points in of.values()), default=0)
        for name, losses in ends.items():
            slope, x, y = fit_power([p for p in of[name] if last <= 2 * p[0] <= 2 * last]) if name in of else (0, 0, 0)
            if slope < 0:
                told = math.exp(y + slope * (math.log(len(losses)) - x))
                print(f"\nLoss of {name} after {len(losses)} steps by its pilot of {last:.0f}: {told:.4g}, measured {tail(losses):.4g}: {math.log10(told / tail(losses)):+.2f} in log10.")

    def report_slowdowns(self):
        """The slowdown of each long lossy run by its first steps, as lossy_trials.c computes it."""
        lengths = (100, 200, 400, 1000, 2000, 4000)
        print("\n| slowdown by the first steps | " + " | ".join(map(str, lengths)) + " |\n| --- |" + " --: |" * len(lengths))
        for cell in (c for c in self.cells if c[1] != "plain" and values(self.folder("long", c), "loss")):
            lossy, lossless = (values(self.folder("long", c), "loss") for c in (cell, (cell[0], "plain", 1)))
            values = ["-"] * len(lengths)
            for k, half in enumerate(range((n + 1) // 2, n + 1) for n in lengths if n <= len(lossy)):
                slope = fit_power([(i, lossless[i - 1]) for i in half])[0]
                apart = statistics.mean(math.log(lossy[i - 1] / lossless[i - 1]) for i in half)
                values[k] = f"{max(1, math.exp(-apart / slope)):.3f}" if slope < 0 else "-"
            print(f"| {', '.join(cell[:2])}, {cell[2]} ranks | " + " | ".join(values) + " |")

    def run(self):
        os.makedirs(os.path.join(self.a.output, self.problem), exist_ok=True)
        plain = next(iter(self.kinds))
        ends = {o: self.train("long", (o, plain, 1), self.length if o == "sgd" else self.length // 4)[1] for o in OPTIMIZERS}
        goal, window = tail(ends["sgd"]), len(ends["sgd"]) // 20 + 5
        found = {o: steps_to(losses, goal, window) for o, losses in ends.items()}
        step = {cell: self.train("step", cell, TIMED)[0] for cell in self.cells}
        if self.a.lossy:
            self.add_lossy_steps(goal, window, found, step)
            self.report_slowdowns()
        said = self.plan(goal)
        self.report(goal, said, step, found)
        self.report_losses(said, ends)


@command(**SHARED, length=2000, hidden=1024, lr="", link="50,10", lossy=False)
def pilots(a):
    a.program = os.path.abspath(a.program)
    for problem in a.problems.split(","):
        Pilots(a, problem).run()


if __name__ == "__main__":
    sys.exit(main(__doc__, steps, held_out, pilots))
