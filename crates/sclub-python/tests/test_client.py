"""The client's calls, against real servers over real sockets."""

from __future__ import annotations

import asyncio
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sclub
from sclub._client_attempts import Answer, Attempts, Request
from sclub._client_calls import Calls
from sclub._client_downloads import begin_download
from sclub.client import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    Gone,
    Invalid,
    NotFound,
    ServiceError,
)

from server import (
    DRINKS,
    Proxy,
    Server,
    client,
    fresh,
    proxy,
    server,
    serving,
)

__all__ = ["client", "fresh", "proxy", "server"]  # fixtures


# What is asked and answered


def test_a_recommendation_has_what_the_api_says(client: Client) -> None:
    shown = client.recommend("r1", k=3)
    assert sorted(one.id for one in shown.items) == sorted(DRINKS)
    assert shown.item == shown.items[0].id
    assert all(one.score == pytest.approx(one.mean + one.width) for one in shown.items)
    scores = [one.score for one in shown.items]
    # Ties are in random order, and scores that differ by rounding are ties.
    assert scores == pytest.approx(sorted(scores, reverse=True), rel=1e-12)
    assert shown.decision not in repr(shown)
    assert pickle.loads(pickle.dumps(shown)) == shown


def test_items_to_choose_from_can_be_named_given_or_excluded(client: Client) -> None:
    assert client.recommend("r2", candidates=["tea"]).item == "tea"
    assert client.recommend("r2", candidates=np.array(["tea"])).item == "tea"
    left = client.recommend("r2", k=3, exclude=["tea", "mate"])
    assert [one.id for one in left.items] == ["coffee"]


