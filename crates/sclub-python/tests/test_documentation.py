"""The examples of docstrings run. Those of the pages are run by docs/build."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import sclub

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def compiled() -> Iterator[tuple[str, str]]:
    """Docstrings of what is compiled, which doctest itself does not look for."""
    for kind in (sclub.Policy, sclub.LinUcb, sclub.Items, *sclub.policy_classes.values()):
        name = kind.__name__
        yield name, inspect.getdoc(kind) or ""
        for member, value in vars(kind).items():
            if not member.startswith("_"):
                yield f"{name}.{member}", inspect.getdoc(value) or ""


def modules() -> Iterator[str]:
    yield "sclub"
    for found in pkgutil.iter_modules(sclub.__path__):
        if found.name != "_sclub":
            yield f"sclub.{found.name}"


@pytest.mark.parametrize(("name", "text"), list(compiled()), ids=[name for name, _ in compiled()])
def test_everything_compiled_is_documented_and_its_examples_run(name: str, text: str) -> None:
    assert len(text) > 10, f"{name} has no documentation"
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert doctest.DocTestRunner(optionflags=OPTIONS).run(examples).failed == 0


@pytest.mark.parametrize("name", list(modules()))
def test_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


@pytest.mark.parametrize("name", sorted(set(sclub.__all__) - {"__version__"}))
def test_everything_public_is_documented(name: str) -> None:
    assert len(inspect.getdoc(getattr(sclub, name)) or "") > 10
