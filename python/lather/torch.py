"""PyTorch optimizers by the library's kernels: lather.torch.Shampoo(model.parameters(), lr=0.01, betas=(0.9, 0.999)).

Each row of the library's table is a torch.optim.Optimizer here, in any capitals: SGD, AdamW, Shampoo, SOAP, Muon,
LAMB, ... Parameters and gradients remain in PyTorch's memory; parameters are updated in place; state is the library's. Options have the
names of the table (lather.optim.options("shampoo")), `betas` and `eps` those of PyTorch too; another name is an error with the nearest.
Defaults are PyTorch's where it has a class of that name, else those of the published method.

What differs from PyTorch: a step in which a gradient is NaN or infinite changes nothing; only lr and weight_decay may change between
steps; parameters are CPU tensors of f32 or f64, contiguous or channels-last.
"""
import copy
import inspect
import math

import torch

from . import _distributed_shampoo as _theirs
from ._device import device as _device, dtypes
from ._library import lib, make, struct, word_value
from ._rule import Rule, canonical, classes_by_name, copy_of, is_option, options
from ._tensor import Tensor

# PyTorch's names of states, and the table's.
_STATES = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "momentum", "sum": "sum"}
_EXPORTED = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad}
_DTYPES = {torch.float32: "f32", torch.float64: "f64"}


def _device_of(dtype):
    return _device("cpu", f64=True) if dtype == torch.float64 else _device("cpu")


def _pytorch_defaults(name):
    """{argument: default} of PyTorch's class of that name; empty if it has none."""
    for called in dir(torch.optim):
        theirs = getattr(torch.optim, called)
        if called.lower() == name and isinstance(theirs, type):
            return {k: p.default for k, p in inspect.signature(theirs).parameters.items() if p.default is not p.empty}
    return {}


def _as_here(name, given):
    """Options under the table's names, without those of PyTorch that have their default and mean nothing here (fused, amsgrad)."""
    theirs, known = _pytorch_defaults(name), options(name)
    kept = {k: v for k, v in given.items() if k in known or k not in theirs or v != theirs[k] or k == "betas"}
    if "eps" in kept and "beta1" in known and theirs and "betas" not in theirs:
        raise TypeError(f"lather.torch: PyTorch's eps of {name} is another constant than the option epsilon here; name that one")
    return canonical(name, kept)


def _check(p, where):
    if p.device.type != "cpu":
        raise ValueError(f"lather.torch: {where} is on {p.device}; these optimizers update CPU tensors: move the model by .cpu()")
    if p.dtype not in _DTYPES:
        raise TypeError(f"lather.torch: {where} is {p.dtype}; parameters must be float32 or float64, torch.autocast computes in 16 bits")
    if p.layout != torch.strided:
        raise TypeError(f"lather.torch: {where} is {p.layout}; only dense tensors are possible, as of Embedding(sparse=False)")
    if not p.is_contiguous() and not (p.ndim == 4 and p.is_contiguous(memory_format=torch.channels_last)):
        raise ValueError(f"lather.torch: {where} of shape {tuple(p.shape)} has strides {p.stride()}; make it .contiguous() or channels-last")
    if p.ndim > 5:
        raise ValueError(f"lather.torch: {where} has {p.ndim} dimensions, at most 5 are possible")


def _borrow(t, device):
    """A tensor of the library over a torch tensor's memory."""
    word = "contiguous" if t.is_contiguous() else "channels_last"
    dtype = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
             torch.int32: "i32", torch.uint8: "u8"}[t.dtype]
    address = make(lib.lt_tensor_new_borrowed, device.address, dtypes[dtype], struct("lt_shape")(t.ndim, tuple(t.shape)),
                   word_value("lt_memory_format", word, "format"), t.data_ptr())
    return Tensor(address, device, exporter=t)