@pytest.mark.parametrize(
    "items",
    [
        {"a": [1, 0, 0], "b": [0, 1, 0]},
        {"a": np.array([1, 0, 0]), "b": np.array([0, 1, 0], dtype="float32")},
        [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": (0, 1, 0)}],
        [("a", [1, 0, 0]), ("b", [0, 1, 0])],
        pd.DataFrame({"x": [1, 0], "y": [0, 1], "z": [0, 0]}, index=["a", "b"]),
    ],
)
def test_items_that_come_along_may_have_any_usual_form(client: Client, items: Any) -> None:
    shown = client.recommend("r3", k=2, items=items)
    assert sorted(one.id for one in shown.items) == ["a", "b"]


def test_a_reward_is_learned_once_for_each_item_shown(client: Client) -> None:
    shown = client.recommend("once", k=2)
    assert client.feedback(shown, 1) is True
    assert client.feedback(shown, 1) is False
    assert client.feedback(shown.decision, 0, item=shown.items[0].id) is False
    assert client.feedback(shown.decision, 0, item=shown.items[1].id) is True
    assert client.user("once")["count"] == 2


@pytest.mark.parametrize("rewards", [[0, 1], (0, True), np.array([0.0, 1.0])])
def test_the_rewards_of_a_list_are_one_round(client: Client, rewards: Any) -> None:
    before = client.state(hash=False)["rounds"]
    shown = client.recommend("lists", k=3)
    assert client.feedback(shown, rewards) is True
    assert client.feedback(shown, rewards) is False
    assert client.feedback_many([(shown, [0, 1, 1])]) == [True]
    assert client.state(hash=False)["rounds"] == before + 2
    with pytest.raises(Invalid, match="4 rewards for 3 items"):
        client.feedback(shown, [0, 0, 0, 0])


def test_others_get_their_reward_and_a_second_click_replaces_it(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        shown = client.recommend("o1", k=3)
        first, second, third = (one.id for one in shown.items)
        assert client.feedback(shown, 1, item=second, others=0)
        assert not client.feedback(shown, 1, item=second, others=0)
        assert client.feedback(shown, 1, item=third)
        assert client.state()["reward_sum"] == 2 and client.state()["rounds"] == 1
        rewards = {line["item"]: (line["reward"], "assumed" in line) for line in client.export()}
        assert rewards == {first: (0, True), second: (1, False), third: (1, False)}
        assert client.export_frame()["assumed"].sum() == 1
        assert client.feedback(client.recommend("o1", k=2), others=0)
        shown = client.recommend("o1", k=2)
        assert client.feedback_many([{"decision": shown, "others": 0}]) == [True]
        with pytest.raises(TypeError, match="reward is missing"):
            client.feedback(shown)


def test_equal_rewards_are_a_warning(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        for _ in range(99):
            client.feedback(client.recommend("w"), 1)
        with pytest.warns(RuntimeWarning, match="all 100 rewards so far are 1"):
            client.feedback(client.recommend("w"), 1)
        assert "all 100 rewards" in client.state()["reward_warning"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.feedback(client.recommend("w"), 1)  # once is enough
            client.feedback(client.recommend("w"), 0)
        assert "reward_warning" not in client.state()


def test_descriptions_filters_and_missing_candidates(fresh: Server) -> None:
    with Client(fresh.url) as client:
        shop = [
            {"id": "a", "features": [1, 0], "title": "A", "tags": ["red"], "data": {"price": 3}},
            {"id": "b", "features": [0, 1], "tags": ["red", "big"], "data": {"price": 9}},
            {"id": "c", "features": [1, 1], "available": False, "tags": ["red"]},
        ]
        assert client.put_items(shop) == 3
        assert client.item_card("a") == {**shop[0], "features": [1.0, 0.0]}
        assert client.item_card("c")["available"] is False

        def shown(**how: Any) -> set[str]:
            return {one.id for one in client.recommend("f", k=3, **how).items}

        assert shown() == {"a", "b"}
        assert shown(filter={"tags": "big"}) == {"b"}
        assert shown(filter={"price": {"max": 5}}) == {"a"}
        assert shown(candidates=["a", "b"], exclude=["b"]) == {"a"}
        assert client.recommend("f", candidates=["a", "gone"]).missing == ("gone",)
        with pytest.raises(NotFound):
            client.recommend("f", candidates=["a", "gone"], strict=True)
        with pytest.raises(Invalid) as error:
            client.recommend("f", filter={"price": {"least": 1}})
        assert error.value.field == "filter.price.least"
        first = client.recommend("seen")
        assert client.recommend("seen", seen=1).item != first.item
        batch = client.recommend_many([{"user": "f", "filter": {"tags": ["big"]}, "seen": 0}])
        assert batch[0].item == "b"
    with pytest.raises(ValueError, match="it may have 'title'"):
        Client("http://127.0.0.1:1").put_items([{"id": "a", "features": [1], "colour": "red"}])
    with pytest.raises(TypeError, match="available must be True or False"):
        Client("http://127.0.0.1:1").put_items([{"id": "a", "features": [1], "available": "no"}])


def test_a_patch_changes_some_fields_of_an_item(fresh: Server) -> None:
    with Client(fresh.url) as client:
        tea = {"id": "a/1", "features": [1.0, 0.0], "title": "Tea", "tags": ["hot"], "data": {"price": 3, "size": 2}}
        client.put_items([tea])
        changed = client.patch_item("a/1", available=False, data={"price": 4, "size": None})
        assert changed == {**tea, "available": False, "data": {"price": 4}}
        changed = client.patch_item("a/1", features=np.array([0, 1]), title=None)
        assert changed == client.item_card("a/1")
        assert changed["features"] == [0.0, 1.0]
        assert "title" not in changed
        assert changed["tags"] == ["hot"]
        with pytest.raises(NotFound):
            client.patch_item("none", title="x")
        with pytest.raises(Invalid) as error:
            client.patch_item("a/1", titel="x")
        assert error.value.field == "titel"
        with pytest.raises(ValueError, match="features"):
            client.patch_item("a/1", features=[float("nan"), 1])


def test_recommendations_follow_the_context(tmp_path: Path) -> None:
    flags = ["--policy", "linucb-ind", "--context", "hour,device=phone|tv"]
    with serving(tmp_path / "data", *flags) as server, Client(server.url) as client:
        client.put_items({"news": [1, 0], "film": [0, 1]})
        liked = {"phone": "news", "tv": "film"}
        for turn in range(60):
            device = ["phone", "tv"][turn * 7 % 3 % 2]
            shown = client.recommend("u", context={"device": device, "hour": np.float32(0.5)})
            client.feedback(shown, shown.item == liked[device])
        for device, item in liked.items():
            assert client.recommend("u", context={"device": device}).item == item
        asked = [{"user": "u", "context": {"device": device}} for device in liked]
        assert [one.item for one in client.recommend_many(asked)] == list(liked.values())
        with pytest.raises(Invalid, match="one of phone, tv"):
            client.recommend("u", context={"device": "car"})
        frame = client.export_frame()
        assert frame["context"].iloc[0] == {"device": "phone", "hour": 0.5}


@pytest.mark.parametrize(
    ("context", "error"),
    [(["device"], TypeError), ({1: 2.0}, TypeError), ({"hour": float("nan")}, ValueError)],
)
def test_a_context_is_a_mapping_of_names(client: Client, context: Any, error: Any) -> None:
    with pytest.raises(error, match="context"):
        client.recommend("u", context=context)


@pytest.mark.parametrize(
    "reward", [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), np.array(1.0)]
)
def test_whatever_is_a_number_is_a_reward(client: Client, reward: Any) -> None:
    assert client.feedback(client.recommend("numbers"), reward)


def test_a_batch_is_one_round(client: Client) -> None:
    before = client.state(hash=False)
    asked: list[Any] = ["b1", {"user": "b2", "k": 2}, {"user": 3, "items": {"x": [0.5, 0.5, 0]}}]
    shown = client.recommend_many(asked)
    assert [len(one.items) for one in shown] == [1, 2, 1]
    assert shown[2].item == "x"
    given: list[Any] = [
        (shown[0], 1),
        (shown[1].decision, 0, shown[1].items[1].id),
        {"decision": shown[2], "reward": np.float64(0.5)},
    ]
    assert client.feedback_many(given) == [True, True, True]
    assert client.feedback_many(given) == [False, False, False]
    after = client.state(hash=False)
    assert after["rounds"] - before["rounds"] == 1
    assert after["rewards"] - before["rewards"] == 3


def test_an_empty_batch_is_a_round_each_time(client: Client) -> None:
    before = client.state(hash=False)["rounds"]
    assert client.feedback_many([]) == []
    assert client.feedback_many([]) == []
    assert client.state(hash=False)["rounds"] - before == 2


def test_a_batch_with_something_wrong_learns_nothing(client: Client) -> None:
    before = client.state(hash=False)["rewards"]
    shown = client.recommend_many(["w1", "w2"])
    with pytest.raises(Invalid) as caught:
        client.feedback_many([(shown[0], 1), (shown[1], 2)])
    assert caught.value.field == "feedback[1].reward"
    assert client.state(hash=False)["rewards"] == before


def test_a_batch_that_is_too_long_is_refused_and_not_split(client: Client) -> None:
    before = client.state(hash=False)
    with pytest.raises(Invalid, match="1000"):
        client.recommend_many([f"l{number}" for number in range(1001)])
    shown = client.recommend("long")
    with pytest.raises(Invalid, match="1000"):
        client.feedback_many([(shown, 1)] * 1001)
    after = client.state(hash=False)
    assert (after["rounds"], after["decisions"]) == (before["rounds"], before["decisions"] + 1)


# The catalogue


def test_a_frame_is_put_in_one_call(fresh: Server) -> None:
    rows = 12_345
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.normal(size=(rows, 4)), columns=list("abcd"))
    frame.index = pd.Index([f"item-{row}" for row in range(rows)])
    frame["flag"] = random.random(rows) < 0.5
    with Client(fresh.url) as client:
        assert client.put_items(frame) == rows
        assert client.state()["items"] == rows
        assert client.item("item-7") == frame.loc["item-7"].astype(float).tolist()
        every = client.items()
        assert len(every) == rows
        assert every["item-12344"] == frame.iloc[-1].astype(float).tolist()
        assert list(client.items(limit=1500)) == list(every)[:1500]
        assert client.put_items(every) == rows
        assert client.items() == every


def test_ids_of_a_frame_are_a_column_or_the_index(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(pd.DataFrame({"sku": ["s1"], "x": [1.0], "y": [2]}), id="sku")
        client.put_items(pd.DataFrame({"x": [3.0], "id": ["s2"], "y": [4]}))
        client.put_items(pd.DataFrame({"x": [5.0], "y": [6]}))
        client.put_items(pd.DataFrame({"x": [7.0], "y": [8]}, dtype="Float64", index=["s3"]))
        assert client.items() == {"s1": [1, 2], "s2": [3, 4], "0": [5, 6], "s3": [7, 8]}


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (pd.DataFrame({"x": [1, np.nan]}, index=["a", "b"]), r"column 'x' is nan in row 1 \('b'\)"),
        (pd.DataFrame({"x": [1, np.inf]}, index=["a", "b"]), r"column 'x' is inf in row 1 \('b'\)"),
        (pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}), r"column 'x' is nan in row 1"),
        (pd.DataFrame({"x": [1, 2], "c": ["u", "v"]}), r"column 'c' is not numeric: row 0 .*'u'"),
        (pd.DataFrame({"x": [1, "v"]}, dtype=object), r"column 'x' is not numeric: row 1 .*'v'"),
        (pd.DataFrame({"x": [1, 2]}, index=["a", "a"]), r"id 'a' is there twice, in rows 0 and 1"),
        (pd.DataFrame({"id": ["a", "b"]}), r"no column of features"),
        ({1: [1], "1": [2]}, r"id '1' is there twice"),
        ({"a": [1], "b": [1, 2]}, r"'b' \(row 1\) has 2 features, and 'a' \(row 0\) has 1"),
        ({"a": [1, float("nan")]}, r"items\['a'\]\[1\] is nan"),
        ([("a", [1]), ("", [2])], r"items\[1\].id is empty"),
        ([{"id": "a", "features": [1], "price": 2}], r"items\[0\] has 'features', so it may"),
    ],
)
def test_bad_items_are_named_and_nothing_is_sent(items: Any, said: str) -> None:
    # Nobody listens there: to send anything would be another error.
    with Client("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(ValueError, match=said) as caught:
            client.put_items(items)
        assert not isinstance(caught.value, ServiceError)
        with pytest.raises(ValueError, match=said):
            client.recommend("u", items=items)


def test_items_can_be_removed(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        shown = client.recommend("anna", candidates=["tea"])
        assert client.remove_item("tea") is True
        assert client.remove_item("tea") is False
        assert client.remove_items(["tea", "coffee"]) == 1
        assert list(client.items()) == ["mate"]
        assert client.feedback(shown, 1)


def test_an_error_in_a_later_piece_says_what_is_in(fresh: Server) -> None:
    with Client(fresh.url) as client:
        names = [f"i{number}" for number in range(6000)] + ["long" * 100]
        with pytest.raises(Invalid) as caught:
            client.put_items((name, [1.0, 2.0]) for name in names)
        assert "line 1001" in caught.value.message
        assert "counted from item 'i5000', 5000 are before it" in caught.value.message
        assert client.state()["items"] == 6000


def test_only_errors_about_a_line_say_from_where_lines_are_counted() -> None:
    items = {f"i{number}": [1.0] for number in range(5001)}

    def message(*answers: Answer) -> str:
        call = Calls(Attempts(0)).put_items(items, None, False)
        next(call)
        with pytest.raises(ServiceError) as caught:
            for answer in answers:
                call.send(answer)
        return caught.value.message

    taken = Answer(200, b'{"items": 5000}')
    assert message(Answer(422)).endswith("; lines are counted from item 'i0', 0 are before it")
    assert message(taken, Answer(400)).endswith("from item 'i5000', 5000 are before it")
    for status in (401, 403, 413, 503):
        assert message(Answer(status)).endswith("no reason")
        assert message(taken, Answer(status)).endswith("no reason; 5000 items before are in")


# Ids


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "ü💡", ".", "..", "%2F", "a?b#c", "+", "a\nb", '"', "\u2028"]
)
def test_any_text_is_an_id(fresh: Server, name: str) -> None:
    with Client(fresh.url) as client:
        client.put_items({name: [1.0, 2.0], "other": [2.0, 1.0]})
        assert client.item(name) == [1.0, 2.0]
        assert client.feedback(client.recommend(name, candidates=[name]), 1)
        assert client.user(name)["user"] == name
        assert client.forget(name)
        assert client.remove_item(name)
        assert list(client.items()) == ["other"]


