#!/usr/bin/env python3
"""What gpu_check's stage smoke ran on the stand-in for CUDA, against all that there is to run.

    smoke_covers.py CALLS FILE.cu...        CALLS: what LATHER_STANDIN_CALLS named

Prints the kernels that the files launch and the calls of libraries that CALLS lacks; exits 1 if there are any.
"""
import re
import sys

LAUNCH = re.compile(r"([A-Za-z_]\w*)(?:<[^<>;(){}]*>)?\s*<<<")
LIBRARIES = """cudnnBackendExecute cublasLtMatmul cublasGemmBatched cublasGemmStridedBatched cublasTrsmBatched
    cusolverDnGeqrf cusolverDnOrgqr cusolverDnPotrfBatched cusolverDnXsyevBatched cudaGraphInstantiate
    cudaGraphLaunch ncclCommInitRank ncclAllReduce""".split()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ran = set(file.read().split())
    wanted = set(LIBRARIES)
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as file:
            wanted |= set(LAUNCH.findall(file.read()))
    missing = sorted(wanted - ran)
    print(f"{len(wanted)} kernels and calls" + (", not run: " + " ".join(missing) if missing else ""))
    return 1 if missing or len(wanted) <= len(LIBRARIES) else 0


sys.exit(main())
