"""What the interpreter tells the runtime of shared prefixes: each is computed before its readers ask, and let go."""

import asyncio
from contextlib import nullcontext

import pytest

from ramet import function, gen, select, user
from ramet.frontend.backends.base import CallFollowUp
from ramet.frontend.hints import MAX_HELD
from ramet.ipc.errors import ClientError
from tests.fakes.services import Service

LONG = "a prefix that is long enough to be worth a request of its own, which takes a few words"


def held(service):
    """Prefixes that were not let go."""
    for _ in range(4):  # what lets go waits for what holds
        service.loop.start(asyncio.sleep(0)).result()
    open_ones = []
    for text, holds in service.held_prefixes:
        open_ones.append(text) if holds else open_ones.remove(text)
    return open_ones


@function
def forked(s, prefix, num):
    s += prefix
    forks = s.fork(num)
    forks += [str(i) for i in range(num)]
    forks += gen("x")
    forks.join()
    return s["x"]


def test_a_fork_computes_its_prefix_first_and_lets_it_go_when_all_have_come():
    service = Service(prefixes=True)
    forked.run(LONG, 3, backend=service)
    assert service.held_prefixes[0] == (LONG, True)
    assert held(service) == []
    assert sorted(service.prompts) == [LONG + "0", LONG + "1", LONG + "2"]


def test_it_is_held_until_the_last_reader_has_come():
    service = Service(prefixes=True)
    service.held = {LONG + "2"}

    @function
    def program(s):
        s += LONG
        forks = s.fork(3)
        forks += [str(i) for i in range(3)]
        forks += gen("x")
        assert forks[0]["x"] and forks[1]["x"]
        service.wait_for(3)
        assert held(service) == [LONG]
        service.let_go()
        assert forks[2]["x"]

    program.run(backend=service)
    assert held(service) == []


@pytest.mark.parametrize("how", ["joined", "raises", "ends"])
def test_it_is_let_go_where_some_of_them_never_ask(how):
    service = Service(prefixes=True)

    @function
    def program(s):
        s += LONG
        forks = s.fork(3)
        forks[0] += gen("x")
        forks[1] += "text"
        assert forks[0]["x"]
        if how == "joined":
            forks.join()
            assert held(service) == []
        if how == "raises":
            raise ValueError("of the function")

    with pytest.raises(ValueError, match="of the function") if how == "raises" else nullcontext():
        program.run(backend=service)
    assert service.held_prefixes[0] == (LONG, True)
    assert held(service) == []


def test_programs_with_one_prefix_do_not_let_go_of_each_other_s():
    @function
    def other(s):
        s += LONG
        forks = s.fork(2)
        forks += ["a", "b"]
        forks += gen("x")
        forks.join()
        return s["x"]

    service = Service(prefixes=True)
    service.held = {LONG + "1"}
    first = forked.run(LONG, 2, backend=service, stream=True)
    service.wait_for(2)
    other.run(backend=service)
    assert held(service) == [LONG]
    service.let_go()
    first.sync()
    assert held(service) == []


def test_what_is_cached_for_a_minute_is_not_let_go_by_those_who_come():
    service = Service(prefixes=True)
    service.cache_prefix(LONG)
    forked.run(LONG, 3, backend=service)
    assert LONG in held(service)


@pytest.mark.parametrize(("prefix", "num", "options"), [("short", 3, {}), (LONG, 1, {}), (LONG, 3, {"hints": False})])
def test_what_is_not_worth_it_is_not_held(prefix, num, options):
    service = Service(prefixes=True)
    forked.run(prefix, num, backend=service, **options)
    assert service.held_prefixes == []


def test_a_service_without_prefixes_is_never_asked_for_one():
    service = Service()
    forked.run(LONG, 3, backend=service)
    assert service.held_prefixes == []


class Refusing(Service):
    async def hold(self, prompt, seconds):
        await super().hold(prompt, seconds)
        raise ClientError("prefix_lease_s", "is too long for this server")


def test_what_was_refused_is_not_let_go():
    service, effects = Refusing(prefixes=True), []
    forked.run(LONG, 3, backend=service)
    asked.run_batch([{"group": "a", "i": i, "effects": effects} for i in range(4)], backend=service, num_threads=1)
    service.loop.start(asyncio.sleep(0)).result()
    assert service.held_prefixes == [(LONG, True), (f"{LONG} of group a. Question ", True)]


def test_a_hint_that_is_refused_costs_no_result():
    assert forked.run(LONG, 3, backend=Refusing(prefixes=True)).ret_value == [f"<{len(LONG) + 1}>"] * 3


@function
def asked(s, group, i, effects):
    effects.append(i)
    s += f"{LONG} of group {group}. Question {i}:" + gen("x")
    s += "and" + gen("y")


def test_programs_of_a_batch_that_begin_alike_share_a_prefix_that_is_held_once():
    service, effects = Service(prefixes=True), []
    arguments = [{"group": "a", "i": i, "effects": effects} for i in range(40)]
    asked.run_batch(arguments, backend=service, num_threads=4)
    assert [text for text, holds in service.held_prefixes if holds] == [f"{LONG} of group a. Question "]
    assert held(service) == []
    assert sorted(effects) == list(range(40)), "no body runs twice"
    assert len(service.prompts) == 80


def test_groups_of_a_batch_are_held_beside_each_other():
    service, effects = Service(prefixes=True), []
    arguments = [{"group": "ab"[i % 2] * 70, "i": i, "effects": effects} for i in range(40)]
    asked.run_batch(arguments, backend=service, num_threads=1)
    assert {text.count("b") > 40 for text, holds in service.held_prefixes if holds} == {True, False}
    assert held(service) == []


