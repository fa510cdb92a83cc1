#!/usr/bin/env python3
"""`lather launch`: the same programs in threads, processes and by mpirun; failures; leftover processes and files.

    launch.py LATHER FOLDER MPIRUN [short | ROW]

FOLDER has the programs of examples/launch. short: without the rows that take long.
"""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import Skip, run_rows  # noqa: E402

LATHER, FOLDER, MPIRUN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
TIMEOUT = 120
PROGRAMS = {
    "producers": "consumed 400 of 400 items, 0 twice",
    "parameter_server": "20 steps of 3 workers: the bits of one process",
    "map_reduce": "10000 words by 3 mappers and 2 reducers: exact",
    "evolution": "60 generations by 3 evaluators: the bits of one process",
    "evaluator": "version 20 has loss",
}


def environment(cwd):
    """mpirun ends the other ranks of one that failed at once, not after two seconds."""
    return {"OMPI_MCA_odls_base_sigkill_timeout": "0", **os.environ, "TMPDIR": cwd, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launch(cwd, path, *flags, env=None, **more):
    return subprocess.run([LATHER, "launch", path, *flags], cwd=cwd, env=env or environment(cwd), capture_output=True, text=True,
                          timeout=TIMEOUT, check=False, **more)


def text(cwd, content):
    """Writes a program file; {FOLDER} is the folder of modules."""
    path = os.path.join(cwd, "program.ini")
    with open(path, "w") as f:
        f.write(content.replace("{FOLDER}", FOLDER))
    return path


def works(out):
    assert out.returncode == 0, (out.returncode, out.stdout, out.stderr)
    return out.stdout


def fails(out, *parts, status=1):
    assert out.returncode == status, (out.returncode, out.stdout, out.stderr)
    for part in parts:
        assert part in out.stderr + out.stdout, (part, out.stdout, out.stderr)
    return out.stdout


def program(name, **changes):
    with open(os.path.join(FOLDER, name + ".ini")) as f:
        content = f.read()
    for key, value in changes.items():
        content = content.replace(key, value)
    return re.sub(r"entry = ", "entry = {FOLDER}/", content)


def needs_mpirun():
    if MPIRUN == "none":
        raise Skip("no MPI")


def the_same_programs_in_threads_and_processes(cwd):
    for name, says in PROGRAMS.items():
        for on in ("threads", "local"):
            assert says in works(launch(cwd, os.path.join(FOLDER, name + ".ini"), "--on", on)), (name, on)
    assert not [n for n in os.listdir(cwd) if n.startswith("lather-")], os.listdir(cwd)


def the_same_programs_by_mpirun(cwd):
    """mpirun that kills a service at once does not pass on its last line."""
    needs_mpirun()
    env = {**environment(cwd), "OMPI_MCA_odls_base_sigkill_timeout": "2"}
    for name in ("producers", "parameter_server"):
        assert PROGRAMS[name] in works(launch(cwd, os.path.join(FOLDER, name + ".ini"), "--on", "mpirun", env=env)), name
    assert not os.listdir(cwd), os.listdir(cwd)


def a_command_that_is_a_service_publishes_its_port(cwd):
    needs_mpirun()
    path = text(cwd, """
[buffer]
kind = service
command = sh -c 'echo tcp://127.0.0.1:4242 >"$LATHER_ADDRESS_FILE.new"; mv "$LATHER_ADDRESS_FILE.new" "$LATHER_ADDRESS_FILE"; exec sleep 1000'
[user]
command = echo calls ${buffer.address}
""")
    assert "calls tcp://127.0.0.1:4242" in works(launch(cwd, path, "--on", "mpirun"))


def the_same_items_of_1_to_64_producers(cwd):
    for count in (1, 64):
        path = text(cwd, program("producers").replace("count = 4", f"count = {count}").replace("--items 100", "--items 5"))
        for on in ("threads", "local"):
            assert f"consumed {5 * count} of {5 * count} items, 0 twice" in works(launch(cwd, path, "--on", on))


COMMANDS = """
[program]
name = commands
[sleeper]
command = sleep 1000
[worker]
command = sh -c 'echo "of ${count}: ${index}"; echo error >&2; exit ${index}'
count = 2
"""


def fail_fast_names_the_node_and_ends_the_rest(cwd):
    begin = time.monotonic()
    out = fails(launch(cwd, text(cwd, COMMANDS)), "launch: worker.1 ended with status 1")
    assert "worker.1| of 2: 1" in out and "worker.1| error" in out, out
    assert time.monotonic() - begin < TIMEOUT / 2


def restarts_are_counted(cwd):
    path = text(cwd, "[once]\ncommand = sh -c 'if [ -e it ]; then exit 0; fi; touch it; exit 7'\nsupervise = restart 2\nbackoff = 0.01\n")
    out = works(launch(cwd, path))
    assert out.count("restart 1 of 2") == 1 and "restart 2" not in out, out
    out = fails(launch(cwd, text(cwd, "[never]\ncommand = false\nsupervise = restart 2\nbackoff = 0.01\n")),
                "never.0 ended with status 1, and may not be restarted again")
    assert out.count("; restart ") == 2, out


def a_wrong_command_line_is_not_restarted(cwd):
    out = fails(launch(cwd, text(cwd, "[it]\ncommand = sh -c 'exit 2'\nsupervise = restart 9\n")), "it.0 ended with status 2")
    assert "restart" not in out, out


def a_group_that_shrinks_goes_on_without_the_dead(cwd):
    out = works(launch(cwd, text(cwd, "[w]\ncommand = sh -c 'exit ${index}'\ncount = 2\nsupervise = shrink\n")))
    assert "w.1 ended with status 1" in out, out
    fails(launch(cwd, text(cwd, "[w]\ncommand = false\ncount = 2\nsupervise = shrink 1\nbackoff = 0.01\n")), "w.")
    fails(launch(cwd, text(cwd, "[w]\nkind = gang\nranks = 1\ncommand = false\nsupervise = shrink 1\nbackoff = 0.01\n")), "launch: w has no rank left")


def processes_of(cwd):
    """Pids of processes that have cwd as their folder."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(cwd):
                with open(f"/proc/{pid}/cmdline") as f:
                    words = f.read().split("\0")
                found[int(pid)] = words[1:] if os.path.basename(words[0]).startswith("qemu-") else words
        except OSError:
            pass
    return found


def begin(cwd, path, *flags):
    return subprocess.Popen([LATHER, "launch", path, *flags], cwd=cwd, env=environment(cwd), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


class Ended(Exception):
    """The program ended before the test could act."""


def wait_until(holds, running=None):
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        if running and running.poll() is not None:
            raise Ended
        time.sleep(0.01)


def node(cwd, label, index, running=None):
    """The pid of a node, once it runs. Errors: Ended, where running is the launcher."""
    found = []

    def is_there():
        found[:] = [pid for pid, words in processes_of(cwd).items()
                    if words[1:2] == ["node"] and words[6:8] == [label, str(index)] and "launch" not in words[:2]]
        return bool(found)
    wait_until(is_there, running)
    return found[0]


def has_called(pid):
    """The process, once it has waited for a few hundred answers. Errors: Ended."""
    def often():
        try:
            with open(f"/proc/{pid}/status") as f:
                return int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", f.read()).group(1)) > 300
        except FileNotFoundError:
            raise Ended from None
    wait_until(often)
    return pid


def strike(cwd, sizes, content_of, hit, restarts, *flags):
    """Launches a program, hits it while it runs, and returns its size and output. If a node ends before its hit, as on a
    busy machine, a larger program is launched: a signal to a node that has ended and was not waited for is no error."""
    for size in sizes:
        running = begin(cwd, text(cwd, content_of(size)), *flags)
        try:
            hit(running)
        except (Ended, ProcessLookupError):
            running.kill()
        out = running.communicate(timeout=TIMEOUT)[0]
        if running.returncode >= 0 and out.count("restart 1 of 3") == restarts:
            break
        wait_until(lambda: not processes_of(cwd))
    assert running.returncode == 0, out
    return size, out


def strike_producers(cwd, victims, how, *flags, settings=""):
    def content_of(items):
        return program("producers").replace("--items 100", f"--items {items}").replace("name = producers", "name = producers" + settings)

    def hit(running):
        for index in victims:
            os.kill(has_called(node(cwd, "producer", index, running)), how)
    items, out = strike(cwd, (1000, 5000, 25000), content_of, hit, len(victims), *flags)
    assert f"consumed {4 * items} of {4 * items} items, 0 twice" in out, out
    return out


def a_killed_node_is_named(cwd):
    for label, index in (("producer", 2), ("buffer", 0), ("consumer", 0)):
        path = text(cwd, program("producers").replace("--items 100", "--items 1000000").replace("supervise = restart 3", ""))
        running = begin(cwd, path, "--grace", "0.3")
        os.kill(node(cwd, label, index), signal.SIGKILL)
        out = running.communicate(timeout=TIMEOUT)[0]
        assert running.returncode == 1 and f"launch: {label}.{index} was killed by signal 9" in out, out
        assert not processes_of(cwd), processes_of(cwd)


def killed_producers_are_restarted_and_the_items_are_exact(cwd):
    out = strike_producers(cwd, (0, 3), signal.SIGKILL)
    assert out.count("restart 1 of 3") == 2, out


def kill_a_service(cwd, on):
    def hit(running):
        evaluator = node(cwd, "evaluator", 1, running)
        has_called(node(cwd, "master", 0, running))
        os.kill(evaluator, signal.SIGKILL)
    _, out = strike(cwd, (150, 750, 3750), lambda n: program("evolution") + f"arguments = --generations {n}\n", hit, 1, "--on", on)
    assert "the bits of one process" in out and "restart 1 of 3" in out, out


def a_killed_service_comes_back(cwd):
    kill_a_service(cwd, "local")


def a_killed_service_comes_back_at_its_port(cwd):
    """Another port would not be asked at."""
    needs_mpirun()
    kill_a_service(cwd, "mpirun")


# Slow: sleeps through several heartbeats. Stopped: the second stops itself. Stuck: never reports progress, and cleans up
# on SIGTERM.
WATCHED = """
[program]
name = watched
heartbeat = 1.2
[slow]
command = sleep 2.6
[stopped]
command = sh -c 'test ${index} = 0 || kill -STOP $$'
count = 2
supervise = shrink
[stuck]
command = sh -c 'test ${index} = 0 && exit; trap "touch cleaned; exit 1" TERM; sleep 1000 & wait'
count = 2
supervise = shrink
progress = 1
heartbeat = 0
"""


def a_node_that_hangs_is_named_and_a_slow_one_is_left_alone(cwd):
    out = works(launch(cwd, text(cwd, WATCHED), "--grace", "0.5"))
    hangs = [line for line in out.splitlines() if line.endswith("; ending it")]
    assert len(hangs) == 2, out
    assert any("stopped.1 has sent no heartbeat for" in line and "(heartbeat = 1.2)" in line for line in hangs), out
    assert any("stuck.1 has made no progress for" in line and "(progress = 1)" in line for line in hangs), out
    assert "slow" not in out and not processes_of(cwd), (out, processes_of(cwd))
    assert os.path.exists(os.path.join(cwd, "cleaned")), out


def a_gang_without_progress_continues_with_fewer_ranks(cwd):
    """The rank with the least progress is named, and none if several have equally little. Progress goes to stderr, as the first heartbeat
    of `lather node`: mpirun keeps the order within a stream only."""
    needs_mpirun()
    script = os.path.join(cwd, "rank")
    for progress, named in (("3 - rank", "w.2"), ("rank / 2", "w")):
        with open(script, "w") as f:
            f.write("#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n[ ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} = 2 ] && exit\n"
                    f"printf '\\001beat %d %d\\n' $rank $(({progress})) >&2\nexec sleep 1000\n")
        os.chmod(script, 0o755)
        out = works(launch(cwd, text(cwd, f"[w]\nkind = gang\nranks = 3\ncommand = {script}\nsupervise = shrink 1\nbackoff = 0.01\nprogress = 1\n"),
                           "--grace", "0.5"))
        assert f"launch| {named} has made no progress for" in out and "launch| w continues with 2 ranks, grad-accum 1" in out, out


def a_stopped_producer_is_started_again_and_the_items_are_exact(cwd):
    out = strike_producers(cwd, (2,), signal.SIGSTOP, "--grace", "0.2", settings="\nheartbeat = 1")
    assert "producer.2 has sent no heartbeat" in out and "restart 1 of 3" in out, out


def a_stopped_node_of_mpirun_is_named(cwd):
    needs_mpirun()
    works(launch(cwd, text(cwd, "[quick]\ncommand = true\nheartbeat = 1\n[slow]\ncommand = sleep 3\nheartbeat = 1\n"), "--on", "mpirun"))
    path = text(cwd, "[slow]\ncommand = sleep 6\nheartbeat = 2\n[it]\ncount = 3\nheartbeat = 1\n"
                     "command = sh -c 'test ${index} = 1 && kill -STOP $$; sleep 5'\n")
    fails(launch(cwd, path, "--on", "mpirun"), "launch: it.1 has sent no heartbeat for")
    assert not processes_of(cwd), processes_of(cwd)


def a_signal_to_the_launcher_ends_all(cwd):
    """Nodes that ignore SIGTERM too."""
    for first in ("", 'trap "" TERM; '):
        path = text(cwd, f"[a]\ncommand = sh -c '{first}sleep 1000 & sleep 1000'\ncount = 2\n")
        running = begin(cwd, path, "--grace", "0.5")
        wait_until(lambda: len(processes_of(cwd)) >= 7)
        running.send_signal(signal.SIGTERM)
        out = running.communicate(timeout=TIMEOUT)[0]
        assert running.returncode == 1 and "ended by signal 15" in out, out
        assert not processes_of(cwd), processes_of(cwd)


def a_killed_launcher_leaves_no_node(cwd):
    if os.environ.get("LATHER_TEST_PORTABLE"):
        raise Skip("the portable form has no signal at the end of a parent")
    running = begin(cwd, text(cwd, program("producers").replace("--items 100", "--items 1000000")))
    node(cwd, "consumer", 0)
    running.kill()
    running.communicate(timeout=TIMEOUT)
    wait_until(lambda: not processes_of(cwd))


ORPHANS = """
[program]
name = orphans
[loop]
command = sh -c 'sleep 1000 & sleep 1000'
count = 2
[gang]
kind = gang
ranks = 2
command = sh -c 'sleep 1000 & sleep 1000'
"""


def kill_launcher(cwd, on, processes):
    """Starts a separate session, as a terminal or timeout(1) kills a whole process group."""
    content = ORPHANS if MPIRUN != "none" else ORPHANS.partition("[gang]")[0]
    running = subprocess.Popen([LATHER, "launch", text(cwd, content), "--on", on], cwd=cwd, env=environment(cwd), stdout=subprocess.DEVNULL,
                               stderr=subprocess.STDOUT, start_new_session=True)
    wait_until(lambda: sum(words[:1] == ["sleep"] for words in processes_of(cwd).values()) == processes)
    assert [name for name in os.listdir(cwd) if name.startswith("lather-")], os.listdir(cwd)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=TIMEOUT)
    wait_until(lambda: not processes_of(cwd))
    assert os.listdir(cwd) == ["program.ini"], os.listdir(cwd)


def a_killed_launcher_leaves_no_child_no_rank_and_no_secret(cwd):
    kill_launcher(cwd, "local", 8 if MPIRUN != "none" else 4)


def a_launcher_of_mpirun_that_is_killed_leaves_none_either(cwd):
    needs_mpirun()
    kill_launcher(cwd, "mpirun", 8)


def files_of_the_user_in_the_folder_are_left_alone(cwd):
    names = (".profile", "build.flags", "client_secret", "secret", "data.address", "network.plan", "a.plan-log", "a.0.socket", "program.ini")
    for name in names:
        with open(os.path.join(cwd, name), "w") as f:
            f.write("[a]\ncommand = sh -c 'echo it is ${folder}'\n")
    before = {name: os.stat(os.path.join(cwd, name)) for name in names}
    for flags in (("--dry-run", "--log", "log"), ()):
        assert "a.0" in works(launch(cwd, "program.ini", "--folder", ".", *flags))
        assert sorted(os.listdir(cwd)) == sorted(names), os.listdir(cwd)
        for name in names:
            now = os.stat(os.path.join(cwd, name))
            assert (now.st_ino, now.st_mtime_ns) == (before[name].st_ino, before[name].st_mtime_ns), name
    assert f"a.0| it is {os.path.realpath(cwd)}\n" in works(launch(cwd, "program.ini", "--folder", "."))
    works(launch(cwd, "program.ini", "--folder", "new", "--dry-run"))
    assert not os.path.exists(os.path.join(cwd, "new"))
    long = 20 * (200 * "x" + "/") + 61 * "x"
    works(launch(cwd, "program.ini", "--folder", long, "--dry-run"))
    fails(launch(cwd, "program.ini", "--folder", long + "x", "--dry-run"), "launch: a path of 4096 bytes, at most 4095: xxx")


def give_away(path):
    try:
        os.chown(path, 65534, 65534)
    except OSError as error:  # EINVAL: a user namespace of one user
        raise Skip(f"a file cannot be given to another user: {error.strerror}") from error


def a_folder_that_others_may_write_is_refused(cwd):
    path, shared, others = text(cwd, "[a]\ncommand = true\n"), os.path.join(cwd, "shared"), os.path.join(cwd, "others")
    os.mkdir(shared)
    os.chmod(shared, 0o777)
    fails(launch(cwd, path, "--folder", shared), "shared: has mode 0777", "chmod go-w")
    os.mkdir(others)
    give_away(others)
    for flags in ((), ("--dry-run",)):
        fails(launch(cwd, path, "--folder", others, *flags), "others: belongs to user 65534")
    assert not os.listdir(others) and not os.listdir(shared)


def files_of_another_user_are_not_believed(cwd):
    """Who owns a folder above the launch's could put his own in its place: a node reads no program, flag or address from there."""
    words = [LATHER, "node", cwd, cwd, "1", "0", "a", "0", "1", "-1", "1", "1"]
    for path, content in (("program.ini", "[b]\nkind = service\ncommand = true\n[a]\ncommand = sh -c 'touch pwned' ${b.address}\n"), ("b.0.address", "tcp://evil:1")):
        with open(os.path.join(cwd, path), "w") as f:
            f.write(content)
        give_away(os.path.join(cwd, path))
        out = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        fails(out, f"{path}: belongs to user 65534, not to user 0")
        os.chown(os.path.join(cwd, path), 0, 0)
    assert not os.path.exists(os.path.join(cwd, "pwned"))
    works(subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False))
    assert os.path.exists(os.path.join(cwd, "pwned"))


