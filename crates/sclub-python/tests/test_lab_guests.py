"""Policies and worlds written in Python: what they are told, and what happens where they are wrong."""

from __future__ import annotations

import copy
import functools
import os
import signal
import threading
import time
import traceback
from typing import Any

import numpy as np
import pytest

import sclub
from sclub import lab

WORLD = lab.Synthetic(users=20, clusters=2, dim=3, items=4)


class First:
    """Always the first item."""

    def recommend(self, user: int, items: np.ndarray) -> int:
        return 0

    def learn(self, user: int, item: np.ndarray, reward: float) -> None:
        pass


def run(policies: Any, world: Any = WORLD, **rest: Any) -> lab.Results:
    options: dict[str, Any] = {"rounds": 400, "seeds": 1, **rest}
    return lab.run(world, policies, **options)


def test_a_class_is_told_of_the_world_and_made_for_each_seed() -> None:
    told: list[lab.About] = []

    class Curious(First):
        def __init__(self, about: lab.About) -> None:
            told.append(about)

    run([Curious], seeds=[3, 8], threads=1)
    assert told == [
        lab.About(dim=3, users=20, items=4, rounds=400, seed=told[0].seed, world_seed=3),
        lab.About(dim=3, users=20, items=4, rounds=400, seed=told[1].seed, world_seed=8),
    ]


class Guesses(First):
    """A random item, drawn from the seed that the lab gives."""

    def __init__(self, about: lab.About) -> None:
        self.draws, self.chosen = np.random.default_rng(about.seed), []
        Guesses.made.append(self)

    made: list[Guesses] = []
    chosen: list[int]

    def recommend(self, user: int, items: np.ndarray) -> int:
        self.chosen.append(int(self.draws.integers(len(items))))
        return self.chosen[-1]


def test_a_policy_does_not_draw_what_the_world_draws() -> None:
    class Today:
        """One of eight items is good, drawn anew in each round."""

        dim, users = 8, 5

        def __init__(self, seed: int) -> None:
            self.draws = np.random.default_rng(seed)

        def draw(self, round: int) -> tuple[Any, ...]:
            means = np.full(8, 0.1)
            means[self.draws.integers(8)] = 0.9
            return round % 5, np.eye(8), means

    played = lab.run(Today, [Guesses, "random"], rounds=2000, seeds=3, progress=False)
    for one in played.of("Guesses"):
        # Chance is 0.7 a round; the standard deviation of the sum is 12.
        assert one.regret == pytest.approx(one.random_regret, abs=80)


def test_a_policy_has_draws_of_its_own_for_each_name_and_seed() -> None:
    def chosen(policies: Any, **options: Any) -> list[list[int]]:
        Guesses.made.clear()
        run(policies, **options)
        return sorted(one.chosen for one in Guesses.made)

    several = chosen({"one": Guesses, "two": Guesses}, seeds=[3, 8], threads=2)
    assert len({tuple(one) for one in several}) == 4
    # They do not depend on what else is in the run, nor on the number of threads.
    assert several == chosen({"two": Guesses, "sclub": "sclub", "one": Guesses}, seeds=[8, 3], threads=1)
    assert chosen({"two": Guesses}, seeds=[8])[0] in several


def test_the_seed_of_a_policy_is_the_same_in_every_process() -> None:
    seeds: list[int] = []

    def note(about: lab.About) -> First:
        seeds.append(about.seed)
        return First()

    run({"mine": note}, seeds=[1, 2], threads=1)
    assert seeds == [3555565807, 3230906689]
    # NumPy's older generators and scikit-learn take no larger ones.
    assert all(seed < 2**32 for seed in seeds)


def test_a_function_that_makes_a_policy_is_as_good_as_a_class() -> None:
    def of_many_names(about: lab.About) -> First:
        return First()

    class Wide(First):
        def __init__(self, about: lab.About, width: float) -> None:
            self.width = width

    results = run([of_many_names, lambda about: First(), functools.partial(Wide, width=2.0)])
    assert results.policies == ["of_many_names", "<lambda>", "Wide"]
    assert results[0].regret == results[1].regret


def test_an_object_is_copied_for_each_seed() -> None:
    class Counting(First):
        def __init__(self) -> None:
            self.seen = 0
            self.sums: list[int] = []

        def recommend(self, user: int, items: np.ndarray) -> int:
            self.seen += 1
            return self.seen % 4

    counting = Counting()
    alone = run([counting], seeds=[2])
    both = run([counting], seeds=[1, 2])
    assert counting.seen == 0
    assert alone[0].regret == both[1].regret


