"""Optimizers of the library over arrays of other owners, as lather.optim and lather.torch need them.

Names, options, defaults, ranges and texts are those of the library's table of optimizers; a plugin's rows are there too.
"""
import ctypes
import functools
import json
import math
import weakref

from ._library import ArgumentError, api, free, lib, make, struct
from ._device import dtype_names

_UNLIMITED = 2 ** 63 - 1
_READERS = {"real": ctypes.c_double, "count": ctypes.c_int64, "limit": ctypes.c_int64, "small": ctypes.c_int, "flag": ctypes.c_bool,
            "choice": ctypes.c_int, "scope": ctypes.c_int}


class Option:
    """An option of an optimizer: name, default, low and high (of numbers), choices, help."""

    def __init__(self, field, config):
        self.name, self.help = field.name.decode(), (field.help or b"").decode()
        self.kind = next(n for n, v in api["enums"]["lt_field_type"].items() if v == field.type)[len("LT_FIELD_"):].lower()
        self.low, self.high = field.low, field.high
        self.choices = field.choices.decode().split("|") if field.choices else []
        self.default = self._read(field, config)

    def _read(self, field, config):
        if self.kind not in _READERS:
            return None
        value = _READERS[self.kind].from_address(config + field.offset).value
        if field.unset_means and (value == field.unset or (math.isnan(field.unset) and value != value)):
            return None
        if self.kind == "choice":
            return self.choices[value]
        if (self.kind == "limit" and value == 0) or (self.kind == "count" and value == _UNLIMITED):
            return math.inf
        return value

    def __repr__(self):
        return f"{self.name}={self.default!r}: {self.help}"


def _family(name):
    address = lib.lt_optim_family_named(name.encode())
    return struct("lt_optim_family").from_address(address) if address else None


def names():
    """Names of all optimizers: "sgd", "adam", "adamw", "shampoo", ..."""
    found = []
    while True:
        address = lib.lt_optim_family_at(len(found))
        if not address:
            return found
        found.append(struct("lt_optim_family").from_address(address).name.decode())


def _presets(family):
    kind = struct("lt_optim_preset")
    return [kind.from_address(family.preset + i * ctypes.sizeof(kind)) for i in range(family.presets)]


def _options_at(family, config):
    kind = struct("lt_optim_field")
    fields = [kind.from_address(family.field + i * ctypes.sizeof(kind)) for i in range(family.fields)]
    return {o.name: o for o in (Option(f, config) for f in fields if not f.flag_only)}


def options(name):
    """{name: Option} of an optimizer, with the defaults of the published method."""
    family = _family(name)
    if not family:
        raise ValueError(f"lather: there is no optimizer {name!r}; there are {', '.join(names())}")
    return _options_at(family, family.published or _presets(family)[0].config)


def preset(name, which=None):
    """The options, learning rate included, of an optimizer's preset, as keyword arguments: Shampoo(params, **preset("shampoo")).
    which None: the first, with which the programs begin."""
    usual, family = options(name), _family(name)
    found = {(p.name or b"").decode(): p for p in _presets(family)}
    if which is not None and which not in found:
        raise ValueError(f"lather: {name} has no preset {which!r}; it has {', '.join(found)}")
    chosen = found[which] if which is not None else next(iter(found.values()))
    there = _options_at(family, chosen.config)
    return {"lr": chosen.lr, **{n: o.default for n, o in there.items() if o.kind in _READERS and o.default != usual[n].default}}


def canonical(name, given):
    """Options under the table's names: betas=(a, b) is beta1=a, beta2=b; eps is epsilon where that is its name."""
    known, found = options(name), {}
    for key, value in given.items():
        stem = key[:-1]
        if key not in known and key.endswith("s") and stem + "1" in known and isinstance(value, (tuple, list)):
            found.update({f"{stem}{i}": v for i, v in enumerate(value, 1)})
        elif key == "eps" and key not in known and "epsilon" in known:
            found["epsilon"] = value
        else:
            found[key] = value
    return found


def is_option(name, key):
    """True if the library takes a key for an optimizer: those of options(), and those common to all, such as cautious_mask."""
    text = json.dumps({"optim": name, "lr": 0, key: {}}).encode()  # no option has an object as its value
    try:
        lib.lt_optim_config_parse(ctypes.byref(struct("lt_optim_config")()), text, len(text))
    except ArgumentError as error:
        return " has no key '" not in str(error)
    return True


_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_NUMBER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64))


