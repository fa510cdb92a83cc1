"""Stands for PyTorch where none is: whatever is asked of it is there, does nothing, and takes a thousandth
of a second. FAKE_TORCH=dies: the second step of a compiled network ends the process; hangs: it does not
end."""
import os
import sys
import time

__version__ = "0 (stand-in)"


class Anything:
    """An object of any kind."""

    def __getattr__(self, name):
        return self

    def __call__(self, *unused, **also_unused):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        return False

    def __iter__(self):
        return iter((self, self))

    def __getitem__(self, index):
        return self

    __matmul__ = __truediv__ = __getitem__


class Network(Anything):
    def __init__(self, is_compiled=False):
        self.is_compiled, self.steps = is_compiled, 0

    def __call__(self, *unused, **also_unused):
        self.steps += 1
        if self.is_compiled and self.steps == 1:
            time.sleep(0.2)  # the compiler
        if self.is_compiled and self.steps == 2 and os.environ.get("FAKE_TORCH") == "dies":
            sys.exit("OutOfMemoryError: CUDA out of memory")
        if self.is_compiled and self.steps == 2 and os.environ.get("FAKE_TORCH") == "hangs":
            time.sleep(1000)
        time.sleep(0.001)
        return self


class Event(Anything):
    def __init__(self, **unused):
        self.at = 0

    def record(self):
        self.at = time.monotonic()

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class Cuda(Anything):
    Event = Event

    def max_memory_reserved(self):
        return 10**9

    def device_count(self):
        return 1


class Cudnn(Anything):
    def version(self):
        return 90000


class Backends(Anything):
    cudnn = Cudnn()


cuda, backends = Cuda(), Backends()
nn = optim = amp = linalg = utils = inference_mode = autocast = randn = randint = Anything()
channels_last = contiguous_format = bfloat16 = float16 = float32 = set_num_threads = set_float32_matmul_precision = Anything()


def compile(network, **unused):
    return Network(is_compiled=True)
