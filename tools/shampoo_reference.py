#!/usr/bin/env python3
"""Runs the reference implementation of Distributed Shampoo for tools/shampoo_parity; needs torch.

    shampoo_reference.py CHECKOUT FOLDER

FOLDER holds jobs.json, a list of {"name", "trace", "with", "without"}: two configurations of optim_replay, and the folder of their
tensors. Writes NUMBER.safetensors, the weights after each step with the first configuration, and answers.json: for each job the
reference's settings under both, as {setting: [value, whether it is the default]}, or why it has no such configuration."""
import dataclasses
import enum
import inspect
import json
import logging
import os
import sys

sys.dont_write_bytecode = True
CHECKOUT, FOLDER = sys.argv[1:3]
sys.path[:0] = [CHECKOUT, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "oracle")]
try:
    import torch
except ImportError:
    sys.exit(77)
import distributed_shampoo as ds
import optim_model as model
from distributed_shampoo.preconditioner import matrix_functions_types
from gpa.gpa_adamw import GPAAdamW
from gpa.gpa_types import IterateAveragingType

for each in (ds.shampoo_types, matrix_functions_types):
    vars(ds).update({k: v for k, v in vars(each).items() if k.endswith(("Config", "Type"))})



class Absent(Exception):
    """The reference has no such setting."""


OURS = {"merge_order": "backward", "refresh": "reference", "large_dims": "cut", "factor_frequency": 1, "per_param_steps": False,
        "diagonal_vectors": False, "split": None, "one_sided": None, "diagonal": None, "cautious_mask": False,
        "cautious_weight_decay": False, "rational": None}


def original_scale(d_in, d_out):
    return max(1.0, d_out / d_in) ** 0.5


def adamw_scale(d_in, d_out):
    return 0.2 * max(d_in, d_out) ** 0.5


def l1_scale(grad):
    return grad.abs().sum()


def by_order(table):
    return {int(k): by_order(v) if isinstance(v, dict) else float(v) for k, v in (table or {}).items()}


def scalar_method(take):
    """The configuration of a method without matrices; None: none."""
    name, beta2, epsilon = take("grafting", "none"), take("grafting_beta2", None), take("grafting_epsilon", None)
    if name == "none":
        return None
    keys = {k: v for k, v in (("beta2", beta2), ("epsilon", epsilon)) if v is not None}
    if take("grafting_drop_weighting", False):
        keys["drop_weighting_factor_on_gsquare"] = True
    return getattr(ds, {"sgd": "SGD", "adagrad": "AdaGrad", "rmsprop": "RMSprop", "adam": "Adam"}[name] + "PreconditionerConfig")(**keys)


def solver(take, kept):
    """The configuration of a root or, where eigenvectors are kept, of a basis."""
    rule, rtol, atol = take("epsilon_rule", "before"), take("rank_rtol", 0.0), take("rank_atol", 0.0)
    if rule == "relative":
        raise Absent("epsilon_rule relative")
    name, order = take("root_solver", "eigh"), take("solver_order", None)
    keys = {k: v for k, v in (("max_iterations", take("solver_iterations", None)), ("tolerance", take("solver_tolerance", None))) if v}
    if name == "newton":
        return ds.CoupledNewtonConfig(**keys)
    if name == "higher_order":
        return ds.CoupledHigherOrderConfig(rel_epsilon=0.0, abs_epsilon=take("abs_epsilon"), **keys, **({"order": order} if order else {}))
    stable = (ds.PseudoInverseConfig(rank_rtol=rtol, rank_atol=atol) if rule == "pseudo_inverse"
              else ds.PerturbationConfig(perturb_before_computation=rule == "before"))
    kind = ds.QREigendecompositionConfig if name == "qr" else ds.EighEigendecompositionConfig if kept else ds.EigenConfig
    return kind(rank_deficient_stability_config=stable, **keys)