def test_names_come_from_name_class_or_mapping() -> None:
    named = First()
    named.name = "mine"  # type: ignore[attr-defined]
    assert run([named, First(), "random"]).policies == ["mine", "First", "random"]
    assert run({"a": First(), "b": "sclub"}).policies == ["a", "b"]
    assert run("random").policies == ["random"]
    with pytest.raises(ValueError, match="policy 'First' is named twice; .* mapping"):
        run([First(), First()])
    with pytest.raises(ValueError, match="policy 'sclub' is named twice"):
        run(["sclub", "sclub"])


def test_clusters_of_a_guest_are_counted_and_compared() -> None:
    setting = lab.Synthetic(users=20, clusters=4, dim=3, items=4)

    class Knows(First):
        def __init__(self, about: lab.About) -> None:
            self.truth = np.asarray(setting.world(about.world_seed).clusters)

        def cluster_of(self, user: int) -> object:
            return ("cluster", int(self.truth[user]))

    class Half(First):
        def cluster_of(self, user: int) -> object:
            return "even" if user % 2 == 0 else None

    results = run([Knows, Half(), First()], setting)
    assert (results[0].clusters, results[0].adjusted_rand) == (4, 1.0)
    assert results[1].clusters == 1 and results[1].adjusted_rand is not None
    assert (results[2].clusters, results[2].adjusted_rand) == (None, None)


def test_learn_is_called_for_each_where_there_is_no_learn_round() -> None:
    calls: list[tuple[int, float]] = []

    class OneByOne(First):
        def learn(self, user: int, item: np.ndarray, reward: float) -> None:
            calls.append((user, reward))

        def __deepcopy__(self, memo: object) -> OneByOne:
            return self

    several = lab.Synthetic(users=20, clusters=2, dim=3, items=4, users_a_round=3.0)
    results = run([OneByOne()], several)
    assert len(calls) == results[0].served != results[0].rounds
    assert sum(reward for _, reward in calls) == results[0].reward


@pytest.mark.parametrize("where", ["make", "recommend", "learn", "cluster_of", "copy"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_policy_raises_comes_out_as_it_is(where: str, threads: int) -> None:
    raised = KeyError("what I mean")

    class Fails(First):
        def __init__(self, about: lab.About | None = None) -> None:
            self.rounds = 0
            if where == "make":
                raise raised

        def recommend(self, user: int, items: np.ndarray) -> int:
            if where == "recommend" and self.rounds == 300:
                raise raised
            return 0

        def learn(self, user: int, item: np.ndarray, reward: float) -> None:
            self.rounds += 1
            if where == "learn":
                raise raised

        def cluster_of(self, user: int) -> int:
            if where == "cluster_of":
                raise raised
            return 1

        def __deepcopy__(self, memo: object) -> Fails:
            if where == "copy":
                raise raised
            return copy.copy(self)

    with pytest.raises(KeyError) as caught:
        run([Fails if where != "copy" else Fails(), "sclub"], seeds=4, threads=threads)
    assert caught.value is raised
    functions = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    inside = {"make": "__init__", "copy": "__deepcopy__"}.get(where, where)
    assert functions[-1] == inside and "run" in functions


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (4, ValueError, "returned 4 in round 0; the position of an item, 0 to 3, is expected"),
        (-1, ValueError, "returned -1 in round 0"),
        (None, TypeError, "recommend of policy 'Wrong' returned None in round 0; the position"),
        (1.0, TypeError, "returned 1.0"),
        (10**30, TypeError, "returned 1000"),
    ],
)
def test_a_choice_that_is_none_is_an_error(answer: Any, kind: type[Exception], says: str) -> None:
    class Wrong(First):
        def recommend(self, user: int, items: np.ndarray) -> int:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(kind, match=says):
        run([Wrong()])


def test_numpy_integers_are_good_choices() -> None:
    class Chooses(First):
        def recommend(self, user: int, items: np.ndarray) -> Any:
            return np.argmax(items[:, 0])

    assert run([Chooses()])[0].served == 400