class Rule:
    """One optimizer over `values`, tensors of one device with unique names. Updates values in place."""

    def __init__(self, name, lr, given, param_names, values):
        kind = struct("lt_param")
        self.name, self.param_names, self.attempt = name, param_names, 0
        self._texts = [n.encode() for n in param_names]
        self._params = [kind(name=text, value=value._address) for text, value in zip(self._texts, values)]
        self._values, self._grads = list(values), [None] * len(values)
        for param, value in zip(self._params, values):
            if value.shape and len(value.shape) > 1:
                taps = math.prod(value.shape[2:])
                param.fan_in, param.fan_out = value.shape[1] * taps, value.shape[0] * taps
        self._list = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(p) for p in self._params))
        self._set = struct("lt_params")(ctypes.cast(self._list, ctypes.c_void_p), len(values))
        self._placeholders = []
        self.address = self._open(lr, given)
        weakref.finalize(self, _close, self.address, self._params, self._list, self._texts).atexit = False

    def _open(self, lr, given):
        usual = options(self.name)
        chosen = {k: v for k, v in given.items() if k not in usual or v != usual[k].default}
        wide = {"f32": "float32", "f64": "float64"}[self._values[0].dtype] if self._values else "float32"
        text = json.dumps({"optim": self.name, "lr": lr, "dtype": wide, **chosen}).encode()
        config = struct("lt_optim_config")()
        lib.lt_optim_config_parse(ctypes.byref(config), text, len(text))
        for param, value in zip(self._params, self._values):  # constructors look at the gradient's form, not at its values
            param.grad = value._address
        try:
            return make(lib.lt_optim_config_make, ctypes.byref(config), ctypes.byref(self._set))
        finally:
            lib.lt_optim_config_clear(ctypes.byref(config))

    def set_value(self, index, value):
        """A value moved to other memory."""
        self._values[index] = value
        self._params[index].value = value._address

    def set_weight_decay(self, value):
        group = struct("lt_optim_group")(math.nan, value)
        for text in self._texts:
            lib.lt_optim_set_group(self.address, text, group)

    def step(self, lr, grads):
        """One update by gradients, tensors like the values, or None if absent. Returns False, with nothing changed, if a
        gradient is not finite."""
        self._grads = list(grads)
        for param, grad in zip(self._params, self._grads):
            param.has_grad = grad is not None
            if grad is not None:
                param.grad = grad._address
        self.attempt += 1
        lib.lt_optim_step(self.address, ctypes.byref(struct("lt_step")(lr, 0.0, self.attempt)))
        result = struct("lt_step_result")()
        lib.lt_optim_result(self.address, ctypes.byref(result))
        return result.applied

    def state_bytes(self):
        """Bytes of state: moments, factors, roots."""
        return lib.lt_optim_state_bytes(self.address)

    # --- State ---

    def _visit(self, on_tensor, on_number):
        failures = []

        def guarded(function):
            def call(*arguments):
                try:
                    function(*arguments)
                except Exception as error:  # pylint: disable=broad-except  # C cannot pass it on
                    failures.append(error)
                    return api["enums"].get("lt_status", {}).get("LT_E_ARG", 2)
                return 0
            return call

        def entry(_context, at):
            e = struct("lt_state_entry").from_address(at)
            if not e.tensor:
                raise NotImplementedError(f"lather: the state {e.name.decode()} of {e.param.decode()} is quantized, without a form in Python")
            index = self.param_names.index(e.param.decode())
            on_tensor(index, e.name.decode() + (f".{e.block}" if e.block >= 0 else ""), e.tensor)

        callbacks = _ENTRY(guarded(entry)), _NUMBER(guarded(lambda _context, name, value: on_number(name.decode(), value)))
        visitor = struct("lt_state_visitor")(*(ctypes.cast(c, ctypes.c_void_p) for c in callbacks), None)
        try:
            lib.lt_optim_visit(self.address, ctypes.byref(visitor))
        except Exception:
            if failures:
                raise failures[0] from None
            raise

    def state(self, copy):
        """(numbers, [{name: copy(tensor address)} of each parameter])."""
        numbers, tensors = {}, [{} for _ in self.param_names]
        self._visit(lambda i, name, at: tensors[i].__setitem__(name, copy(at)), lambda name, value: numbers.__setitem__(name, value[0]))
        return numbers, tensors

    def load(self, numbers, tensors, borrow):
        """Sets the state; borrow(value) makes a tensor of a saved one. Errors: KeyError, with the name of the missing state."""
        def number(name, value):
            if name not in numbers:
                raise KeyError(f"lather: the saved state of {self.name} has no number {name}")
            value[0] = numbers[name]

        def entry(index, name, at):
            if name not in tensors[index]:
                raise KeyError(f"lather: the saved state of {self.name} has no {name} of parameter {self.param_names[index]}; it has "
                               f"{', '.join(tensors[index]) or 'nothing'}")
            value = borrow(tensors[index][name])
            lib.lt_tensor_copy(at, value._address)

        self._visit(entry, number)
        self.attempt = numbers["attempt"]


def _close(address, *_kept):
    """The optimizer ends before the structs that it reads."""
    free("lt_optim_free", address)


def copy_of(address, device):
    """A tensor with the values of another, which the library owns."""
    from ._tensor import Tensor
    dtype = lib.lt_tensor_dtype(address)
    copy = Tensor(make(lib.lt_tensor_new_like, address, dtype), device)
    assert copy.dtype == dtype_names[dtype]
    lib.lt_tensor_copy(copy._address, address)
    return copy


def classes_by_name(module, base, kind):
    """The __getattr__ of a module with a subclass of base for each optimizer of the table, in any capitals but none at all."""
    @functools.lru_cache(maxsize=None)
    def find(called):
        name = called.lower()
        if name not in names() or called == name:
            raise AttributeError(f"{module} has no {called}; its optimizers are {', '.join(names())}, in any capitals")
        text = f"{name} of the library {kind}.\n\nOptions, by the table:\n" + "\n".join(f"    {o!r}" for o in options(name).values())
        return type(called, (base,), {"__init__": functools.partialmethod(base.__init__, name), "__doc__": text})
    return find
