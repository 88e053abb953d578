"""`sclub.evaluate`: against Open Bandit Pipeline, against `sclub evaluate`, and where a log cannot tell."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from server import binary
from test_ope import example, needs_obp

import sclub

ROUNDS, ARMS, DIM, USERS = 3000, 8, 3, 6
RANDOM = np.random.default_rng(4)
ITEMS = RANDOM.uniform(0.1, 0.7, size=(ARMS, DIM))
TRUTH = np.clip(RANDOM.uniform(0, 0.8, size=(USERS, DIM)) @ ITEMS.T, 0, 1)


class Log:
    """A log of an epsilon-greedy policy; half of the decisions have a few candidates only."""

    def __init__(self, folder: Path, epsilon: float, rounds: int = ROUNDS) -> None:
        random = np.random.default_rng(7)
        self.users = random.integers(USERS, size=rounds)
        self.candidates = [
            np.sort(random.choice(ARMS, 4, replace=False)) if random.random() < 0.5 else np.arange(ARMS)
            for _ in range(rounds)
        ]
        self.action = np.zeros(rounds, dtype=int)
        self.pscore = np.zeros(rounds)
        lines = []
        for at, (user, among) in enumerate(zip(self.users, self.candidates, strict=True)):
            own = among[user % len(among)]
            self.action[at] = random.choice(among) if random.random() < epsilon else own
            self.pscore[at] = epsilon / len(among) + (self.action[at] == own) * (1 - epsilon)
        self.reward = (random.random(rounds) < TRUTH[self.users, self.action]).astype(float)
        for at in range(rounds):
            action = int(self.action[at])
            line: dict[str, Any] = {
                "decision": 10 + 3 * at,
                "user": f"u{self.users[at]}",
                "item": f"i{action}",
                "position": 0,
                "propensity": self.pscore[at],
                "features": ITEMS[action].tolist(),
                "reward": self.reward[at],
            }
            if len(self.candidates[at]) < ARMS:
                line["candidates"] = [f"i{item}" for item in self.candidates[at]]
            lines.append(json.dumps(line))
        self.path = folder / "log.jsonl"
        # In another order than that of the decisions.
        self.path.write_text("\n".join([*lines[1::2], *lines[::2]]))
        self.items = folder / "items.jsonl"
        rows = [json.dumps({"id": f"i{at}", "features": row.tolist()}) for at, row in enumerate(ITEMS)]
        self.items.write_text("\n".join(rows))

    def played(self, policy: sclub.Policy, only_agreed: bool = False) -> NDArray[np.float64]:
        """The `action_dist` of a policy that goes through the log and learns what it shows."""
        dist = np.zeros((len(self.action), ARMS, 1))
        for at, among in enumerate(self.candidates):
            user, action = int(self.users[at]), self.action[at]
            own = among[policy.recommend(user, ITEMS[among])]
            dist[at, own, 0] = 1.0
            if own == action or not only_agreed:
                policy.learn(user, ITEMS[action], self.reward[at])
        return dist

    def model(self) -> NDArray[np.float64]:
        """The predictions of ridge regressions on earlier rounds, with a new fit when there are 1/64 more."""
        gram, moments, theta = np.eye(DIM), np.zeros(DIM), np.zeros(DIM)
        predictions, due = np.zeros((len(self.action), ARMS, 1)), 1
        for at, action in enumerate(self.action):
            if at == due:
                theta, due = np.linalg.solve(gram, moments), at + 1 + at // 64
            predictions[at, :, 0] = ITEMS @ theta
            gram += np.outer(ITEMS[action], ITEMS[action])
            moments += ITEMS[action] * self.reward[at]
        return predictions


def made(name: str) -> sclub.Policy:
    kinds = {
        "linucb-ind": lambda: sclub.LinUcb(DIM),
        "linucb-one": lambda: sclub.LinUcb(DIM, shared=True),
        "sclub": lambda: sclub.Sclub(DIM),
    }
    return kinds[name]()


@needs_obp
@pytest.mark.parametrize("name", ["linucb-ind", "linucb-one", "sclub"])
def test_weighted_estimates_are_open_bandit_pipelines_to_1e_9(name: str, tmp_path: Path) -> None:
    ope = example().open_bandit_pipeline()
    log = Log(tmp_path, epsilon=0.4)
    value = sclub.evaluate(log.path, [name], items=log.items, progress=False).policies[name]
    given: dict[str, Any] = {
        "reward": log.reward,
        "action": log.action,
        "position": np.zeros(ROUNDS, dtype=int),
        "action_dist": log.played(made(name)),
    }
    weighted = given | {"pscore": log.pscore}
    ips = ope.InverseProbabilityWeighting().estimate_policy_value(**weighted)
    snips = ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**weighted)
    dr = ope.DoublyRobust().estimate_policy_value(
        **weighted, estimated_rewards_by_reg_model=log.model()
    )
    ours = [value.ips, value.snips, value.dr]
    for estimate, theirs in zip(ours, [ips, snips, dr], strict=True):
        assert estimate is not None
        assert estimate.value == pytest.approx(theirs, abs=1e-9, rel=0)
    assert value.warnings == ()
    # The three differ, so that each was compared with its own.
    assert len({round(estimate.value, 6) for estimate in ours if estimate}) == 3


@needs_obp
@pytest.mark.parametrize("name", ["linucb-ind", "linucb-one", "sclub"])
def test_replay_of_a_uniform_log_is_open_bandit_pipelines_to_1e_9(
    name: str, tmp_path: Path
) -> None:
    ope = example().open_bandit_pipeline()
    log = Log(tmp_path, epsilon=1.0)
    # The same number of candidates in every decision: no round is dropped to make them equally probable.
    log.candidates = [np.arange(ARMS)] * ROUNDS
    log.pscore[:] = 1 / ARMS
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    lines = [{**line, "propensity": 1 / ARMS, "candidates": None} for line in lines]
    log.path.write_text("\n".join(json.dumps(line) for line in lines))
    value = sclub.evaluate(log.path, [name], items=log.items, progress=False).policies[name]
    dist = log.played(made(name), only_agreed=True)
    theirs = ope.ReplayMethod().estimate_policy_value(
        reward=log.reward,
        action=log.action,
        action_dist=dist,
        position=np.zeros(ROUNDS, dtype=int),
    )
    assert value.replay is not None
    assert value.replay.value == pytest.approx(theirs, abs=1e-9, rel=0)
    assert value.accepted == dist[np.arange(ROUNDS), log.action, 0].sum()


def test_it_is_the_command_with_the_same_bits(tmp_path: Path) -> None:
    log = Log(tmp_path, epsilon=0.3)
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(log.path.read_bytes()))
    names = ["sclub-soft", "linucb-one", "lints", "random"]
    seen: list[tuple[int, int]] = []
    ours = sclub.evaluate(
        packed, names, items=log.items, seed=3, threads=1, progress=lambda *at: seen.append(at)
    )
    command = [binary(), "evaluate", "--log", str(log.path), "--items", str(log.items), "--quiet"]
    options = ["--policies", ",".join(names), "--seed", "3", "--json", str(tmp_path / "out.json")]
    subprocess.run([*command, *options], check=True, capture_output=True)
    theirs = json.loads((tmp_path / "out.json").read_text())
    assert (ours.decisions, ours.users, ours.items) == (ROUNDS, USERS, ARMS)
    assert vars(ours.logged) == theirs["logged"]
    for one in theirs["policies"]:
        own = ours.policies[one["policy"]]
        for estimator in ("ips", "snips", "dr", "replay"):
            assert vars(getattr(own, estimator)) == one[estimator]
        assert (own.effective, own.accepted) == (one["effective"], one["accepted"])
    assert seen[-1] == (2 * 4 * ROUNDS, 2 * 4 * ROUNDS)
    frame = ours.to_frame()
    assert frame.shape == (16, 8)
    assert frame["can_tell"].all()
    assert "sclub-soft" in str(ours)


def test_a_log_that_cannot_tell_says_so(tmp_path: Path) -> None:
    log = Log(tmp_path, epsilon=0.3, rounds=60)
    few = sclub.evaluate(log.path, ["random"], items=log.items, progress=False)
    assert any("rewards decide the estimates" in text for text in few.policies["random"].warnings)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    sure = "\n".join(json.dumps(line | {"propensity": 1.0}) for line in lines)
    log.path.write_text(sure)
    none = sclub.evaluate(log.path, ["random"], items=log.items, progress=False)
    assert none.policies["random"].dr is None
    assert "no off-policy estimate can be had" in none.policies["random"].warnings[0]
    assert "no off-policy estimate can be had" in none.notes[0]
    assert none.to_frame()["value"].isna().all()


def test_rewards_that_are_missing_are_left_out_or_counted(tmp_path: Path) -> None:
    log = Log(tmp_path, epsilon=0.5)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    for line in lines[::3]:
        line["reward"] = None
    log.path.write_text("\n".join(json.dumps(line) for line in lines))
    known = [line["reward"] for line in lines if line["reward"] is not None]
    out = sclub.evaluate(log.path, ["random"], items=log.items, progress=False)
    assert (out.decisions, out.notes[0][:16]) == (2000, "1000 items shown")
    assert out.logged.value == pytest.approx(np.mean(known))
    zero = sclub.evaluate(log.path, ["random"], items=log.items, unanswered=0, progress=False)
    assert (zero.decisions, zero.notes) == (3000, ())
    assert zero.logged.value == pytest.approx(np.sum(known) / 3000)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    log = Log(tmp_path, epsilon=0.5, rounds=5)
    for policies, message in [
        (["nothing"], "nothing"),
        (["oracle"], "needs the truth"),
        (["random", "random"], "named twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            sclub.evaluate(log.path, policies, progress=False)
    for unnamed in (sclub.LinUcb(3), sclub.LinUcb, 3):
        with pytest.raises(TypeError, match="policies: names of built-in policies are .*python-interop"):
            sclub.evaluate(log.path, [unnamed])  # type: ignore[list-item]
    for unlisted in (sclub.LinUcb(3), b"random"):
        with pytest.raises(TypeError, match="policies: a list of names is expected, not "):
            sclub.evaluate(log.path, unlisted)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="policies is empty; there must be at least one"):
        sclub.evaluate(log.path, [])
    with pytest.raises(ValueError, match="unknown policy 'sclubb'; use one of sclub, ") as unknown:
        sclub.evaluate(log.path, ["sclubb"])
    listed = str(unknown.value).split("use one of ")[1].split(", ")
    assert listed == [*sclub.policy_classes, "random"]
    one = sclub.evaluate(log.path, "random", items=log.items, progress=False)
    assert one == sclub.evaluate(log.path, ["random"], items=log.items, progress=False)
    with pytest.raises(ValueError, match="unanswered is nan"):
        sclub.evaluate(log.path, unanswered=float("nan"))
    with pytest.raises(OSError, match="cannot read .*nowhere"):
        sclub.evaluate(tmp_path / "nowhere", progress=False)
    log.path.write_text(log.path.read_text() + "\n{}")
    with pytest.raises(ValueError, match=r"log\.jsonl, line 6: missing field"):
        sclub.evaluate(log.path, progress=False)