def a_node_under_srun_hands_sigterm_to_its_command(cwd):
    """srun forwards SIGUSR1, which a node translates, and kills its tasks at SIGTERM."""
    slurm = "3"
    for ends, status in (("trap 'echo asked > asked; exit 3' TERM; ", 3), ("", -signal.SIGTERM)):
        text(cwd, f"[a]\ncommand = sh -c \"{ends}touch up; while :; do sleep 0.02; done\"\n")
        node_ = subprocess.Popen([LATHER, "node", cwd, cwd, slurm, "0", "a", "0", "1", "-1", "1", "1"], cwd=cwd, start_new_session=True)
        wait_until(lambda: os.path.exists(os.path.join(cwd, "up")))
        os.remove(os.path.join(cwd, "up"))
        os.killpg(node_.pid, signal.SIGUSR1)  # as Slurm does, to the whole task
        assert node_.wait(TIMEOUT) == status, (ends, node_.returncode)
    assert os.path.exists(os.path.join(cwd, "asked"))


def a_dry_run_starts_nothing(cwd):
    path = text(cwd, "[a]\ncommand = touch here\n[gang]\nkind = gang\nranks = 3\ncommand = touch here --accum ${grad-accum}\n"
                     "batch-size = 2\nglobal-batch = 12\n")
    out = works(launch(cwd, path, "--dry-run", "--on", "mpirun"))
    assert "gang x 3" in out and "(grad-accum 2)" in out and "mpirun" in out and not os.path.exists(os.path.join(cwd, "here")), out
    out = works(launch(cwd, path, "--dry-run", "--on", "slurm"))
    assert re.search(r"gang: srun .*--mpi=pmix -n 3 ", out), out
    agents = {"OMPI_MCA_orte_launch_agent": "orted", "PRTE_MCA_prte_launch_agent": "prted"}  # daemons on other hosts get the mark; a user's agent is kept
    for own in ({}, *({name: "mine"} for name in agents)):
        out = works(launch(cwd, path, "--dry-run", "--on", "mpirun", "--hosts", "127.0.0.1:3", env={**environment(cwd), **own}))
        for name, daemon in agents.items():
            assert bool(re.search(rf"{name}=env LATHER_LAUNCH=\S+\.gang {daemon} ", out)) == (name not in own), (own, out)
    hosts = os.path.join(cwd, "hosts")
    for slots, given, says in ((2, hosts, "launch| PBS_NODEFILE: 2 slots for the 3 ranks of gang: mpirun chooses their hosts\n"), (3, hosts, ""),
                               (3, hosts + "?", "/hosts?: mpirun chooses the hosts\n")):
        with open(hosts, "w") as f:
            f.write(slots * "127.0.0.1\n")
        p = launch(cwd, path, "--dry-run", "--on", "mpirun", env={**environment(cwd), "PBS_NODEFILE": given})
        said = p.stdout + p.stderr
        assert p.returncode == 0 and ("mpirun chooses" in said) == bool(says) and says in said, (slots, said)
    if FOLDER != "none":
        assert "4 threads: " in works(launch(cwd, os.path.join(FOLDER, "producers.ini"), "--dry-run", "--on", "threads"))


