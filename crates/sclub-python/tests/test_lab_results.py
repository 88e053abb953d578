"""Tables and pictures of what came out."""

from __future__ import annotations

import builtins
import json
import math
import re
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from sclub import lab
from sclub._lab_plot import COLOURS


@pytest.fixture(scope="module")
def results() -> lab.Results:
    class Mine:
        def recommend(self, user: int, items: Any) -> int:
            return 0

        def learn(self, user: int, item: Any, reward: float) -> None:
            pass

    world = lab.Synthetic(users=20, clusters=2, dim=3, items=4)
    return lab.run(world, ["sclub", "random", Mine()], rounds=500, seeds=3)


def test_results_are_a_sequence(results: lab.Results) -> None:
    assert len(results) == 9 and results[-1].policy == "Mine"
    assert [run.seed for run in results.of("sclub")] == [1, 2, 3]
    assert isinstance(results[:2], lab.Results) and len(results[:2]) == 2
    assert repr(results) == "<Results: 3 policies, 3 seeds, 500 rounds>"
    with pytest.raises(KeyError, match="unknown policy 'club'; use one of sclub, random, Mine"):
        results.of("club")
    with pytest.raises(AttributeError):
        results[0].regret = 0.0  # type: ignore[misc]


def test_a_frame_has_a_row_for_each_run(results: lab.Results) -> None:
    frame = results.to_frame()
    assert len(frame) == 9
    assert list(frame["regret"]) == [run.regret for run in results]
    assert frame["clusters"].isna().sum() == 3 and frame["adjusted_rand"].isna().sum() == 3


def test_curves_end_with_the_regret(results: lab.Results) -> None:
    curves = results.curves()
    assert list(curves.columns) == ["policy", "seed", "round", "regret"]
    last = curves.groupby(["policy", "seed"])["regret"].last()
    for run in results:
        assert last[(run.policy, run.seed)] == run.regret
        assert run.curve[-1] == run.even_curve[-1] == (500, run.regret)


def test_the_summary_has_means_and_standard_errors(results: lab.Results) -> None:
    summary = results.summary()
    assert list(summary.index) == ["sclub", "random", "Mine"]
    values = results.to_frame().groupby("policy")["regret"]
    for policy in summary.index:
        assert summary["regret"][policy] == pytest.approx(values.mean()[policy])
        assert summary["regret_error"][policy] == pytest.approx(values.sem()[policy])
    assert math.isnan(summary["clusters"]["Mine"])


def test_a_single_seed_has_no_standard_error(results: lab.Results) -> None:
    alone = results[:3]
    summary = alone.summary()
    for name in ("regret", "reward"):
        assert summary[f"{name}_error"].isna().all() and summary[name].notna().all()
    text = alone._repr_html_()
    assert "±" not in text and "nan" not in text
    ax = alone.plot()
    assert len(ax.get_lines()) == 3 and not ax.collections
    pyplot.close("all")


def test_json_is_that_of_the_command_line(results: lab.Results, tmp_path: Path) -> None:
    results.to_json(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    assert sorted(document) == ["complete", "config", "runs"] and document["complete"]
    assert document["config"]["policies"] == ["sclub", "random", "Mine"]
    assert document["runs"][0]["regret"] == results[0].regret
    assert document["runs"][2]["preset"] is None and document["runs"][2]["clusters"] is None


def test_a_notebook_shows_a_table(results: lab.Results) -> None:
    text = results._repr_html_()
    assert text.count("<tr>") == 4 and "Mine" in text and "±" in text
    alone = lab.run("synthetic", {"<b>": "random"}, rounds=10, seeds=1)._repr_html_()
    assert "<b>" not in alone and "&lt;b&gt;" in alone


def test_every_policy_has_a_colour_of_its_own() -> None:
    assert {"sclub", "random"} <= set(COLOURS)
    assert all(re.fullmatch("#[0-9A-F]{6}", colour) for colour in COLOURS.values())
    assert len(set(COLOURS.values())) == len(COLOURS)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_plot_has_a_line_and_a_band_for_each_policy(results: lab.Results, scale: Any) -> None:
    ax = results.plot(scale=scale)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["sclub", "random", "Mine"]
    assert lines["sclub"].get_color() == "#D55E00"
    assert len({line.get_color() for line in lines.values()}) == 3
    assert len(ax.collections) == 3 and ax.get_xscale() == scale
    mean = sum(run.regret for run in results.of("sclub")) / 3
    assert np.asarray(lines["sclub"].get_ydata())[-1] == pytest.approx(mean)
    pyplot.close("all")


def test_a_plot_goes_where_it_is_told(results: lab.Results) -> None:
    _, axes = pyplot.subplots(1, 2)
    assert results.plot(axes[1], band=False, legend=False) is axes[1]
    assert not axes[0].get_lines() and not axes[1].collections
    assert axes[1].get_legend() is None
    rate = results.plot(axes[0], value="rate")
    assert rate.get_ylabel() == "rate so far"
    pyplot.close("all")
    with pytest.raises(ValueError, match="it must be 'linear' or 'log'"):
        results.plot(scale="cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it must be 'regret' or 'rate'"):
        results.plot(value="profit")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("missing", "call"),
    [("pandas", "to_frame"), ("pandas", "summary"), ("pandas", "curves"), ("matplotlib", "plot")],
)
def test_what_is_not_installed_is_named(
    results: lab.Results, monkeypatch: pytest.MonkeyPatch, missing: str, call: str
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=f"pip install {missing}") as caught:
        getattr(results, call)()
    # Nothing of this name is to be had from PyPI.
    assert "sclub" not in str(caught.value)
