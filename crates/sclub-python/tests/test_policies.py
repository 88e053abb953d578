"""The policies as Python objects."""

from __future__ import annotations

import pickle
import re
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from policies import DIM, FOR_COMPARISON, KEPT, MAKERS, events, play

import sclub

every_policy = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
every_kept_policy = pytest.mark.parametrize("make", KEPT.values(), ids=list(KEPT))
Make = Callable[[], sclub.Policy]


def test_linucb_chooses_what_ridge_regression_and_its_width_choose() -> None:
    what = events(300, 1)
    policy = sclub.LinUcb(dim=DIM, beta=0.7)
    gram = {user: np.eye(DIM) for user in set(what.users)}
    sums = {user: np.zeros(DIM) for user in set(what.users)}
    for user, items, rewards in zip(what.users, what.items, what.rewards):
        inverse = np.linalg.inv(gram[user])
        means = items @ inverse @ sums[user]
        widths = 0.7 * np.sqrt(np.einsum("ld,de,le->l", items, inverse, items))
        scores = policy.scores(user, items)
        np.testing.assert_allclose(scores.mean, means, atol=1e-10)
        np.testing.assert_allclose(scores.width, widths, atol=1e-10)
        choice = policy.recommend(user, items)
        # Before anything is known, all items of one length are equally good.
        assert (means + widths)[choice] == pytest.approx(np.max(means + widths), abs=1e-10)
        gram[user] += np.outer(items[choice], items[choice])
        sums[user] += rewards[choice] * items[choice]
        policy.learn(user, items[choice], rewards[choice])
        np.testing.assert_allclose(
            policy.estimate(user), np.linalg.solve(gram[user], sums[user]), atol=1e-10
        )


@every_policy
def test_many_events_are_learned_as_one_by_one(make: Make) -> None:
    what = events(400, 2)
    one, many = make(), make()
    shown = what.items[:, 0]
    for user, item, reward in zip(what.users, shown, what.rewards[:, 0]):
        one.learn(user, item, reward)
    many.learn_many(what.users, shown, what.rewards[:, 0])
    assert many.digest() == one.digest()
    assert many.users == one.users
    assert many.rounds == 400


@every_policy
def test_many_users_are_served_as_one_by_one(make: Make) -> None:
    policy = make()
    play(policy, events(300, 3))
    what = events(200, 4, users=40)
    one_by_one = [policy.recommend(u, x) for u, x in zip(what.users, what.items)]
    many = policy.recommend_many(what.users, what.items)
    assert many.dtype == np.int64
    assert many.tolist() == one_by_one
    shared = policy.recommend_many(what.users, what.items[0])
    assert shared.tolist() == [policy.recommend(user, what.items[0]) for user in what.users]
    assert policy.rounds == 300


def forms(items: NDArray[np.float64]) -> dict[str, object]:
    """The same numbers in every form that they may come in."""
    padded = np.zeros((2 * items.shape[0], items.shape[1] + 3))
    padded[::2, 1:-2] = items
    return {
        "C order": np.ascontiguousarray(items),
        "Fortran order": np.asfortranarray(items),
        "strided": padded[::2, 1:-2],
        "backwards": items[::-1, ::-1].copy()[::-1, ::-1],
        "float32": items.astype(np.float32),
        "float32 Fortran": np.asfortranarray(items.astype(np.float32)),
        "float16": items.astype(np.float16),
        "other byte order": items.astype(">f8"),
        "list": items.tolist(),
        "DataFrame": pd.DataFrame(items),
        "Items": sclub.Items(items),
    }