def preconditioner(take):
    kind = take("preconditioner", "root")
    if kind == "sign":
        return ds.SignDescentPreconditionerConfig(**({"scale_fn": l1_scale} if take("sign_scale", "none") == "l1" else {}))
    if kind == "spectral":
        how, scale = take("orthogonalization", "newton_schulz"), take("spectral_scale", "none")
        names = (("newton_schulz_iterations", "num_iterations"), ("newton_schulz_coefficients", "coefficients"),
                 ("scale_by_nuclear_norm", "scale_by_nuclear_norm"))
        keys = {theirs: value for ours, theirs in names if (value := take(ours, None)) is not None}
        if scale != "none":
            keys["scale_by_dims_fn"] = {"original": original_scale, "match_rms_adamw": adamw_scale}[scale]
        if how == "polar_express":
            raise Absent("orthogonalization polar_express")
        name = "SVDOrthogonalizationConfig" if how == "svd" else "NewtonSchulzOrthogonalizationConfig"
        return ds.SpectralDescentPreconditionerConfig(orthogonalization_config=getattr(ds, name)(**keys))
    name = {"root": "RootInvShampoo", "eigendecomposed": "EigendecomposedShampoo", "eigenvalue_corrected": "EigenvalueCorrectedShampoo",
            "kl": "RootInvKLShampoo", "kl_eigendecomposed": "EigendecomposedKLShampoo"}[kind] + "PreconditionerConfig"
    cls = getattr(ds, name)
    keys = {field: torch.float64 for field in inspect.signature(cls).parameters if field.endswith("_dtype")}
    keys.update(inverse_exponent_override=by_order(take("inverse_exponent", None)),
                amortized_computation_config=solver(take, kind not in ("root", "kl")),
                drop_weighting_factor_on_gsquare=take("drop_weighting", False))
    if (scaling := take("trace_scaling", 0.0)):
        keys.update(use_trace_scaling=True, trace_scaling_exponent=scaling)
    if (ignored := take("ignored_basis_change_dims", None)):
        keys["ignored_basis_change_dims"] = {int(k): v for k, v in ignored.items()}
    return cls(**keys)


def averaging(take):
    kind, momentum = take("iterate_averaging", "off"), take("momentum", 0.0)
    names = ("train_interp_coeff", "eval_interp_coeff", "eval_coeff_lr_power")
    keys = {name: value for name in names if (value := take(name, None)) is not None}
    classic = {"dampening": take("dampening", 0.0), "use_nesterov": take("nesterov", False)}
    if kind == "off":
        return ds.ClassicMomentumConfig(momentum=momentum, **classic) if momentum else None
    return (ds.GeneralizedPrimalAveragingConfig if kind == "primal" else ds.ScheduleFreeConfig)(**keys)


def arguments(config):
    """The arguments of the reference's optimizer for a configuration of this library."""
    c = {k: v for k, v in config.items() if k not in ("optim", "lr_schedule")}
    for key, default in OURS.items():
        if c.pop(key, default) != default:
            raise Absent(key)
    if config["optim"] == "adamw":
        c = dict({"beta1": 0.9, "beta2": 0.999, "train_interp_coeff": 0.8, "eval_interp_coeff": 0.9, "epsilon": 1e-8}, **c)
        kinds = IterateAveragingType
        c["iterate_averaging_type"] = kinds.GPA if c.pop("iterate_averaging") == "primal" else kinds.SCHEDULE_FREE
        new = {"epsilon": "eps", "decay_of_y": "use_wd_on_y", "eval_coeff_lr_power": "weight_lr_power"}
        return {new.get(k, k): v for k, v in c.items()}
    take = c.pop
    keys = {"betas": (take("beta1", 0.9), take("beta2", 1.0)), "weight_decay_type": ds.WeightDecayType[take("weight_decay_type", "decoupled").upper()]}
    if take("scalar", False):
        keys["preconditioner_config"] = scalar_method(take)
        take("start_preconditioning_step")
    else:
        keys.update(grafting_config=scalar_method(take), preconditioner_config=preconditioner(take))
    keys.update(iterate_averaging_config=averaging(take))
    target = take("target_dimensionality", 1)
    if "Spectral" in type(keys["preconditioner_config"]).__name__ and target != 2:
        raise Absent("spectral descent of other than two dimensions")
    keys["distributed_config"] = ds.SingleDeviceDistributedConfig(target_parameter_dimensionality=target)
    names = ("lr", "beta3", "epsilon", "weight_decay", "max_preconditioner_dim", "precondition_frequency", "start_preconditioning_step",
             "use_bias_correction")
    keys.update({name: take(name) for name in names if name in c})
    if c:
        raise Absent(", ".join(c))
    return keys


