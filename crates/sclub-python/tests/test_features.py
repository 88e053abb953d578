"""`sclub.ItemFeatures`: the transform of `sclub features --items`."""

from __future__ import annotations

import inspect
import json
import pickle
import warnings

import numpy as np
import pytest
import sclub

FILMS = [
    {"id": i, "title": f"{w} story {i}", "genres": g, "price": p}
    for i, (w, g, p) in enumerate(
        [
            ("toy", "fun|kids", 3.0),
            ("love", "love", 5.0),
            ("west side", "love|music", None),
            ("ghost", "horror", 4.0),
            ("toy", "fun|kids|music", 2.5),
            ("ghost", "horror|love", 9.0),
        ]
        * 4
    )
]


def test_vectors_are_short_and_have_a_constant():
    features = sclub.ItemFeatures(dim=6)
    vectors = features.fit_transform(FILMS)
    assert vectors.shape == (24, 6)
    assert (np.linalg.norm(vectors, axis=1) <= 1 + 1e-9).all()
    assert (vectors[:, -1] == vectors[0, -1]).all()
    np.testing.assert_array_equal(features.transform(FILMS), vectors)
    kinds = {part["column"]: part["kind"] for part in features.report_["columns"]}
    assert kinds == {"title": "text", "genres": "tags", "price": "number"}
    assert 0 < features.report_["explained"] <= 1
    assert list(features.get_feature_names_out()) == ["x1", "x2", "x3", "x4", "x5", "constant"]


def test_a_file_gives_the_same_bits(tmp_path):
    features = sclub.ItemFeatures(dim=6).fit(FILMS)
    features.save(tmp_path / "transform.json")
    loaded = sclub.ItemFeatures.load(tmp_path / "transform.json")
    np.testing.assert_array_equal(loaded.transform(FILMS), features.transform(FILMS))
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(again.transform(FILMS), features.transform(FILMS))
    head = (tmp_path / "transform.json").read_text().splitlines()[0]
    assert json.loads(head)["format"] == "sclub-features"
    (tmp_path / "bad").write_text("{}\n")
    with pytest.raises(ValueError, match="no file of"):
        sclub.ItemFeatures.load(tmp_path / "bad")


def test_a_dataframe_is_a_list_of_dicts():
    pandas = pytest.importorskip("pandas")
    features = sclub.ItemFeatures(dim=6)
    expected = features.fit_transform(FILMS)
    np.testing.assert_array_equal(features.fit_transform(pandas.DataFrame(FILMS)), expected)


def test_parameters_are_those_of_scikit_learn():
    features = sclub.ItemFeatures(8, tags=["genres"], separator="|")
    assert set(features.get_params()) == set(inspect.signature(sclub.ItemFeatures).parameters)
    copy = sclub.ItemFeatures(**features.get_params())
    assert copy.get_params() == features.get_params()
    assert repr(features) == "ItemFeatures(dim=8, tags=['genres'], separator='|')"
    assert features.set_params(dim=5).fit_transform(FILMS).shape == (24, 5)
    with pytest.raises(ValueError, match="no parameter 'size'"):
        features.set_params(size=3)


def test_scikit_learn_clones_it():
    base = pytest.importorskip("sklearn.base")
    pipeline = pytest.importorskip("sklearn.pipeline")
    features = base.clone(sclub.ItemFeatures(dim=7, ignore=["price"]))
    assert features.dim == 7
    steps = pipeline.make_pipeline(features)
    assert steps.fit_transform(FILMS).shape == (24, 7)


def test_ratings_make_known_vectors_and_predict_the_others():
    rng = np.random.default_rng(1)
    users, items = [], []
    for user in range(60):
        for film in FILMS[:20]:
            if ("love" in film["genres"]) == (user % 2 == 0) and rng.random() < 0.7:
                users.append(user)
                items.append(film["id"])
    features = sclub.ItemFeatures(dim=4)
    vectors = features.fit_transform(FILMS, ratings={"user": users, "item": items})
    assert features.report_["known_items"] == 20
    # Film 23 is new and a love story; its genres put it beside those.
    love = [i for i in range(20) if "love" in FILMS[i]["genres"]]
    other = [i for i in range(20) if i not in love]
    near = vectors[:, :-1] @ vectors[23, :-1]
    assert near[love].mean() > near[other].mean()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="not fitted"):
        sclub.ItemFeatures().transform(FILMS)
    with pytest.raises(ValueError, match="there is no column 'name'"):
        sclub.ItemFeatures(text=["name"]).fit(FILMS)
    with pytest.raises(ValueError, match="dim is 1"):
        sclub.ItemFeatures(1).fit(FILMS)
    with pytest.raises(TypeError, match="a dict for each item"):
        sclub.ItemFeatures().fit([1, 2])
    with pytest.raises(TypeError, match="a DataFrame or a list"):
        sclub.ItemFeatures().fit({"id": 1})
    features = sclub.ItemFeatures(6).fit(FILMS)
    with pytest.raises(ValueError, match="item 1: the field 'price' is \"x\""):
        features.transform([{"price": "x"}])


def test_texts_among_numbers_are_missing_and_warned_about():
    films = [{**film, "price": f"{film['id']},50", "code": f"x{film['id']}"} for film in FILMS]
    features = sclub.ItemFeatures(dim=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = features.fit_transform(films)
    assert features.report_["warnings"] == []
    assert features.report_["ignored"] == ["code"]
    assert features.report_["reasons"] == {"code": "codes of one word that hardly repeat"}
    films[4]["price"] = "n/a"
    films[7]["price"] = "call us"
    with pytest.warns(UserWarning, match="item 5 'n/a', item 8 'call us'") as caught:
        vectors = features.fit_transform(films)
    assert caught[0].filename == __file__
    assert [str(one.message) for one in caught] == features.report_["warnings"]
    kinds = {part["column"]: part["kind"] for part in features.report_["columns"]}
    assert kinds["price"] == "number"
    assert expected.shape == vectors.shape
    np.testing.assert_array_equal(features.transform(films), vectors)
    with pytest.raises(ValueError, match="a number is expected"):
        features.transform([{"price": "much"}])