def texts_that_are_refused(cwd):
    gang = "[g]\nkind = gang\nranks = 4\ncommand = true\n"
    service = "[{0}]\nkind = service\ncommand = true --peer ${{{1}.address}}\n"
    for content, *parts in (
            ("", "an empty program"),
            ("[a]\n", "want exactly one of entry, module and command"),
            ("[a]\ncommand =\n", "launch: a: the command is empty"),
            ("[a]\nkind = service\ncommand = true\n", "contains only services"),
            ("[a]\ncommand = true ${b.address}\n", "unknown placeholder ${b.address}"),
            ("[buf]\nkind = service\ncommand = true\n[a]\ncommand = true ${bug.address}\n", "did you mean ${buf.address}?"),
            ("[a]\ncommand = true ${index\n", "unclosed placeholder"),
            ("[a]\ncommand = true ${grad-accum}\n", "unknown placeholder ${grad-accum}"),
            ("[b]\ncommand = true\n[a]\ncommand = true ${b.address}\n", "a refers to the address of b, which is not a service"),
            ("[b]\nkind = service\ncommand = true\ncount = 2\n[a]\ncommand = true ${b.2.address}\n", "b has 2 nodes"),
            *((f"[b]\nkind = service\ncommand = true\n[a]\ncommand = true ${{b.{index}.address}}\n", f"unknown placeholder ${{b.{index}.address}}") for index in ("-1", "x", "0x", "", "4294967296")),
            (service.format("x", "y") + service.format("y", "x") + "[a]\ncommand = true\n", "wait for each other's addresses", "one service of the cycle needs an entry"),
            ("[a]\ncommand = true\nuses = b\n", "a uses unknown group b"),
            ("[b]\ncommand = true\n[a]\ncommand = true\nuses = b\n", "launch: a uses b, which is not a service"),
            ("[a]\ncommand = true " + "x" * 8176 + "\n", "program.ini:2: line too long, at most 8190 bytes are allowed"),
            ("[a]\ncommand = true\n[a]\ncommand = true\n", "program.ini:3: launch: ", "duplicate group a"),
            ("[self]\ncommand = true\n", "invalid label 'self'"),
            ("[a]\ncommand = true\ncuont = 2\n", "program.ini:3: ", "unknown key cuont; did you mean count?"),
            ("[a]\ncuont = 2\ncommand = true\n", "program.ini:2: ", "unknown key cuont"),
            ("[a]\ncommand = true\ncount = 0\n", "count = 0: want a number, 1 to"),
            ("[a]\ncommand = true\ncount = 1.5\n", "want a whole number"),
            ("[a]\ncommand = true\ncount = 4097\n", "count = 4097: want a number, 1 to 4096"),
            ("[a]\ncommand = true\nsupervise = restart 1000001\n", "supervise = 1000001: want a number, 1 to 1e+06"),
            ("[a]\ncommand = true\nsupervise = restart 0\n", "supervise = 0: want a number, 1 to 1e+06"),
            ("[a]\ncommand = true\nsupervise = restarted\n", "want fail-fast, restart COUNT or shrink"),
            ("[a]\ncommand = true\nbackoff = 1000001\n", "backoff = 1000001: want a number, 0 to 1e+06"),
            ("[a]\ncommand = true\nplan = automatic\n", "plan = automatic: want auto, followed by flags of plan"),
            ("[program]\nheartbeat = 1000001\n", "heartbeat = 1000001: want a number, 0 to 1e+06"),
            ("[a]\nkind = thing\n", "kind = thing: want function, service or gang"),
            ("[a]\nsupervise = sometimes\n", "want fail-fast, restart COUNT or shrink"),
            ("[a]\nentry = it\n", "is not FILE.so:NAME"),
            ("[a]\ncommand = echo 'x\n", "unclosed quote"),
            ("[a]\ncommand = true\nheartbeat = -1\n", "heartbeat = -1: want a number, 0 to"),
            ("[a]\ncommand = true\n[program]\nheartbeat = 1\n", "applies to groups after it"),
            ("[b]\nkind = service\ncommand = true\nprogress = 2\n[a]\ncommand = true\n", "b: progress = 2: a service cannot have a progress timeout"),
            ("[a\n", "program.ini:1: want [NAME]"),
            ("a = 1\n", "want KEY = VALUE in a section"),
            ("[a]\n b\n", "an indented line must follow a value"),
            (gang, "g needs 4 ranks, but there are 3 slots"),
            (gang.replace("ranks = 4", "ranks = 2") + "batch-size = 4\nglobal-batch = 6\n",
             "a global batch of 6 is not a multiple of micro-batches of 4 on 2 ranks")):
        fails(launch(cwd, text(cwd, content), "--slots", "3"), *parts)
    most = "[program]\nheartbeat = 1000000\n[a]\ncommand = true " + "x" * 8175 + "\nsupervise = restart 1000000\nbackoff = 1000000\nprogress = 1000000\n"
    works(launch(cwd, text(cwd, most), "--dry-run"))
    works(launch(cwd, text(cwd, "[b]\nkind = service\ncommand = true\ncount = 2\n[a]\ncommand = true ${b.0.address} ${b.1.address}\n"), "--dry-run"))
    fails(launch(cwd, text(cwd, gang), "--on", "mpirun", "--hosts", "127.0.0.1:2", "--dry-run"), "launch: g needs 4 ranks, but --hosts has 2 slots")
    fails(launch(cwd, "nothing.ini"), "nothing.ini: No such file or directory")
    fails(launch(cwd, text(cwd, "[a]\ncommand = true\n"), env={**environment(cwd), "TMPDIR": "/nowhere"}), "launch: /nowhere/lather-")
    for words, says in (([cwd, cwd, "1", "0", "b", "0", "1", "-1", "1", "1"], "launch: unknown node b.0"),
                        (["--check", cwd, "none", "", "-", "0", cwd], "none: No such file or directory"),
                        (["--check", "none", cwd, "", "-", "0", cwd], "none cannot be written: No such file or directory"),
                        (["--check", cwd, cwd, "", "nowhere", "1", cwd], "'nowhere' is not an address")):
        fails(subprocess.run([LATHER, "node", *words], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False), says)
    fails(launch(cwd, text(cwd, "[a]\ncommand = there-is-no-such-program\n")), "there-is-no-such-program: No such file")
    fails(launch(cwd, text(cwd, "[a]\nentry = none.so:f\n"), "--on", "threads"), "none.so")
    works(launch(cwd, text(cwd, "[a]\ncommand = touch\n  one\n  two\n")))
    assert os.path.exists(os.path.join(cwd, "one")) and os.path.exists(os.path.join(cwd, "two")), os.listdir(cwd)
    if FOLDER != "none":
        fails(launch(cwd, text(cwd, "[a]\nentry = {FOLDER}/producers.so:nothing\n")), "has no function nothing")
        uneven = gang.replace("ranks = 4", "ranks = 2").replace("command = true", "entry = {FOLDER}/producers.so:consume")
        fails(launch(cwd, text(cwd, uneven + "batch-size = 4\nglobal-batch = 6\n"), "--on", "threads"), "a global batch of 6 is not a multiple of")
    fails(subprocess.run([LATHER, "launch"], capture_output=True, text=True, check=False), "want one program", status=2)