def described(cls, keys):
    """{setting: [text, whether it is the default]} of an optimizer's arguments and of all configurations in them."""
    out = {}

    def note(owner, name, value, default):
        out[f"{owner}.{name}"] = [repr(value), value == default]
        if isinstance(value, enum.Enum):
            out[f"{type(value).__name__}.{value.name}"] = ["used", False]
        if dataclasses.is_dataclass(value):
            out[type(value).__name__] = ["used", False]
            for f in dataclasses.fields(value):
                base = next(b for b in type(value).__mro__ if f.name in b.__dict__.get("__annotations__", {}))
                other = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
                note(base.__name__, f.name, getattr(value, f.name), other)

    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name not in ("self", "params"):
            note(cls.__name__, name, keys.get(name, parameter.default), parameter.default)
    return out


def run(optimizer, params, tensors, schedule):
    """Returns {param.T.NAME}, and {eval.T.NAME} where iterates are averaged."""
    out, averaged = {}, type(optimizer).__name__ == "GPAAdamW" or bool(optimizer.param_groups[0].get("iterate_averaging_config"))
    for lists in getattr(optimizer, "_per_group_state_lists", []):
        lists.update({k: v.double() for k, v in lists.items() if isinstance(v, torch.Tensor) and v.dtype == torch.float32})
    if type(optimizer).__name__ == "GPAAdamW":
        first = next(iter(params.values()))
        optimizer.state[first].update({k: torch.tensor(v, dtype=torch.float64) for k, v in (("lr_max", -1.0), ("weight_sum", 0.0))})
        for p in params.values():
            optimizer.state[p].update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        optimizer.train()
    t = 0
    while any(f"grad.{t + 1}.{name}" in tensors for name in params):
        t += 1
        for name, p in params.items():
            g = tensors.get(f"grad.{t}.{name}")
            p.grad = None if g is None else torch.from_numpy(g.copy())
        optimizer.param_groups[0]["lr"] = schedule[t - 1] if schedule else optimizer.param_groups[0]["lr"]
        optimizer.step()
        out.update({f"param.{t}.{name}": p.detach().numpy().copy() for name, p in params.items()})
        if averaged and hasattr(optimizer, "eval") and "Momentum" not in str(optimizer.param_groups[0].get("iterate_averaging_config")):
            optimizer.eval()
            out.update({f"eval.{t}.{name}": p.detach().numpy().copy() for name, p in params.items()})
            optimizer.train()
    return out


def answer(number, job):
    """Runs a job; returns its settings, or the reason why the reference has no such configuration."""
    tensors, settings = model.load(os.path.join(FOLDER, job["trace"], "t.safetensors")), {}
    try:
        for side in ("without", "with"):
            cls, keys = GPAAdamW if job[side]["optim"] == "adamw" else ds.DistributedShampoo, arguments(job[side])
            params = {k[6:]: torch.nn.Parameter(torch.from_numpy(v.copy())) for k, v in tensors.items() if k.startswith("param.")}
            optimizer, settings[side] = cls(list(params.values()), **keys), described(cls, keys)
    except (Absent, ValueError) as reason:
        return {"absent": str(reason)}
    model.save(os.path.join(FOLDER, f"{number}.safetensors"), run(optimizer, params, tensors, job["with"].get("lr_schedule")))
    return settings


logging.disable(logging.WARNING)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)      # of a Python number to the power of an integer tensor
with open(os.path.join(FOLDER, "jobs.json"), encoding="utf-8") as file:
    answers = {job["name"]: answer(number, job) for number, job in enumerate(json.load(file))}
with open(os.path.join(FOLDER, "answers.json"), "w", encoding="utf-8") as file:
    json.dump({"torch": torch.__version__, "jobs": answers}, file)
