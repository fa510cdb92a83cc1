#!/usr/bin/env python3
"""optim_replay against the model in tests/oracle, configuration by configuration.

    replay_matrix.py OPTIM_REPLAY [--long]      exit 0: all agree; 77: no numpy here; 1: a difference

All of FIRST_ORDER of tests/oracle/matrix.py, and every third of SINGLE, or all with LATHER_TEST_FULL=1 or --long.

In float64 every parameter after every step agrees to 1e-9 of the tensor's largest value, or to 10 times the effect of
rounding on the configuration (`optim_model.py sensitivity`), if that is more (LARS and LAMB to 1e-12); configurations in which it does
1e-8 or more are counted apart, as they show little, and are compared all the same. In float32 the result is within 1e-4 of
float64 where epsilon is at least 1e-6 and the first roots wait for full rank, see steady(): a rank-deficient factor
amplifies the rounding of its elements by (largest eigenvalue / epsilon)^e.

Controls must be rejected: for each option the program runs with it and the model without it, except some where the two
differ by little. --long: all of tests/oracle/matrix.py on more and longer tensors, at least 120 configurations.
"""
import argparse, json, math, os, subprocess, sys, tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads that wait take the time of others
try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is not installed")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import matrix
import optim_model as model

LAYERWISE = 1e-12       # bound of LARS and LAMB, which decompose no matrix
BOUND, ROUNDING, TELLING, ENOUGH = 1e-9, 10, 1e-8, 120
BOUND_F32, DAMPED = 1e-4, 1e-6
# Pairs: what the program runs, what the model runs.
CLOSE = {
    "another frequency": (matrix.shampoo(precondition_frequency=2), matrix.shampoo(precondition_frequency=3)),
    "decay off by 1/1000": (matrix.shampoo(weight_decay=1e-4, momentum=0.9), matrix.shampoo(weight_decay=1.001e-4, momentum=0.9)),
    "muon's decay off by 1/1000": ({"optim": "muon", "lr": 0.02, "weight_decay": 0.1}, {"optim": "muon", "lr": 0.02, "weight_decay": 0.1001}),
    "muon with all matrices": ({"optim": "muon", "lr": 0.02, "adamw_params": "^m$"}, {"optim": "muon", "lr": 0.02}),
    "lars' coefficient off by 1/1000": ({"optim": "lars", "lr": 1.0, "weight_decay": 0.1}, {"optim": "lars", "lr": 1.0, "weight_decay": 0.1, "trust_coefficient": 0.001001}),
    "lamb without its ratio": ({"optim": "lamb", "lr": 0.01, "weight_decay": 0.0, "always_adapt": True}, {"optim": "lamb", "lr": 0.01, "weight_decay": 0.0}),
    "adafactor's decay off by 1/1000": ({"optim": "adafactor", "lr": 0.05, "beta2_decay": -0.8008}, {"optim": "adafactor", "lr": 0.05}),
    "prodigy's factor off by 1/1000": ({"optim": "prodigy", "lr": 1.0, "d0": 1e-3, "d_coef": 30.03}, {"optim": "prodigy", "lr": 1.0, "d0": 1e-3, "d_coef": 30.0}),
    "lion's beta2 is beta1": ({"optim": "lion", "lr": 0.01, "beta2": 0.9}, {"optim": "lion", "lr": 0.01}),
    "a lookahead of one more step": ({"optim": "sgd", "lr": 0.1, "iterate_averaging": "ema-nesterov", "lookahead_end": 9},
                                     {"optim": "sgd", "lr": 0.1, "iterate_averaging": "ema-nesterov", "lookahead_end": 8}),
    "Adam's epsilon off by 1e-6": ({"optim": "adam", "lr": 0.01}, {"optim": "adam", "lr": 0.01, "epsilon": 1.01e-6}),
}


def run(program, folder, config, dtype):
    paths = [os.path.join(folder, n) for n in ("c.json", "t.safetensors", "r.safetensors")]
    with open(paths[0], "w") as f:
        json.dump(dict(config, dtype=dtype), f)
    subprocess.run([program, "--config", paths[0], "--in", paths[1], "--out", paths[2]], check=True)
    return model.load(paths[2])


def difference(want, got):
    if set(want) != set(got) or any(want[k].shape != got[k].shape for k in want):
        return math.inf
    if not all(np.isfinite(a).all() for a in got.values()):
        return math.inf
    return model.difference(want, {k: a.astype(np.float64) for k, a in got.items()})


def difference_f32(want, got):
    """Relative to a parameter's largest value in all steps: a single weight may pass through 0."""
    if difference(want, got) == math.inf:
        return math.inf
    largest = {}
    for k, a in want.items():
        name = k.split(".", 2)[2]
        largest[name] = max(largest.get(name, 0.0), np.abs(a).max())
    return max(np.abs(want[k] - got[k]).max() / largest[k.split(".", 2)[2]] for k in want)


