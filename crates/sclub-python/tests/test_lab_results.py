"""Tables and pictures of what came out."""

from __future__ import annotations

import builtins
import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

import sclub
from sclub import lab
from sclub._lab_plot import COLOURS
from sclub._lab_statistics import holm, student_p
from test_lab import command_line


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


WORLD = lab.Synthetic(users=20, clusters=2, dim=3, items=4)


def played(policies: Any, seeds: Any, world: Any = WORLD, **options: Any) -> lab.Results:
    return lab.run(world, policies, rounds=options.pop("rounds", 300), seeds=seeds, **options)


def content(results: lab.Results) -> list[tuple[str, int, float, float]]:
    return [(run.policy, run.seed, run.regret, run.reward) for run in results]


def test_sums_are_the_results_of_one_run() -> None:
    whole = played(["sclub", "random"], 4)
    more_seeds = played(["sclub", "random"], [3, 4]) + played(["sclub", "random"], [1, 2])
    more_policies = played(["sclub"], 4) + played(["random"], 4)
    overlapping = played(["sclub", "random"], 3) + played(["sclub", "random"], [2, 3, 4])
    for summed in (more_seeds, more_policies, overlapping):
        assert content(summed) == content(whole)
        for name in ("policies", "seeds", "first_seed", "rounds", "constants"):
            assert summed.config[name] == whole.config[name], name
    assert repr(more_seeds) == "<Results: 2 policies, 4 seeds, 300 rounds>"
    assert sum([played(["sclub"], [2]), played(["sclub"], [3])], played(["sclub"], [1])).policies == ["sclub"]