def many_launches_leave_nothing(cwd):
    """By one process: threads, descriptors and children are counted in tests/launch/graph.c; here folders and processes."""
    path = text(cwd, program("map_reduce"))
    for _ in range(4):
        works(launch(cwd, path))
    assert os.listdir(cwd) == ["program.ini"] and not processes_of(cwd), os.listdir(cwd)


def the_first_program_of_the_guide_is_the_example(_):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with open(os.path.join(source, "docs/guides/launch.md")) as guide, open(os.path.join(source, "examples/launch/producers.ini")) as example:
        assert guide.read().split("```ini\n")[1].split("```")[0] == example.read()


LONG = (the_same_programs_by_mpirun, the_same_items_of_1_to_64_producers, a_killed_service_comes_back_at_its_port,
        a_stopped_node_of_mpirun_is_named)
ROWS = (the_first_program_of_the_guide_is_the_example, the_same_programs_in_threads_and_processes,
        a_command_that_is_a_service_publishes_its_port, fail_fast_names_the_node_and_ends_the_rest, restarts_are_counted,
        a_wrong_command_line_is_not_restarted, a_group_that_shrinks_goes_on_without_the_dead, a_gang_without_progress_continues_with_fewer_ranks, a_killed_node_is_named,
        killed_producers_are_restarted_and_the_items_are_exact, a_killed_service_comes_back,
        a_node_that_hangs_is_named_and_a_slow_one_is_left_alone, a_stopped_producer_is_started_again_and_the_items_are_exact, a_signal_to_the_launcher_ends_all,
        a_killed_launcher_leaves_no_node, a_killed_launcher_leaves_no_child_no_rank_and_no_secret, a_launcher_of_mpirun_that_is_killed_leaves_none_either,
        files_of_the_user_in_the_folder_are_left_alone, a_folder_that_others_may_write_is_refused, files_of_another_user_are_not_believed,
        a_node_under_srun_hands_sigterm_to_its_command, a_dry_run_starts_nothing, texts_that_are_refused, many_launches_leave_nothing)

if __name__ == "__main__":
    CHOSEN = sys.argv[4] if len(sys.argv) > 4 else None
    sys.exit(run_rows(ROWS if CHOSEN == "short" else ROWS + LONG, "lather-launch-", None if CHOSEN == "short" else CHOSEN))
