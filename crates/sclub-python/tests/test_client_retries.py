"""Retries of a client: nothing is learned twice."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from server import DRINKS, Answering, Connect, Proxy, Server, connect, fresh, proxy, rewards, serving

from sclub._client_attempts import Answer, Attempts, Failure, Wait
from sclub._client_calls import Calls
from sclub.client import Client, ConnectionFailed, ServiceError, Unavailable

__all__ = ["connect", "fresh", "proxy"]  # fixtures


def outcomes(call: Any, *given: Any) -> tuple[list[float], int]:
    """Runs a call on outcomes: how long it waits, and how many requests it makes, until it ends."""
    waits, requests = [], 0
    queue = list(given)
    try:
        step = next(call)
        while True:
            if isinstance(step, Wait):
                waits.append(step.seconds)
                step = call.send(None)
            else:
                requests += 1
                step = call.send(queue.pop(0))
    except (StopIteration, ServiceError):
        assert not queue
        return waits, requests


def unavailable(status: int, code: str, after: str | None = None) -> Answer:
    body = json.dumps({"error": {"code": code, "message": "no", "field": None}})
    return Answer(status, body.encode(), after)


def broken(sent: bool, code: str = "broken") -> Failure:
    return Failure(ConnectionFailed("gone", may_be_done=sent, code=code))


DONE = Answer(200, b'{"applied": [], "events": 0}')


@pytest.mark.parametrize(
    ("outcome", "harmless", "other"),
    [
        # What happened, and whether it is tried again: a call that is harmless twice, and others.
        (broken(sent=False, code="unreachable"), True, True),
        (broken(sent=True), True, False),
        (broken(sent=True, code="timeout"), True, False),
        (broken(sent=False, code="tls"), False, False),
        (unavailable(429, "rate_limited", "0"), True, True),
        (unavailable(503, "starting"), True, True),
        (unavailable(503, "overloaded"), True, True),
        (unavailable(503, "read_only"), True, True),
        (unavailable(504, "unknown_outcome"), True, False),
        (Answer(503, b"a proxy"), True, False),
        (Answer(502, b"a proxy"), True, False),
        (Answer(504, b"a proxy"), True, False),
        (unavailable(408, "timeout"), True, False),
        (Answer(500, b""), False, False),
        (Answer(302, b"", location="/"), False, False),
        (unavailable(422, "invalid"), False, False),
        (unavailable(410, "expired"), False, False),
    ],
)
def test_what_is_tried_again(outcome: Any, harmless: bool, other: bool) -> None:
    def requests(call: Any, again: bool) -> int:
        return outcomes(call, *([outcome, DONE] if again else [outcome]))[1]

    def calls() -> Calls:
        return Calls(Attempts(3))

    assert requests(calls().feedback_many([("d", 1)]), harmless) == 1 + harmless
    assert requests(calls().state(False), harmless) == 1 + harmless
    assert requests(calls().put_items({"a": [1]}, None, False), harmless) == 1 + harmless
    assert requests(calls().feedback_many([]), other) == 1 + other
    assert requests(calls().compact(1.0), other) == 1 + other
    assert requests(calls().start_experiment("e", [], []), other) == 1 + other
    assert requests(calls().end_experiment("e", "a"), other) == 1 + other


def test_waits_grow_at_random_and_end_after_so_many() -> None:
    lost = [broken(sent=True)] * 8
    longest = Attempts(7, uniform=lambda low, high: high)
    waits, requests = outcomes(Calls(longest).state(False), *lost)
    assert requests == 8
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
    shortest = Attempts(7, uniform=lambda low, high: low)
    assert outcomes(Calls(shortest).state(False), *lost)[0] == [0.0] * 7


def test_a_server_that_says_when_is_believed() -> None:
    calls = Calls(Attempts(3, uniform=lambda low, high: high))
    busy = [unavailable(429, "rate_limited", "7"), unavailable(503, "read_only", "5"), DONE]
    assert outcomes(calls.state(False), *busy)[0] == pytest.approx([7.1, 5.2])
    assert outcomes(calls.state(False), unavailable(503, "overloaded", "60"), DONE)[0] == [60.1]
    assert outcomes(calls.state(False), unavailable(503, "overloaded", "61")) == ([], 1)


def test_too_many_requests_wait_as_long_as_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    wait = threading.Event.wait

    def noted(event: threading.Event, seconds: float | None = None) -> bool:
        if seconds is not None:
            waits.append(seconds)
        return wait(event, seconds)

    monkeypatch.setattr(threading.Event, "wait", noted)
    with serving(tmp_path / "data", "--rate", "5") as server:
        with Client(server.url, retries=0) as hasty:
            hasty.put_items(DRINKS)
            with pytest.raises(Unavailable) as caught:
                for _ in range(50):
                    hasty.state(hash=False)
            assert (caught.value.status, caught.value.code) == (429, "rate_limited")
            assert caught.value.retry_after == 1
        assert not waits
        with Client(server.url, retries=5) as patient:
            for _ in range(8):
                assert patient.feedback(patient.recommend("anna"), 1)
        assert waits and min(waits) >= 1


def test_a_server_that_comes_up_is_waited_for(fresh: Server) -> None:
    fresh.stop()
    with Client(fresh.url, retries=0) as client:
        assert client.ready() is False
        later = threading.Timer(0.3, fresh.start)
        later.start()
        client.wait_until_ready(30)
        later.join()
        assert client.state()["rewards"] == 0


def test_an_error_says_whether_it_may_be_done() -> None:
    def ends(*given: Any) -> ServiceError:
        call = Calls(Attempts(len(given) - 1)).feedback("d", 1, None, None)
        queue = list(given)
        with pytest.raises(ServiceError) as caught:
            step = next(call)
            while True:
                step = call.send(None if isinstance(step, Wait) else queue.pop(0))
        return caught.value

    away, lost = broken(sent=False, code="unreachable"), broken(sent=True)
    expired = unavailable(410, "expired")
    assert not ends(away, away).may_be_done
    assert ends(away, lost).may_be_done
    # The last attempt surely did nothing, but the one before it may have.
    assert ends(lost, broken(sent=False, code="unreachable")).may_be_done
    assert ends(lost, expired).may_be_done
    assert isinstance(ends(lost, expired).__cause__, ConnectionFailed)
    assert not ends(expired).may_be_done
    assert not ends(unavailable(503, "overloaded")).may_be_done
    assert not ends(unavailable(503, "read_only")).may_be_done
    assert ends(unavailable(504, "unknown_outcome")).may_be_done
    assert ends(Answer(500)).may_be_done


# Parts

REFUSED = (410, b'{"error": {"code": "expired", "message": "too late"}}')
OVERLOADED = (503, b'{"error": {"code": "overloaded", "message": "busy"}}')
MOVED = (503, b'{"error": {"code": "moved", "message": "no owner"}}')
SLOWER = (429, b'{"error": {"code": "rate_limited", "message": "slower"}}')
NO_NODE = (404, b'{"error": {"code": "unknown_path", "message": "not part of a cluster"}}')
NODE = (200, b'{"nodes": []}')
APPLIED = (200, b'{"applied": [true, false]}')


@pytest.mark.parametrize(
    ("answers", "applied"),
    [
        ([MOVED, APPLIED, NODE], [True, True]),
        ([MOVED, APPLIED, NO_NODE], [True, False]),
        # It is not known what the server is.
        ([MOVED, APPLIED, OVERLOADED], [True, True]),
        # The owner of a partition said so.
        ([OVERLOADED, APPLIED, NODE], [True, True]),
        ([OVERLOADED, APPLIED, NO_NODE], [True, False]),
        ([(502, b""), APPLIED, NODE], [True, True]),
        ([(502, b""), (200, b'{"applied": [false, false]}')], [True, True]),
        ([(502, b""), (200, b'{"applied": [true, true]}')], [True, True]),
        # Nothing was learned before.
        ([SLOWER, APPLIED], [True, False]),
        ([APPLIED], [True, False]),
    ],
)
def test_rewards_that_an_earlier_attempt_may_have_brought_are_new(
    connect: Connect, answers: Any, applied: list[bool]
) -> None:
    with Answering(*answers) as server, connect(server.url) as client:
        assert client.feedback_many([("a", 1), ("b", 0)]) == applied
        assert len(server.requests) == len(answers)
        asked = [path for _, path, _ in server.requests if path != "/v1/feedback/batch"]
        assert asked == ["/v1/nodes"] * (answers[-1] in (NODE, NO_NODE, OVERLOADED))


@pytest.mark.parametrize(
    ("answers", "may_be_done"),
    [
        ([REFUSED, NODE], True),
        ([REFUSED, NO_NODE], False),
        ([REFUSED, OVERLOADED], True),
        ([OVERLOADED, SLOWER, SLOWER, NODE], True),
        ([OVERLOADED, SLOWER, SLOWER, NO_NODE], False),
        ([SLOWER, SLOWER, SLOWER], False),
        ([(401, b"")], False),
        ([(413, b"")], False),
        ([(504, b""), REFUSED], True),
    ],
)
def test_a_batch_that_one_partition_refuses_may_be_learned_by_others(
    connect: Connect, answers: Any, may_be_done: bool
) -> None:
    with Answering(*answers) as server, connect(server.url, retries=2) as client:
        with pytest.raises(ServiceError) as caught:
            client.feedback_many([("a", 1), ("b", 0)])
        assert caught.value.may_be_done is may_be_done
        assert len(server.requests) == len(answers)
    # One reward is of one partition.
    with Answering(REFUSED) as server, connect(server.url) as client:
        with pytest.raises(ServiceError) as caught:
            client.feedback_many([("a", 1)])
        assert not caught.value.may_be_done and len(server.requests) == 1


def test_what_the_server_is_is_asked_once(connect: Connect) -> None:
    with Answering(REFUSED, NO_NODE, REFUSED) as server, connect(server.url) as client:
        for _ in range(3):
            with pytest.raises(ServiceError) as caught:
                client.feedback_many([("a", 1), ("b", 0)])
            assert caught.value.code == "expired" and not caught.value.may_be_done
        assert [path for _, path, _ in server.requests].count("/v1/nodes") == 1


def test_a_refused_batch_is_certainly_not_learned_by_a_single_server(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        client.make_space("news", {"dim": 3})
        for space in (None, "news"):
            with connect(fresh.url, space=space) as one:
                one.put_items(DRINKS)
                shown = one.recommend_many(["anna", "ben"])
                with pytest.raises(ServiceError) as caught:
                    one.feedback_many([(shown[0], 1), (shown[1], 7)])
                assert (caught.value.field, caught.value.may_be_done) == ("feedback[1].reward", False)
                assert one.state()["rewards"] == 0


def test_an_error_of_an_upload_says_whether_items_may_be_in(fresh: Server, connect: Connect) -> None:
    def may_be_done(client: Client, items: Any) -> bool:
        with pytest.raises(ServiceError) as caught:
            client.put_items(items)
        return caught.value.may_be_done

    good, bad = {"features": [1.0, 0.0]}, {"features": [1.0, 0.0], "title": "x" * 100_000}
    with connect(fresh.url) as client:
        assert not may_be_done(client, [{"id": "a", **bad}, {"id": "b", **good}])
        assert client.items() == {}
        assert may_be_done(client, [{"id": "a", **good}, {"id": "b", **bad}, {"id": "c", **good}])
        assert list(client.items()) == ["a"]
    many = {number: [1.0, 0.0] for number in range(6000)}
    done = (200, b'{"items": 5000}')
    for answers, items, may in [
        ([(401, b"")], many, False),
        ([(413, b"")], many, False),
        ([done, (401, b"")], many, True),
        ([done, OVERLOADED], many, True),
        ([OVERLOADED], many, True),
        ([OVERLOADED], {"a": [1.0]}, False),
        ([(503, b'{"error": {"code": "starting", "message": "wait"}}')], many, False),
    ]:
        with Answering(*answers) as server, connect(server.url, retries=0) as client:
            assert may_be_done(client, items) is may


def test_an_error_of_several_removals_says_whether_items_are_gone(connect: Connect) -> None:
    removed, kept = (200, b'{"removed": true}'), (200, b'{"removed": false}')
    for first, may in [(removed, True), (kept, False)]:
        with Answering(first, (401, b"")) as server, connect(server.url) as client:
            with pytest.raises(ServiceError) as caught:
                client.remove_items(["a", "b"])
            assert caught.value.may_be_done is may


# Lost answers


def test_a_reward_whose_answer_is_lost_is_learned_once(fresh: Server, proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url) as client:
        shown = client.recommend("anna")
        proxy.lose = 2
        assert client.feedback(shown, 1) is True
        assert client.feedback(shown, 1) is False
        assert client.state(hash=False)["rounds"] == 1
    assert proxy.lose == 0
    assert rewards(fresh.url) == [1]


def test_a_reward_that_was_there_before_a_lost_answer_cannot_be_told_apart(proxy: Proxy, connect: Connect) -> None:
    """What the documentation says of it: True is likely, and False is certain."""
    with connect(proxy.url) as client:
        shown = client.recommend("anna")
        assert client.feedback(shown, 1) is True
        proxy.lose = 1
        assert client.feedback(shown, 1) is True
        assert client.state(hash=False)["rewards"] == 1


def test_without_retries_a_lost_answer_is_an_error(fresh: Server, proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url, retries=0) as client:
        shown = client.recommend("anna")
        proxy.lose = 1
        with pytest.raises(ConnectionFailed) as caught:
            client.feedback(shown, 1)
        assert (caught.value.may_be_done, caught.value.code) == (True, "broken")
    assert rewards(fresh.url) == [1]


def test_a_reward_whose_answer_takes_too_long_is_learned_once(fresh: Server, proxy: Proxy, connect: Connect) -> None:
    proxy.holds = True
    with connect(proxy.url, timeout=0.5) as client:
        shown = client.recommend("anna")
        proxy.lose = 1
        assert client.feedback(shown, 1) is True
    with connect(proxy.url, timeout=0.5, retries=0) as client:
        proxy.lose = 1
        with pytest.raises(ConnectionFailed) as caught:
            client.feedback(shown, 1)
        assert (caught.value.may_be_done, caught.value.code) == (True, "timeout")
    assert rewards(fresh.url) == [1]


def test_a_batch_whose_answer_is_lost_is_one_round(fresh: Server, proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url) as client:
        shown = client.recommend_many(["anna", "ben", "cleo"])
        proxy.lose = 2
        assert client.feedback_many([(one, 1) for one in shown]) == [True] * 3
        assert client.feedback_many([(one, 1) for one in shown]) == [False] * 3
        state = client.state(hash=False)
        assert (state["rounds"], state["rewards"]) == (1, 3)
    assert rewards(fresh.url) == [1, 1, 1]


def test_an_empty_batch_whose_answer_is_lost_is_not_sent_again(proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url) as client:
        client.feedback_many([])
        proxy.lose = 1
        with pytest.raises(ConnectionFailed) as caught:
            client.feedback_many([])
        assert caught.value.may_be_done
        assert client.state(hash=False)["rounds"] == 2


def test_an_empty_batch_that_nobody_took_is_sent_again(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url, retries=1000) as client:
        fresh.stop()
        later = threading.Timer(0.3, fresh.start)
        later.start()
        client.feedback_many([])
        later.join()
        assert client.state(hash=False)["rounds"] == 1


def test_other_calls_whose_answer_is_lost_are_done_once(fresh: Server, proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url) as client:
        client.feedback(client.recommend("anna"), 1)
        proxy.lose = 1
        assert client.put_items({"water": [0, 0, 1]}) == 1
        proxy.lose = 1
        assert client.remove_item("water") is True
        proxy.lose = 1
        assert client.forget("anna") is True
        proxy.lose = 1
        assert len(client.recommend("ben", k=3).items) == 3
        proxy.lose = 1
        assert client.state(hash=False)["users"] == 0
        assert proxy.lose == 0
    with Client(fresh.url) as client:
        assert sorted(client.items()) == sorted(DRINKS)


def test_a_server_that_is_killed_in_the_middle_learns_each_reward_once(fresh: Server) -> None:
    """Threads share a client, the server is killed again and again, and the books are right."""
    with Client(fresh.url, retries=10_000, timeout=20) as client:
        client.put_items(DRINKS)
        given: list[list[tuple[int, bool]]] = [[] for _ in range(8)]
        failed: list[BaseException] = []
        over = threading.Event()

        def work(place: int) -> None:
            try:
                while not over.is_set():
                    user = 1000 * place + len(given[place])
                    if user % 5:
                        new = [client.feedback(client.recommend(user), 1)]
                    else:
                        shown = client.recommend_many([user, user])
                        new = client.feedback_many([(one, 1) for one in shown])
                    given[place] += [(user, one) for one in new]
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            before = sum(map(len, given))
            while sum(map(len, given)) < before + 100 and not failed:
                time.sleep(0.01)
            fresh.kill()
            fresh.start()
        over.set()
        for thread in threads:
            thread.join()
        assert not failed
        sent = [one for some in given for one in some]
        assert all(new for _, new in sent)
        lines = [line for line in client.export() if line["reward"] is not None]
        assert Counter(line["user"] for line in lines) == Counter(str(user) for user, _ in sent)
        assert len({line["decision"] for line in lines}) == len(lines)
        assert client.state()["rewards"] == len(sent)
