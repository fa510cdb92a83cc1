#!/usr/bin/env python3
"""The Containerfiles, gpu_report and the MPIJob of examples/launch: syntax, names that must agree, and the job's command lines. The image is built only
in the full tier, where a builder is there and has its base.

    test_containers.py LATHER TRAIN_RESNET50 [ROW]
"""
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import Skip, full, run_rows  # noqa: E402

LATHER, TRAIN = (os.path.abspath(path) for path in sys.argv[1:3])
SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "CMD", "ENV", "WORKDIR", "USER", "EXPOSE", "LABEL", "ENTRYPOINT", "SHELL", "VOLUME"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


def instructions(path="Containerfile"):
    lines = [line for line in read(path).splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]


def the_containerfiles_are_well_formed(_):
    check_syntax("Containerfile", 2)
    check_syntax("gpu.Containerfile", 1)


def check_syntax(path, count):
    arguments, stages = {}, []
    for word, rest in instructions(path):
        assert word in INSTRUCTIONS, word
        if word == "ARG":
            arguments.update([rest.partition("=")[::2]])
        assert stages or word in ("ARG", "FROM"), f"{word} before FROM"
        if word == "FROM":
            image, *name = re.split(r"\s+AS\s+", rest)
            assert image.strip("${}") in arguments, image
            stages.append(name[0] if name else None)
        if word == "COPY":
            source = re.match(r"--from=(\S+) /\S+ /\S*$", rest)
            assert source is None or source[1] in stages[:-1], rest
            assert source or os.path.exists(os.path.join(SOURCE, rest.split()[0])), rest
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
        if word == "ENTRYPOINT":
            program = json.loads(rest)[0].removeprefix("/lather/")
            assert os.access(os.path.join(SOURCE, program), os.X_OK), program
    assert len(stages) == count and stages[-1] is None, stages


def the_gpu_image_and_the_script_install_the_same(_):
    """Packages come from one table; the guide names the same sets. NVIDIA's names are those of the toolkit's releases that the build accepts."""
    sets = [re.findall(r"tools/packages\"? install ([a-z ]+?)(?: \|\|| &&|`)", read(path))
            for path in ("gpu.Containerfile", "tools/gpu_report", "docs/guides/install.md")]
    assert sets[0] == sets[1] == ["build data"] and sets[0][0] in sets[2], sets
    command = re.search(r"docker build .*", read("gpu.Containerfile"))[0]
    assert command in read("docs/guides/install.md") and "--gpus all" in command, command


