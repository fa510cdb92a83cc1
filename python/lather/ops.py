"""Operations, one for each of the headers include/lather/ops: names, arguments and texts are theirs. help(lather.conv2d) shows one.

Fields of a config struct are keyword arguments; an enumeration is a word, as reduction="sum"; dims is a number or a tuple.
"""
from ._define import all_operations
from ._operators import define

_all = all_operations()
__all__ = list(_all)
define(_all)
globals().update(_all)
