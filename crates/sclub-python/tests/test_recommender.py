"""Recommender against ridge regressions of its own and against scikit-learn's contract."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline

import sclub
from sclub.recommender import Recommender

ARMS = ["tea", "coffee", "mate", "water"]
FEATURES = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.6, 0.8, 0.0], [0.1, 0.1, 0.1]])
POLICIES = list(sclub.policy_classes)
BETA = 0.7


def history(rounds: int = 300, seed: int = 1) -> tuple[list[str], NDArray[np.float64], list[str]]:
    """Decisions, rewards and users."""
    random = np.random.default_rng(seed)
    shown = random.integers(len(ARMS), size=rounds)
    who = random.integers(6, size=rounds)
    tastes = random.normal(size=(6, FEATURES.shape[1]))
    rewards = (tastes[who] * FEATURES[shown]).sum(axis=1) + 0.1 * random.normal(size=rounds)
    return [ARMS[arm] for arm in shown], rewards, [f"user {user}" for user in who]


def ridge(
    decisions: list[str], rewards: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and half-widths of all arms after these decisions, solved directly."""
    x = FEATURES[[ARMS.index(arm) for arm in decisions]].reshape(-1, FEATURES.shape[1])
    gram = np.eye(FEATURES.shape[1]) + x.T @ x
    means = FEATURES @ np.linalg.solve(gram, x.T @ rewards)
    widths = np.sqrt(np.einsum("ij,ij->i", FEATURES, np.linalg.solve(gram, FEATURES.T).T))
    return means, BETA * widths


def of_user(user: str, log: tuple[list[str], NDArray[np.float64], list[str]]) -> Any:
    chosen = [place for place, one in enumerate(log[2]) if one == user]
    return [log[0][place] for place in chosen], log[1][chosen]


def made(policy: str = "linucb-ind", **constants: Any) -> Recommender:
    return Recommender(ARMS, FEATURES, policy, **constants)


# What it recommends.


def test_expectations_of_each_user_are_her_own_ridge_regression() -> None:
    log = history()
    recommender = made(beta=BETA).fit(*log)
    users = [*sorted(set(log[2])), "nobody"]
    for user, expected in zip(users, recommender.predict_expectations(users), strict=True):
        means, _ = ridge(*of_user(user, log))
        assert list(expected) == ARMS
        np.testing.assert_allclose(list(expected.values()), means, atol=1e-9)


def test_arms_are_ranked_by_mean_plus_width() -> None:
    log = history(60)
    recommender = made(beta=BETA).fit(*log)
    users = sorted(set(log[2]))
    for user, arm in zip(users, recommender.predict(users), strict=True):
        means, widths = ridge(*of_user(user, log))
        best = [ARMS[place] for place in np.argsort(-(means + widths))]
        assert arm == best[0]
        assert recommender.recommend(user, 3) == best[:3]
        assert recommender.recommend(user) == best
        assert recommender.recommend(user, 2, exclude=[best[0]]) == best[1:3]


