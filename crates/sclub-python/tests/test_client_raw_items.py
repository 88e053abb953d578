"""Items with raw fields, on a server that makes their features (``--features``)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sclub
from server import Connect, Server, connect, fresh, serving

__all__ = ["connect", "fresh"]  # fixtures

FILMS: list[dict[str, Any]] = [
    {"id": f"film{i}", "title": f"{word} story {i}", "tags": tags.split("|"), "price": price}
    for i, (word, tags, price) in enumerate(
        [
            ("toy", "fun|kids", 3.0),
            ("love", "love", 5.0),
            ("west side", "love|music", 7.5),
            ("ghost", "horror", 4.0),
            ("toy", "fun|kids|music", 2.5),
            ("ghost", "horror|love", 9.0),
        ]
        * 4
    )
]
NEW: dict[str, Any] = {"title": "ghost of love", "tags": ["horror", "love"], "price": 6.0}


@pytest.fixture(scope="module")
def transform() -> sclub.ItemFeatures:
    return sclub.ItemFeatures(dim=6).fit(FILMS)


@pytest.fixture(scope="module")
def shop(
    transform: sclub.ItemFeatures, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("shop")
    transform.save(folder / "transform.json")
    with serving(folder / "data", "--features", str(folder / "transform.json")) as server:
        yield server


def features_of(transform: sclub.ItemFeatures, *items: dict[str, Any]) -> list[list[float]]:
    """The features by the transform in this process."""
    rows: list[list[float]] = transform.transform(list(items)).tolist()
    return rows


@pytest.mark.parametrize(
    "items",
    [
        [{"id": "new", **NEW}],
        {"new": NEW},
        [("new", NEW)],
        [{"id": "new", **NEW, "price": np.float32(6), "tags": ("horror", "love"), "brand": None}],
        [{"id": "new", "data": {"price": 6.0}, "title": NEW["title"], "tags": np.array(NEW["tags"])}],
    ],
    ids=["list", "mapping", "pairs", "numpy", "data"],
)
def test_a_server_makes_features_of_raw_fields(
    shop: Server, transform: sclub.ItemFeatures, items: Any, connect: Connect
) -> None:
    with connect(shop.url) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        client.remove_item("new")
        assert client.put_items(items) == 1
        card = client.item_card("new")
        assert card["features"] == features_of(transform, {"id": "new", **NEW})[0]
        assert (card["title"], card["tags"], card["data"]) == (
            "ghost of love",
            ["horror", "love"],
            {"price": 6.0},
        )


def test_a_frame_of_raw_fields_is_put_in_one_call(
    shop: Server, transform: sclub.ItemFeatures, connect: Connect
) -> None:
    frame = pd.DataFrame(FILMS).rename(columns={"id": "name"})
    frame.loc[3, "price"] = np.nan
    frame["available"] = [number != 2 for number in range(24)]
    expected = [dict(film) for film in FILMS]
    del expected[3]["price"]
    with connect(shop.url) as client:
        with pytest.raises(ValueError, match="column 'title' is not numeric.*raw=True"):
            client.put_items(frame, id="name")
        # Numbers of rows would be other items.
        with pytest.raises(ValueError, match="which column has the ids"):
            client.put_items(frame, raw=True)
        assert client.put_items(frame, id="name", raw=True) == 24
        found = client.items()
        assert [found[film["id"]] for film in FILMS] == features_of(transform, *expected)
        assert "data" not in client.item_card("film3")
        assert client.item_card("film2")["available"] is False
        shown = client.recommend("anna", k=50, filter={"tags": "love", "price": {"max": 8}})
        of_love = {film["id"] for film in FILMS if "love" in film["tags"] and film["price"] <= 8}
        assert {one.id for one in shown.items} - {"new"} == of_love - {"film2"}


def test_fields_that_no_feature_is_made_of_are_a_warning(shop: Server, connect: Connect) -> None:
    with connect(shop.url) as client:
        with pytest.warns(RuntimeWarning, match="no features of the fields colour, pirce"):
            client.put_items([{"id": "x", "pirce": 3, "title": "toy", "colour": "red"}])
        assert client.item_card("x")["data"] == {"pirce": 3, "colour": "red"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.put_items([{"id": "x", "title": "toy", "data": {"colour": "red"}}])
        client.remove_item("x")


def test_raw_items_and_items_with_features_may_be_mixed(
    shop: Server, transform: sclub.ItemFeatures, connect: Connect
) -> None:
    own = [0.1, 0.2, 0.3, 0.1, 0.1, 0.5]
    with connect(shop.url) as client:
        assert client.put_items({"raw": NEW, "own": own}) == 2
        assert client.item("own") == own
        assert client.item("raw") == features_of(transform, {"id": "raw", **NEW})[0]
        assert client.remove_items(["raw", "own"]) == 2


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"title": "toy"}], r"items\[0\] must have 'id'"),
        ([("a", {"id": "b", "title": "toy"})], "two ids: 'a' and 'b'"),
        ([{"id": "a", "price": float("nan")}], r"items\['a'\] cannot be sent as JSON"),
        ([{"id": "a", "features": [1], "price": 3}], "has 'features', so it may have 'title'"),
        ([{"id": "a", "title": "x"}, {"id": "a", "title": "y"}], "'a' is there twice"),
    ],
)
def test_raw_items_that_cannot_be_are_not_sent(items: Any, said: str, connect: Connect) -> None:
    with connect("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(ValueError, match=said):
            client.put_items(items)
        with pytest.raises(TypeError, match="columns of a DataFrame"):
            client.put_items(items, raw=True)
        with pytest.raises(ValueError, match="only items of the catalogue"):
            client.recommend("anna", items={"a": {"title": "toy"}})


def test_a_server_without_a_transform_refuses_raw_items(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        with pytest.raises(sclub.Invalid, match="features"):
            client.put_items({"new": NEW})
