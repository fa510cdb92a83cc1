#!/usr/bin/env python3
"""Every state that jobs can reach which take turns on two devices (src/dist/share): two that are there, one or two that
join, and kills of any of their processes at any moment.

    share_model.py [SETTING]

A rank computes with both hands full: it ends its turn when the other rank of its job has begun the same one, as with
synchronised batch norm, so that two devices with different orders stop for ever. Checked in every state: one holder a
device; two turns that both devices saw were in the same order on both; something can still happen until all are done.
Five protocols that are wrong must be found wrong. Prints cmocka's lines, with the numbers of states.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import run_rows  # noqa: E402

NODES = (0, 1)
ROUND = 2
FREE, JOINING, ACTIVE = range(3)                            # states of a member
OUT, PROPOSED, IDLE, HOLDS, DONE, DEAD, LEFT = range(7)     # phases of a process
GONE = (DONE, DEAD, LEFT)


class Model:
    """jobs: (weight, turns, joins later, may be killed) each."""

    def __init__(self, jobs, mutant=None, margin=ROUND):
        self.jobs, self.mutant, self.margin = jobs, mutant, margin

    # A state is (nodes, processes, starts): of each node (position, holder, members, turns seen); of each job its
    # processes' phases, and its agreed start. A member is (state, start, taken).
    def first(self):
        members = tuple((FREE, 0, 0) if late else (ACTIVE, 0, 0) for _, _, late, _ in self.jobs)
        phases = tuple((OUT if late else IDLE,) * 2 for _, _, late, _ in self.jobs)
        return ((0, None, members, ()),) * 2, phases, (None,) * len(self.jobs)

    def stamp(self, j, member):
        _, start, taken = member
        return (start + (taken + 1) * ROUND // self.jobs[j][0], start, j)

    def next_by_stamp(self, node):
        _, _, members, _ = node
        found = min((self.stamp(j, m) for j, m in enumerate(members) if m[0] == ACTIVE), default=None)
        if found is None:
            return None
        bounds = [m[1] for m in members if m[0] == JOINING]
        return None if bounds and self.mutant != "no bound" and found[0] >= min(bounds) else found[2]

    def next_by_table(self, node):
        """The mutant: turn k is entry k - base, modulo its length, of the list of those that joined; base is the last
        one's start. A job that is done or dead is kept in the list, and its turns are skipped."""
        k, _, members, seen = node
        for turn in range(k, k + 20):
            if any(m[0] == JOINING and turn >= m[1] for m in members):
                return None
            table = sorted((m[1], j) for j, m in enumerate(members) if (m[0] == ACTIVE or m[2]) and m[1] <= turn)
            if not table:
                return None
            owner = table[(turn - table[-1][0]) % len(table)][1]
            if members[owner][0] == ACTIVE:
                return owner, turn
        return None

    def next_turn(self, node):
        if self.mutant != "table":
            return self.next_by_stamp(node)
        found = self.next_by_table(node)
        return found and found[0]

    # --- Transitions: (name, next state) ---

    def with_node(self, state, n, j, phase, node, start=None):
        nodes, phases, starts = state
        own = tuple(phase if i == n else p for i, p in enumerate(phases[j]))
        return (nodes[:n] + (node,) + nodes[n + 1:], phases[:j] + (own,) + phases[j + 1:],
                starts if start is None else starts[:j] + (start,) + starts[j + 1:])

    def put(self, node, j, member, **more):
        position, holder, members, seen = node
        return (more.get("position", position), more.get("holder", holder), members[:j] + (member,) + members[j + 1:],
                more.get("seen", seen))

    def join(self, state, j, n):
        nodes, phases, starts = state
        node, phase = nodes[n], phases[j][n]
        if phase == OUT:
            bound = node[0] + self.margin
            yield self.with_node(state, n, j, PROPOSED, self.put(node, j, (JOINING, bound, 0)))
        elif phase == PROPOSED:
            start = starts[j]
            if start is None and phases[j] == (PROPOSED, PROPOSED):
                start = (min if self.mutant == "smallest" else max)(nodes[i][2][j][1] for i in NODES)
            if start is not None:
                yield self.with_node(state, n, j, IDLE, self.put(node, j, (ACTIVE, start, 0)), start)

    def begin(self, state, j, n):
        nodes, phases, _ = state
        node = nodes[n]
        position, holder, members, seen = node
        if phases[j][n] != IDLE or (holder is not None and self.mutant != "no holder") or self.next_turn(node) != j:
            return
        _, start, taken = members[j]
        if taken > nodes[1 - n][2][j][2] or (taken == nodes[1 - n][2][j][2] and phases[j][1 - n] == HOLDS and taken):
            return  # the gradients of the turn before are not there yet
        assert holder is None, f"node {n}: job {j} computes at the same time as job {holder}"
        at = self.next_by_table(node)[1] + 1 if self.mutant == "table" else self.stamp(j, members[j])[0]
        yield self.with_node(state, n, j, HOLDS, self.put(node, j, (ACTIVE, start, taken + 1), position=at, holder=j, seen=seen + ((j, taken),)))

    def end(self, state, j, n):
        nodes, phases, _ = state
        position, holder, members, seen = nodes[n]
        taken = members[j][2]
        if phases[j][n] == HOLDS and nodes[1 - n][2][j][2] >= taken:
            last = taken == self.jobs[j][1]
            member = (FREE, members[j][1], taken) if last else members[j]
            yield self.with_node(state, n, j, DONE if last else IDLE, self.put(nodes[n], j, member, holder=None))

    def leave(self, state, j, n):
        """A rank whose other rank died fails, sooner or later."""
        nodes, phases, _ = state
        if phases[j][n] in GONE or not {DEAD, LEFT} & set(phases[j]):
            return
        _, start, taken = nodes[n][2][j]
        more = {"holder": None} if nodes[n][1] == j else {}
        yield self.with_node(state, n, j, LEFT, self.put(nodes[n], j, (FREE, start, taken), **more))

    def kill(self, state, j, n):
        nodes, phases, _ = state
        if self.jobs[j][3] and phases[j][n] not in (OUT, *GONE):
            yield self.with_node(state, n, j, DEAD, nodes[n])

    def drop(self, state, j, n):
        """A waiting job finds that a member is dead, and removes it."""
        nodes, phases, _ = state
        member, holds = nodes[n][2][j], nodes[n][1] == j
        if phases[j][n] != DEAD or member[0] == FREE or (self.mutant == "dead kept" and member[0] == JOINING):
            return
        yield self.with_node(state, n, j, DEAD, self.put(nodes[n], j, (FREE, *member[1:]), **({"holder": None} if holds else {})))

    def ahead(self, state):
        for j in range(len(self.jobs)):
            for n in NODES:
                for act in (self.join, self.begin, self.end, self.leave, self.drop):
                    yield from act(state, j, n)

    def kills(self, state):
        for j in range(len(self.jobs)):
            for n in NODES:
                yield from self.kill(state, j, n)

    # --- What must hold ---

    @staticmethod
    def check_order(state):
        one, other = (node[3] for node in state[0])
        place = {turn: i for i, turn in enumerate(other)}
        both = [place[turn] for turn in one if turn in place]
        assert both == sorted(both), f"the devices saw {one} and {other}"

    def search(self):
        """How many states there are. AssertionError: one is wrong."""
        first = self.first()
        found, todo = {first}, [first]
        while todo:
            state = todo.pop()
            self.check_order(state)
            more = list(self.ahead(state))
            done = all(p in GONE for phases in state[1] for p in phases)
            assert more or done, f"nothing can happen any more: {state}"
            for after in more + list(self.kills(state)):
                if after not in found:
                    found.add(after)
                    todo.append(after)
        return len(found)


