"""Optimizers of lather tensors: lather.optim.Shampoo([w, b], lr=0.1).

Each row of the library's table is a class here, in any capitals: SGD, AdamW, Shampoo, SOAP, Muon, LAMB, ...;
options(name) shows its options, preset(name) those of the programs.
"""
from ._library import lib, share_symbols
from ._rule import Rule, canonical, classes_by_name, copy_of, names, options, preset
from ._tensor import Tensor

__all__ = ["Optimizer", "load_plugin", "names", "options", "preset"]


def load_plugin(path):
    """Loads a shared object with optimizers, as --plugin does; they are then in names() and in lather.torch."""
    share_symbols()
    lib.lt_plugin_load(str(path).encode(), b"python")


class Optimizer:
    """An optimizer by name over tensors with requires_grad. lr may be changed between steps."""

    def __init__(self, name, params, lr, **given):
        self.params, self.lr = list(params), lr
        if not self.params:
            raise ValueError(f"lather: {name}: no parameters")
        for i, p in enumerate(self.params):
            if not isinstance(p, Tensor) or not p.requires_grad or p._tape is not None:
                raise TypeError(f"lather: {name}: parameter {i} is not a tensor made with requires_grad=True")
        self._rule = Rule(name, lr, canonical(name, given), [str(i) for i in range(len(self.params))], self.params)

    def step(self):
        """Updates all parameters that have a gradient. Returns False, with nothing changed, if a gradient is not finite."""
        applied = self._rule.step(self.lr, [p.grad for p in self.params])
        for p in self.params:
            p._changed()
        return applied

    def zero_grad(self):
        """Resets all gradients."""
        for p in self.params:
            p.grad = None

    def state_bytes(self):
        """Bytes of state: moments, factors, roots."""
        return self._rule.state_bytes()

    def state_dict(self):
        """Copies of all state, for load_state_dict() of an optimizer with the same options and shapes."""
        device = self.params[0].device
        numbers, tensors = self._rule.state(lambda at: copy_of(at, device))
        return {"lr": self.lr, "numbers": numbers, "state": tensors}

    def load_state_dict(self, saved):
        """Continues as the optimizer whose state_dict() that was: the next steps have the same bits."""
        self.lr = saved["lr"]
        self._rule.load(saved["numbers"], saved["state"], lambda t: t)


__getattr__ = classes_by_name("lather.optim", Optimizer, "over tensors")
