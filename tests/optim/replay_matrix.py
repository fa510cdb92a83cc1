#!/usr/bin/env python3
"""optim_replay against the model in tests/oracle, configuration by configuration.

    replay_matrix.py OPTIM_REPLAY [--long]      exit 0: all agree; 77: no numpy here; 1: a difference

In float64 every parameter after every step agrees to 1e-9 of the tensor's largest value, or to 10 times what
rounding alone does to the configuration (`optim_model.py sensitivity`), if that is more: with epsilon >= 1e-6 it
almost never is. In float32 the result is within 1e-4 of float64 where the configuration does not amplify rounding
(rank-deficient factors with a small epsilon do). Controls are configurations that the program gets
wrong on purpose; a control that passes fails the run.
"""
import argparse, json, math, os, subprocess, sys, tempfile

try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is not installed")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import optim_model as model

BOUND, ROUNDING = 1e-9, 10
BOUND_F32, STABLE = 1e-4, 1e-13       # float32 is compared where rounding in float64 stays below STABLE
SHAPES = {"v": (7,), "m": (5, 6), "tall": (9, 4), "conv": (6, 3, 3, 3), "five": (2, 3, 2, 1, 3), "one": (1,), "scalar": (),
          "wide": (3, 17)}


def shampoo(**keys):
    return dict({"optim": "shampoo", "lr": 0.05, "epsilon": 1e-6, "beta2": 0.99, "max_preconditioner_dim": 8}, **keys)


