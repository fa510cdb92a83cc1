"""Converts the state of Meta's DistributedShampoo (github.com/facebookresearch/optimizers) to that of the row shampoo, and back.

Theirs of a parameter is {"block_0": {"shampoo": {"factor_matrices": {0: packed upper triangle, ...}, ...}, "adagrad": grafting's second
moment, "filtered_grad": m}, ..., "step"}; here a name is KIND.DIMENSION.BLOCK or KIND.BLOCK.
"""
import torch

LISTS = {"factor_matrices": "factor", "inv_factor_matrices": "root", "factor_matrices_eigenvectors": "basis"}
TENSORS = {"corrected_eigenvalues": "corrected", "adagrad": "graft", "filtered_grad": "m"}
PACKED = ("factor_matrices", "inv_factor_matrices")


def is_theirs(state):
    """Returns True if a parameter's state comes from that optimizer."""
    return any(str(key).startswith("block_") for key in state)


def _items(block):
    """(name here without the block, their container, its key, whether it is a packed triangle) of each tensor of a block."""
    for part in (block, block.get("shampoo", {})):
        for key, value in part.items():
            if key in LISTS:
                pairs = value.items() if isinstance(value, dict) else enumerate(value)
                yield from ((f"{LISTS[key]}.{d}", value, d, key in PACKED and v.ndim == 1) for d, v in list(pairs))
            elif key in TENSORS:
                yield TENSORS[key], part, key, False
            elif key != "shampoo":
                raise ValueError(f"lather.torch: DistributedShampoo's state has {key}, which has no counterpart in the state of shampoo")


def _blocks(state):
    return [(int(str(key)[6:]), block) for key, block in state.items() if str(key).startswith("block_")]


def from_theirs(state, want, title):
    """{name: tensor} of a parameter; want: the names and tensors of a new optimizer of the same settings."""
    found = {}
    for k, block in _blocks(state):
        for name, holder, key, packed in _items(block):
            to, value = want.get(f"{name}.{k}"), holder[key]
            if to is None:
                continue  # an error below
            if packed:
                at = torch.triu_indices(*to.shape)
                full = torch.empty_like(to)
                full[at[0], at[1]] = full[at[1], at[0]] = value.to(to.dtype)
                value = full
            if value.numel() != to.numel():
                raise ValueError(f"lather.torch: {name} of block {k} of parameter {title} has shape {tuple(value.shape)} in the saved state, "
                                 f"here {tuple(to.shape)}: set max_preconditioner_dim and target_dimensionality as there")
            found[f"{name}.{k}"] = value.reshape(to.shape).to(to.dtype)
    theirs = {f"{name}.{k}" for k, block in _blocks(state) for name, *_ in _items(block)}
    if theirs != set(want):
        raise ValueError(f"lather.torch: the saved state of parameter {title} has {', '.join(sorted(theirs - set(want))) or 'nothing'} that this "
                         f"optimizer has not, and lacks {', '.join(sorted(set(want) - theirs)) or 'nothing'}: their settings differ")
    return found


def check_options(theirs, own, index):
    """Raises ValueError if a setting that both have differs."""
    theirs = dict(theirs, **(dict(zip(("beta1", "beta2"), theirs["betas"])) if "betas" in theirs else {}))
    for key in ("beta1", "beta2", "epsilon", "weight_decay", "max_preconditioner_dim", "precondition_frequency", "use_bias_correction"):
        if key in theirs and key in own and theirs[key] != own[key]:
            raise ValueError(f"lather.torch: {key} of group {index} is {theirs[key]} in the saved state, here {own[key]}")


def into_theirs(state, own, steps, title):
    """Writes {name: tensor} of a parameter into their tensors."""
    theirs = {f"{name}.{k}" for k, block in _blocks(state) for name, *_ in _items(block)}
    if theirs != set(own):
        raise ValueError(f"lather.torch: the template of parameter {title} has {', '.join(sorted(theirs))}, this optimizer {', '.join(sorted(own))}")
    for k, block in _blocks(state):
        for name, holder, key, packed in _items(block):
            value = own[f"{name}.{k}"]
            if packed:
                at = torch.triu_indices(*value.shape)
                value = value[at[0], at[1]]
            if value.numel() != holder[key].numel():
                raise ValueError(f"lather.torch: {name} of block {k} of parameter {title} has shape {tuple(holder[key].shape)} in the template, "
                                 f"here {tuple(value.shape)}: set max_preconditioner_dim as there")
            holder[key] = value.reshape(holder[key].shape).to(holder[key].dtype)
    state["step"] = torch.tensor(steps, dtype=state["step"].dtype)


def last_refresh(step, options):
    """The step of the last refresh of roots or bases up to a step; 0: none yet."""
    frequency, start = options["precondition_frequency"], options["start_preconditioning_step"]
    at = int(step // frequency * frequency)
    return at if at >= (frequency if start is None or start < 0 else start) else 0