def test_what_is_no_policy_is_refused_before_anything_runs() -> None:
    with pytest.raises(TypeError, match="policy 'int' is neither a name.*it has no recommend"):
        run([3])
    with pytest.raises(ValueError, match="unknown policy 'sclubb'; use one of sclub, "):
        run(["sclubb"])
    with pytest.raises(ValueError, match="policies is empty"):
        run([])
    with pytest.raises(TypeError, match="policy 'object' has no method recommend"):
        run({"object": lambda about: object()})


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (First, "the class First"),
        (First(), "First"),
        (sclub.LinUcb(dim=3), "LinUcb"),
        (b"sclub", "bytes"),
        (3, "int"),
    ],
    ids=["class", "object", "policy", "bytes", "number"],
)
def test_one_policy_is_no_list_of_policies(one: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"^policies: a list or a mapping is expected, not {said}$"):
        run(one)


def test_policies_may_come_from_anything_that_has_several() -> None:
    assert run("random").policies == ["random"]
    assert run(name for name in ("random", "sclub")).policies == ["random", "sclub"]
    assert run(np.array(["random", "sclub"])).policies == ["random", "sclub"]


@pytest.mark.parametrize("make", [sclub.Sclub, sclub.SclubSoft, sclub.Club, sclub.LinUcb])
def test_a_policy_of_another_dimension_is_named(make: Any) -> None:
    said = "^policy 'mine' has dim 4, and the world has 3$"
    with pytest.raises(ValueError, match=said):
        run({"random": "random", "mine": make(dim=4)})
    with pytest.raises(ValueError, match=said):
        run({"mine": lambda about: make(dim=4)})
    with pytest.raises(ValueError, match="policy 'mine' has dim 3, and the world has 2"):
        run({"mine": make(dim=3)}, Coins)


