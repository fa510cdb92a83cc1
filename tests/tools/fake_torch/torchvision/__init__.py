"""Stands for torchvision beside the torch that stands for PyTorch."""
from torch import Network

__version__ = "0 (stand-in)"


class Models:
    def __getattr__(self, name):
        return lambda *unused: Network()


models = Models()
