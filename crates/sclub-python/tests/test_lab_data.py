"""Ratings as people have them: compressed files, other names of columns, tables in memory."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

from sclub import lab
from test_lab import assert_the_same, flags_of

ROWS = [
    ("7", "tea", 5.0),
    ("7", "mate", 2.0),
    ("ann", "tea", 4.0),
    ("3", "mate", 3.5),
    ("3", "tea", 1.0),
    ("ann", "tea", 4.5),
]
FRAME = pd.DataFrame(ROWS, columns=["who", "what", "points"])
NAMES: dict[str, Any] = {"user_column": "who", "item_column": "what", "rating_column": "points"}


def told(taken: lab.Taken) -> dict[tuple[str, str], float]:
    values = taken.value if taken.value is not None else np.ones(len(taken))
    pairs = zip(taken.user, taken.item, values)
    return {(taken.users[user], taken.items[item]): value for user, item, value in pairs}


def expected(like_from: float | None, rating_values: bool) -> dict[tuple[str, str], float]:
    """By pandas: the highest rating of each pair."""
    kept = FRAME if like_from is None else FRAME[FRAME["points"] >= like_from]
    best = kept.groupby(["who", "what"])["points"].max()
    return {pair: value / best.max() if rating_values else 1.0 for pair, value in best.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in files that other programs wrote."""
    folder = tmp_path_factory.mktemp("data")
    FRAME.to_csv(folder / "rows.csv", index=False)
    FRAME.to_csv(folder / "rows.csv.gz", index=False)
    FRAME.to_csv(folder / "rows.tsv", index=False, sep="\t")
    FRAME.to_json(folder / "rows.jsonl", orient="records", lines=True)
    (folder / "no-name").write_bytes(gzip.compress((folder / "rows.jsonl").read_bytes()))
    return folder


