"""Item ids and lists: what Python hands over is what policies get."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import policies
import sclub
from policies import DIM, MAKERS
from sclub import _sclub, lab

FILMS = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
IDS = ["Alien", "Brazil", 7]
NUMBERS = [sclub.item_id(one) for one in IDS]


class Recorder:
    """A policy that shows the item with the smallest id, and notes what it is handed."""

    uses_item_ids = True

    def __init__(self, about: object = None) -> None:
        self.offered: list[list[int] | None] = []
        self.learned: list[tuple[int, list[float], float, int | None]] = []

    def recommend(
        self, user: int, items: NDArray[np.float64], *, ids: NDArray[np.uint64] | None
    ) -> int:
        self.offered.append(None if ids is None else ids.tolist())
        return 0 if ids is None else int(np.argmin(ids))

    def learn(self, user: int, item: NDArray[np.float64], reward: float, *, id: int | None) -> None:
        self.learned.append((user, item.tolist(), reward, id))

    def __deepcopy__(self, memo: object) -> Recorder:
        return self


class Rounds(Recorder):
    """As a recorder, with whole rounds."""

    def learn_round(
        self,
        users: list[int],
        items: NDArray[np.float64],
        rewards: NDArray[np.float64],
        *,
        ids: NDArray[np.uint64] | None,
    ) -> None:
        numbers = [None] * len(users) if ids is None else ids.tolist()
        for one in zip(users, items.tolist(), rewards.tolist(), numbers):
            self.learned.append(one)


def test_numbers_are_their_own_and_text_is_hashed_as_in_the_service() -> None:
    assert [sclub.item_id(one) for one in (0, 7, np.int64(9), 2**64 - 1)] == [0, 7, 9, 2**64 - 1]
    # The first 8 bytes of `printf abc | b3sum`, little-endian.
    assert sclub.item_id("abc") == int.from_bytes(bytes.fromhex("6437b3ac38465133"), "little")
    others = [-1, 2**64, 1.5, b"abc", None, ("abc", 1), "7", "abc", ""]
    assert len({sclub.item_id(one) for one in others}) == len(others)
    for wrong in (object(), ["abc"], {1: 2}, ("abc", [])):
        with pytest.raises(TypeError, match="cannot be an item id; use a whole number, a string"):
            sclub.item_id(wrong)  # type: ignore[arg-type]


def test_items_keep_their_ids() -> None:
    given = list(IDS)
    films = sclub.Items(FILMS, ids=given)
    given.clear()
    for twin in (films, copy.copy(films), copy.deepcopy(films), pickle.loads(pickle.dumps(films))):
        assert twin.ids == IDS
        assert np.array_equal(twin.to_numpy(), FILMS)
    assert sclub.Items(FILMS).ids is None
    assert sclub.Items(FILMS, np.arange(3)).ids == [0, 1, 2]
    with pytest.raises(ValueError, match="ids: there are 2 ids for 3 items"):
        sclub.Items(FILMS, ids=["a", "b"])
    with pytest.raises(TypeError, match="ids: a sequence is expected, not one string"):
        sclub.Items(FILMS, ids="abc")


@pytest.mark.parametrize("method", ["recommend", "recommend_many"])
@pytest.mark.parametrize("given", ["items", "array", "none"])
def test_a_policy_is_offered_the_ids(method: str, given: str) -> None:
    recorder = Recorder()
    policy = _sclub._policy_of(recorder, 2)
    items: Any = sclub.Items(FILMS, IDS) if given == "items" else FILMS
    keywords: dict[str, Any] = {"ids": IDS} if given == "array" else {}
    if method == "recommend_many":
        if given == "array":
            items, keywords = sclub.Items(FILMS, IDS), {}
        chosen = policy.recommend_many([1], items, **keywords)[0]
    else:
        chosen = policy.recommend(1, items, **keywords)
    assert recorder.offered == [None if given == "none" else NUMBERS]
    assert chosen == (0 if given == "none" else int(np.argmin(np.array(NUMBERS, dtype=np.uint64))))
    # The memory for items is used again: ids of before must not show.
    policy.recommend(1, FILMS)
    assert recorder.offered[1] is None


def test_ids_must_fit_the_items() -> None:
    policy = sclub.LinUcb(dim=2)
    with pytest.raises(ValueError, match="ids: there are 2 ids for 3 items; give one for each"):
        policy.recommend("anna", FILMS, ids=[1, 2])
    with pytest.raises(ValueError, match="ids: items is an Items, which has ids of its own"):
        policy.best("anna", sclub.Items(FILMS), ids=IDS)
    with pytest.raises(TypeError, match="id: .* cannot be an item id"):
        policy.learn("anna", FILMS[0], 1.0, id=object())
    with pytest.raises(ValueError, match="ids: there is 1 id for 2 items"):
        policy.learn_many(["anna", "bert"], FILMS[:2], [1.0, 0.0], ids=[1])
    with pytest.raises(ValueError, match="ids: there is 1 id for 2 items"):
        policy.learn_round(["anna", "bert"], FILMS[:2], [1.0, 0.0], ids=[1])
    assert policy.rounds == 0 and policy.users == []


@pytest.mark.parametrize("kind", [Recorder, Rounds])
def test_a_policy_learns_the_ids(kind: type[Recorder]) -> None:
    recorder = kind()
    policy = _sclub._policy_of(recorder, 2)
    policy.learn(1, FILMS[0], 1.0, id="Alien")
    policy.learn(1, FILMS[1], 0.0)
    policy.learn_many([2, 3], FILMS[:2], [0.5, 0.25], ids=IDS[:2])
    policy.learn_round([4, 5], FILMS[1:], [0.0, 1.0], ids=np.array([8, 9]))
    policy.learn_round([4], FILMS[:1], [0.0])
    assert recorder.learned == [
        (1, [0.6, 0.8], 1.0, NUMBERS[0]),
        (1, [1.0, 0.0], 0.0, None),
        (2, [0.6, 0.8], 0.5, NUMBERS[0]),
        (3, [1.0, 0.0], 0.25, NUMBERS[1]),
        (4, [1.0, 0.0], 0.0, 8),
        (5, [0.0, 1.0], 1.0, 9),
        (4, [0.6, 0.8], 0.0, None),
    ]


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_policy_that_ignores_ids_does_the_same_with_and_without(
    name: str,
) -> None:
    make: Callable[[], sclub.Policy] = MAKERS[name]
    if make().uses_item_ids:
        pytest.skip("this policy uses ids")
    without, with_ids = make(), make()
    what = policies.events(300, seed=4)
    ids = [f"item {row}" for row in range(what.items.shape[1])]
    for user, items, rewards in zip(what.users, what.items, what.rewards):
        row = without.recommend(user, items)
        assert with_ids.recommend(user, items, ids=ids) == row
        assert with_ids.best(user, sclub.Items(items, ids), 1)[0] == row
        without.learn(user, items[row], rewards[row])
        with_ids.learn(user, items[row], rewards[row], id=ids[row])
    assert with_ids.digest() == without.digest()


class Cinema:
    """A world with fixed items."""

    dim, users = 2, 3

    def __init__(self, seed: int) -> None:
        self.films = sclub.Items(FILMS, IDS)

    def draw(self, round: int) -> tuple[Any, ...]:
        return round % 3, self.films, np.array([0.2, 0.4, 0.6])


def test_a_guest_in_a_world_with_fixed_items_gets_their_ids() -> None:
    recorder = Recorder()
    results = lab.run(Cinema, [recorder, "sclub"], rounds=50, seeds=1, threads=1)
    assert recorder.offered == [NUMBERS] * 50
    smallest = int(np.argmin(np.array(NUMBERS, dtype=np.uint64)))
    assert [(user, id) for user, _, _, id in recorder.learned] == [
        (round % 3, NUMBERS[smallest]) for round in range(50)
    ]
    assert results[0].regret == pytest.approx(50 * (0.6 - [0.2, 0.4, 0.6][smallest]))


def test_a_guest_in_a_world_without_ids_gets_none() -> None:
    for world in (lab.Synthetic(users=5, clusters=1, dim=2, items=3),):
        recorder = Recorder()
        lab.run(world, [recorder], rounds=20, seeds=1)
        assert recorder.offered == [None] * 20
        assert {id for *_, id in recorder.learned} == {None}


def test_whole_rounds_have_ids_too() -> None:
    recorder = Rounds()
    world = lab.Synthetic(users=5, clusters=1, dim=2, items=3, users_a_round=2.0)
    lab.run(world, [recorder], rounds=20, seeds=1)
    assert {id for *_, id in recorder.learned} == {None}


def test_items_of_ratings_have_ids_and_a_replay_has_the_same(tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    path = tmp_path / "ratings.csv"
    pairs = sorted({(int(user), int(item)) for user, item in rng.integers(0, 40, (900, 2))})
    path.write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user, item in pairs))
    setting = lab.Ratings(path, dim=4, items=5)
    world = setting.world(seed=1)
    ids = world.ids(0)
    assert ids is not None and len(set(ids.tolist())) == 5
    own, replayed = Recorder(), Recorder()
    first = lab.run(setting, [own], rounds=60, seeds=[1], threads=1)
    again = lab.run(world, [replayed], rounds=60, seeds=[1], threads=1)
    assert own.offered[0] == ids.tolist()
    assert own.offered == replayed.offered
    assert [one[3] for one in own.learned] == [one[3] for one in replayed.learned]
    assert first[0].regret == again[0].regret
    assert lab.Synthetic(users=5, clusters=1).world(1).ids(0) is None


def test_a_recommender_hands_its_arms_over(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    recommender = sclub.Recommender(IDS, FILMS, policy="linucb-ind")
    recommender.fit([], [], [])
    recommender.policy_ = _sclub._policy_of(recorder, 2)
    recommender.predict(["anna"])
    recommender.partial_fit(["Brazil", 7], [1.0, 0.0], ["anna", "bert"])
    recommender.remove_arm("Alien")
    recommender.predict(["anna"])
    assert recorder.offered == [NUMBERS, NUMBERS[1:]]
    assert [id for *_, id in recorder.learned] == NUMBERS[1:]
    # Arms that cannot be ids have none.
    odd = sclub.Recommender([frozenset({1}), "b"], FILMS[:2], policy="linucb-ind")
    assert odd.fit([], [], []).predict(["anna"]) in ("b", frozenset({1}))


def test_an_explorer_hands_ids_over() -> None:
    recorder = Recorder()
    explorer = sclub.ope.Explorer(_sclub._policy_of(recorder, 2), sclub.Items(FILMS, IDS), 0.5)
    choice = explorer.recommend("anna")
    explorer.learn(choice, 1.0)
    assert recorder.offered == [NUMBERS]
    assert recorder.learned[0][3] == NUMBERS[choice.row]


# Lists.


def shown_lists(rng: np.random.Generator, count: int) -> list[sclub.ShownList]:
    lists = []
    for _ in range(count):
        length = int(rng.integers(0, 6))
        rewards = [None if rng.random() < 0.2 else float(rng.normal()) for _ in range(length)]
        looked_at = None if rng.random() < 0.3 else int(rng.integers(0, length + 1))
        items = rng.normal(size=(length, DIM)) / np.sqrt(DIM)
        lists.append(sclub.ShownList(int(rng.integers(0, 20)), items, rewards, looked_at))
    return lists


# CLUB-cascade learns from lists as a whole.
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "club-cascade"])
def test_lists_are_learned_as_their_items_in_one_round(name: str) -> None:
    rng = np.random.default_rng(8)
    lists, items = MAKERS[name](), MAKERS[name]()
    for _ in range(150):
        round = shown_lists(rng, int(rng.integers(0, 4)))
        seen = [
            (shown.user, row, reward)
            for shown in round
            for row, reward in list(zip(np.asarray(shown.items), list(shown.rewards)))[  # type: ignore[arg-type]
                : shown.looked_at
            ]
            if reward is not None
        ]
        changes = lists.learn_lists(round)
        users, rows, rewards = zip(*seen) if seen else ((), (), ())
        assert changes == items.learn_round(list(users), np.array(rows), np.array(rewards))
    assert lists.rounds == items.rounds == 150
    assert lists.digest() == items.digest()


def test_the_items_of_a_list_have_ids() -> None:
    recorder = Recorder()
    policy = _sclub._policy_of(recorder, 2)
    shown = sclub.ShownList("anna", FILMS, np.array([0.0, 1.0, 0.5]), looked_at=2, ids=IDS)
    policy.learn_lists([shown, sclub.ShownList("bert", FILMS[:1], [None])])
    assert [(reward, id) for _, _, reward, id in recorder.learned] == [
        (0.0, NUMBERS[0]),
        (1.0, NUMBERS[1]),
    ]


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_list_is_the_best_items_unless_a_policy_makes_its_own(name: str) -> None:
    policy = MAKERS[name]()
    what = policies.events(200, seed=6)
    policies.play(policy, what)
    for user, items in zip(what.users[:20], what.items):
        list_ = policy.recommend_list(user, items, 3, exclude=[2], ids=range(len(items)))
        assert list_.tolist() == policy.best(user, items, 3, exclude=[2]).tolist()
    with pytest.raises(ValueError, match="k: it is -1; it must be 0 or more"):
        policy.recommend_list(1, what.items[0], -1)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (("anna", FILMS), TypeError, r"lists\[1\]: a ShownList is expected, not tuple"),
        (
            sclub.ShownList("anna", FILMS, [1.0]),
            ValueError,
            r"lists\[1\].rewards: there is 1 reward for 3 items; give one for each item, or None",
        ),
        (
            sclub.ShownList("anna", FILMS, [1.0, 0.0, 0.0], looked_at=4),
            ValueError,
            r"lists\[1\].looked_at: it is 4; it must be at most the number of items, 3",
        ),
        (
            sclub.ShownList("anna", FILMS, [1.0, 0.0, float("nan")]),
            ValueError,
            r"lists\[1\].rewards: .*NaN",
        ),
        (
            sclub.ShownList("anna", FILMS, [1.0, 0.0, "x"]),  # type: ignore[list-item]
            TypeError,
            r"lists\[1\].rewards: x is not a number or None",
        ),
        (
            sclub.ShownList("anna", np.full((3, 2), np.inf), [1.0, None, None], looked_at=1),
            ValueError,
            r"lists\[1\].items: ",
        ),
        (
            sclub.ShownList("anna", np.ones((1, 3)), [1.0]),
            ValueError,
            r"lists\[1\].items: ",
        ),
        (
            sclub.ShownList("anna", FILMS, [1.0, None, None], ids=["Alien"]),
            ValueError,
            r"lists\[1\].ids: there is 1 id for 3 items",
        ),
        (sclub.ShownList([], FILMS, [1.0, None, None]), TypeError, "unhashable"),
    ],
)
def test_a_wrong_list_is_named_and_nothing_is_learned(
    wrong: Any, error: type[Exception], message: str
) -> None:
    policy = sclub.LinUcb(dim=2)
    good = sclub.ShownList("bert", FILMS, [1.0, None, 0.0])
    before = policy.digest()
    with pytest.raises(error, match=message):
        policy.learn_lists([good, wrong])
    assert policy.digest() == before and policy.users == []