@pytest.mark.parametrize("form", forms(np.zeros((2, 2))))
def test_items_are_read_in_every_form(form: str) -> None:
    policy = sclub.Sclub(dim=DIM)
    play(policy, events(200, 5))
    # Small multiples of 1/64: the same number in every precision.
    items = np.random.default_rng(0).integers(-64, 65, size=(33, DIM)) / 64
    expected = policy.scores(3, np.ascontiguousarray(items))
    given = forms(items)[form]
    assert policy.recommend(3, given) == np.argmax(expected.score)
    np.testing.assert_array_equal(policy.scores(3, given).score, expected.score)
    assert policy.recommend_many([3, 3], given).tolist() == [np.argmax(expected.score)] * 2
    best = np.argsort(-expected.score, kind="stable")[:5]
    assert policy.best(3, given, 5).tolist() == best.tolist()
    without = [int(best[0]), int(best[2])]
    assert policy.best(3, given, 3, exclude=without).tolist() == best[[1, 3, 4]].tolist()


def test_items_that_were_laid_out_can_be_looked_at() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    items = sclub.Items(rows)
    np.testing.assert_array_equal(np.asarray(items), rows)
    np.testing.assert_array_equal(np.asarray(items, np.float32), rows.astype(np.float32))
    np.testing.assert_array_equal(items[2], rows[2])
    np.testing.assert_array_equal(items[-1], rows[-1])
    np.testing.assert_array_equal(items[1:3], rows[1:3])
    with pytest.raises(IndexError):
        items[4]


@pytest.mark.parametrize("form", ["C order", "Fortran order", "strided", "float32", "backwards"])
def test_blocks_of_items_are_read_in_every_form(form: str) -> None:
    policy = sclub.Sclub(dim=DIM)
    play(policy, events(200, 5))
    items = np.random.default_rng(0).integers(-64, 65, size=(50, 9, DIM)) / 64
    blocks: dict[str, NDArray[np.floating]] = {
        "C order": items,
        "Fortran order": np.asfortranarray(items),
        "strided": np.repeat(items, 2, axis=1)[:, ::2],
        "float32": items.astype(np.float32),
        "backwards": items[::-1, ::-1].copy()[::-1, ::-1],
    }
    users = np.arange(50) % 25
    expected = policy.recommend_many(users, items)
    assert policy.recommend_many(users, blocks[form]).tolist() == expected.tolist()
    one, other = sclub.LinUcb(dim=DIM), sclub.LinUcb(dim=DIM)
    one.learn_many(users, items[:, 0], np.arange(50.0))
    other.learn_many(users, blocks[form][:, 0], np.arange(50.0))
    assert one.digest() == other.digest()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_large_arrays_are_not_copied(order: str, kind: type) -> None:
    policy = sclub.LinUcb(dim=20)
    items = np.asarray(np.ones((2000, 20, 20)), dtype=kind, order=order)  # type: ignore[call-overload]
    users = list(range(2000))
    tracemalloc.start()
    policy.recommend_many(users, items)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < items.nbytes / 10


@dataclass(frozen=True)
class Person:
    name: str


def test_users_are_any_hashable() -> None:
    policy = sclub.LinUcb(dim=1)
    people = ["anna", 7, (1, "b"), None, b"bytes", Person("carl"), frozenset({1}), -1, 2**80, 0.5]
    for place, user in enumerate(people):
        for _ in range(place + 1):
            policy.learn(user, [1.0], 1.0)
    assert policy.users == people
    assert [policy.explain(user).count for user in people] == list(range(1, len(people) + 1))
    assert policy.explain(Person("carl")).count == people.index(Person("carl")) + 1
    # As in a dict, equal users are one user.
    assert policy.explain(np.int64(7)).count == policy.explain(7.0).count == 2
    assert policy.explain("nobody").count == 0
    assert policy.explain("nobody").own_estimate is None