MEMBER, JOINS, FRAIL = (False, False), (True, False), (True, True)
ONE = [(1, 3, *MEMBER), (1, 3, *MEMBER), (1, 2, *FRAIL)]


NARROW = [(1, 3, *MEMBER), (1, 3, *MEMBER), (2, 2, *FRAIL)]


def one_joins_and_may_be_killed(_cwd):
    print(Model(ONE).search(), "states")


def one_joins_two_of_other_weights(_cwd):
    print(Model([(1, 2, *MEMBER), (2, 3, *MEMBER), (2, 2, *FRAIL)]).search(), "states")


def two_join_at_once_and_one_may_be_killed(_cwd):
    print(Model([(1, 3, *MEMBER), (2, 2, *JOINS), (1, 1, *FRAIL)]).search(), "states")


def one_that_takes_part_is_killed(_cwd):
    print(Model([(1, 3, *MEMBER), (1, 2, False, True), (1, 1, *JOINS)]).search(), "states")


def one_joins_without_a_margin(_cwd):
    print(Model(NARROW, margin=0).search(), "states")


def is_found(mutant, says, jobs=ONE, margin=ROUND):
    try:
        states = Model(jobs, mutant, margin).search()
    except AssertionError as why:
        assert says in str(why), f"{mutant}: {why}"
        return
    raise AssertionError(f"{mutant}: nothing wrong in {states} states")


def turns_go_on_past_the_bound_of_one_that_joins(_cwd):
    is_found("no bound", "the devices saw")


def a_start_that_is_the_smallest_bound(_cwd):
    is_found("smallest", "the devices saw", NARROW, 0)


def a_table_of_turns_instead_of_stamps(_cwd):
    is_found("table", "")


def a_dead_job_that_never_joined_is_waited_for(_cwd):
    is_found("dead kept", "nothing can happen any more")


def a_turn_that_does_not_wait_for_the_holder(_cwd):
    is_found("no holder", "computes at the same time as")


ROWS = [one_joins_and_may_be_killed, one_joins_two_of_other_weights, two_join_at_once_and_one_may_be_killed, one_that_takes_part_is_killed,
        one_joins_without_a_margin,
        turns_go_on_past_the_bound_of_one_that_joins, a_start_that_is_the_smallest_bound, a_table_of_turns_instead_of_stamps,
        a_dead_job_that_never_joined_is_waited_for, a_turn_that_does_not_wait_for_the_holder]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-share-model-", sys.argv[1] if len(sys.argv) > 1 else None))