def test_what_a_guest_calls_dim_is_its_own_affair() -> None:
    class Narrow(First):
        dim = 1

    assert run([Narrow()]).policies == ["Narrow"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": -5}, r"rounds is -5; it must be between 1 and 2\*\*64 - 1"),
        ({"threads": -5}, r"threads is -5; it must be between 1 and 2\*\*64 - 1"),
        ({"seeds": -5}, r"seeds is -5; it must be between 1 and 2\*\*64 - 1"),
        ({"seeds": [-5]}, r"a seed is -5; it must be between 0 and 2\*\*64 - 1"),
        ({"seeds": 0}, "at least one"),
        ({"seeds": [1, 1]}, "seed 1 is there twice"),
        ({"seeds": [2], "first_seed": 2}, "first_seed is 2, and seeds are given one by one"),
        ({"seeds": 2, "first_seed": 2**64 - 1}, "the last seed is 18446744073709551616; it must be below"),
        ({"threads": 0}, "threads is 0; it must be between 1 and 256"),
        ({"preset": "best"}, "preset: unknown preset 'best'; use one of default, tuned, released, theory"),
        ({"graph": "some"}, "graph: unknown value 'some'; use one of random, complete"),
        ({"index": "cube"}, "index: unknown value 'cube'; use one of norm, squared"),
        ({"deviations": ["x"]}, "deviations: unknown value 'x'; use one of all, none, shared-arrays"),
        ({"deviations": "y"}, "deviations: unknown value 'y'"),
        ({"beta": -1.0}, "beta: it is -1"),
        ({"beta": 1.0, "beta_scale": 1.0}, "cannot be given together"),
        ({"half_life": 3.0}, "half_life is a constant of sclub-soft or gaussian"),
        ({"world": "sintetic"}, "unknown world 'sintetic'"),
        ({"rounds": 2**64}, "rounds is 18446744073709551616"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        run(["sclub"], **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 10.0}, "rounds is 10.0; a whole number is expected"),
        ({"seeds": "3"}, "a seed is '3'; a whole number is expected"),
        ({"beta": "much"}, "beta: a number is expected, not 'much'"),
        ({"index": 2}, "index: a string or a list of strings is expected"),
        ({"deviations": [3]}, "deviations: a string or a list of strings is expected"),
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        run(["sclub"], **options)
    with pytest.raises(TypeError, match="users is 2.5; a whole number is expected"):
        lab.Synthetic(users=2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="users is -1; it must be between 1 and"):
        lab.Synthetic(users=-1)
    with pytest.raises(TypeError, match="spread is None"):
        lab.Synthetic(spread=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({"clusters": 30}, "clusters is 30; it must be at most the number of users, 20"),
        ({"users_a_round": 99.0}, "users_a_round is 99"),
        ({"reward_scale": 2.0}, "reward_scale is 2; it must be above 0 and at most 1"),
        ({"noise": 0.3}, "noise needs rewards=.gaussian."),
        (
            {"frequencies": "often"},
            "unknown kind of frequencies 'often'; use one of uniform",
        ),
        ({"sizes": "odd"}, "unknown kind of sizes 'odd'; use one of equal, unequal"),
        ({"rewards": "poisson"}, "unknown kind of rewards 'poisson'"),
        ({"dim": 1000}, "dim is 1000"),
    ],
    ids=str,
)
def test_a_world_that_cannot_be_is_refused_when_it_is_made(
    recipe: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        lab.Synthetic(**{"users": 20, "clusters": 2, **recipe})


def test_tastes_can_be_an_array() -> None:
    tastes = np.random.default_rng(1).normal(size=(12, 4))
    # (u, 1) / sqrt(2) with vectors u of length 1.
    tastes[:, :3] /= np.linalg.norm(tastes[:, :3], axis=1, keepdims=True)
    tastes[:, 3] = 1.0
    tastes /= np.sqrt(2.0)
    results = run(["linucb-ind"], lab.Vectors(tastes, items=7))
    assert (results.config["users"], results.config["dim"], results.config["items"]) == (12, 4, 7)
    assert results[0].adjusted_rand is None
    with pytest.raises(ValueError, match=r"weights has the shape \(4,\)"):
        lab.Vectors(tastes[0])
    with pytest.raises(ValueError, match="not finite"):
        lab.Vectors(tastes * np.nan)
    with pytest.raises(ValueError, match="policy 'oracle' needs the true clusters"):
        run(["oracle"], lab.Vectors(tastes))


def test_tastes_must_give_probabilities_where_rewards_are_bernoulli() -> None:
    tastes = np.random.default_rng(1).normal(size=(20, 3))
    says = (
        "the taste of user 0 gives mean rewards from -?[0-9.]+ to [0-9.]+; the mean of a Bernoulli reward is between 0 and 1"
    )
    with pytest.raises(ValueError, match=says):
        lab.Vectors(tastes)
    assert run(["random"], lab.Vectors(tastes, rewards="gaussian"))[0].rounds == 400
    # The bounds are exact: with two features an item is (1, 1) / sqrt(2) or (-1, 1) / sqrt(2).
    for taste in ([0.5, 0.5], [0.7, 0.7], [0.3, 1.1], [0.0, 2**0.5]):
        world = lab.Vectors([taste], items=30).world(1)
        means = np.concatenate([world.draw(round)[2] for round in range(20)])
        assert -1e-9 <= means.min() and means.max() <= 1.0 + 1e-9
    for taste in ([0.51, 0.5], [0.7, 0.72], [0.0, -0.1], [0.0, 1.42]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            lab.Vectors([taste])
    assert lab.Vectors([[0.0, 2.0]], reward_scale=0.5).world(1).users == 1


def test_a_file_that_is_not_there_is_not_found() -> None:
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        lab.Ratings("nowhere.csv")
    with pytest.raises(FileNotFoundError):
        lab.Vectors("nowhere.csv")
    with pytest.raises(ValueError, match="feature_scale is 0"):
        lab.Ratings("nowhere.csv", feature_scale=0)


class Coins:
    """Two items, of which each user prefers one."""

    dim, users = 2, 4

    def __init__(self, seed: int = 0) -> None:
        self.asked: list[int] = []

    def draw(self, round: int) -> Any:
        self.asked.append(round)
        user = round % 4
        return user, np.eye(2), [0.9, 0.1] if user % 2 else [0.1, 0.9]


def test_rounds_are_asked_for_in_order_each_once() -> None:
    made: list[Coins] = []

    def world(seed: int) -> Coins:
        made.append(Coins(seed))
        return made[-1]

    results = run(["linucb-ind", First()], world, rounds=600, seeds=[5])
    assert made[0].asked == list(range(600)) and len(made) == 1
    assert results.of("First")[0].regret == pytest.approx(0.8 * 300)
    assert results.config["world"] == "world" and results.config["rewards"] == "bernoulli"


def test_a_world_can_be_an_object_which_is_copied() -> None:
    coins = Coins()
    results = run(["random"], coins, seeds=2)
    assert coins.asked == [] and len(results) == 2
    assert results[0].reward != results[1].reward, "noise is another for each seed"


def test_rewards_that_a_world_draws_itself_are_what_is_learned() -> None:
    class Pays(Coins):
        def draw(self, round: int) -> Any:
            user, items, _ = super().draw(round)
            return user, items, [7.0, -3.0], [round, 1e6]

    got: list[float] = []

    class Notes(First):
        def learn(self, user: int, item: np.ndarray, reward: float) -> None:
            got.append(reward)

        def __deepcopy__(self, memo: object) -> Notes:
            return self

    results = run([Notes()], Pays)
    assert got == [float(round) for round in range(400)]
    assert results[0].reward == sum(got) and results[0].regret == 0.0
    assert results[0].random_regret == 5.0 * 400
    assert results.config["rewards"] == "given"


def test_true_clusters_of_a_world_are_told_to_the_oracle() -> None:
    class Clustered(Coins):
        clusters = np.array(["a", "b", "a", "b"])

    results = run(["oracle", "sclub"], Clustered, rounds=2000)
    assert results[0].adjusted_rand == 1.0 and results[1].adjusted_rand is not None
    with pytest.raises(ValueError, match="policy 'oracle' needs the true clusters"):
        run(["oracle"], Coins)
    with pytest.raises(ValueError, match="policy 'informed' needs the weights of the clusters"):
        run(["informed"], Clustered)


def test_gaussian_noise_is_drawn_for_a_world() -> None:
    class Noisy(Coins):
        noise = 2.0

    class Sees(First):
        def learn(self, user: int, item: np.ndarray, reward: float) -> None:
            got.append(reward - (0.9 if user % 2 else 0.1))

        def __deepcopy__(self, memo: object) -> Sees:
            return self

    got: list[float] = []
    run([Sees()], Noisy, rounds=4000)
    assert np.std(got) == pytest.approx(2.0, rel=0.05) and abs(np.mean(got)) < 0.1


GOOD = (0, np.eye(2), [0.5, 0.5])


@pytest.mark.parametrize(
    ("drawn", "says"),
    [
        (None, r"draw\(300\) returned None; \(user, items, means\)"),
        ((0, np.eye(2)), r"draw\(300\) returned"),
        ((0, np.eye(2), [0, 0], [0, 0], 5), "returned 5 values"),
        ((4, *GOOD[1:]), "user of round 300 is 4; a whole number from 0 to 3"),
        ((-1, *GOOD[1:]), "user of round 300 is -1"),
        (("anna", *GOOD[1:]), "user of round 300 is 'anna'"),
        ((0, np.ones(2), [0.5]), r"items of round 300: .*shape \(L, d\).*\(2,\)"),
        ((0, np.ones((2, 3)), [0.5, 0.5]), "items of round 300: expected 2 features, got 3"),
        ((0, [[1, np.nan], [0, 1]], [0.5, 0.5]), "items of round 300: feature 1 of item 0 is NaN"),
        ((0, "items", [0.5, 0.5]), "items of round 300"),
        ((0, np.ones((3, 2)), [0.5] * 3), "items of round 300: there are 3 items, and 2 in round 0"),
        ((0, np.zeros((0, 2)), []), "items of round 300: there are no candidate"),
        ((0, np.eye(2), [0.5]), "means of round 300: there is 1 number for 2 items"),
        ((0, np.eye(2), [0.5, np.nan]), "means of round 300: number 1 is NaN"),
        (
            (0, np.eye(2), [0.5, 1.5]),
            "means of round 300: number 1 is 1.5; the mean of a Bernoulli",
        ),
        ((*GOOD, [1.0, 0.0]), "rewards of round 300: they must be given in every round or in none"),
    ],
    ids=[
        "nothing",
        "two",
        "five",
        "user",
        "negative",
        "name",
        "flat",
        "wide",
        "nan",
        "words",
        "more",
        "none",
        "means",
        "mean-nan",
        "mean-large",
        "rewards",
    ],
)
def test_a_mistake_of_a_world_is_named_with_its_round(drawn: Any, says: str) -> None:
    class Wrong(Coins):
        def draw(self, round: int) -> Any:
            return drawn if round == 300 else GOOD

    with pytest.raises(ValueError, match=says):
        run(["sclub", First()], Wrong)


@pytest.mark.parametrize(
    ("attributes", "kind", "says"),
    [
        ({"dim": None}, TypeError, "has no attribute dim"),
        ({"dim": 0}, ValueError, "dim of the world is 0"),
        ({"dim": 1000}, ValueError, "dimension must be between 1 and"),
        ({"users": "many"}, TypeError, "users of the world is 'many'"),
        ({"noise": -1.0}, ValueError, "noise of the world is -1.0"),
        ({"noise": "x"}, TypeError, "noise of the world is 'x'; a number is expected"),
        ({"rewards": "coins"}, ValueError, "rewards of the world is 'coins'"),
        ({"rewards": "bernoulli", "noise": 1.0}, ValueError, "noise needs rewards"),
        ({"clusters": [1, 2]}, ValueError, r"clusters of the world has the shape \(2,\); \(4,\)"),
        ({"length": 0}, ValueError, "length of the world is 0"),
        ({"draw": None}, TypeError, r"no method draw"),
    ],
    ids=str,
)
def test_attributes_of_a_world_are_checked(
    attributes: dict[str, Any], kind: type[Exception], says: str
) -> None:
    world = type("Odd", (Coins,), attributes)
    with pytest.raises(kind, match=says):
        run(["sclub"], world)


def test_what_a_world_raises_comes_out_as_it_is() -> None:
    raised = ZeroDivisionError("here")

    class Fails(Coins):
        def draw(self, round: int) -> Any:
            if round == 100:
                raise raised
            return GOOD

    with pytest.raises(ZeroDivisionError) as caught:
        run(["sclub"], Fails, seeds=3)
    assert caught.value is raised

    def never(seed: int) -> Coins:
        raise raised

    with pytest.raises(ZeroDivisionError):
        run(["sclub"], never)
    with pytest.raises(TypeError, match="world is 3; 'synthetic', a world of sclub.lab"):
        run(["sclub"], 3)


def test_a_world_of_the_lab_can_be_looked_at() -> None:
    world = WORLD.world(1)
    assert (world.dim, world.users, world.length, world.noise) == (3, 20, None, None)
    assert np.unique(np.asarray(world.clusters)).tolist() == [0, 1]
    user, items, means = world.draw(1000)
    assert 0 <= user < 20 and items.shape == (4, 3) and means.shape == (4,)
    again = WORLD.world(1)
    again.draw(7)
    assert np.array_equal(again.draw(1000)[1], items)
    several = lab.Synthetic(users=20, clusters=2, users_a_round=2.0).world(1)
    with pytest.raises(ValueError, match="several users"):
        several.draw(0)


def test_ctrl_c_stops_a_run_at_once() -> None:
    class Slow(First):
        def recommend(self, user: int, items: np.ndarray) -> int:
            time.sleep(0.01)
            return 0

    before = threading.active_count()
    pressed = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    pressed.start()
    with pytest.raises(KeyboardInterrupt):
        run([Slow(), "sclub"], rounds=100_000, seeds=3, progress=False)
    assert time.monotonic() - start < 10
    pressed.join()
    assert threading.active_count() <= before


def test_ctrl_c_stops_a_run_without_guests() -> None:
    pressed = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    with pytest.raises(KeyboardInterrupt):
        lab.run(policies=["sclub", "club"], rounds=10**9, progress=False)
    pressed.join()


def test_progress_is_told_from_the_calling_thread() -> None:
    told: list[tuple[int, int]] = []
    threads: set[int] = set()

    def note(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.get_ident())

    class Slow(First):
        def recommend(self, user: int, items: np.ndarray) -> int:
            time.sleep(0.0005)
            return 0

    run([Slow()], rounds=600, progress=note)
    assert told and told[-1] == (600, 600)
    assert all(done <= total for done, total in told)
    assert sorted(told) == told and threads == {threading.get_ident()}


def test_what_progress_raises_stops_the_run() -> None:
    def fails(done: int, total: int) -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        lab.run(policies=["sclub"], rounds=10**9, progress=fails)
    with pytest.raises(TypeError, match="progress is 'yes'"):
        run(["sclub"], progress="yes")


def test_a_guest_sees_the_same_thread_with_its_own_state() -> None:
    class Remembers(First):
        state = threading.local()

        def recommend(self, user: int, items: np.ndarray) -> int:
            self.state.calls = getattr(self.state, "calls", 0) + 1
            return 0

        def cluster_of(self, user: int) -> int:
            seen.append(getattr(self.state, "calls", 0))
            return 0

        def __deepcopy__(self, memo: object) -> Remembers:
            return self

    seen: list[int] = []
    run([Remembers()], threads=1)
    assert seen[0] == 400


def test_policies_of_the_package_are_not_told_apart_by_type() -> None:
    results = run([sclub.Sclub(dim=3), sclub.Club(dim=3), sclub.SclubSoft(dim=3)])
    assert results.policies == ["Sclub", "Club", "SclubSoft"]
    classes = run([sclub.Sclub, sclub.Club, sclub.SclubSoft])
    assert [run.regret for run in classes] == [run.regret for run in results]