class Optimizer(torch.optim.Optimizer):
    """An optimizer of the library by name; param_groups may differ in all options."""

    def __init__(self, name, params, lr=None, **given):
        self._name, self._rules, self._wrapped = name, [], []
        known, theirs = options(name), _pytorch_defaults(name)
        defaults = {n: o.default for n, o in known.items()}
        defaults.update({k: v for k, v in canonical(name, {k: v for k, v in theirs.items() if k != "eps"}).items()
                         if k in known and isinstance(v, (bool, int, float))})
        lr = theirs.get("lr") if lr is None else lr
        if lr is None:
            raise TypeError(f"lather.torch: {name} needs lr")
        if isinstance(lr, str) or not 0 <= float(lr) < math.inf:
            raise ValueError(f"lather.torch: lr of {name} is {lr!r}, want a finite number of at least 0")
        super().__init__(params, {"lr": lr, **defaults, **_as_here(name, given)})

    def add_param_group(self, param_group):
        own = {k: v for k, v in param_group.items() if k not in ("params", "param_names")}
        for k in own:
            del param_group[k]
        param_group.update(_as_here(self._name, own))
        super().add_param_group(param_group)
        try:
            self._open(len(self._rules))
        except Exception:
            self.param_groups.pop()
            raise

    def _options(self, group):
        return {k: v for k, v in group.items() if k not in ("params", "param_names", "lr", "initial_lr", "numbers", "optimizer")}

    def _open(self, index, is_saved=False):
        """Makes the library's optimizer of a group, at its place in the list. is_saved: the group has keys of schedulers too, such as max_lr."""
        group = self.param_groups[index]
        if not group["params"]:
            raise ValueError(f"lather.torch: group {index} has no parameters")
        titles = group.get("param_names") or [str(i) for i in range(len(group["params"]))]
        for p, title in zip(group["params"], titles):
            _check(p, f"parameter {title} of group {index}")
        kinds = {p.dtype for p in group["params"]}
        if len(kinds) > 1:
            raise TypeError(f"lather.torch: group {index} mixes {' and '.join(sorted(map(str, kinds)))}; use a group for each")
        device = _device_of(group["params"][0].dtype)
        values = [_borrow(p.detach(), device) for p in group["params"]]
        chosen = {k: v for k, v in self._options(group).items() if not is_saved or is_option(self._name, k)}
        rule = Rule(self._name, float(group["lr"]), chosen, list(titles), values)
        rule.device, rule.chosen = device, dict(chosen)
        self._rules[index:index + 1] = [rule]
        self._wrapped[index:index + 1] = [{"values": [p.data_ptr() for p in group["params"]], "grads": {}}]

    def _follow_options(self, rule, group, index):
        """Applies changes of param_groups since the last step."""
        for key in ("betas", "eps"):
            if key in group:
                raise ValueError(f"lather.torch: {key} of group {index} was set after the optimizer was made; only lr and weight_decay may change")
        for key, value in self._options(group).items():
            before = rule.chosen.get(key, value)
            if value == before:
                continue
            if key != "weight_decay":
                raise ValueError(f"lather.torch: {key} of group {index} was changed from {before} to {value}; only lr and weight_decay may "
                                 "change between steps (OneCycleLR: cycle_momentum=False)")
            rule.set_weight_decay(float(value))
            rule.chosen[key] = value

    def _gradient(self, p, place, i, rule, index):
        if p.grad is None:
            return None
        g = p.grad
        if g.layout != torch.strided or g.dtype != p.dtype:
            raise TypeError(f"lather.torch: the gradient of parameter {i} of group {index} is {g.layout} {g.dtype}; it must be dense {p.dtype}")
        if g.stride() != p.stride():
            g = torch.empty_like(p, memory_format=torch.preserve_format).copy_(g)
        held = place["grads"].get(i)
        if held is None or held[0] != g.data_ptr():
            held = place["grads"][i] = (g.data_ptr(), _borrow(g, rule.device))
        return held[1]

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all groups. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, (group, rule, place) in enumerate(zip(self.param_groups, self._rules, self._wrapped)):
            self._follow_options(rule, group, index)
            for i, p in enumerate(group["params"]):
                if p.data_ptr() != place["values"][i]:  # .data was replaced
                    _check(p, f"parameter {i} of group {index}")
                    rule.set_value(i, _borrow(p.detach(), rule.device))
                    place["values"][i] = p.data_ptr()
            rule.device.set_threads(torch.get_num_threads())
            rule.step(float(group["lr"]), [self._gradient(p, place, i, rule, index) for i, p in enumerate(group["params"])])
            for p in group["params"]:
                if p.grad is not None:
                    torch.autograd.graph.increment_version(p)
        return loss

    def zero_grad(self, set_to_none=True):
        if set_to_none:
            for place in self._wrapped:
                place["grads"].clear()
        super().zero_grad(set_to_none)

    def state_bytes(self):
        """Bytes of state: moments, factors, roots."""
        return sum(rule.state_bytes() for rule in self._rules)

    # --- State ---

    def state_dict(self):
        """PyTorch's form: state of each parameter (copies), param_groups; each group's counters are its `numbers`."""
        packed, at = super().state_dict(), 0
        packed["state"] = {}
        for group, rule in zip(packed["param_groups"], self._rules):
            numbers, tensors = rule.state(lambda address, rule=rule: torch.from_dlpack(copy_of(address, rule.device)))
            group["numbers"], group["optimizer"] = numbers, self._name
            for state in tensors:
                packed["state"][at] = state
                at += 1
        return packed

    def pytorch_state_dict(self):
        """The state for load_state_dict() of PyTorch's SGD, Adam, AdamW or Adagrad, which continues from here."""
        theirs, names = _EXPORTED.get(self._name), {v: k for k, v in _STATES.items()}
        if not theirs:
            raise TypeError(f"lather.torch: PyTorch has no form of the state of {self._name}, only of {', '.join(_EXPORTED)}")
        own, groups = self.state_dict(), []
        for group in self.param_groups:
            known = {**group, "betas": (group.get("beta1"), group.get("beta2")), "eps": group.get("epsilon")}
            groups.append({k: known[k] for k in ("params", *_pytorch_defaults(self._name)) if known.get(k) not in (None, (None, None))})
            if theirs is torch.optim.Adagrad:  # its eps is another constant
                del groups[-1]["eps"]
        packed, at = theirs(groups).state_dict(), 0
        packed["state"] = {}
        for group, rule in zip(own["param_groups"], self._rules):
            for title in rule.param_names:
                steps = group["numbers"][f"updates.{title}"]
                if steps:
                    packed["state"][at] = {names[k]: v for k, v in own["state"][at].items()}
                    packed["state"][at].update({"step": torch.tensor(float(steps))} if theirs is not torch.optim.SGD else {})
                at += 1
        return packed

    def distributed_shampoo_state_dict(self, template):
        """The state for load_state_dict() of Meta's DistributedShampoo of the same settings; template: the state_dict() of that one."""
        if self._name not in ("shampoo", "soap"):
            raise TypeError(f"lather.torch: {self._name} is not shampoo, whose state DistributedShampoo could take")
        own, packed = self.state_dict(), copy.deepcopy(template)
        if len(packed["state"]) != len(own["state"]):
            raise ValueError(f"lather.torch: the template is of {len(packed['state'])} parameters, this optimizer has {len(own['state'])}")
        numbers = {t: g["numbers"][f"updates.{t}"] for g, rule in zip(own["param_groups"], self._rules) for t in rule.param_names}
        for at, title in enumerate(t for rule in self._rules for t in rule.param_names):
            _theirs.into_theirs(packed["state"][at], own["state"][at], numbers[title], title)
        return packed

    def load_state_dict(self, state_dict):
        """Continues as the optimizer whose state_dict() that was: the next steps have the same bits. Takes the state of PyTorch's SGD, Adam,
        AdamW and Adagrad too, and that of Meta's DistributedShampoo of the same settings. An error changes nothing."""
        before = list(self._rules), list(self._wrapped), [dict(g) for g in self.param_groups]
        try:
            self._load(state_dict)
        except Exception:
            self._rules[:], self._wrapped[:] = before[:2]
            for group, kept in zip(self.param_groups, before[2]):
                group.clear()
                group.update(kept)
            raise

    def _load(self, state_dict):
        saved = state_dict["param_groups"]
        have, want = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in saved]
        if have != want:
            raise ValueError(f"lather.torch: the saved state is of groups of {want} parameters, this optimizer has {have}")
        at = 0
        for index, (group, old) in enumerate(zip(self.param_groups, saved)):
            if old.get("optimizer", self._name) != self._name:
                raise ValueError(f"lather.torch: the saved state is that of {old['optimizer']}, this optimizer is {self._name}")
            chosen = {k: v for k, v in old.items() if k not in ("params", "param_names", "numbers", "optimizer")}
            states = [state_dict["state"].get(at + i, {}) for i in range(want[index])]
            if any(map(_theirs.is_theirs, states)):
                _theirs.check_options(chosen, group, index)
                group["lr"] = chosen["lr"]
            else:
                group.update(chosen if "numbers" in old else self._options_of_pytorch(chosen))
            self._open(index, is_saved=True)
            rule = self._rules[index]
            numbers, states = (old["numbers"], states) if "numbers" in old else self._state_of_pytorch(rule, states)
            rule.load(numbers, states, lambda t, rule=rule: _borrow(t.contiguous(), rule.device))
            at += want[index]

    def _options_of_pytorch(self, group):
        theirs, known = _pytorch_defaults(self._name), options(self._name)
        lr = {k: group.pop(k) for k in ("lr", "initial_lr") if k in group}
        return {**lr, **_as_here(self._name, {k: v for k, v in group.items() if k in theirs or k in known})}

    def _state_of_pytorch(self, rule, states):
        """(numbers, tensors) as Rule.load() wants them, of the state of PyTorch's class of this name."""
        numbers, fresh = rule.state(lambda at: torch.from_dlpack(copy_of(at, rule.device)))
        tensors, steps = [], []
        for title, state, new in zip(rule.param_names, states, fresh):
            if _theirs.is_theirs(state):
                found = _theirs.from_theirs(state, new, title)
                numbers.update({k: _theirs.last_refresh(int(state["step"]), rule.chosen) for k in numbers
                                if k.startswith("rooted.") and k.split(".", 2)[2] == title})
            else:
                found = {_STATES[k]: v for k, v in state.items() if k in _STATES and v is not None}
            steps.append(int(state.get("step", bool(found))))
            if steps[-1] and set(found) != set(new):
                raise ValueError(f"lather.torch: the saved state of parameter {title} has {', '.join(state)}, which is not that of a {self._name} "
                                 f"with {', '.join(new) or 'no state'}")
            numbers[f"updates.{title}"] = steps[-1]
            tensors.append(found if steps[-1] else new)
        numbers["attempt"] = numbers["applied"] = max(steps, default=0)
        return numbers, tensors

    def __getstate__(self):
        raise TypeError("lather.torch: an optimizer is not copied or pickled; make another and load_state_dict() into it")


__getattr__ = classes_by_name("lather.torch", Optimizer, "as a PyTorch optimizer")