class Machine:
    """A copy of gpu_report whose other tools write down how they are called."""
    def __init__(self, cwd, programs=None):
        self.calls, self.folder = os.path.join(cwd, "calls"), os.path.join(cwd, "gpu")
        os.makedirs(os.path.join(cwd, "tools"))
        os.makedirs(os.path.join(cwd, "bin"))
        self.report = shutil.copy(os.path.join(SOURCE, "tools/gpu_report"), os.path.join(cwd, "tools"))
        # The packed gpu_check leaves something out in its first call.
        there = (f"#!/bin/sh\necho there $* >>{self.calls}; mkdir -p {self.folder}/report; echo the report >{self.folder}/report/report.md\n"
                 f"[ $(grep -c there {self.calls}) = 2 ]")
        usual = {"tools/packages": "", "tools/find_cuda": "exit 1", "bin/id": "echo 0", "bin/nvidia-smi": "echo CUDA Version: 13.0",
                 "bin/apt-cache": "", "bin/apt-get": "",
                 "tools/gpu_check": f"mkdir -p $2/lib; touch $2/lib/liblather-cuda.so; printf '%s\\n' '{there}' >$2/gpu_check; chmod +x $2/gpu_check"}
        for name, does in {**usual, **(programs or {})}.items():
            path = os.path.join(cwd, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\necho {os.path.basename(name)} $* >>{self.calls}\n{does}\n")
            os.chmod(path, 0o755)
        self.env = {**os.environ, "PATH": os.path.join(cwd, "bin") + ":" + os.environ["PATH"]}

    def run(self, *args):
        p = subprocess.run([self.report, *args, self.folder], env=self.env, text=True, capture_output=True, check=False, timeout=60)
        with open(self.calls, encoding="utf-8") as f:
            return p, [line for line in f.read().splitlines() if line.split()[0] in ("packages", "apt-get", "gpu_check", "there")]


def a_gpus_report_is_printed_with_where_to_send_it(cwd):
    machine = Machine(cwd)
    p, calls = machine.run()
    toolkit = "apt-get install -y --no-install-recommends cuda-toolkit-13-0 libcudnn9-dev-cuda-13 libnccl-dev"
    there = f"there quarter {machine.folder}"
    assert calls == ["packages install build data", toolkit, f"gpu_check pack {machine.folder}", f"{there} --copy {machine.folder}/report",
                     f"{there} --continue --total 600 --copy {machine.folder}/report"], calls
    assert p.returncode == 0 and "\nthe report\n\nPlease send this report" in p.stdout and "issue of the repository (CONTRIBUTING.md)" in p.stdout, p.stdout
    assert "gpu_report" in read("CONTRIBUTING.md")
    assert machine.run("--packed")[1][5:] == [f"{there} --copy {machine.folder}/report", f"{there} --continue --total 600 --copy {machine.folder}/report"]


def a_dry_report_runs_nothing(cwd):
    """The toolkit is one that the driver can run."""
    p, calls = Machine(cwd, {"bin/nvidia-smi": "echo CUDA Version: 12.8"}).run("--dry")
    lines = [line for line in p.stdout.splitlines() if line.startswith("+ ")]
    assert p.returncode == 0 and not calls and len(lines) == 4, (p, calls)
    assert lines[1].endswith("cuda-toolkit-12-8 libcudnn9-dev-cuda-12 libnccl-dev"), lines


def a_report_without_a_toolkit_ends(cwd):
    """By name, before anything is built: apt has none; or the build is without CUDA."""
    p, calls = Machine(cwd, {"bin/apt-cache": "exit 100"}).run()
    assert p.returncode == 1 and "apt has no cuda-toolkit-13-0" in p.stderr and calls == ["packages install build data"], (p, calls)
    p, calls = Machine(os.path.join(cwd, "second"), {"tools/gpu_check": ""}).run()
    assert p.returncode == 1 and "is without CUDA" in p.stderr and "there" not in " ".join(calls), (p, calls)


def manifest():
    try:
        import yaml
    except ImportError:
        raise Skip("no yaml for Python") from None
    return list(yaml.safe_load_all(read("examples/launch/mpijob.yaml")))


def the_names_of_the_job_agree(_):
    config, job = manifest()
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob"), job
    assert set(spec) == {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"} and set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}, spec
    for kind, replica in spec["mpiReplicaSpecs"].items():
        pod = replica["template"]["spec"]
        assert replica["restartPolicy"] in ("Never", "OnFailure") and len(pod["containers"]) == 1, kind
        assert [m["name"] for m in pod["containers"][0]["volumeMounts"]] == [v["name"] for v in pod["volumes"]], kind
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert launcher["volumes"][1]["configMap"]["name"] == config["metadata"]["name"]
    assert "openssh-server" in read("Containerfile")


def the_job_is_a_program_that_starts(cwd):
    """With a hostfile as the operator writes it."""
    config, job = manifest()
    with open(os.path.join(cwd, "trainer.ini"), "w", encoding="utf-8") as f:
        f.write(config["data"]["trainer.ini"])
    workers, slots = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"], job["spec"]["slotsPerWorker"]
    with open(os.path.join(cwd, "hostfile"), "w", encoding="utf-8") as f:
        f.writelines(f"127.0.0.{i + 2} slots={slots}\n" for i in range(workers))
    command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["lather", "launch", "/job/trainer.ini"], command
    out = subprocess.run([LATHER, "launch", "trainer.ini", *command[3:], "--dry-run"], cwd=cwd, check=True, text=True, capture_output=True,
                         env={**os.environ, "OMPI_MCA_orte_default_hostfile": "hostfile"}).stdout
    assert f"--host 127.0.0.2:{slots},127.0.0.3:{slots} " in out, out  # a worker is left for the place of another
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(os.path.join(cwd, "trainer.ini"))
    words = shlex.split(ini["trainer"]["command"].replace("${grad-accum}", "1"))
    assert words[0] == "train_resnet50", words
    subprocess.run([TRAIN, *words[1:], "--print-config"], cwd=cwd, check=True, capture_output=True)


@full
def the_image_builds(_):
    builder = next((name for name in ("podman", "buildah", "docker") if shutil.which(name)), None)
    base = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")["debian"]
    if not builder or subprocess.run([builder, "pull", base], capture_output=True).returncode:
        raise Skip("no builder, or its base image cannot be had")
    subprocess.run([builder, "build", "-t", "lather-test", SOURCE], check=True, timeout=3600)


ROWS = (the_containerfiles_are_well_formed, the_gpu_image_and_the_script_install_the_same, a_gpus_report_is_printed_with_where_to_send_it,
        a_dry_report_runs_nothing, a_report_without_a_toolkit_ends, the_names_of_the_job_agree, the_job_is_a_program_that_starts, the_image_builds)
sys.exit(run_rows(ROWS, "containers-", sys.argv[3] if sys.argv[3:] else None))