def test_results_that_do_not_belong_together_are_not_added(results: lab.Results) -> None:
    def refused(one: lab.Results, two: lab.Results, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            one + two

    first = played(["sclub"], 2)
    other = played(["sclub"], 2, lab.Synthetic(users=30, clusters=2, dim=3, items=4))
    refused(first, other, "not of the same worlds: users is 20 in one and 30 in the other")
    refused(first, played(["sclub"], 2, rounds=200), "rounds is 300 in one and 200 in the other")
    refused(
        first, played(["sclub"], 2, beta=0.9), "policy 'sclub' has other constants in both: beta is .* and 0.9"
    )
    mine = played({"mine": lambda about: sclub.LinUcb(dim=3, beta=0.1)}, 2)
    refused(
        mine,
        played({"mine": lambda about: sclub.LinUcb(dim=3, beta=3.0)}, 2),
        "policy 'mine' has other constants in both: beta is 0.1 and 3.0",
    )

    class Mine:
        def __init__(self, about: lab.About) -> None:
            pass

        def recommend(self, user: int, items: Any) -> int:
            return 0

        def learn(self, user: int, item: Any, reward: float) -> None:
            pass

    class Last(Mine):
        def recommend(self, user: int, items: Any) -> int:
            return len(items) - 1

    refused(played({"mine": Mine}, 2), played({"mine": Last}, 2), "policy 'mine' has other results for seed 1")

    class Own:
        dim, users = 2, 3

        def __init__(self, seed: int, scale: float = 1.0) -> None:
            self.scale = scale

        def draw(self, round: int) -> tuple[Any, ...]:
            return 0, np.eye(2), np.array([0.1, 0.5]) * self.scale

    class Other(Own):
        def __init__(self, seed: int) -> None:
            super().__init__(seed, 0.5)

    Other.__name__ = Other.__qualname__ = "Own"
    refused(played(["linucb-one"], 1, Own), played(["random"], 1, Other), "not of the same worlds: with seed 1")
    with pytest.raises(TypeError):
        results + 1  # type: ignore[operator]


def test_policies_of_the_package_are_told_apart_with_other_seeds_too(tmp_path: Path) -> None:
    learned = sclub.LinUcb(dim=3)
    learned.learn(0, [1.0, 0.0, 0.0], 1.0)
    several: dict[str, Any] = {
        "LinUcb": sclub.LinUcb(dim=3),
        "beta": sclub.LinUcb(dim=3, beta=5.0),
        "shared": sclub.LinUcb(dim=3, shared=True),
        "groups": sclub.LinUcb(dim=3, groups={user: user % 2 for user in range(20)}),
        "other groups": sclub.LinUcb(dim=3, groups={user: user % 3 for user in range(20)}),
        "learned": learned,
        "another class": sclub.Lints(dim=3),
        "a function": lambda about: sclub.Sclub(about.dim, beta=0.1),
        "another function": lambda about: sclub.Sclub(about.dim, beta=0.2),
        "a name": "club",
        "another name": "linucb-one",
        "one's own": lambda about: Own(),
    }

    class Own:
        def recommend(self, user: int, items: Any) -> int:
            return 0

        def learn(self, user: int, item: Any, reward: float) -> None:
            pass

    first = {name: played({"m": policy}, [1]) for name, policy in several.items()}
    more = {name: played({"m": policy}, [2]) for name, policy in several.items()}
    for one in several:
        for two in several:
            if one == two:
                assert [run.seed for run in first[one] + more[two]] == [1, 2]
                continue
            with pytest.raises(ValueError, match="policy 'm' (has other constants in both|had learned before)|constants of policy 'm' are known in one"):
                first[one] + more[two]
    first["beta"].to_json(tmp_path / "run.json")
    read = lab.Results.from_json(tmp_path / "run.json")
    assert len(read + more["beta"]) == 2
    with pytest.raises(ValueError, match="beta is 5.0 and "):
        read + more["LinUcb"]
    # A class without arguments is the same as its name, and as an object that has not learned.
    assert len(played({"sclub": sclub.Sclub}, [1]) + played(["sclub"], [2])) == 2
    assert len(played({"m": sclub.LinUcb}, [1]) + more["LinUcb"]) == 2
    assert len(played({"m": sclub.Lints}, [1]) + more["another class"]) == 2
    with pytest.raises(ValueError, match="had learned before one of the runs"):
        first["learned"] + more["LinUcb"]
    # Files of earlier versions do not have the constants of such policies.
    old = json.loads((tmp_path / "run.json").read_text())
    del old["config"]["constants"]["m"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    with pytest.raises(ValueError, match="the constants of policy 'm' are known in one of them only"):
        lab.Results.from_json(tmp_path / "old.json") + more["beta"]
    old["config"]["version"] = "0.0.1"
    (tmp_path / "old.json").write_text(json.dumps(old))
    with pytest.warns(UserWarning, match="of versions 0.0.1 and"):
        assert len(lab.Results.from_json(tmp_path / "old.json") + more["beta"]) == 2


def test_constants_that_a_function_draws_for_each_seed_are_not_recorded() -> None:
    def drawn(about: lab.About) -> sclub.LinUcb:
        return sclub.LinUcb(dim=about.dim, beta=np.random.default_rng(about.seed).uniform(0.1, 1.0))

    world = lab.Synthetic(users=20, clusters=2, dim=3, items=4)
    for threads in (1, 2, 2, 2):
        results = lab.run(world, {"m": drawn}, rounds=50, seeds=4, threads=threads)
        constants = results.config["constants"]["m"]
        assert "beta" not in constants and constants["policy"] == "LinUcb"


def test_tastes_of_other_data_are_told_apart() -> None:
    def of_array(seed: int) -> lab.Vectors:
        tastes = np.full((9, 3), 0.5)
        tastes[:, :2] = np.random.default_rng(seed).uniform(-0.3, 0.3, size=(9, 2))
        return lab.Vectors(tastes, items=4)

    def of_table(seed: int) -> lab.Vectors:
        draws = np.random.default_rng(seed)
        table = {"user": draws.integers(40, size=900), "item": draws.integers(30, size=900)}
        with pytest.warns(UserWarning, match="there are 30 items"):
            return lab.Vectors(table, users=20, dim=3, items=4)

    for make in (of_array, of_table):
        first = played(["random"], [1], make(1))
        assert len(first + played(["random"], [2], make(1))) == 2
        with pytest.raises(ValueError, match="not of the same worlds: data is '[0-9a-f]{16}' in one and"):
            first + played(["random"], [2], make(2))


def test_results_are_read_back(results: lab.Results, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    results.to_json(path)
    again = lab.Results.from_json(path)
    assert again.config == results.config and len(again) == len(results)
    for one, two in zip(again, results):
        assert (one.policy, one.preset, one.curve, one.clusters) == (two.policy, two.preset, two.curve, two.clusters)
        assert one.even_curve == one.curve
    again.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    again.plot()
    pyplot.close("all")
    assert content(again + results) == content(results)


def test_results_of_the_command_line_are_read(tmp_path: Path) -> None:
    command_line(tmp_path, "--users", 20, "--clusters", 2, "--dim", 3, "--items", 4, "--rounds", 300, "--seeds", 2, "--policies", "sclub,random", "--threads", 1)
    read = lab.Results.from_json(tmp_path / "run.json")
    assert content(read) == content(played(["sclub", "random"], 2))
    both = read + played(["sclub", "random"], [3])
    assert content(both) == content(played(["sclub", "random"], 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a JSON file"),
        ("[1]", "has no results of runs"),
        ('{"config": {}}', "has no results of runs"),
        ('{"config": {}, "runs": [3]}', "run 1: an object is expected, not int"),
        ('{"config": {}, "runs": [{"policy": "sclub", "preset": null, "seed": 1}]}', "run 1: there is no rounds"),
        ('{"config": {}, "runs": [{"curve": 3}]}', "run 1: curve is not a list of pairs"),
    ],
)
def test_files_without_results_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        lab.Results.from_json(path)


def test_a_file_of_a_stopped_run_is_read_with_a_warning(results: lab.Results, tmp_path: Path) -> None:
    results[:4].to_json(tmp_path / "run.json")
    with pytest.warns(UserWarning, match="stopped before its end"):
        assert len(lab.Results.from_json(tmp_path / "run.json")) == 4


def test_p_values_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 3, 9, 29, 200, 10_000):
        for t in (0.0, 1e-3, 0.3, -1.0, 2.0, 5.0, 40.0, 1e6):
            wanted = 2 * stats.t.sf(abs(t), degrees)
            assert student_p(t, degrees) == pytest.approx(wanted, rel=1e-9, abs=1e-300), (t, degrees)
    # With one degree of freedom it is Cauchy's distribution.
    for t in (1e-9, 1e-5, 0.1, 7.0):
        assert student_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-15)


def test_comparisons_are_paired_by_seed() -> None:
    stats = pytest.importorskip("scipy.stats")
    results = played(["linucb-ind", "linucb-one", "sclub-soft", "random"], 6, rounds=1000)
    for value in ("regret", "reward"):
        values = results.to_frame().pivot(index="seed", columns="policy", values=value)
        found = results.compare("linucb-ind", value=value)  # type: ignore[call-overload]
        assert [one.other for one in found] == ["linucb-one", "sclub-soft", "random"]
        for one in found:
            wanted = stats.ttest_rel(values["linucb-ind"], values[one.other])
            assert (one.t, one.p) == pytest.approx((wanted.statistic, wanted.pvalue))
            difference = values["linucb-ind"] - values[one.other]
            assert (one.difference, one.error) == pytest.approx((difference.mean(), difference.sem()))
            alone = results.compare("linucb-ind", one.other, value=value)  # type: ignore[call-overload]
            assert alone.p == alone.p_holm == one.p and alone.seeds == 6
        assert [one.p_holm for one in found] == holm([one.p for one in found])
    # Seeds that one policy alone has do not count.
    mixed = played(["random"], [1]) + played(["linucb-one", "random"], [3, 2])
    found = mixed.compare("linucb-one", "random")
    assert found == played(["linucb-one", "random"], [2, 3]).compare("linucb-one", "random")
    assert found.seeds == 2


def test_holms_correction_is_that_of_r() -> None:
    # p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.5), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


def test_what_cannot_be_compared_is_refused(results: lab.Results) -> None:
    with pytest.raises(ValueError, match="'sclub' and 'random' have 1 seed in common; a paired test needs 2"):
        results[:3].compare("sclub", "random")
    with pytest.raises(KeyError, match="unknown policy 'club'"):
        results.compare("sclub", "club")
    with pytest.raises(ValueError, match="cannot be compared with itself"):
        results.compare("sclub", "sclub")
    same = {"one": "random", "two": lambda about: sclub.LinUcb(dim=3)}
    assert len(played(same, 2).compare("one")) == 1
    twins = played({"one": lambda about: sclub.LinUcb(dim=3), "two": lambda about: sclub.LinUcb(dim=3)}, 3)
    assert (twins.compare("one", "two").t, twins.compare("one", "two").p) == (0.0, 1.0)


def test_a_table_of_latex_has_errors_and_the_best_in_bold(results: lab.Results, tmp_path: Path) -> None:
    text = results.to_latex(tmp_path / "table.tex")
    assert (tmp_path / "table.tex").read_text() == text
    lines = text.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrr}" and lines[-1] == r"\end{tabular}"
    assert lines[2] == r"Policy & Regret & Reward & Clusters & Adjusted Rand \\"
    summary = results.summary()
    row = next(line for line in lines if line.startswith("sclub"))
    mean, error = summary["regret"]["sclub"], summary["regret_error"]["sclub"]
    assert rf"$\mathbf{{{mean:.1f}}} \pm {error:.1f}$" in row
    # Random is no competitor, and Mine has no clusters.
    assert "mathbf" not in next(line for line in lines if line.startswith("random"))
    assert next(line for line in lines if line.startswith("Mine")).endswith(r"& -- & -- \\")
    assert text.count("mathbf") == 2
    assert "mathbf" not in results.to_latex(bold=False)
    assert r"\pm" not in results[:3].to_latex()
    told = results.to_latex(columns=["regret"], caption="50% of it", label="tab:it", digits=0)
    assert r"\caption{50\% of it}" in told and r"\label{tab:it}" in told and "{lr}" in told
    with pytest.raises(ValueError, match="unknown column 'profit'; use one of regret, reward"):
        results.to_latex(columns=["profit"])
    named = played({"a_b & c^2": "random"}, 1).to_latex()
    assert r"a\_b \& c\textasciicircum{}2 &" in named


@pytest.mark.parametrize(
    ("name", "start"), [("a.pdf", b"%PDF"), ("a.png", b"\x89PNG"), ("a.svg", b"<?xml")]
)
def test_a_figure_is_saved_in_the_format_of_its_name(
    results: lab.Results, tmp_path: Path, name: str, start: bytes
) -> None:
    ax = results.plot(tmp_path / name, scale="log")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert len(ax.get_lines()) == 3 and not pyplot.get_fignums()
    if name == "a.pdf":
        assert b"/Type3" not in (tmp_path / name).read_bytes()


def test_an_unknown_format_of_a_figure_is_refused(results: lab.Results, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pdf"):
        results.plot(str(tmp_path / "a.xyz"))
    assert not pyplot.get_fignums()