@pytest.mark.parametrize(
    ("missing", "shown"),
    [
        (float("nan"), "NaN"),
        (np.float32("nan"), "NaN"),
        (pd.NaT, "NaT"),
        (pd.NA, "<NA>"),
        (Decimal("nan"), "NaN"),
        (("anna", float("nan")), "('anna', nan)"),
    ],
    ids=str,
)
def test_a_missing_user_is_refused_everywhere(missing: Any, shown: str) -> None:
    policy, item = sclub.Sclub(dim=2), np.ones(2)
    policy.learn("anna", item, 1.0)
    digest = policy.digest()
    users, items = ["anna", missing], np.ones((2, 2))
    calls: list[tuple[str, Callable[[], object]]] = [
        ("user: it", lambda: policy.learn(missing, item, 1.0)),
        ("user: it", lambda: policy.recommend(missing, items)),
        ("user: it", lambda: policy.recommend_list(missing, items)),
        ("user: it", lambda: policy.best(missing, items)),
        ("user: it", lambda: policy.scores(missing, items)),
        ("user: it", lambda: policy.explain(missing)),
        ("user: it", lambda: policy.estimate(missing)),
        ("user: it", lambda: policy.cluster_of(missing)),
        ("user: it", lambda: policy.forget(missing)),
        ("users: row 1", lambda: policy.learn_many(users, items, [1.0, 1.0])),
        ("users: row 1", lambda: policy.learn_round(users, items, [1.0, 1.0])),
        ("users: row 1", lambda: policy.recommend_many(users, items)),
        ("users: row 1", lambda: sclub.Sclub(dim=2, users=users)),
        ("lists[0].user: it", lambda: policy.learn_lists([sclub.ShownList(missing, items, [1.0, 0.0])])),
        ("groups: a user", lambda: sclub.LinUcb(dim=2, groups={"anna": 1, missing: 2})),
    ]
    for place, call in calls:
        with pytest.raises(ValueError, match=re.escape(f"{place} is {shown}, not a user")):
            call()
    assert policy.digest() == digest and policy.users == ["anna"]