def steady(config):
    """The same case with small blocks and roots of full-rank factors only; None if float32 is too coarse for it."""
    out = dict(config)
    if config["optim"] != "shampoo":
        return out
    if config.get("epsilon", 1e-12) < DAMPED and config.get("epsilon_rule") != "pseudo_inverse":
        return None
    frequency = config.get("precondition_frequency", 1)
    if config.get("factor_frequency", 1) > 1 and frequency < matrix.FULL:
        return None  # as many gradients as steps do not fill a factor's rank
    out["max_preconditioner_dim"] = min(8, config.get("max_preconditioner_dim", 1024))
    out["start_preconditioning_step"] = max(matrix.FULL, frequency,
                                            config.get("start_preconditioning_step", -1))
    return out


def bound(config, rounding):
    """The tolerance of a difference in float64."""
    return LAYERWISE if config.get("optim") in ("lars", "lamb") else max(BOUND, ROUNDING * (rounding or 0))


class Comparison:
    def __init__(self, program, folder, shapes, steps, everything):
        self.program, self.folder, self.steps, self.all = program, folder, steps, everything
        self.tensors, self.file = matrix.trace(0, shapes, steps), None
        self.failed, self.telling, self.count, self.known = [], 0, 0, {}

    def choose(self, config):
        """The tensors of a configuration: thousands of blocks, or a huge one, show no more than dozens."""
        limit = config.get("max_preconditioner_dim", 1024)
        most = math.inf if 32 <= limit <= 64 else 400
        tensors = {k: a for k, a in self.tensors.items() if self.tensors["param." + k.split(".")[-1]].size < most}
        if self.file != len(tensors):
            model.save(os.path.join(self.folder, "t.safetensors"), tensors)
            self.file = len(tensors)
        return tensors

    def float64(self, ours, theirs):
        """The difference, and what rounding alone does; None, without counting, where the difference is within BOUND anyway."""
        tensors = self.choose(theirs)
        want = model.replay(theirs, tensors)
        found = difference(want, run(self.program, self.folder, ours, "float64"))
        return found, None if found <= BOUND and not self.all else model.sensitivity(theirs, tensors)

    def float32(self, config):
        config = steady(config)
        key = json.dumps(config, sort_keys=True)
        if config and key not in self.known:
            tensors = self.choose(config)
            self.known[key] = difference_f32(model.replay(config, tensors), run(self.program, self.folder, config, "float32"))
        return self.known.get(key, 0.0)

    def row(self, name, config):
        config = matrix.resolved(config, self.steps)
        d64, rounding = self.float64(config, config)
        d32 = self.float32(config)
        self.telling += rounding is not None and rounding < TELLING
        self.report(d64 <= bound(config, rounding) and d32 <= BOUND_F32, name,
                    f"float64 {d64:.1e}, rounding alone {'' if rounding is None else format(rounding, '.1e')}, float32 {d32:.1e}")

    def control(self, name, ours, theirs):
        d64, rounding = self.float64(matrix.resolved(ours, self.steps), matrix.resolved(theirs, self.steps))
        self.report(not d64 <= bound({}, rounding), "control: " + name, f"float64 {d64:.1e}")

    def report(self, passed, name, numbers):
        self.count += 1
        self.failed += [] if passed else [name]
        print(f"{'ok' if passed else 'FAILED':6} {name}: {numbers}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="the whole matrix")
    args = parser.parse_args()
    shapes, steps = (matrix.LONG_SHAPES, matrix.LONG_STEPS) if args.long else (matrix.SHORT_SHAPES, matrix.SHORT_STEPS)
    rows = {**matrix.FIRST_ORDER, **{n: c for n, (c, _) in matrix.SINGLE.items()}}
    controls = dict(CLOSE)
    everything = args.long or os.environ.get("LATHER_TEST_FULL") == "1"
    if not everything:
        rows = {**matrix.FIRST_ORDER, **{name: rows[name] for name in list(matrix.SINGLE)[::3]}}
    if args.long:
        rows.update({**matrix.grid(), **matrix.pairs()})
        controls.update({f"without '{n}'": pair for n, pair in matrix.SINGLE.items()})
    with tempfile.TemporaryDirectory() as folder:
        c = Comparison(args.program, folder, shapes, steps, args.long)
        for name, config in rows.items():
            c.row(name, config)
        for name, (ours, theirs) in controls.items():
            c.control(name, ours, theirs)
    if args.long and c.telling < ENOUGH:
        c.failed.append(f"only {c.telling} configurations in which rounding does less than {TELLING}")
    print(f"{c.count} comparisons, {str(c.telling) + ' of them telling, ' if args.long else ''}{len(c.known)} in float32, {len(c.failed)} failed {c.failed or ''}")
    sys.exit(bool(c.failed))


if __name__ == "__main__":
    main()
