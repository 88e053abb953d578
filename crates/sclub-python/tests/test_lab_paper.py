"""`sclub.lab.paper`: the paper's experiments with policies written in Python beside its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server import binary

import sclub
from sclub import lab


class First:
    """Always the first item."""

    def recommend(self, user: int, items: np.ndarray) -> int:
        return 0

    def learn(self, user: int, item: np.ndarray, reward: float) -> None:
        pass


def paper(policies: Any, **rest: Any) -> lab.Paper:
    options: dict[str, Any] = {"rounds": 300, "seeds": 2, "progress": False, **rest}
    return lab.paper(policies, **options)


def ratings(path: Path) -> Path:
    """Ratings of people with some taste."""
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(1, 131):
        for item in range(1, 91):
            chance = 550 if user % 5 == item % 5 else 120
            if (user * 7919 + item * 104_729) * 2_654_435_761 % 1000 < chance:
                lines.append(f"{user},{item},3.5,1112486027")
    path.write_text("\n".join(lines) + "\n")
    return path


def measured(document: Any) -> Any:
    """The panels without times."""
    for panel in document["panels"]:
        for cell in panel["cells"]:
            del cell["seconds"]
    return document["panels"]


def test_the_panels_are_those_of_the_command_and_a_guest_is_beside_them(tmp_path: Path) -> None:
    command = [binary(), "paper", "--quiet", "--out", str(tmp_path / "command"), "--rounds", "300"]
    command += ["--seeds", "2", "--parts", "panels", "--policies", "dynucb,ts:club"]
    subprocess.run(command, check=True, capture_output=True)
    expected = measured(json.loads((tmp_path / "command" / "results.json").read_text()))
    report = paper({"dynucb": "dynucb", "ts:club": "ts:club", "mine": First})
    assert report.policies[5:] == ["dynucb", "ts:club", "mine"]
    assert report.panels == ["1a", "1b", "1c"]
    panels = measured(report.document)
    for panel in panels[:3]:
        mine = panel["cells"].pop()
        assert mine["policy"] == "mine" and mine["published_regret"] is None
        assert mine["curve"][-1][1]["mean"] == mine["regret"]["mean"] > 0
    assert panels == expected


def test_a_class_of_the_package_has_the_curve_of_the_built_in_policy() -> None:
    report = paper({"mine": sclub.Lints, "twin": sclub.Uniclub, "uniclub": "uniclub"})
    table = report.table()
    assert list(table.loc["twin"]) == list(table.loc["uniclub"])
    curves = report.curves().set_index(["policy", "panel", "round"]).regret
    assert list(curves["twin"]) == list(curves["uniclub"])


def test_real_users_bring_their_panels_and_choices(tmp_path: Path) -> None:
    data = ratings(tmp_path / "ratings.csv")
    report = paper(
        [First], movielens=data, quick=True, seeds=1, parts=["panels", "choices"], out=tmp_path / "out"
    )
    assert report.panels == ["1a", "1b", "1c", "2a", "2b"]
    (held_out,) = report.document["held_out"]
    for table in held_out["tables"]:
        rows = [row["label"] for row in table["rows"]]
        assert rows[-2:] == ["First", "Placebo: wrong users"]
        assert table["rows"][-2]["constants"] == "no constants"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"cells.jsonl", "figures", "index.html", "results.json"}
    figure = (tmp_path / "out" / "figures" / "figure-2a.png").read_bytes()
    assert figure.startswith(b"\x89PNG")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "First is not in the paper. Always the first item." in page
    assert "First" not in (tmp_path / "out" / "cells.jsonl").read_text()


def test_tables_for_pandas_and_notebooks(tmp_path: Path) -> None:
    report = paper([First], seeds=1)
    frame = report.to_frame()
    assert len(frame) == 3 * 6 and frame.regret_error.isna().all()
    assert frame.published_regret.isna().sum() == 3 * 2
    assert repr(report) == "<Paper: 3 panels, 6 policies, 1 seed, 300 rounds>"
    assert "First" in report._repr_html_()
    report.save(tmp_path)
    assert (tmp_path / "figures" / "figure-1a.svg").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policies": ["oracle"]}, "policy 'oracle' is a yardstick"),
        ({"policies": ["sclub"]}, "policy 'sclub' is in every report"),
        ({"policies": ["club-cascade"]}, "policy 'club-cascade' is for lists"),
        ({"parts": ["panel"]}, "unknown part 'panel'"),
        ({"parts": []}, "parts is empty; use some of panels, "),
        ({"parts": "choices"}, "part choices needs real users"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_a_bad_argument_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        paper(options.pop("policies", []), **options)