@pytest.mark.parametrize(
    "options", [{}, {"like_from": 4}, {"like_from": 4.25}, {"rating_values": True}], ids=str
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv", "rows.jsonl", "no-name"])
def test_files_of_other_programs_are_read(
    folder: Path, name: str, options: dict[str, Any]
) -> None:
    taken = lab.read_ratings(folder / name, **NAMES, **options)
    wanted = expected(options.get("like_from"), options.get("rating_values", False))
    assert told(taken) == pytest.approx(wanted)


def test_parquet_files_are_read(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "rows.parquet")
    taken = lab.read_ratings(tmp_path / "rows.parquet", **NAMES, rating_values=True)
    assert told(taken) == pytest.approx(expected(None, True))
    FRAME.astype({"what": "category"}).to_parquet(tmp_path / "rows.parquet", compression="zstd")
    taken = lab.read_ratings(tmp_path / "rows.parquet", **NAMES, like_from=4)
    assert told(taken) == expected(4, False)


def tables() -> dict[str, Any]:
    columns = {name: list(FRAME[name]) for name in FRAME.columns}
    return {
        "pandas": FRAME,
        "categories": FRAME.astype({"who": "category", "what": "category"}),
        "lists": columns,
        "arrays": {name: np.array(values) for name, values in columns.items()},
        "polars": polars.DataFrame(columns),
        "pyarrow": pyarrow.table(columns),
    }


@pytest.mark.parametrize("kind", tables())
@pytest.mark.parametrize(
    "options", [{}, {"like_from": 4}, {"rating_values": True}], ids=["all", "likes", "values"]
)
def test_a_table_is_read_as_its_file(folder: Path, kind: str, options: dict[str, Any]) -> None:
    ours = lab.read_ratings(tables()[kind], **NAMES, **options)
    theirs = lab.read_ratings(folder / "rows.csv", **NAMES, **options)
    assert (ours.users, ours.items) == (theirs.users, theirs.items)
    assert told(ours) == told(theirs)
    assert ours.matrix().tolist() == theirs.matrix().tolist()


def test_whole_numbers_are_numbered_in_order_of_appearance() -> None:
    taken = lab.read_ratings({"user": np.array([30, 7, 30, 2]), "item": [5, 5, 1, 1]})
    assert taken.users == ["30", "7", "2"] and taken.items == ["5", "1"]
    assert told(taken) == {(u, i): 1.0 for u, i in [("30", "5"), ("7", "5"), ("30", "1"), ("2", "1")]}


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (FRAME, {"user_column": "whom"}, ValueError, "there is no column 'whom'; the columns are who, what, points"),
        (FRAME, {}, ValueError, "no column is called user or the like; the columns are who, what, points"),
        (
            pd.DataFrame({"user": pd.Series([1, "a"], dtype=object), "item": [1, 2]}),
            {},
            TypeError,
            "column 'user' holds whole numbers in row 1 and strings in row 2; make them all strings",
        ),
        ({"user": [1.5, 2.0], "item": [1, 2]}, {}, TypeError, "column 'user' holds float64; users must be strings or whole numbers"),
        ({"user": ["a", None], "item": [1, 2]}, {}, ValueError, "there is no user in row 2 of column 'user'"),
        ({"user": [1, 2], "item": [1]}, {}, ValueError, "different numbers of rows: 'user' has 2, 'item' has 1"),
        (
            {"user": [1, 2], "item": [1, 2], "stars": [4, "good"]},
            {"like_from": 3},
            ValueError,
            "the rating 'good' in row 2 of column 'stars' is not a number",
        ),
        ({"user": [1, 2], "item": [1, 2], "stars": [4, None]}, {"like_from": 3}, ValueError, "the table, row 2: there is no rating"),
        ({"user": [1, 2], "item": [1, 2]}, {"like_from": 3}, ValueError, "name the column of ratings"),
        ([1, 2], {}, TypeError, "a file or a table with columns is expected, not list"),
        (FRAME, {"like_from": 4, "rating_values": True}, ValueError, "like_from and rating_values exclude each other"),
        (FRAME, {"like_from": "4"}, TypeError, "like_from is '4'; a number is expected"),
        (FRAME, {**NAMES, "like_from": 9}, ValueError, "the table: none of 6 ratings is 9 or more"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    table: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        lab.read_ratings(table, **options)
    assert message in str(caught.value)


def test_what_is_wrong_with_a_file_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no column 'whom'; the columns are who, what, points"):
        lab.read_ratings(folder / "rows.csv.gz", user_column="whom")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes((folder / "rows.csv.gz").read_bytes()[:-9])
    with pytest.raises(OSError, match="the gzip data end early: the file is truncated"):
        lab.read_ratings(cut, **NAMES)
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item,stars\n1,2,good\n")
    with pytest.raises(ValueError, match=r"bad.csv:2: the rating 'good' \(column 3\) is not a number"):
        lab.read_ratings(bad)
    with pytest.warns(UserWarning, match="bad lines skipped: 1"):
        bad.write_text("user,item,stars\n1,2,good\n1,2,3\n")
        assert len(lab.read_ratings(bad, skip_bad_lines=True)) == 1


@pytest.fixture(scope="module")
def films() -> pd.DataFrame:
    """Three kinds of users, who take all kinds of films and like one."""
    draws = random.Random(5)
    rows = []
    for user in range(300):
        for film in range(120):
            if draws.random() < 0.5:
                liked = film % 3 == user % 3
                rows.append((user, film, draws.choice([3, 4, 5] if liked else [1, 2, 3])))
    return pd.DataFrame(rows, columns=["viewer", "film", "stars"])


@pytest.mark.parametrize(
    ("options", "flags"),
    [({}, []), ({"like_from": 4}, ["--like-from", 4]), ({"rating_values": True}, ["--rating-values"])],
    ids=["all", "likes", "values"],
)
def test_tables_are_played_as_files_on_the_command_line(
    films: pd.DataFrame, tmp_path: Path, options: dict[str, Any], flags: list[object]
) -> None:
    path = tmp_path / "films.csv.gz"
    films.to_csv(path, index=False)
    run: dict[str, Any] = {"rounds": 400, "seeds": 1, "threads": 1}
    shape: dict[str, Any] = {"dim": 4, "items": 4}
    policies = ["linucb-one", "random"]
    of_file = lab.run(lab.Ratings(path, user_column="viewer", **shape, **options), policies, **run)
    of_table = lab.run(lab.Ratings(films, user_column="viewer", **shape, **options), policies, **run)
    assert [one.regret for one in of_table] == [one.regret for one in of_file]
    assert of_table.config["data"] == of_file.config["data"]
    assert_the_same(
        of_file,
        tmp_path,
        *flags_of(
            world="ratings", ratings=path, user_column="viewer", policies=",".join(policies), **shape, **run
        ),
        *flags,
    )


def test_values_are_rewards(films: pd.DataFrame) -> None:
    """The reward of the item taken is its rating divided by the highest one."""
    world = lab.Ratings(films, user_column="viewer", dim=4, items=4, rating_values=True)
    drawn = world.world(1)
    means = np.array([drawn.draw(round)[2] for round in range(200)])
    assert ((means > 0).sum(axis=1) == 1).all()
    assert set(np.round(means.max(axis=1) * 5, 9)) == {1.0, 2.0, 3.0, 4.0, 5.0}

    class First:
        """Shows the first item, and keeps the rewards."""

        rewards: list[float] = []

        def recommend(self, user: int, items: Any) -> int:
            return 0

        def learn(self, user: int, item: Any, reward: float) -> None:
            First.rewards.append(reward)

    lab.run(world, [lambda about: First()], rounds=200, seeds=1)
    assert First.rewards == list(means[:, 0])


def test_tastes_are_made_of_a_table_or_are_one(films: pd.DataFrame, tmp_path: Path) -> None:
    films.to_csv(tmp_path / "films.csv", index=False)
    options: dict[str, Any] = {"users": 100, "dim": 4, "user_column": "viewer"}
    with pytest.warns(UserWarning, match="there are 120 items, not 1000"):
        ours, theirs = lab.Vectors(films, **options), lab.Vectors(tmp_path / "films.csv", **options)
    run: dict[str, Any] = {"policies": ["linucb-one"], "rounds": 100, "seeds": 1}
    assert lab.run(ours, **run)[0].regret == lab.run(theirs, **run)[0].regret
    tastes = pd.DataFrame([[0.5, 0.5], [0.1, 0.9]], columns=["x", "y"])
    assert lab.Vectors(tastes).world(1).users == 2


def test_progress_of_reading_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text("1\t2\t3\n" * 3_000_000)
    calls: list[tuple[int, int]] = []
    lab.read_ratings(path, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) >= 3 and calls == sorted(calls)
    assert all(0 < done <= total == path.stat().st_size for done, total in calls)

    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lab.read_ratings(path, progress=stop)


def test_json_objects_may_be_anything_besides(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    events = [{"meta": {"user": 1}, "visitor": 8, "sku": "a", "n": [1]}, {"visitor": "9", "sku": "b"}]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    taken = lab.read_ratings(path, item_column="sku")
    assert told(taken) == {("8", "a"): 1.0, ("9", "b"): 1.0}
