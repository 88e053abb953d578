"""`sclub.lab.field`: the table of `sclub field` with policies written in Python as columns."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from server import binary

import sclub
from sclub import lab


class First:
    """Always the first item.

    It does not learn.
    """

    def __init__(self, about: lab.About | None = None) -> None:
        pass

    def recommend(self, user: int, items: np.ndarray) -> int:
        return 0

    def learn(self, user: int, item: np.ndarray, reward: float) -> None:
        pass


class Twin:
    """LinUCB with one estimate for all users, in NumPy."""

    scale, index = math.nan, ""

    def __init__(self, about: lab.About) -> None:
        self.gram, self.sum = np.eye(about.dim), np.zeros(about.dim)
        self.count = self.rounds = 0
        # Before the first reward all items are equal but for rounding, which is the built-in one's affair.
        self.start = sclub.LinucbOne(dim=about.dim)

    def scores(self, items: np.ndarray) -> np.ndarray:
        inverse, dim = np.linalg.inv(self.gram), len(self.sum)
        growth = dim * math.log(1 + self.count / dim)
        rounds = math.log(max(self.rounds, 1))
        beta = self.scale * (math.sqrt(growth + 4 * rounds + math.log(2)) + 1)
        width = ((items @ inverse) * items).sum(axis=1)
        width = np.sqrt(width) if self.index == "norm" else width
        return items @ inverse @ self.sum + beta * width

    def recommend(self, user: int, items: np.ndarray) -> int:
        if self.count == 0:
            return self.start.recommend(user, items)
        return int(np.argmax(self.scores(items)))

    def recommend_list(self, user: int, items: np.ndarray, k: int) -> np.ndarray:
        if self.count == 0:
            return self.start.recommend_list(user, items, k)
        return np.argsort(-self.scores(items), kind="stable")[:k]

    def observe(self, item: np.ndarray, reward: float) -> None:
        self.gram += np.outer(item, item)
        self.sum += reward * item
        self.count += 1

    def learn(self, user: int, item: np.ndarray, reward: float) -> None:
        self.observe(item, reward)
        self.rounds += 1

    def learn_lists(self, lists: list[sclub.ShownList]) -> None:
        for shown in lists:
            looked_at = len(shown.rewards) if shown.looked_at is None else shown.looked_at
            for item, reward in zip(shown.items[:looked_at], shown.rewards):  # type: ignore[index]
                self.observe(item, reward)
        self.rounds += 1


def field(policies: Any, worlds: Any = ("overlap", "servers"), **rest: Any) -> lab.Field:
    options: dict[str, Any] = {"rounds": 300, "seeds": 3, "progress": False, **rest}
    return lab.field(policies, worlds, **options)


def without_times(cells: list[lab.FieldCell]) -> list[tuple[Any, ...]]:
    return [(cell.world, cell.policy, cell.values, cell.rank, cell.p) for cell in cells]


def test_a_twin_in_python_gets_the_column_of_the_built_in_policy() -> None:
    worlds = ["overlap", "servers", "cascade", "shop-lists"]
    alone = field(["linucb-one"], worlds, constants="default", seeds=2)
    for cell in alone.cells:
        found = re.search(r" beta_scale=(\S+).* index=(\w+)", cell.constants)
        if found is not None:
            Twin.scale, Twin.index = float(found[1]), found[2]
    both = field([Twin, "linucb-one", "sclub"], worlds, constants="default", seeds=2)
    for world in worlds:
        twin, own = both.cell(world, "Twin"), both.cell(world, "linucb-one")
        assert twin.values == own.values == alone.cell(world, "linucb-one").values
        assert (twin.rank, twin.mean, twin.error, twin.behind) == (
            own.rank,
            own.mean,
            own.error,
            own.behind,
        )
    # Equal policies share their mean rank.
    one, two, _ = sorted(both.standings, key=lambda standing: standing.policy == "sclub")
    assert one.rank == two.rank and one.among_best == two.among_best


def test_a_policy_of_the_package_that_is_passed_as_a_class_has_the_bits_of_the_built_in_one() -> None:
    worlds = ["overlap", "cascade", "shop-late"]
    table = field({"mine": sclub.LinucbOne, "linucb-one": "linucb-one"}, worlds, constants="default")
    for world in worlds:
        assert table.cell(world, "mine").values == table.cell(world, "linucb-one").values


def test_built_in_policies_have_the_results_of_the_command(tmp_path: Path) -> None:
    command = [binary(), "field", "--quiet", "--out", str(tmp_path / "command"), "--rounds", "300"]
    command += ["--seeds", "2", "--policies", "sclub,lints,dyclu", "--only", "overlap,shop-l"]
    subprocess.run(command, check=True, capture_output=True)
    of_command = lab.Field.load(tmp_path / "command")
    worlds = ["overlap", "shop-late", "shop-lists"]
    table = field(["sclub", "lints", "dyclu"], worlds, seeds=2, threads=1)
    assert table.worlds == of_command.worlds == worlds
    assert without_times(table.cells) == without_times(of_command.cells)
    assert table.standings == of_command.standings
    assert table.critical_difference == of_command.critical_difference
    with_guest = field([First, "sclub", "lints", "dyclu"], worlds, seeds=2)
    for cell in table.cells:
        assert with_guest.cell(cell.world, cell.policy).values == cell.values


def test_ranks_and_tests_include_policies_in_python() -> None:
    table = field([First, "linucb-one", "linucb-ind"], seeds=4, rounds=1000)
    for world in table.worlds:
        cells = [table.cell(world, policy) for policy in ("First", "linucb-one", "linucb-ind")]
        order = sorted(cell.mean for cell in cells)
        assert [cell.rank for cell in cells] == [1 + order.index(cell.mean) for cell in cells]
        best = min(cells, key=lambda cell: cell.mean)
        first = cells[0]
        behind = np.subtract(first.values, best.values)
        assert first.behind == pytest.approx(behind.mean())
        assert first.p is not None and first.p < 0.05 and not first.is_among_best
        assert table.cell(world, "random").rank is None
    assert table.policies[-1] == "First"
    assert table.standings[-1].rank == 3.0
    # Nemenyi's q for three treatments is 2.343.
    assert table.critical_difference == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 2)), abs=2e-3)


def test_a_policy_plays_where_it_can() -> None:
    asked = []

    def choosy(about: lab.About) -> First | None:
        asked.append(about)
        return First() if about.users == 40 else None

    table = field([First, choosy, "club-cascade"], ["overlap", "servers", "cascade"], seeds=1)
    played = {world: {cell.policy for cell in table.cells if cell.world == world} for world in table.worlds}
    references = {"oracle", "informed", "random"}
    assert played == {
        "overlap": {"First", *references},
        "servers": {"First", "choosy", *references},
        "cascade": {"club-cascade", *references},
    }
    assert [about.slots for about in asked[:3]] == [1, 1, 4]
    known = [about.known for about in asked[:3]]
    assert [one["components"] for one in known] == [5, 4, 10]
    assert known[1]["servers"] == 5 and "servers" not in known[0]
    # Once for each world, and once for the seed that it plays.
    assert len(asked) == 4


def test_lists_are_shown_and_learned() -> None:
    seen: list[Any] = []

    class Lists(First):
        def recommend_list(self, user: int, items: np.ndarray, k: int) -> list[int]:
            assert items.shape == (100, 20) and k == 4
            return [5, 1, 7, 3]

        def learn_lists(self, lists: list[sclub.ShownList]) -> None:
            seen.extend(lists)

    field([Lists], ["cascade"], seeds=1, rounds=50)
    assert len(seen) == 50
    for shown in seen:
        clicks = [reward for reward in shown.rewards if reward]
        assert np.shape(shown.items) == (4, 20) and clicks in ([], [1.0])
        assert shown.rewards[shown.looked_at :] == [None] * (4 - shown.looked_at)
        assert not clicks or shown.rewards[shown.looked_at - 1] == 1.0


@pytest.mark.parametrize("answer", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 100], [0, 1, 2, -1], "abcd", 3])
def test_a_list_that_is_none_is_an_error(answer: Any) -> None:
    class Wrong(First):
        def recommend_list(self, user: int, items: np.ndarray, k: int) -> Any:
            return answer

    said = "recommend_list of policy 'Wrong' returned .* in round 0; 4 different positions of items, 0 to 99"
    with pytest.raises((TypeError, ValueError), match=said):
        field([Wrong], ["cascade"])


def test_a_run_in_a_world_of_lists_needs_a_policy_for_lists() -> None:
    world = lab.Catalogue(items=20, users=10, slots=3)
    with pytest.raises(TypeError, match="'First' has no method recommend_list.* shows 3 items at once"):
        lab.run(world, [First], rounds=10, progress=False)


def test_a_folder_has_the_files_and_goes_on_with_stored_results(tmp_path: Path) -> None:
    made = []

    class Counted(First):
        def __init__(self, about: lab.About) -> None:
            made.append(about)

    folder = tmp_path / "table"
    first = field([Counted, "sclub"], out=folder)
    names = {"cells.jsonl", "field.json", "field.tex", "field.txt", "index.html", "ranks.svg"}
    assert {path.name for path in folder.iterdir()} == names
    stored = (folder / "cells.jsonl").read_text()
    assert '"sclub seed 5001 ' in stored and "Counted" not in stored
    page = (folder / "index.html").read_text()
    assert "sclub.lab.field(policies=[" in page and "Counted" in page
    # Built-in policies are not run again, so even their times are the same; the guest is.
    count = len(made)
    again = field([Counted, "sclub"], out=folder)
    assert (folder / "cells.jsonl").read_text() == stored
    assert again.cell("overlap", "sclub") == first.cell("overlap", "sclub")
    assert len(made) == 2 * count == 2 * 2 * (1 + 3)
    assert without_times(again.cells) == without_times(first.cells)
    assert without_times(lab.Field.load(folder).cells) == without_times(again.cells)
    field(["sclub"], out=folder, fresh=True)
    # Times of a new run differ.
    fresh = (folder / "cells.jsonl").read_text().splitlines()
    assert fresh[0] != stored.splitlines()[0] and len(fresh) == len(stored.splitlines())
    saved = tmp_path / "saved"
    again.save(saved)
    assert {path.name for path in saved.iterdir()} == names - {"cells.jsonl"}
    with pytest.raises(ValueError, match="has an index.html without stored results beside it"):
        field(["sclub"], out=saved)


def test_names_are_those_of_the_policies_whatever_they_are() -> None:
    table = field({"<b>a & b</b>": First, "sclub": "sclub", 'x_1 "%': Twin})
    assert set(table.policies) == {"<b>a & b</b>", "sclub", 'x_1 "%'}
    page, picture = table._files["index.html"], table._files["ranks.svg"]
    for text in (page, picture, table._repr_html_()):
        assert "<b>a" not in text and "&lt;b" in text
    words = "".join(ElementTree.fromstring(picture).itertext())
    assert "<b>a & b</b>" in words and 'x_1 "%' in words
    assert r"x\_1 " in table.to_latex() and r"\%" in table.to_latex()
    assert "written in Python" in page


def test_tables_for_pandas_and_notebooks(tmp_path: Path) -> None:
    table = field([First, "linucb-one"], ["overlap", "cascade"], seeds=2)
    frame = table.to_frame()
    assert len(frame) == 2 * 5 - 1 and set(frame.world) == {"overlap", "cascade"}
    means = table.table()
    assert means.loc["overlap", "First"] == table.cell("overlap", "First").mean
    assert math.isnan(means.loc["cascade", "First"])
    assert list(means.columns[:2]) == table.policies
    summary = table.summary()
    assert list(summary.index) == table.policies
    assert summary.loc["First", "worlds"] == 1
    assert repr(table) == "<Field: 2 policies, 2 worlds, 2 seeds>"
    assert "mean rank" in table._repr_html_()
    path = tmp_path / "table.tex"
    assert table.to_latex(path) == path.read_text() and r"\pm" in path.read_text()
    with pytest.raises(KeyError, match="policy 'First' has no result in world 'cascade'"):
        table.cell("cascade", "First")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policies": ["oracle"]}, "policy 'oracle' plays for comparison and is not ranked"),
        ({"policies": ["nothing"]}, "unknown policy 'nothing'"),
        ({"policies": []}, "policies is empty"),
        ({"policies": {"sclub": First}}, "policy 'sclub' has the name of a built-in policy"),
        ({"policies": {"mine": "sclub"}}, "policy 'mine' is the built-in policy 'sclub'"),
        ({"policies": ["sclub", "sclub"]}, "policy 'sclub' is named twice"),
        ({"worlds": ["nowhere"]}, "unknown world 'nowhere'; use some of uniform, "),
        ({"worlds": []}, "worlds is empty"),
        ({"rounds": 1}, "rounds is 1; there must be at least two"),
        ({"seeds": 0}, "seeds is 0; there must be at least one"),
        ({"seeds": [1_000_001]}, "seeds from 1000001 on are those that `sclub tune` chooses"),
        ({"threads": 0}, "threads is 0"),
        ({"fresh": True}, "fresh is True, and out is None"),
    ],
)
def test_a_bad_argument_is_named(options: dict[str, Any], says: str) -> None:
    given = {"policies": ["sclub"], "worlds": ["overlap"], **options}
    with pytest.raises(ValueError, match=re.escape(says)):
        field(given.pop("policies"), given.pop("worlds"), **given)


def test_unknown_policies_are_answered_with_those_that_are_accepted() -> None:
    for call in (field, lab.paper):
        with pytest.raises(ValueError, match="unknown policy 'sclubb'; use one of ") as unknown:
            call(["sclubb"])
        for name in str(unknown.value).split("use one of ")[1].split(", "):
            # All that is wrong is then the number of rounds.
            with pytest.raises(ValueError, match="rounds is 0"):
                call([name], rounds=0)


def test_constants_are_those_that_are_asked_for(tmp_path: Path) -> None:
    chosen = {"all": {"linucb-one": {"beta_scale": "0.125"}}}
    file = tmp_path / "tuned.json"
    empty = {"command": "sclub tune", "candidates": 1, "rounds": 1, "seeds": [], "scores": {}}
    file.write_text(json.dumps({**empty, "constants": chosen}))
    told = {
        constants: field(["linucb-one"], ["overlap"], seeds=1, constants=constants)
        .cell("overlap", "linucb-one")
        .constants
        for constants in ("default", "released", file)
    }
    assert " beta_scale=0.125" in told[file]
    assert len(set(told.values())) == 3
    file.write_text("[]")
    with pytest.raises(ValueError, match="tuned.json is not a result of `sclub tune`"):
        field(["sclub"], constants=file)
    with pytest.raises(FileNotFoundError):
        field(["sclub"], constants="tunes")


@pytest.mark.parametrize("where", ["make", "recommend"])
def test_an_exception_of_a_policy_comes_out_as_it_is(where: str, tmp_path: Path) -> None:
    raised = KeyError("what I mean")

    class Fails(First):
        def __init__(self, about: lab.About) -> None:
            if where == "make" and about.world_seed == 5002:
                raise raised

        def recommend(self, user: int, items: np.ndarray) -> int:
            if where == "recommend":
                raise raised
            return 0

    with pytest.raises(KeyError) as caught:
        field([Fails, "sclub"], out=tmp_path)
    assert caught.value is raised
    # The name is free again, and a sound policy can take it.
    assert field({"Fails": First}, out=tmp_path).policies == ["Fails"]


def test_ctrl_c_stops_and_the_same_call_goes_on(tmp_path: Path) -> None:
    class Slow(First):
        def recommend(self, user: int, items: np.ndarray) -> int:
            if len(stored.read_text()) > 0:
                time.sleep(0.01)
            return 0

    stored = tmp_path / "cells.jsonl"

    def interrupt() -> None:
        while not stored.exists() or not stored.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        field([Slow, "linucb-one"], out=tmp_path, seeds=20, rounds=2000, threads=1)
    thread.join()
    lines = len(stored.read_text().splitlines())
    assert lines > 0
    field(["linucb-one"], out=tmp_path, seeds=2, rounds=2000)
    seen: list[int] = []
    field(["linucb-one"], out=tmp_path, seeds=2, rounds=2000, progress=lambda _, total: seen.append(total))
    assert set(seen) == {0}


def test_what_the_world_tells_goes_to_built_in_policies_of_a_run(tmp_path: Path) -> None:
    """As in `sclub run`: the number of clusters is told to `mix-ts`, the noise to `dyclu`."""
    out = tmp_path / "run.json"
    flags = ["--users", "30", "--clusters", "7", "--dim", "4", "--rewards", "gaussian", "--noise", "0.2"]
    command = [binary(), "run", "--quiet", "--no-figure", "--json", str(out), "--rounds", "400"]
    command += ["--seeds", "1", "--policies", "mix-ts,dyclu", *flags]
    subprocess.run(command, check=True, capture_output=True)
    world = lab.Synthetic(users=30, clusters=7, dim=4, rewards="gaussian", noise=0.2)
    results = lab.run(world, ["mix-ts", "dyclu"], rounds=400, seeds=1, progress=False)
    expected = json.loads(out.read_text())
    assert [run.regret for run in results] == [run["regret"] for run in expected["runs"]]
    assert results.config["constants"] == expected["config"]["constants"]
