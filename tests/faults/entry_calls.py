"""Writes a C function for each entry of a backend that calls it, unless it is the one that shall fail.

usage: entry_calls.py HEADER... ; the headers that declare entries by LT_ENTRY (detail/entry.h)
"""

import re
import sys

FUNCTION = """static lt_status fault_{name}({parameters})
{{
    return fault_due(FAULT_KERNEL, "{name}") ? lt_fail(LT_E_DEVICE, "{name}: a fault of the test")
                                             : fault_real.{name}({arguments});
}}
"""


def entries(text):
    """(name, parameters, arguments) of each LT_ENTRY(...);"""
    for name, parameters in re.findall(r"^LT_ENTRY\((\w+),\s*([^;]*)\);", text, re.M):
        names = [re.search(r"(\w+)(\[\w*\])?\s*$", p).group(1) for p in parameters.split(",")]
        yield name, parameters, ", ".join(names)


def main():
    found = [e for path in sys.argv[1:] for e in entries(open(path, encoding="utf-8").read())]
    if len(found) < 20:
        sys.exit("entry_calls.py: fewer than 20 entries in " + " ".join(sys.argv[1:]))
    print("/* Made by tests/faults/entry_calls.py. */")
    for name, parameters, arguments in found:
        print(FUNCTION.format(name=name, parameters=parameters, arguments=arguments))


main()
