#!/usr/bin/env python3
"""Compares the kernels that gpu_check's stage smoke ran on the stand-in for CUDA with all that exist.

    smoke_covers.py CALLS PLANS FILE.cu...        CALLS: what LATHER_STANDIN_CALLS named, PLANS: LATHER_PLAN_LOG

Prints the kernels that the files launch and the calls of libraries that CALLS lacks, and the forms of graphs that
PLANS has no chosen plan of; exits 1 if there are any.
"""
import re
import sys

LAUNCH = re.compile(r"([A-Za-z_]\w*)(?:<[^<>;(){}]*>)?\s*<<<")
LIBRARIES = """cudnnBackendExecute cublasLtMatmul cublasGemmBatched cublasGemmStridedBatched cublasTrsmBatched
    cusolverDnGeqrf cusolverDnOrgqr cusolverDnPotrfBatched cusolverDnXsyevBatched cudaGraphInstantiate
    cudaGraphLaunch ncclCommInitRank ncclAllReduce ncclReduceScatter ncclAllGather ncclBroadcast ncclSend ncclRecv""".split()


FORMS = """conv2d conv2d_grad_x conv2d_grad_w conv2d_stats conv2d_norm_stats conv2d_norm_grad_w conv2d_grad_x_sums
    attention attention_grad product""".split()


def chosen_forms(name):
    with open(name, encoding="utf-8") as file:
        rows = [line.split("\t") for line in file if not line.startswith("#")]
    chosen = rows[0].index("chosen")
    return {row[1].split(" ")[0] for row in rows[1:] if row[chosen] == "1" and row[4] != "composed"}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ran = set(file.read().split())
    ran |= chosen_forms(sys.argv[2])
    wanted = set(LIBRARIES + FORMS)
    for name in sys.argv[3:]:
        with open(name, encoding="utf-8") as file:
            wanted |= set(LAUNCH.findall(file.read()))
    missing = sorted(wanted - ran)
    print(f"{len(wanted)} kernels, calls and forms" + (", not run: " + " ".join(missing) if missing else ""))
    return 1 if missing or len(wanted) <= len(LIBRARIES + FORMS) else 0


sys.exit(main())
