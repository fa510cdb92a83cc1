#!/usr/bin/env python3
"""Writes unicode_ranges.h: ranges of letters and numbers of Unicode, from Python's unicodedata. The header names the
Unicode version.

    python3.13 make_unicode.py > unicode_ranges.h
"""
import unicodedata

CODES = 0x110000
WIDTH = 100


def ranges(initial):
    """Returns (first, count) of ranges of characters whose general category begins with this letter."""
    found, first = [], None
    for code in range(CODES + 1):
        inside = code < CODES and unicodedata.category(chr(code))[0] == initial
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            found.append((first, code - first))
            first = None
    return found


def main():
    rows = sorted([(first, count, name) for name, initial in (("LETTER", "L"), ("NUMBER", "N"))
                   for first, count in ranges(initial)])
    print(f"/* General categories L and N of Unicode {unicodedata.unidata_version}: first code, count, class.\n"
          " * Made by make_unicode.py from Python's unicodedata; Unicode's data: unicode.org/license.txt. */")
    print("/* clang-format off */")
    line = ""
    for first, count, name in rows:
        item = f"{{{first:#x}, {count}, {name[0]}}},"
        if len(line) + 1 + len(item) > WIDTH:
            print(line)
            line = ""
        line += (" " if line else "") + item
    print(line)


if __name__ == "__main__":
    main()