def test_never_more_prefixes_are_held_than_a_few():
    service, effects = Service(prefixes=True), []
    most = 0

    class Counting(Service):
        async def hold(self, prompt, seconds):
            nonlocal most
            await super().hold(prompt, seconds)
            most = max(most, sum(1 if holds else -1 for _, holds in self.held_prefixes))

    service = Counting(prefixes=True)
    arguments = [{"group": f"{i // 2}" * 70, "i": i, "effects": effects} for i in range(60)]
    asked.run_batch(arguments, backend=service, num_threads=1)
    assert 0 < most <= MAX_HELD + 1
    assert held(service) == []


def test_programs_that_share_nothing_hold_nothing():
    @function
    def program(s, i):
        s += f"{i} " + LONG + gen("x")

    service = Service(prefixes=True)
    program.run_batch([(i,) for i in range(30)], backend=service)
    assert service.held_prefixes == []


def test_turns_count_for_what_is_shared():
    @function
    def program(s, i):
        s += user(f"{LONG} {i}") + gen("x")

    held_prompts = []

    class Keeping(Service):
        async def hold(self, prompt, seconds):
            if seconds:
                held_prompts.append(prompt)

    program.run_batch([(f"x{i}",) for i in range(4)], backend=Keeping(prefixes=True), num_threads=1)
    assert [turn for prompt in held_prompts for turn in prompt.turns()] == [("user", (f"{LONG} x",), True)]


# -- what a program goes on with ---------------------------------------------------------------------------------------


def settled(service):
    """Names of programs that have ended, when all that was to be told is told."""
    for _ in range(8):
        service.loop.start(asyncio.sleep(0)).result()
    return [name for names in service.ended for name in names]


@function
def in_turn(s, num):
    for i in range(num):
        s += f"{i}" + gen(f"x{i}")
        s.sync()


def test_calls_that_the_program_goes_on_after_say_so_and_its_end_is_told_once():
    service = Service(follow_ups=True)
    state = in_turn.run(3, backend=service)
    states = {follow_up.state for follow_up in service.follow_ups if follow_up}
    assert len(service.follow_ups) == 3 and states == {0}
    assert settled(service) == [state.run.name]


def test_programs_have_names_of_their_own():
    service = Service(follow_ups=True)
    for _ in range(3):
        in_turn.run(2, backend=service)
    assert len(set(settled(service))) == 3


def test_a_call_after_which_nothing_comes_keeps_nothing():
    """The function has returned, and the call waits for nothing but its own turn."""
    service = Service(follow_ups=True)
    service.held = {"0"}

    @function
    def program(s):
        s += "0" + gen("x")
        fork = s.fork(1)
        fork += "1" + gen("y")
        fork.join()

    state = program.run(backend=service)
    service.wait_for(1)
    service.let_go()
    assert state["y"]
    assert [follow_up is not None for follow_up in service.follow_ups] == [True, False]
    assert settled(service) == [state.run.name]


def test_the_last_of_several_calls_says_whose_it_is():
    """What was kept for it is let go of, and counted as used."""
    service = Service(follow_ups=True)
    service.held = {"0"}

    @function
    def program(s):
        s += "0" + gen("x") + "1" + gen("y")

    state = program.run(backend=service)
    service.wait_for(1)
    service.let_go()
    assert state["y"]
    kind = f"{__name__}.test_the_last_of_several_calls_says_whose_it_is.<locals>.program"
    assert service.follow_ups == [CallFollowUp(state.run.name, 0, kind)] * 2
    assert settled(service) == [state.run.name]


def test_forks_are_states_of_their_own():
    service = Service(follow_ups=True)

    @function
    def program(s):
        forks = s.fork(2)
        for _ in range(2):
            forks += [str(i) for i in range(2)]
            forks += gen("x")
            for fork in forks:
                fork.sync()

    program.run(backend=service)
    states = [follow_up.state for follow_up in service.follow_ups[:2] if follow_up]
    assert len(set(states)) == 2 and 0 not in states


def test_a_choice_goes_on_as_well():
    service = Service(follow_ups=True)

    @function
    def program(s):
        s += "a" + select("x", ["b", "c"])
        s.sync()
        s += "d" + gen("y")

    program.run(backend=service).sync()
    assert service.follow_ups[0] is not None


@pytest.mark.parametrize(("capabilities", "options"), [({}, {}), ({"follow_ups": True}, {"hints": False})])
def test_nothing_is_said_to_whom_it_means_nothing_or_where_it_is_turned_off(capabilities, options):
    service = Service(**capabilities)
    in_turn.run(3, backend=service, **options)
    assert [follow_up for follow_up in service.follow_ups] == [None] * 3 and settled(service) == []


def test_a_body_that_raises_ends_its_program():
    service = Service(follow_ups=True)

    @function
    def program(s):
        s += "a" + gen("x")
        s.sync()
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        program.run(backend=service)
    assert len(settled(service)) == 1


class Busy(Service):
    """Is told of ended programs one message at a time."""

    async def end(self, programs):
        await super().end(programs)
        self.listening = asyncio.Event()
        await self.listening.wait()


def test_programs_that_end_while_the_service_listens_are_told_together():
    service = Busy(follow_ups=True)
    names = [in_turn.run(2, backend=service).run.name for _ in range(4)]
    settled(service)
    assert service.ended == [names[:1]]
    for _ in range(2):
        service.loop.soon(service.listening.set)
        settled(service)
    assert service.ended == [names[:1], names[1:]]


class Gone(Service):
    async def end(self, programs):
        raise ClientError("programs", "are not listened to")


def test_a_service_that_does_not_listen_harms_nothing():
    service = Gone(follow_ups=True)
    assert in_turn.run(2, backend=service)["x1"]
    assert in_turn.run(2, backend=service)["x1"]
