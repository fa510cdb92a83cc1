"""Tapes: the memory and the gradients of operations.

An operation of which an input requires a gradient is recorded on the thread's current tape; backward() ends that tape. Any other
operation gets a separate tape. A tape lives as long as a tensor that an operation on it returned, and is then used again.
"""
import contextlib
import ctypes
import operator
import threading
import weakref

from ._library import lib, make, struct, word_value
from ._device import dtypes


class _Thread(threading.local):
    """Tapes and settings of a thread."""

    def __init__(self):
        self.gradients = True
        self.settings = {}
        self.current = {}  # device: weak reference to the tape that records
        self.spare = {}  # device: addresses of tapes to use again
        self.seed, self.attempt, self.drawn = 0, 0, 0  # drawn: layers with random values since the seed was set


_thread = _Thread()
_SPARE = 32


@contextlib.contextmanager
def no_grad():
    """Operations inside are not recorded: their results need no gradient, and memory is freed with the tensors."""
    before, _thread.gradients = _thread.gradients, False
    try:
        yield
    finally:
        _thread.gradients = before


@contextlib.contextmanager
def settings(**changes):
    """Settings of passes that begin inside: train (batch norm uses and updates its statistics, dropout drops; default: True where
    something is recorded), dtype ("bf16": layers compute in it, as autocast), recompute ("cheap": saves memory), micro, attempt,
    seed. All fields of lt_pass work."""
    known = {name for name, _ in struct("lt_pass")._fields_} | {"train"}
    for name in changes:
        if name not in known:
            raise TypeError(f"lather.settings: no setting {name!r}; there are {', '.join(sorted(known))}")
    if changes.get("dtype", "f32") not in dtypes:
        raise ValueError(f"lather.settings: no dtype {changes['dtype']!r}; there are {', '.join(dtypes)}")
    before = _thread.settings
    _thread.settings = {**before, **changes}
    _thread.current = {}
    try:
        yield
    finally:
        _thread.settings = before
        _thread.current = {}


def manual_seed(seed):
    """Sets the seed of dropout and of new layers, and begins their streams again."""
    _thread.seed, _thread.attempt, _thread.drawn = operator.index(seed), 0, 0


def _new_pass(record):
    chosen = dict(_thread.settings)
    train = chosen.pop("train", record)
    fields = {"record": record, "batch_stats": train, "dropout": train, "seed": _thread.seed, "attempt": _thread.attempt, **chosen}
    if isinstance(fields.get("dtype"), str):
        fields["dtype"] = dtypes[fields["dtype"]]
    if isinstance(fields.get("recompute"), str):
        fields["recompute"] = word_value("lt_recompute", fields["recompute"], "recompute")
    return struct("lt_pass")(**fields)


def _release(address, spare):
    """Gives a tape's memory back; keeps the tape for later."""
    if len(spare) < _SPARE:
        lib.lt_tape_reset(address, struct("lt_pass")())
        spare.append(address)
    else:
        lib.lt_tape_free(ctypes.byref(ctypes.c_void_p(address)))


class Tape:
    """One pass. `results` are the live tensors that it returned, `inputs` what its operations read."""

    def __init__(self, device, record):
        spare = _thread.spare.setdefault(device, [])
        self.address = spare.pop() if spare else make(lib.lt_tape_new, device.address)
        self.device, self.record, self.ended = device, record, ""  # ended: the reason, or ""
        self.results, self.inputs, self.leaves = weakref.WeakSet(), [], {}
        lib.lt_tape_reset(self.address, _new_pass(record))
        weakref.finalize(self, _release, self.address, spare).atexit = False

    def read(self, tensor):
        """The address by which an operation on this tape reads a tensor."""
        if tensor._tape is self:
            return tensor._address
        if tensor._tape is not None and tensor.requires_grad and self.record:
            why = tensor._tape.ended or "another pass is open, of other settings or of another thread"
            raise RuntimeError(f"lather: a tensor of an earlier pass is used in a new one: {why}; compute it again, or use .detach() if no "
                               "gradient is to go through it")
        if self.record:
            self.inputs.append(tensor)
            if tensor.requires_grad:
                return self._leaf(tensor)
        tensor._changed()
        return tensor._address

    def _leaf(self, tensor):
        if id(tensor) not in self.leaves:
            tensor._changed()
            self.leaves[id(tensor)] = lib.lt_tape_param(self.address, tensor._parameter())
        return self.leaves[id(tensor)]

    def check(self):
        """Raises the tape's failure, which ends the pass."""
        self.ended = "an operation of it failed"
        lib.lt_tape_status(self.address)

    def backward(self, loss):
        if self.ended:
            raise RuntimeError(f"lather: backward() in a pass that has ended: {self.ended}; compute the loss again")
        if loss.shape != ():
            raise ValueError(f"lather: backward() needs a scalar, got shape {loss.shape}; use .sum() or .mean()")
        for result in list(self.results):  # what Python still holds can be read afterwards
            lib.lt_tape_keep(self.address, result._address)
        self.ended = "backward() ran in it"
        _thread.attempt += 1
        lib.lt_tape_backward(self.address, loss._address, 1.0)


def tape_for(tensors, differentiable):
    """The tape of an operation on these tensors."""
    device = tensors[0].device
    if not (differentiable and _thread.gradients and any(t.requires_grad for t in tensors)):
        return Tape(device, False)
    for t in tensors:  # the pass that they belong to, whatever the settings are now
        if t.requires_grad and t._tape is not None and not t._tape.ended:
            return t._tape
    current = _thread.current.get(device, lambda: None)()
    if current is None or current.ended:
        current = Tape(device, True)
        _thread.current[device] = weakref.ref(current)
    return current
