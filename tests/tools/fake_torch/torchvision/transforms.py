"""A stub of torchvision's transforms."""
from torch import Anything

v2 = Anything()