def test_a_column_with_missing_users_is_refused() -> None:
    columns: list[Any] = [
        np.array([1.0, np.nan]),
        pd.Series([1, None]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series(["anna", None], dtype="string"),
        pd.to_datetime(pd.Series(["2026-01-01", None])),
    ]
    for column in columns:
        with pytest.raises(ValueError, match="users: row 1 is (NaN|NaT|<NA>|nan), not a user"):
            sclub.LinUcb(dim=1).learn_many(column, np.ones((2, 1)), [1.0, 1.0])
    # None is a user like any other.
    policy = sclub.LinUcb(dim=1)
    policy.learn_many(["anna", None, None], np.ones((3, 1)), [1.0, 1.0, 1.0])
    assert policy.users == ["anna", None]


def test_users_who_are_numbers_are_those_numbers_also_in_rust() -> None:
    one, other = sclub.SclubSoft(dim=DIM), sclub.SclubSoft(dim=DIM)
    what = events(2000, 12)
    # The order and the type of the users do not change the bits.
    for user in range(24, -1, -1):
        one.recommend(user, what.items[0])
    play(one, what)
    play(other, what._replace(users=[np.int64(user) for user in what.users]))
    assert one.digest() == other.digest()


def test_named_and_numbered_users_do_not_meet() -> None:
    policy = sclub.Sclub(dim=1, users=["anna", "bert"])
    for user in (0, 1, "carl", 2**63, -1, "anna"):
        policy.learn(user, [1.0], 1.0)
    assert policy.users == ["anna", "bert", 0, 1, "carl", 2**63, -1]
    assert [policy.explain(user).count for user in policy.users] == [1, 0, 1, 1, 1, 1, 1]


class Meddler:
    """A user whose comparison calls the policy for the same user."""

    policy: sclub.Policy

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self.policy.cluster_of("anna") == 0


def test_a_policy_cannot_be_used_while_it_compares_users() -> None:
    policy = sclub.LinUcb(dim=1)
    Meddler.policy = policy
    policy.learn(Meddler(), [1.0], 1.0)
    with pytest.raises(RuntimeError, match="cannot be used while it compares users"):
        policy.learn(Meddler(), [1.0], 1.0)
    assert policy.rounds == 1


def test_users_come_as_arrays_series_and_generators() -> None:
    expected = sclub.LinUcb(dim=2)
    for user in [3, 1, 3]:
        expected.learn(user, [1.0, 0.5], 1.0)
    rows, rewards = np.tile([1.0, 0.5], (3, 1)), np.ones(3)
    for users in (np.array([3, 1, 3]), np.array([3, 1, 3], np.uint8), pd.Series([3, 1, 3]),
                  (3, 1, 3), (user for user in [3, 1, 3])):  # fmt: skip
        policy = sclub.LinUcb(dim=2)
        policy.learn_many(users, rows, rewards)
        assert policy.digest() == expected.digest()
        assert policy.users == [3, 1]
        assert all(type(user) is int for user in policy.users)


BAD = {
    "user: unhashable": (TypeError, lambda p, x: p.recommend([1], x)),
    "items: expected 6 features, got 5": (ValueError, lambda p, x: p.recommend(1, x[:, :5])),
    "items: an array of shape": (ValueError, lambda p, x: p.recommend(1, x[0])),
    "items: there are no candidate": (ValueError, lambda p, x: p.recommend(1, x[:0])),
    "items: it cannot be made": (TypeError, lambda p, x: p.recommend(1, [[1.0], [1.0, 2.0]])),
    "items: numbers are expected, not <U3": (TypeError, lambda p, x: p.recommend(1, "abc")),
    "items: numbers are expected, not complex": (TypeError, lambda p, x: p.recommend(1, x + 1j)),
    "items: numbers are expected, not datetime": (
        TypeError,
        lambda p, x: p.recommend(1, x.astype("datetime64[s]")),
    ),
    "items: a masked array is not supported": (ValueError, lambda p, x: p.recommend(1, np.ma.array(x, mask=x > 0))),
    "users: a sequence is expected, not a set": (
        TypeError,
        lambda p, x: p.learn_many({1, 2}, x[:2], [1, 2]),
    ),
    "rewards: numbers are expected": (
        TypeError,
        lambda p, x: p.learn_many([1, 2], x[:2], ["1", "0"]),
    ),
    "rewards: an array of shape \\(n,\\)": (
        ValueError,
        lambda p, x: p.learn_many([1, 2], x[:2], 1.0),
    ),
    "k: it is -1": (ValueError, lambda p, x: p.best(1, x, -1)),
    "items: feature 2 of item 1 is NaN": (ValueError, lambda p, x: p.recommend(1, spoiled(x))),
    "items: there are 2 sets of items for 3": (
        ValueError,
        lambda p, x: p.recommend_many([1, 2, 3], np.stack([x, x])),
    ),
    "users: a sequence is expected": (TypeError, lambda p, x: p.recommend_many("anna", x)),
    "item: expected 6 features, got 7": (ValueError, lambda p, x: p.learn("new", [1.0] * 7, 1)),
    "item: an array of shape": (ValueError, lambda p, x: p.learn("new", x, 1)),
    "item: feature 2": (ValueError, lambda p, x: p.learn("new", spoiled(x)[1], 1)),
    "reward: must be real": (TypeError, lambda p, x: p.learn("new", x[0], "much")),
    "reward: the reward of observation 0 is inf": (
        ValueError,
        lambda p, x: p.learn("new", x[0], np.inf),
    ),
    "users: unhashable": (TypeError, lambda p, x: p.learn_many(["new", []], x[:2], [1, 2])),
    "items: there are 7 items for 2 users": (ValueError, lambda p, x: p.learn_many([1, 2], x, [1, 2])),
    "rewards: there is 1 reward for 2 users": (ValueError, lambda p, x: p.learn_many([1, 2], x[:2], [1])),
    "rewards: the reward of observation 1": (
        ValueError,
        lambda p, x: p.learn_many(["new", "newer"], x[:2], [1, np.nan]),
    ),
    "items: feature 2 of item 1": (
        ValueError,
        lambda p, x: p.learn_round(["new"] * 7, spoiled(x), np.ones(7)),
    ),
    "exclude: .* is not a row number": (ValueError, lambda p, x: p.best(1, x, 2, exclude=["a"])),
}


def spoiled(items: NDArray[np.float64]) -> NDArray[np.float64]:
    items = items.copy()
    items[1, 2] = np.nan
    return items


@pytest.mark.parametrize("message", BAD)
@every_policy
def test_a_mistake_is_named_and_changes_nothing(make: Make, message: str) -> None:
    policy = make()
    what = events(100, 6)
    play(policy, what)
    before = (policy.digest(), policy.users, policy.rounds)
    kind, call = BAD[message]
    with pytest.raises(kind, match=f"^{message}"):
        call(policy, what.items[0])
    assert (policy.digest(), policy.users, policy.rounds) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sclub.Sclub(2.5), "dim: a whole number is expected, not 2.5"),
        (lambda: sclub.Sclub(2, beta="x"), "beta: a number is expected, not 'x'"),
        (lambda: sclub.SclubSoft(2, growth="x"), "growth: a number is expected, not 'x'"),
        (lambda: sclub.SclubSoft(2, speed=1), ".*unexpected keyword argument .speed."),
        (lambda: sclub.LinUcb(2, groups={1: []}), "groups: unhashable type: 'list'"),
    ],
)
def test_a_constant_of_the_wrong_kind_is_named(make: Make, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sclub.Sclub(-1), "dim: it is -1; a whole number from 0"),
        (lambda: sclub.Sclub(0), "dim: the dimension must be between 1 and 512, got 0"),
        (lambda: sclub.Sclub(2, preset="best"), "preset: unknown preset 'best'"),
        (lambda: sclub.Sclub(2, beta=-1), "beta: it is -1"),
        (lambda: sclub.Sclub(2, beta=1, beta_scale=1), "beta.*: it cannot be given"),
        (lambda: sclub.Sclub(2, users=0), "users: there must be at least one"),
        (lambda: sclub.Sclub(2, users=["a", "a"]), "users: user 'a' is named twice"),
        (lambda: sclub.Sclub(2, preset="theory"), "assumptions: preset 'theory' requires them"),
        (lambda: sclub.Club(2, graph="star"), "graph: unknown value 'star'"),
        (lambda: sclub.Club(2, users=40_000, graph="complete"), "users: the number of users of a"),
        (lambda: sclub.LinUcb(2, shared=True, groups={1: 1}), "groups: they cannot be given"),
        (lambda: sclub.LinUcb(2, groups={}), "groups: it is empty"),
        (lambda: sclub.SclubSoft(2, steps=1.5), "steps: it is 1.5, and must be a whole number"),
        (lambda: sclub.SclubSoft(2, half_life=0), "half_life: it is 0"),
    ],
)
def test_a_bad_constant_is_named(make: Make, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


def test_theorem_1_has_its_constants() -> None:
    known: sclub.Assumptions = {
        "noise": 0.5,
        "smallest_eigenvalue": 0.1,
        "horizon": 1000,
        "clusters": 3,
        "users": 20,
    }
    policy = sclub.Sclub(DIM, preset="theory", assumptions=known)
    beta = 0.5 * np.sqrt(DIM * np.log(1 + 1000 / DIM) + 2 * np.log(4 * 3 * 20))
    # Before anything is known the width of a unit vector is beta itself.
    assert policy.scores(1, np.eye(DIM)).width == pytest.approx(np.full(DIM, beta))


def test_one_round_of_several_users_is_not_several_rounds() -> None:
    what = events(200, 7, users=8)
    together = sclub.Sclub(dim=DIM)
    changes = []
    for start in range(0, 200, 4):
        part = slice(start, start + 4)
        changes += together.learn_round(
            what.users[part], what.items[part, 0], what.rewards[part, 0]
        )
    assert together.rounds == 50
    assert together.learn_round([], [], []) == []
    assert together.rounds == 51
    splits = [change for change in changes if isinstance(change, sclub.Split)]
    assert splits, "users of three tastes are told apart"
    for split in splits:
        why = split.estimates or split.frequencies
        assert why is not None
        assert why.distance > why.threshold


@every_kept_policy
def test_clusters_are_who_is_served_from_them(make: Make) -> None:
    policy = make()
    play(policy, events(600, 8))
    clusters = policy.clusters()
    for cluster in clusters:
        assert cluster.label > 0
        for user in cluster.users:
            assert policy.cluster_of(user) == cluster.label
    placed = [user for cluster in clusters for user in cluster.users]
    assert len(placed) == len(set(placed))
    unplaced = set(policy.users) - set(placed)
    assert all(policy.cluster_of(user) == 0 for user in unplaced)
    if not isinstance(policy, sclub.SclubSoft | sclub.Gaussian):
        assert sum(cluster.count for cluster in clusters) == 600


def test_probabilities_of_clusters_add_up() -> None:
    policy = sclub.SclubSoft(dim=DIM, caution=1.0)
    play(policy, events(3000, 9))
    outlook = policy.outlook()
    assert outlook is not None
    assert outlook.clusters == len(policy.clusters()) == 3
    for user in policy.users:
        placement = policy.explain(user).placement
        assert placement is not None
        assert placement.used
        assert placement.none + sum(p.probability for p in placement.places) == pytest.approx(1)
        assert placement.places[0].cluster == policy.cluster_of(user)
    assert len({policy.cluster_of(user) for user in range(0, 25, 3)}) == 1


@pytest.mark.parametrize("name", [name for name in KEPT if "club" not in name.lower().split()[:1]])
def test_a_forgotten_user_is_as_one_who_never_came(name: str) -> None:
    policy = MAKERS[name]()
    play(policy, events(200, 10))
    assert policy.forget(3)
    assert policy.explain(3).count == 0
    assert 3 not in policy.users
    assert not policy.forget(3)
    assert not policy.forget("nobody")
    policy.learn(3, np.ones(DIM), 1.0)
    assert policy.explain(3).count == 1


@pytest.mark.parametrize("name", sorted(FOR_COMPARISON))
def test_what_policies_for_comparison_cannot_do_they_say(name: str) -> None:
    policy = MAKERS[name]()
    play(policy, events(20, 10))
    with pytest.raises(NotImplementedError, match="cannot forget a user"):
        policy.forget(3)
    with pytest.raises(OSError, match="cannot be saved"):
        pickle.dumps(policy)


def test_what_club_cannot_do_it_says() -> None:
    policy = sclub.Club(dim=1)
    policy.learn("anna", [1.0], 1.0)
    with pytest.raises(NotImplementedError, match="cannot forget a user"):
        policy.forget("anna")


def test_python_goes_on_while_a_policy_works() -> None:
    policy = sclub.SclubSoft(dim=20)
    rows = np.random.default_rng(0).normal(size=(50_000, 20))
    counted, done = 0, threading.Event()

    def work() -> None:
        policy.learn_many(np.arange(50_000) % 500, rows, np.ones(50_000))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    # Were Python held up, there would be a few turns before and after.
    assert counted > 1000


@every_policy
def test_threads_can_share_a_policy(make: Make) -> None:
    policy = make()
    what = events(400, 11)
    problems: list[BaseException] = []

    def work(part: slice) -> None:
        try:
            for user, items, rewards in zip(
                what.users[part], what.items[part], what.rewards[part]
            ):
                choice = policy.recommend(user, items)
                policy.learn(user, items[choice], rewards[choice])
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(slice(i, None, 4),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert policy.rounds == 400
    assert sorted(set(policy.users)) == sorted(policy.users)
    # Policies for comparison cannot be inspected.
    if make in KEPT.values():
        assert sum(policy.explain(user).count for user in policy.users) == 400
