"""Logs with known propensities, and what can be estimated from them."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sclub
from sclub.ope import Choice, Explorer, action_dist, bandit_feedback
from sclub.recommender import Recommender

ITEMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.7, -0.7]])
TRUTH = {"anna": np.array([0.9, 0.2, 0.6, 0.4]), "bert": np.array([0.1, 0.8, 0.3, 0.5])}
EXAMPLE = Path(__file__).parents[1] / "examples" / "open_bandit_pipeline.py"


def logged(rounds: int, epsilon: float, seed: int) -> Explorer:
    random = np.random.default_rng([seed, 1])
    explorer = Explorer(sclub.LinUcb(dim=2), ITEMS, epsilon, seed)
    for _ in range(rounds):
        user = ("anna", "bert")[random.integers(2)]
        choice = explorer.recommend(user)
        explorer.learn(choice, float(random.random() < TRUTH[user][choice.row]))
    return explorer


def worth(users: list[Any], dist: NDArray[np.float64]) -> float:
    """The true mean reward of a policy."""
    truth = np.array([TRUTH[user] for user in users])
    return float((truth * dist[:, :, 0]).sum(axis=1).mean())


def test_items_come_as_often_as_the_propensities_say() -> None:
    explorer = Explorer(sclub.LinUcb(dim=2), ITEMS, epsilon=0.4, seed=5)
    rows, told = np.zeros(4), np.zeros(4)
    for _ in range(20_000):
        choice = explorer.recommend("anna")
        rows[choice.row] += 1
        told[choice.row] = choice.propensity
    # Nothing is learned, so the policy's own choice is the same in every round.
    own = explorer.policy.recommend("anna", ITEMS)
    expected = np.where(np.arange(4) == own, 0.7, 0.1)
    np.testing.assert_allclose(told, expected)
    # Five standard deviations of a share.
    np.testing.assert_allclose(rows / 20_000, expected, atol=5 * np.sqrt(0.25 / 20_000))


def test_propensities_follow_a_policy_that_learns() -> None:
    explorer = Explorer(sclub.LinUcb(dim=2), ITEMS, epsilon=0.4, seed=5)
    twin = sclub.LinUcb(dim=2)
    random = np.random.default_rng(0)
    for _ in range(200):
        own = twin.recommend("anna", ITEMS)
        choice = explorer.recommend("anna")
        assert choice.propensity == pytest.approx(0.7 if choice.row == own else 0.1)
        reward = float(random.random() < TRUTH["anna"][choice.row])
        explorer.learn(choice, reward)
        twin.learn("anna", ITEMS[choice.row], reward)
    assert explorer.policy.digest() == twin.digest()


def test_the_log_has_open_bandit_pipelines_keys_and_shapes() -> None:
    log = logged(50, 0.3, seed=1).feedback()
    shapes = {key: np.shape(value) for key, value in log.items()}
    assert shapes == {
        "n_rounds": (),
        "n_actions": (),
        "action": (50,),
        "position": (50,),
        "reward": (50,),
        "pscore": (50,),
        "context": (50, 1),
        "action_context": (4, 2),
        "pi_b": (50, 4, 1),
    }
    assert (log["n_rounds"], log["n_actions"]) == (50, 4)
    np.testing.assert_allclose(log["pi_b"].sum(axis=1), 1.0)
    np.testing.assert_array_equal(log["pi_b"][np.arange(50), log["action"], 0], log["pscore"])
    np.testing.assert_array_equal(log["action_context"], ITEMS)


def test_inverse_propensities_find_the_truth_of_policies_that_did_not_make_the_log() -> None:
    other = sclub.LinUcb(dim=2)
    for user, truth in TRUTH.items():
        other.learn_many([user] * 4, ITEMS, truth)
    errors = []
    for seed in range(40):
        explorer = logged(500, 0.4, seed)
        dist = action_dist(other, explorer.users, ITEMS)
        log = explorer.feedback()
        weights = dist[np.arange(500), log["action"], 0] / log["pscore"]
        errors.append((weights * log["reward"]).mean() - worth(explorer.users, dist))
    # Their mean is within four of its standard deviations of zero, and each alone is not far.
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(40)
    assert np.std(errors) < 0.15


def test_a_distribution_is_one_for_the_choice_or_what_an_explorer_does() -> None:
    policy = logged(100, 0.3, seed=2).policy
    users = ["anna", "bert", "nobody"]
    sure = action_dist(policy, users, ITEMS)
    assert sure.shape == (3, 4, 1)
    own = [policy.recommend(user, ITEMS) for user in users]
    np.testing.assert_array_equal(sure[:, :, 0], np.eye(4)[own])
    np.testing.assert_allclose(action_dist(policy, users, ITEMS, 0.2), 0.8 * sure + 0.05)
    np.testing.assert_array_equal(action_dist(policy, users, sclub.Items(ITEMS)), sure)


def test_judging_a_frozen_copy_changes_neither_policy() -> None:
    explorer = logged(100, 0.3, seed=2)
    frozen = copy.deepcopy(explorer.policy)
    before = frozen.digest()
    action_dist(frozen, explorer.users, ITEMS)
    explorer.learn(explorer.recommend("anna"), 1.0)
    assert frozen.digest() == before != explorer.policy.digest()


def test_rewards_may_come_late_and_rounds_without_one_are_left_out() -> None:
    explorer = Explorer(sclub.LinUcb(dim=2), ITEMS, epsilon=0.5, seed=3)
    choices = [explorer.recommend(user) for user in range(30)]
    known = [number for number in range(30) if number % 3 != 1]
    for number in reversed(known):
        explorer.learn(choices[number], number / 100)
    log = explorer.feedback()
    assert log["reward"].tolist() == [number / 100 for number in known]
    assert log["action"].tolist() == [choices[number].row for number in known]
    assert log["pscore"].tolist() == [choices[number].propensity for number in known]
    assert explorer.users == known
    assert repr(explorer) == "<Explorer of LinUcb epsilon=0.5 rounds=30 rewards=20>"


def test_a_log_without_a_reward_is_refused_by_name() -> None:
    explorer = Explorer(sclub.LinUcb(dim=2), ITEMS, epsilon=0.5)
    for _ in range(2):
        for context in (None, {}):
            with pytest.raises(ValueError, match="the log has no rewards yet"):
                explorer.feedback(context)
        choice = explorer.recommend("anna")
    explorer.learn(choice, 1.0)
    assert explorer.feedback()["n_rounds"] == 1


def test_contexts_are_looked_up_or_computed_or_numbers() -> None:
    explorer = logged(20, 0.3, seed=4)
    known = {"anna": [1.0, 2.0], "bert": [3.0, 4.0]}
    table = explorer.feedback(known)["context"]
    np.testing.assert_array_equal(table, [known[str(user)] for user in explorer.users])
    computed = explorer.feedback(lambda user: known[user])["context"]
    np.testing.assert_array_equal(computed, table)
    numbers = explorer.feedback()["context"][:, 0]
    same = np.array(explorer.users)[:, None] == np.array(explorer.users)[None, :]
    np.testing.assert_array_equal(numbers[:, None] == numbers[None, :], same)


def test_the_same_seed_makes_the_same_log_and_a_pickle_goes_on_with_it() -> None:
    one, two = logged(50, 0.5, seed=6), logged(50, 0.5, seed=6)
    again = pickle.loads(pickle.dumps(two))
    for _ in range(20):
        assert one.recommend("anna") == again.recommend("anna")
    actions = one.feedback()["action"].tolist()
    assert actions == two.feedback()["action"].tolist()
    assert actions != logged(50, 0.5, seed=7).feedback()["action"].tolist()


def test_what_is_wrong_is_named() -> None:
    policy = sclub.LinUcb(dim=2)
    for epsilon in (0.0, -0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="epsilon: it is"):
            Explorer(policy, ITEMS, epsilon)
    with pytest.raises(ValueError, match="epsilon: it is 2"):
        action_dist(policy, ["anna"], ITEMS, 2.0)
    explorer = Explorer(policy, ITEMS, epsilon=0.5)
    choice = explorer.recommend("anna")
    for reward in (np.nan, np.inf):
        with pytest.raises(ValueError, match="rewards?: "):
            explorer.learn(choice, reward)
        assert explorer.users == []
    explorer.learn(choice, 1.0)
    with pytest.raises(ValueError, match="choice: number 0 has its reward already"):
        explorer.learn(choice, 1.0)
    with pytest.raises(ValueError, match="choice: .* is not in this log"):
        explorer.learn(Choice(0, 0.5, 17), 1.0)
    assert policy.rounds == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": [0, 4]}, "action: one of them is not a row of the items, 0 to 3"),
        ({"action": [0.5, 1.0]}, "action: rows of items are expected"),
        ({"reward": [1.0]}, "reward: there is 1 for 2 actions"),
        ({"reward": [1.0, np.nan]}, "reward: it has a value that is no number"),
        ({"propensity": [0.0, 0.5]}, "propensity: it must be above 0"),
        ({"propensity": [1.5, 0.5]}, "propensity: it must be above 0"),
        ({"context": [1.0, 2.0]}, "context: 2 dimensions are expected"),
        ({"pi_b": np.ones((2, 3, 1))}, r"pi_b: shape \(2, 4, 1\) is expected"),
    ],
)
def test_a_log_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "context": [[1.0], [2.0]]
    }  # fmt: skip
    assert bandit_feedback(**right, action_context=ITEMS)["n_actions"] == 4
    with pytest.raises((ValueError, TypeError), match=message):
        bandit_feedback(**right | change, action_context=ITEMS)


# With Open Bandit Pipeline, in the environment that examples/requirements-obp.txt describes.

needs_obp = pytest.mark.skipif(
    find_spec("obp") is None,
    reason="Open Bandit Pipeline is not installed: see examples/open_bandit_pipeline.py",
)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("open_bandit_pipeline", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_obp
def test_open_bandit_pipeline_computes_the_textbooks_formulas_from_our_log() -> None:
    ope = example().open_bandit_pipeline()
    explorer = logged(400, 0.4, seed=8)
    log = explorer.feedback()
    dist = action_dist(logged(50, 0.4, seed=9).policy, explorer.users, ITEMS, 0.1)
    # A model of the reward that is wrong on purpose.
    model = np.random.default_rng(0).random(dist.shape)
    judge = ope.OffPolicyEvaluation(
        bandit_feedback=log,
        ope_estimators=[
            ope.InverseProbabilityWeighting(estimator_name="ips"),
            ope.SelfNormalizedInverseProbabilityWeighting(estimator_name="snips"),
            ope.DirectMethod(estimator_name="dm"),
            ope.DoublyRobust(estimator_name="dr"),
        ],
    )
    values = judge.estimate_policy_values(dist, estimated_rewards_by_reg_model=model)

    rounds = np.arange(400)
    weights = dist[rounds, log["action"], 0] / log["pscore"]
    direct = (dist * model).sum(axis=1)[:, 0]
    left = log["reward"] - model[rounds, log["action"], 0]
    assert values["ips"] == pytest.approx((weights * log["reward"]).mean())
    assert values["snips"] == pytest.approx((weights * log["reward"]).sum() / weights.sum())
    assert values["dm"] == pytest.approx(direct.mean())
    assert values["dr"] == pytest.approx((direct + weights * left).mean())


@needs_obp
def test_a_recommenders_score_is_open_bandit_pipelines_replay_of_a_random_log() -> None:
    ope = example().open_bandit_pipeline()
    explorer = logged(300, 1.0, seed=8)
    log = explorer.feedback()
    recommender = Recommender(range(4), ITEMS, "linucb-ind")
    recommender.fit([0, 1, 2, 3], TRUTH["bert"], ["bert"] * 4)
    replayed = ope.ReplayMethod().estimate_policy_value(
        reward=log["reward"],
        action=log["action"],
        action_dist=action_dist(recommender.policy_, explorer.users, ITEMS),
        position=log["position"],
    )
    score = recommender.score(log["action"], log["reward"], explorer.users)
    assert score == pytest.approx(replayed)


@needs_obp
def test_the_example_estimates_within_what_chance_allows() -> None:
    rows = example().run(logged_rounds=4_000)
    assert {row["estimator"] for row in rows} == {"IPS", "SNIPS", "DM", "DR"}
    for row in rows:
        # Three times the half-width of a 95 % interval; a model alone promises nothing.
        if row["estimator"] != "DM":
            assert abs(row["estimate"] - row["truth"]) < 1.5 * (row["high"] - row["low"])


def test_a_share_that_is_no_number_is_named() -> None:
    policy = sclub.LinUcb(dim=2)
    for epsilon in ("x", None, [0.5]):
        with pytest.raises(TypeError, match="epsilon: a number is expected, not "):
            Explorer(policy, np.eye(2), epsilon)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="epsilon: a number is expected, not "):
            action_dist(policy, ["anna"], np.eye(2), epsilon)  # type: ignore[arg-type]
    assert Explorer(policy, np.eye(2), np.float32(0.5)).epsilon == 0.5