def test_one_for_all_is_the_ridge_regression_of_everything() -> None:
    log = history()
    expected = made("linucb-one", beta=BETA).fit(*log).predict_expectations(["nobody"])
    np.testing.assert_allclose(list(expected.values()), ridge(log[0], log[1])[0], atol=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_learns_to_the_bit_what_its_policy_learns_one_by_one(policy: str) -> None:
    log = history(120)
    recommender = made(policy).fit(*log)
    alone = sclub.policy_classes[policy](3)
    for arm, reward, user in zip(*log, strict=True):
        alone.learn(user, FEATURES[ARMS.index(arm)], reward, id=arm)
    assert recommender.policy_.digest() == alone.digest()
    assert recommender.predict(["user 0", "user 1"]) == [
        ARMS[alone.recommend(user, FEATURES, ids=ARMS)] for user in ("user 0", "user 1")
    ]


def test_one_user_gets_an_arm_and_several_get_a_list_as_in_mabwiser() -> None:
    mabwiser = pytest.importorskip("mabwiser.mab", reason="MABWiser is not installed")
    theirs = mabwiser.MAB(ARMS, mabwiser.LearningPolicy.LinUCB(alpha=1.0))
    theirs.fit(ARMS, [0, 1, 0, 0], FEATURES[:, :1])
    ours = made().fit(ARMS, [0, 1, 0, 0], ["anna"] * 4)
    assert type(ours.predict(["anna"])) is type(theirs.predict(FEATURES[:1, :1])) is str
    assert type(ours.predict(["anna"] * 2)) is type(theirs.predict(FEATURES[:2, :1])) is list
    one, two = ours.predict_expectations(["anna"]), ours.predict_expectations(["anna", "bert"])
    assert type(one) is type(theirs.predict_expectations(FEATURES[:1, :1])) is dict
    assert two[0] == one
    assert set(one) == set(theirs.predict_expectations(FEATURES[:1, :1]))


def test_the_same_arm_model_gives_mabwisers_numbers() -> None:
    """With the roles exchanged, an arm's regression over contexts is a user's over items."""
    mabwiser = pytest.importorskip("mabwiser.mab", reason="MABWiser is not installed")
    random = np.random.default_rng(3)
    contexts, rewards = random.normal(size=(50, 3)), random.normal(size=50)
    arms = [ARMS[place] for place in random.integers(4, size=50)]
    theirs = mabwiser.MAB(ARMS, mabwiser.LearningPolicy.LinUCB(alpha=BETA, l2_lambda=1))
    theirs.fit(arms, rewards, contexts)
    ours = sclub.LinUcb(dim=3, beta=BETA)
    ours.learn_many(arms, contexts, rewards)
    expected = theirs.predict_expectations(contexts[:1])
    for arm in ARMS:
        assert ours.scores(arm, contexts[:1]).score[0] == pytest.approx(expected[arm], abs=1e-9)


def test_it_recommends_before_it_has_learned_anything() -> None:
    recommender = made(beta=BETA)
    _, widths = ridge([], np.array([]))
    assert recommender.recommend("anna", 1) == [ARMS[int(widths.argmax())]]
    assert recommender.policy_.rounds == 0


# Learning.


@pytest.mark.parametrize("policy", POLICIES)
def test_parts_add_up_to_the_whole_and_fit_starts_anew(policy: str) -> None:
    decisions, rewards, users = history()
    whole = made(policy).fit(decisions, rewards, users)
    parts = made(policy)
    for part in (slice(0, 1), slice(1, 100), slice(100, 300)):
        assert parts.partial_fit(decisions[part], rewards[part], users[part]) is parts
    assert parts.policy_.digest() == whole.policy_.digest()
    again = parts.fit(decisions, rewards, users)
    assert again.policy_.digest() == whole.policy_.digest()
    assert again.policy_.rounds == 300


def test_arrays_series_and_columns_are_what_lists_are() -> None:
    decisions, rewards, users = history()
    plain = made().fit(decisions, rewards, users).policy_.digest()
    frame = pd.DataFrame({"arm": decisions, "reward": rewards, "user": users})
    series = made().fit(frame["arm"], frame["reward"], frame["user"])
    column = made().fit(np.array(decisions), rewards.tolist(), frame[["user"]])
    assert plain == series.policy_.digest() == column.policy_.digest()
    assert column.predict(frame[["user"]].head(2)) == column.predict(users[:2])
    numbers = made().fit(decisions[:3], rewards[:3], np.arange(3))
    assert [type(user) for user in numbers.policy_.users] == [int] * 3


def test_users_and_arms_are_any_hashable() -> None:
    arms: list[Any] = [("a", 1), None, 7]
    recommender = Recommender(arms, np.eye(3), "linucb-ind")
    recommender.fit([None, 7, ("a", 1)], [0.0, 1.0, 0.0], [("anna", 3), 4, 4])
    assert recommender.recommend(4, 3)[0] == 7
    assert recommender.predict([("anna", 3), 4])[1] == 7


def test_rows_of_a_frame_are_found_by_its_index() -> None:
    frame = pd.DataFrame(FEATURES, index=ARMS)
    for given in (frame, frame.iloc[::-1], frame.loc[["water", "tea", "mate", "coffee"]]):
        np.testing.assert_array_equal(Recommender(ARMS, given).features_, FEATURES)
    np.testing.assert_array_equal(Recommender(ARMS, pd.DataFrame(FEATURES)).features_, FEATURES)


# Arms that come and go.


def test_an_added_arm_is_scored_by_what_is_known_and_stays_for_clones() -> None:
    log = history()
    recommender = made(beta=BETA).fit(*log)
    digest = recommender.policy_.digest()
    recommender.add_arm("juice", [2.0, 2.0, 2.0])
    expected = recommender.predict_expectations(["user 0"])
    estimate = recommender.policy_.estimate("user 0")
    assert expected["juice"] == pytest.approx(float(2.0 * estimate.sum()))
    assert recommender.policy_.digest() == digest
    recommender.partial_fit(["juice"], [1.0], ["user 0"])
    assert clone(recommender).arms_ == recommender.arms_ == [*ARMS, "juice"]
    assert ARMS == ["tea", "coffee", "mate", "water"], "the list that was given is left alone"


def test_a_removed_arm_is_never_recommended_and_its_lessons_stay() -> None:
    log = history()
    recommender = made().fit(*log)
    digest = recommender.policy_.digest()
    before = recommender.predict_expectations(["user 0"])
    recommender.remove_arm("coffee")
    after = recommender.predict_expectations(["user 0"])
    assert after == {arm: before[arm] for arm in ARMS if arm != "coffee"}
    assert "coffee" not in recommender.recommend("user 0", 10)
    assert recommender.policy_.digest() == digest
    with pytest.raises(ValueError, match="decisions: unknown arm 'coffee'"):
        recommender.partial_fit(["coffee"], [1.0], ["user 0"])


# What a score is.


def test_a_score_is_the_mean_reward_of_the_decisions_that_match() -> None:
    recommender = made().fit(*history())
    decisions, rewards, users = history(200, seed=2)
    chosen = {user: recommender.recommend(user, 1)[0] for user in set(users)}
    matched = [chosen[user] == arm for arm, user in zip(decisions, users, strict=True)]
    digest = recommender.policy_.digest()
    assert recommender.score(decisions, rewards, users) == pytest.approx(rewards[matched].mean())
    assert recommender.policy_.digest() == digest
    other = next(arm for arm in ARMS if arm != chosen["user 0"])
    assert np.isnan(recommender.score([other], [1.0], ["user 0"]))


# scikit-learn.


def test_nothing_is_looked_at_before_fit() -> None:
    arms, features = object(), object()
    recommender = Recommender(arms, features, "no such policy", nonsense=1)
    params = recommender.get_params()
    assert params["arms"] is arms
    assert params["features"] is features
    assert params == {
        "arms": arms, "features": features, "policy": "no such policy", "nonsense": 1
    }  # fmt: skip
    assert [name for name in vars(recommender) if name.endswith("_")] == []
    assert "no such policy" in repr(recommender)


def test_a_clone_has_the_parameters_and_has_learned_nothing() -> None:
    recommender = made("sclub", beta=BETA, alpha_theta=2.0).fit(*history())
    copy = clone(recommender)
    assert not hasattr(copy, "policy_")
    assert copy.get_params().keys() == recommender.get_params().keys()
    assert copy.get_params()["alpha_theta"] == 2.0
    assert copy.fit(*history()).policy_.digest() == recommender.policy_.digest()


def test_a_pickle_goes_on_to_the_bit() -> None:
    decisions, rewards, users = history()
    recommender = made("sclub-soft").fit(decisions[:200], rewards[:200], users[:200])
    again = pickle.loads(pickle.dumps(recommender))
    for one in (recommender, again):
        one.partial_fit(decisions[200:], rewards[200:], users[200:])
    assert again.policy_.digest() == recommender.policy_.digest()
    assert again.recommend("user 1") == recommender.recommend("user 1")


def test_set_params_changes_the_next_fit() -> None:
    log = history()
    recommender = made(beta=BETA).fit(*log)
    digest = recommender.policy_.digest()
    assert recommender.set_params(policy="linucb-one", beta=2 * BETA) is recommender
    assert recommender.policy_.digest() == digest
    recommender.fit(*log)
    widths = recommender.policy_.scores("nobody", FEATURES).width
    np.testing.assert_allclose(widths, 2 * ridge(log[0], log[1])[1])


def test_none_stands_for_a_constants_default() -> None:
    log = history()
    plain = made("sclub-soft").fit(*log).policy_.digest()
    assert made("sclub-soft", within=None, half_life=None).fit(*log).policy_.digest() == plain
    assert made("sclub-soft", half_life=20.0).fit(*log).policy_.digest() != plain


def test_a_grid_of_constants_is_searched_by_clones() -> None:
    train, test = history(300, 1), history(200, 2)
    scores = {}
    for params in ParameterGrid({"policy": ["linucb-ind", "sclub"], "beta": [0.1, 1.0]}):
        recommender = clone(made()).set_params(**params)
        scores[params["policy"], params["beta"]] = recommender.fit(*train).score(*test)
    assert len(scores) == 4
    assert np.isfinite(list(scores.values())).all()


def test_a_pipeline_can_end_with_it() -> None:
    decisions, rewards, users = history()
    pipeline = Pipeline([("recommend", made())])
    pipeline.fit(decisions, rewards, recommend__contexts=users)
    assert pipeline.predict(users[:3]) == made().fit(decisions, rewards, users).predict(users[:3])
    assert "Recommender" in pipeline._repr_html_()


# What is wrong is said, with the argument's name.


@pytest.mark.parametrize(
    ("decisions", "rewards", "contexts", "message"),
    [
        (["tea", "beer"], [1, 0], ["a", "b"], "decisions: unknown arm 'beer'"),
        (["tea"], [1, 0], ["a", "b"], "decisions: there is 1 for 2 contexts"),
        (["tea", "tea"], [1], ["a", "b"], "rewards: there is 1 for 2 contexts"),
        (["tea", "tea"], [1, np.nan], ["a", "b"], "rewards: number 1 is nan"),
        (["tea", "tea"], [1, -np.inf], ["a", "b"], "rewards: number 1 is -inf"),
        (["tea"], [[1.0]], ["a"], "rewards: an array of shape (n,) is expected, got (1, 1)"),
        (["tea"], [1.0], np.eye(2)[:1], "contexts: one of the users a row is expected"),
        (["tea"], [1.0], "anna", "contexts: several users are expected, not one string"),
        ("tea", [1.0], ["a"], "decisions: several arms are expected, not one string"),
        (["tea"], ["good"], ["a"], "rewards: it cannot be made an array of floats"),
        (["tea"], [1.0], [["a"]], "contexts: ['a'] cannot be a user"),
        (["tea", "tea"], [1, 0], ["a", np.nan], "contexts: row 1 is NaN, not a user"),
        (["tea", "tea"], [1, 0], np.array([np.nan, 1.0]), "contexts: row 0 is NaN, not a user"),
        (["tea", "tea"], [1, 0], pd.Series(["a", pd.NA], dtype=object), "contexts: row 1 is <NA>, not a user"),
        (["tea"], [1.0], 7, "contexts: several users are expected, got 7"),
    ],
)
def test_wrong_data_are_refused_and_change_nothing(
    decisions: Any, rewards: Any, contexts: Any, message: str
) -> None:
    recommender = made().fit(*history())
    digest = recommender.policy_.digest()
    for method in (recommender.partial_fit, recommender.fit, recommender.score):
        with pytest.raises((ValueError, TypeError), match=re.escape(message)):
            method(decisions, rewards, contexts)
        assert recommender.policy_.digest() == digest


@pytest.mark.parametrize(
    ("arms", "features", "message"),
    [
        ([], np.zeros((0, 3)), "arms: there must be at least one"),
        (["a", "a"], np.eye(2), "arms: 'a' is there twice"),
        (["a", ["b"]], np.eye(2), "arms: ['b'] cannot be one"),
        ("ab", np.eye(2), "arms: several arms are expected, not one string"),
        (["a", "b"], np.eye(3), "features: there are 3 rows for 2 arms"),
        (["a", "b"], [[1.0]], "features: there is 1 row for 2 arms"),
        (["a", "b"], [1.0, 2.0], "features: an array of shape (arms, d) is expected"),
        (["a", "b"], [[1.0], [np.nan]], "features: "),
        (["a", "b"], [["x"], ["y"]], "features: it cannot be made an array of floats"),
        (["a", "b"], pd.DataFrame(np.eye(2), index=["a", "c"]), "does not have the arm 'b'"),
        (["a", "b"], pd.DataFrame(np.eye(3), index=["a", "b", "a"]), "in the index twice"),
        ([1, 0], pd.DataFrame(np.eye(2)), "numbers of rows in another order"),
    ],
)
def test_wrong_arms_are_refused_by_fit(arms: Any, features: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        Recommender(arms, features).fit([], [], [])


def test_wrong_policies_constants_and_arms_are_named() -> None:
    with pytest.raises(ValueError, match="policy: unknown policy 'ucb'; use one of sclub, sclub-soft"):
        made("ucb").fit(*history())
    with pytest.raises(TypeError, match="betta: policy 'linucb-ind' has no such parameter; it has"):
        made(betta=1.0).fit(*history())
    for policy in POLICIES:
        changed = made(policy).set_params(foo=1)
        said = f"^foo: policy '{policy}' has no such parameter; it has users, preset"
        with pytest.raises(TypeError, match=said):
            changed.fit(*history())
        with pytest.raises(TypeError, match=said):
            changed.predict(["anna"])
    with pytest.raises(TypeError, match="dim: it cannot be given"):
        made(dim=3).fit(*history())
    with pytest.raises(TypeError, match="shared: policy 'linucb-one' has no such parameter"):
        made("linucb-one", shared=False).fit(*history())
    recommender = made()
    with pytest.raises(ValueError, match="arms: 'tea' is there twice"):
        recommender.add_arm("tea", [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"features: an array of shape \(3,\) is expected"):
        recommender.add_arm("juice", [1.0, 2.0])
    with pytest.raises(ValueError, match="arm: unknown arm 'juice'"):
        recommender.remove_arm("juice")
    with pytest.raises(ValueError, match="exclude: unknown arm 'juice'"):
        recommender.recommend("anna", exclude=["juice"])
    assert recommender.arms_ == ARMS