def test_a_whole_number_is_its_digits(client: Client) -> None:
    assert client.feedback(client.recommend(41), 1)
    assert client.feedback(client.recommend(np.int64(41)), 1)
    assert client.feedback(client.recommend(41.0), 1)
    assert client.user("41")["count"] == 3


@pytest.mark.parametrize(
    "value", [1.5, None, True, b"x", ("a",), np.float64(1.5), float("nan"), float("inf"), np.bool_(True)]
)
def test_anything_else_is_no_id(client: Client, value: Any) -> None:
    with pytest.raises(TypeError, match="user must be a string or a whole number"):
        client.recommend(value)
    with pytest.raises(TypeError, match=r"candidates\[0\] must be a string or a whole number"):
        client.recommend("u", candidates=[value])


def test_one_id_is_no_list_of_ids(client: Client) -> None:
    with pytest.raises(TypeError, match="candidates must be a list of ids"):
        client.recommend("u", candidates="tea")
    with pytest.raises(TypeError, match="ids must be a list of ids"):
        client.remove_items("tea")


@pytest.mark.parametrize("one", ["anna", b"anna", 7, {"user": "anna"}], ids=str)
def test_one_request_is_no_list_of_requests(client: Client, one: Any) -> None:
    said = f"requests must be a list of users or mappings, not {type(one).__name__}"
    with pytest.raises(TypeError, match=said):
        client.recommend_many(one)

    async def awaited() -> None:
        async with AsyncClient(client.url) as other:
            await other.recommend_many(one)

    with pytest.raises(TypeError, match=said):
        asyncio.run(awaited())
    with pytest.raises(TypeError, match="feedback must be a list of decisions with rewards"):
        client.feedback_many(one)


