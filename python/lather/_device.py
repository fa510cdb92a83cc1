"""Devices: where tensors live and kernels run. "cpu" is the default; "ref" is plain loops, the specification."""
import ctypes
import warnings

from ._library import lib, make, struct, words

def build_info():
    """Lines on the build and this machine: version, backends, libraries, kernels for this processor."""
    lines = []
    while lib.lt_build_info(len(lines)):
        lines.append(lib.lt_build_info(len(lines)))
    return lines


dtypes = words("lt_dtype")  # {"f32": 0, "f64": 1, ...}
dtype_names = {value: name for name, value in dtypes.items()}


class Device:
    """A device that device() opened; it is open until the program ends."""

    def __init__(self, name, settings):
        if name == "cpu" and any("CPU kernels: generic" in line for line in build_info()):
            warnings.warn("lather: this processor has no vector instructions that the library knows (x86-64: AVX2 and FMA); its kernels "
                          "are the slow generic ones", RuntimeWarning, stacklevel=3)
        self.name, self.settings = name, settings
        self.address = make(lib.lt_device_open, name.encode(), ctypes.byref(struct("lt_device_config")(**settings)))
        self.master_dtype = dtype_names[lib.lt_device_master_dtype(self.address)]

    def __repr__(self):
        return f"lather.device({', '.join([repr(self.name)] + [f'{k}={v}' for k, v in self.settings.items()])})"

    def memory(self):
        """Bytes of tensor memory: used (in live tensors), peak, reserved. Memory of numpy or torch that a tensor shares does not
        count."""
        counts = lib.lt_device_memory(self.address)
        return {name: getattr(counts, name) for name, _ in counts._fields_}

    def set_threads(self, threads):
        """Sets the number of compute threads of the calling thread; 0: all that affinity mask and cgroup allow."""
        lib.lt_device_set_threads(self.address, threads)

    def has_fast(self, dtype):
        """True if the hardware has fast arithmetic in this dtype."""
        return lib.lt_device_has_fast_dtype(self.address, dtypes[dtype])


_open = {}
_default = ["cpu"]


def device(name=None, **settings):
    """Returns a device, opened at the first call with these arguments: "cpu", "ref", "cuda:0", or None for the default.
    Settings are those of lt_device_config: f64 (parameters and passes in f64, by the plain loops), threads, deterministic,
    reproducible (the same bits on every processor)."""
    if isinstance(name, Device):
        return name
    if name is None and not settings and isinstance(_default[0], Device):
        return _default[0]
    key = (name or "cpu", *sorted(settings.items()))
    if key not in _open:
        _open[key] = Device(key[0], settings)
    return _open[key]


def set_device(name, **settings):
    """Makes a device the default of tensors made from now on; returns it."""
    _default[0] = device(name, **settings)
    return _default[0]