FIRST_ORDER = {
    "sgd": {"optim": "sgd", "lr": 0.1},
    "sgd momentum": {"optim": "sgd", "lr": 0.1, "momentum": 0.9},
    "sgd nesterov decay": {"optim": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
    "sgd dampening": {"optim": "sgd", "lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "sgd dampening and nesterov": {"optim": "sgd", "lr": 0.1, "momentum": 0.8, "dampening": 0.1, "nesterov": True},
    "adagrad": {"optim": "adagrad", "lr": 0.1},
    "adagrad decay": {"optim": "adagrad", "lr": 0.1, "epsilon": 1e-6, "weight_decay": 0.1},
    "adam": {"optim": "adam", "lr": 0.01},
    "adam decay, other betas": {"optim": "adam", "lr": 0.01, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.1},
    "adamw": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "adamw under a schedule": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1, "lr_schedule": "ramp"},
}
SHAMPOO = {
    "sum of gradients": shampoo(beta2=1.0),
    "first-order defaults but epsilon": {"optim": "shampoo", "lr": 0.01, "epsilon": 1e-6},
    "moving average": shampoo(),
    "roots every 3 steps": shampoo(precondition_frequency=3),
    "first roots at step 5, then every 3": shampoo(precondition_frequency=3, start_preconditioning_step=5, grafting="adam"),
    "no grafting before a late start": shampoo(precondition_frequency=2, start_preconditioning_step=6),
    "sgd grafting, nesterov": shampoo(grafting="sgd", momentum=0.9, nesterov=True),
    "adagrad grafting, heavy ball": shampoo(grafting="adagrad", momentum=0.9),
    "rmsprop grafting, no bias correction": shampoo(grafting="rmsprop", use_bias_correction=False),
    "adam grafting, own betas": shampoo(grafting="adam", grafting_beta2=0.95, grafting_epsilon=1e-8, beta1=0.5),
    "no filter": shampoo(beta1=0.0, grafting="sgd"),
    "look-ahead filter": shampoo(beta3=0.81),
    "dampening": shampoo(momentum=0.9, dampening=0.5, nesterov=True),
    "drop weighting": shampoo(drop_weighting=True, beta2=0.9),
    "decay: l2": shampoo(weight_decay=0.1, weight_decay_type="l2", grafting="adam"),
    "decay: decoupled": shampoo(weight_decay=0.1, grafting="sgd", momentum=0.9),
    "decay: corrected, schedule": shampoo(weight_decay=0.1, weight_decay_type="corrected", lr_schedule="ramp"),
    "decay: independent, schedule": shampoo(weight_decay=0.01, weight_decay_type="independent", lr_schedule="ramp"),
    "exponent by order": shampoo(inverse_exponent={"2": 0.5}),
    "exponent 0 for vectors": shampoo(inverse_exponent={"1": {"0": 0}}),
    "exponents by dimension": shampoo(inverse_exponent={"3": {"0": 0, "1": 0.25}}, merge_order="forward",
                                      max_preconditioner_dim=9),
    "epsilon after": shampoo(epsilon_rule="after"),
    "pseudo-inverse of a sum": shampoo(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_rtol=1e-3, beta2=1.0),
    "pseudo-inverse, absolute cut": shampoo(epsilon_rule="pseudo_inverse", epsilon=1e-6, rank_atol=0.5),
    "trace scaling": shampoo(trace_scaling=0.5),
    "merge forward": shampoo(merge_order="forward", max_preconditioner_dim=12),
    "merge to three dimensions": shampoo(target_dimensionality=3, max_preconditioner_dim=64),
    "blocks of 2": shampoo(max_preconditioner_dim=2, grafting="adam"),
    "blocks of 1": shampoo(max_preconditioner_dim=1),
    "one block each": shampoo(max_preconditioner_dim=1024, grafting="adagrad"),
    "eigendecomposed": shampoo(preconditioner="eigendecomposed", precondition_frequency=2),
    "eigenvalue-corrected": shampoo(preconditioner="eigenvalue_corrected", precondition_frequency=9, epsilon=1e-6),
    "eigenvalue-corrected, exponent 0.4": shampoo(preconditioner="eigenvalue_corrected", precondition_frequency=9,
                                                  inverse_exponent={"2": 0.4}, beta2=1.0),
    "eigenvalue-corrected, grafted": shampoo(preconditioner="eigenvalue_corrected", precondition_frequency=9, grafting="adam"),
    "kl": shampoo(preconditioner="kl", precondition_frequency=2),
    "kl, exponent 1/2": shampoo(preconditioner="kl", inverse_exponent={"2": 0.5, "1": 0.5}, beta2=0.9, epsilon=1e-4),
}
# Pairs: what the program runs, what the model runs.
CONTROLS = {
    "control: another frequency": (shampoo(precondition_frequency=2), shampoo(precondition_frequency=3)),
    "control: decay outside of momentum": (shampoo(weight_decay=1e-4, momentum=0.9), shampoo(weight_decay=1.001e-4, momentum=0.9)),
    "control: Adam's epsilon off by 1e-6": ({"optim": "adam", "lr": 0.01}, {"optim": "adam", "lr": 0.01, "epsilon": 1.01e-6}),
}
STEPS = 14


def trace(seed):
    """Full-rank gradients but for long thin shapes; some are missing."""
    rng, tensors = np.random.default_rng(seed), {}
    for name, shape in SHAPES.items():
        tensors["param." + name] = np.asarray(rng.standard_normal(shape))
    for t in range(1, STEPS + 1):
        for i, (name, shape) in enumerate(SHAPES.items()):
            g = np.asarray(rng.standard_normal(shape))
            if not (t % 5 == 0 and i % 3 == t // 5 % 3) and not (t == 1 and name == "tall"):
                tensors[f"grad.{t}.{name}"] = g
    return tensors


def resolved(config):
    out = dict(config)
    if out.get("lr_schedule") == "ramp":
        out["lr_schedule"] = [out["lr"] * min(1.0, t / 4) * (1 - t / (2 * STEPS)) for t in range(1, STEPS + 1)]
    return out


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="three seeds instead of one")
    args = parser.parse_args()
    failed, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(3 if args.long else 1):
            tensors = trace(seed)
            model.save(os.path.join(folder, "t.safetensors"), tensors)
            rows = [(n, c, c) for n, c in {**FIRST_ORDER, **SHAMPOO}.items()]
            rows += [(n, a, b) for n, (a, b) in CONTROLS.items()]
            for name, ours, theirs in rows:
                ours, theirs, count = resolved(ours), resolved(theirs), count + 1
                want = model.replay(theirs, tensors)
                rounding = model.sensitivity(theirs, tensors)
                d64 = difference(want, run(args.program, folder, ours, "float64"))
                d32 = difference_f32(want, run(args.program, folder, ours, "float32"))
                ok = d64 <= max(BOUND, ROUNDING * rounding) and (d32 <= BOUND_F32 or not rounding <= STABLE)
                passed = ok != name.startswith("control")
                failed += [] if passed else [name]
                print(f"{'ok' if passed else 'FAILED':6} {name}: float64 {d64:.1e}, float32 {d32:.1e}, "
                      f"rounding alone {rounding:.1e}")
    print(f"{count} configurations, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
