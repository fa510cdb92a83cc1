#!/usr/bin/env python3
"""Emulated kernels run on every x86-64 processor: no instruction of AVX or later is in their objects.

    check_baseline.py ARCHIVE...

Exit status 77 without objdump.
"""
import re
import shutil
import subprocess
import sys

LATER = re.compile(r"\t(v[a-z0-9]+|andn|bextr|bls[a-z]+|mulx|pdep|pext|rorx|s[ah][lr]x|tile[a-z]+|ldtilecfg|tdp[a-z0-9]+)\b")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not shutil.which("objdump"):
        print("SKIP: no objdump")
        sys.exit(77)
    failed = False
    for archive in sys.argv[1:]:
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", archive], check=True, capture_output=True, text=True).stdout
        found = sorted(set(LATER.findall(text)))
        if found or text.count("\tret") == 0:
            print(f"{archive}: {'not for the baseline: ' + ' '.join(found) if found else 'no code in it'}")
            failed = True
    sys.exit(failed)


main()
