"""The examples of the lab's documentation run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-lab.md"


def test_the_examples_run_and_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not PAGE.exists():
        pytest.skip("the page is part of another one")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    for kind, block in blocks:
        if kind == "python":
            capsys.readouterr()
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            printed = capsys.readouterr().out
            assert printed.split() == block.split()
    assert os.path.getsize("regret.png") > 0