def test_requests_may_come_from_anything_that_has_several(client: Client) -> None:
    assert len(client.recommend_many(np.array(["s1", "s2"]))) == 2
    assert len(client.recommend_many(user for user in ("s1", "s2"))) == 2
    assert len(client.recommend_many(pd.Series(["s1", "s2"]))) == 2


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), np.float32("nan"), -np.inf])
def test_a_reward_that_is_no_finite_number_is_not_sent(reward: float) -> None:
    with Client("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(ValueError, match="reward is"):
            client.feedback("decision", reward)
        with pytest.raises(ValueError, match=r"feedback\[1\]\.reward is"):
            client.feedback_many([("decision", 1), ("decision", reward)])


@pytest.mark.parametrize("reward", ["1", [1, "1"], np.array([[1.0]])])
def test_a_reward_that_is_no_number_is_not_sent(reward: Any) -> None:
    with Client("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(TypeError, match=r"reward(\[\d\])? must be a number"):
            client.feedback("decision", reward)
        with pytest.raises(TypeError, match="reward is missing"):
            client.feedback("decision", None)


# A look at what is known


def test_what_is_known_can_be_looked_at(fresh: Server) -> None:
    with Client(fresh.url) as client:
        assert client.expect(5) == 5
        client.put_items(DRINKS)
        for user in ("anna", "ben", "cleo"):
            for _ in range(3):
                client.feedback(client.recommend(user), 1)
        state = client.state(hash=True)
        assert (state["users"], state["rewards"], state["expected_users"]) == (3, 9, 5)
        assert state["hash"] and "hash" not in client.state()
        assert "hash" not in client.state(hash=False)
        assert client.user("anna")["count"] == 3
        with pytest.raises(Conflict) as caught:
            client.expect(6)
        assert caught.value.code == "begun"
        assert client.ready()


def test_clusters_and_their_history_can_be_looked_at(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--policy", "sclub", "--alpha-theta", "0.1") as server:
        with Client(server.url) as client:
            client.put_items(DRINKS)
            for _ in range(60):
                shown = client.recommend_many(range(40))
                likes = [(one, one.item == "tea") for one in shown]
                client.feedback_many(
                    [(one, is_tea == (user % 2 == 0)) for user, (one, is_tea) in enumerate(likes)]
                )
            clusters = client.clusters(limit=None)
            assert len(clusters) == client.state()["clusters"]
            assert sum(cluster["users"] for cluster in clusters) == 40
            assert client.clusters(limit=1) == clusters[:1]
            card = client.cluster(clusters[0]["cluster"], items=2, members=1)
            assert (len(card["favourites"]), len(card["members"])) == (2, 1)
            history = client.history(limit=None)
            assert history and client.history(limit=1) == history[:1]
            places = [change["change"] for change in history]
            assert places == sorted(places, reverse=True)
            with pytest.raises(NotFound):
                client.cluster(10**9)


def test_pages_follow_one_another() -> None:
    """Lists that are longer than a part, as the server pages them."""
    call = Calls(Attempts(0)).history(2500)
    asked, outcome = [], None
    with pytest.raises(StopIteration) as stop:
        while True:
            step = call.send(outcome)
            assert isinstance(step, Request)
            asked.append(dict(step.query))
            assert len(asked) <= 3
            end = int(step.query.get("before", "4001"))
            limit = int(step.query["limit"])
            changes = [{"change": number} for number in range(end - 1, end - 1 - limit, -1)]
            said = {"changes": changes, "next": changes[-1]["change"], "total": 4000}
            outcome = Answer(200, json.dumps(said).encode())
    assert [change["change"] for change in stop.value.value] == list(range(4000, 1500, -1))
    assert [page["limit"] for page in asked] == ["1000", "1000", "500"]


def test_a_forgotten_user_is_gone(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        shown = client.recommend("anna", k=2)
        client.feedback(shown, 1)
        assert client.forget("anna") is True
        assert client.forget("anna") is False
        with pytest.raises(Gone) as caught:
            client.feedback(shown, 1, item=shown.items[1].id)
        assert caught.value.code == "forgotten"
        with pytest.raises(NotFound):
            client.user("anna")
        assert client.compact()["dropped"] > 0
        assert client.snapshot() > 0
        assert list(client.export()) == []


def test_the_export_has_every_item_shown(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        for number in range(300):
            shown = client.recommend(number, k=2)
            client.feedback(shown, number % 2)
        lines = list(client.export())
        assert len(lines) == 600
        assert [line["reward"] for line in lines[:4]] == [0, 1, 0, 1]
        frame = client.export_frame()
        assert len(frame) == 600
        assert frame["reward"].sum() == 150 and frame["reward"].isna().sum() == 300
        assert (frame["decided"].dt.year >= 2020).all()
        assert frame["rewarded"].isna().sum() == 300
        assert frame["position"].tolist() == [0] * 300 + [1] * 300
        assert frame["propensity"].isna().all()
        assert shown.items[0].propensity is None


def test_propensities_are_in_answers_and_in_the_export(tmp_path: Path) -> None:
    flags = ["--policy", "lints", "--propensities", "50"]
    with serving(tmp_path / "data", *flags) as server, Client(server.url) as client:
        client.put_items(DRINKS)
        told = {}
        for number in range(100):
            shown = client.recommend(number, k=2)
            client.feedback(shown, 1)
            told.update({(str(number), item.id): item.propensity for item in shown.items})
        # With k = 3 all items are shown for certain.
        one, all_items = client.recommend_many(["anna", {"user": "ben", "k": 3}])
        assert one.items[0].propensity is not None and 0 < one.items[0].propensity <= 1
        assert [item.propensity for item in all_items.items] == [1, 1, 1]
        frame = client.export_frame()
        lines = frame[frame["user"].str.isdigit()]
        shown_to = zip(lines["user"], lines["item"], strict=True)
        found = dict(zip(shown_to, lines["propensity"], strict=True))
        assert found == told
        # Two of three items are shown each time.
        weights = (1 / lines["propensity"]).groupby(lines["item"]).sum()
        assert np.allclose(weights, 100, atol=60)


def test_an_export_that_breaks_off_is_an_error(proxy: Proxy) -> None:
    with Client(proxy.url) as client:
        for number in range(40):
            client.recommend_many([{"user": f"{number}-{k}", "k": 3} for k in range(100)])
        whole = sum(1 for _ in client.export())
        assert whole == 12_000
        proxy.passes, proxy.lose = 3, 1
        lines = []
        with pytest.raises(ConnectionFailed) as caught:
            for line in client.export():
                lines.append(line)
        assert caught.value.code == "broken"
        assert 0 < len(lines) < whole


def test_a_download_that_lacks_something_is_a_warning() -> None:
    kind = {"Content-Type": "application/x-ndjson"}
    with pytest.warns(RuntimeWarning, match="not complete: node2, node3 did not"):
        begin_download("/v1/admin/export", {**kind, "sclub-missing-nodes": "node2, node3"})
    backup = {"Content-Type": "application/octet-stream", "x-sclub-warning": "the journal cannot be written"}
    with pytest.warns(RuntimeWarning, match="the journal cannot be written"):
        begin_download("/v1/admin/backup", backup)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begin_download("/v1/admin/export", kind)


def test_an_export_of_nothing_is_an_empty_frame(fresh: Server) -> None:
    with Client(fresh.url) as client:
        assert len(client.export_frame()) == 0


def test_an_export_can_be_left_in_the_middle(client: Client) -> None:
    for number in range(20):
        client.recommend(number)
    for _ in range(200):  # more than there are connections
        lines = client.export()
        next(lines)
        lines.close()


def test_a_backup_can_be_restored(fresh: Server, tmp_path: Path) -> None:
    copy = tmp_path / "copy.backup"
    copy.write_text("what was there before")
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        client.feedback(client.recommend("anna"), 1)
        size = client.backup(copy)
        state = client.state(hash=True)
    assert copy.stat().st_size == size
    fresh.run("restore", "--from", str(copy), "--data", str(tmp_path / "other"))
    with serving(tmp_path / "other") as other, Client(other.url) as client:
        assert client.state(hash=True)["hash"] == state["hash"]


def test_a_backup_that_breaks_off_leaves_nothing(proxy: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    copy = folder / "copy.backup"
    with Client(proxy.url, retries=0) as client:
        client.ready()
        proxy.lose = 1
        with pytest.raises(ConnectionFailed):
            client.backup(copy)
    assert list(folder.iterdir()) == []
