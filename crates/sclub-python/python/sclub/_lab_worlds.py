"""The worlds of the lab."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._lab_checks import real, recipe, shop, whole
from ._lab_data import Reading, Source, data_of, is_ratings
from ._lab_progress import Progress, watching
from ._sclub import LabSetting, LabWorld, lab_read

#: The default number of users, the same as in `sclub run`.
_USERS = 1000


class Setting:
    """A family of worlds, one for each seed."""

    _setting: LabSetting
    #: The name of the file that it is made from, if any.
    file: str | None = None
    #: The rating from which on an item of the file is liked, if there is one.
    like_from: float | None = None

    def world(self, seed: int) -> LabWorld:
        """The world of a seed, to look at: `dim`, `users`, `clusters` and ``draw(round)``.

        >>> import sclub
        >>> world = sclub.lab.Synthetic(users=50, clusters=5, dim=4, items=3).world(seed=1)
        >>> user, items, means = world.draw(0)
        >>> items.shape, means.shape
        ((3, 4), (3,))
        >>> len(set(world.clusters))
        5
        """
        return self._setting.world(whole("seed", seed))


@dataclass(frozen=True)
class Synthetic(Setting):
    """Random tastes in clusters, random items: section 5.1 of the paper, and variations of it.

    >>> import sclub
    >>> world = sclub.lab.Synthetic(users=100, clusters=4, frequencies="users")
    >>> world.clusters
    4
    >>> sclub.lab.Synthetic(users=3, clusters=4)
    Traceback (most recent call last):
    ...
    ValueError: clusters is 4; it must be at most the number of users, 3
    """

    #: The number of users.
    users: int = _USERS
    #: The number of clusters of users with equal tastes.
    clusters: int = 10
    #: The number of features of an item, a constant one included (1 to 512).
    dim: int = 20
    #: The number of items in each round.
    items: int = 20
    #: The frequencies of users: "uniform", or random for each cluster ("clusters") or user ("users").
    frequencies: str = "uniform"
    #: The distribution of rewards: "bernoulli" or "gaussian".
    rewards: str = "bernoulli"
    #: The standard deviation of Gaussian noise, 0.5 by default.
    noise: float | None = None
    #: The mean number of users in a round, each drawn independently; exactly one by default.
    users_a_round: float | None = None
    #: The sizes of the clusters: "equal" or "unequal".
    sizes: str = "equal"
    #: The distance between users of a cluster.
    spread: float = 0.0
    #: A factor of every mean reward, at most 1; by default 1, or 0.2 with a cascade.
    reward_scale: float | None = None
    #: The number of rounds from one newcomer to the next; by default all users are there from the start.
    newcomers_every: float | None = None
    #: The round at which every user changes to another cluster.
    change_at: int | None = None
    #: The error of a linear model: mean rewards differ from it by up to this, for each user and item.
    misspecified: float = 0.0
    #: The share of users whose rewards are corrupted.
    corrupted: float = 0.0
    #: The number of rounds, from the first, in which they are.
    corrupted_rounds: int = 20_000
    #: The number of items, each with an id; by default items are drawn anew in each round.
    items_fixed: int | None = None
    #: The number of clusters of these items. Users are grouped anew for each of them.
    item_clusters: int | None = None
    #: The length of lists that users read up to the first click; by default one item is shown.
    cascade: int | None = None
    #: The distance below which users of overlapping clusters are.
    overlap: float = 0.0
    #: The standard deviation of noise that is added to items of a plane.
    smoothed: float | None = None
    #: The number of servers, each the home of some users.
    servers: int | None = None

    def __post_init__(self) -> None:
        self._setting  # noqa: B018, it validates the arguments

    @property
    def _setting(self) -> LabSetting:  # type: ignore[override]
        return LabSetting.synthetic(recipe(asdict(self)))


@dataclass(frozen=True)
class Catalogue(Setting):
    """A shop: all items are candidates in every round, and users are seen a few times each.

    >>> import sclub
    >>> world = sclub.lab.Catalogue(items=50, users=30)
    >>> results = sclub.lab.run(world, ["linucb-one", "best-item"], rounds=200, seeds=1, progress=False)
    >>> results[1].distinct_items
    1
    """

    #: The number of items.
    items: int = 3000
    #: The number of categories, each a feature that is 0 or 1.
    categories: int = 6
    #: The number of price bands, each a feature that is 0 or 1.
    price_bands: int = 3
    #: The number of features that are normal numbers.
    numbers: int = 7
    #: The standard deviation of these numbers.
    number_scale: float = 0.4
    #: The number of users.
    users: int = 2000
    #: The number of tastes.
    tastes: int = 6
    #: The standard deviation of a taste's weights.
    taste_scale: float = 0.9
    #: The standard deviation of a user's own weights around the taste's.
    deviation: float = 0.2
    #: The probability of a click from theta.x: "logistic" or "linear".
    link: str = "logistic"
    #: The factor of theta.x in the link: 1 by default, 0.08 if it is linear.
    link_scale: float | None = None
    #: The number added to it: -3.2 by default, 0.3 if it is linear.
    bias: float | None = None
    #: The frequencies of users: "uniform" or "zipf".
    visits: str = "uniform"
    #: The exponent of the power law.
    zipf_exponent: float = 1.0
    #: The number of rounds by which rewards are late.
    delay: int = 0
    #: The number of items shown in a round.
    slots: int = 1
    #: The number of rounds from one newcomer to the next; by default all users are there from the start.
    newcomers_every: float | None = None

    def __post_init__(self) -> None:
        self._setting  # noqa: B018, it validates the arguments

    @property
    def _setting(self) -> LabSetting:  # type: ignore[override]
        return LabSetting.catalogue(shop(asdict(self)))


class Vectors(Setting):
    """Given tastes, a vector for each user; items and everything else are drawn as in `Synthetic`.

    Parameters
    ----------
    weights
        An array of shape (users, d). An item is (x, 1)/sqrt(2) with a random x of length 1, and its mean reward is the product
        with the user's taste. With Bernoulli rewards all means must be between 0 and 1, as those of tastes (u, 1)/sqrt(2)
        with a vector u of length 1 or less are. Or ratings, of which the tastes of the most active users are made (section
        5.2 of the paper): a file in any format that ``sclub features`` reads, or a table with a column of users
        and one of items, such as a DataFrame.
    users, dim
        With ratings: the number of users, and of features of a taste.
    items, frequencies, rewards, noise, users_a_round, reward_scale, newcomers_every, change_at
        As of `Synthetic`; frequencies can be "uniform" or "users".
    user_column, item_column, rating_column
        With ratings: the names of the columns, also of the fields of JSON objects. By default columns that are called user,
        item, rating and the like; in a file without a header the first three.
    like_from
        With ratings: count a rating of this or more as a like, and leave out all others. Without it every row counts.
    rating_values
        With ratings: use ratings, divided by the highest one, as values in place of 1 in the matrix that tastes are made from.
    skip_bad_lines
        With ratings: count and skip bad lines instead of stopping at the first.
    progress
        With ratings: as of `run`; a function is called with the bytes read and the bytes in all.

    Examples
    --------
    >>> import numpy as np, sclub
    >>> tastes = np.array([[0.6, 0.0, 0.7], [0.0, 0.6, 0.7]])
    >>> world = sclub.lab.Vectors(tastes, items=5)
    >>> results = sclub.lab.run(world, ["sclub"], rounds=200, seeds=1, progress=False)
    >>> results[0].served
    200
    >>> sclub.lab.Vectors(2 * tastes)
    Traceback (most recent call last):
    ...
    ValueError: the taste of user 0 gives mean rewards from 0.1414 to 1.8385; the mean of a Bernoulli reward is between 0 and 1: use tastes (u, 1)/sqrt(2) with a vector u of length 1 or less, or Gaussian rewards
    """

    def __init__(
        self,
        weights: ArrayLike | Source,
        *,
        users: int = _USERS,
        dim: int = 20,
        items: int = 20,
        frequencies: str = "uniform",
        rewards: str = "bernoulli",
        noise: float | None = None,
        users_a_round: float | None = None,
        reward_scale: float | None = None,
        newcomers_every: float | None = None,
        change_at: int | None = None,
        user_column: str | None = None,
        item_column: str | None = None,
        rating_column: str | None = None,
        like_from: float | None = None,
        rating_values: bool = False,
        skip_bad_lines: bool = False,
        progress: bool | Progress | None = None,
    ) -> None:
        if frequencies == "clusters":
            raise ValueError("frequencies is 'clusters', and Vectors has no clusters; it must be 'uniform' or 'users'")
        made_from = recipe(
            {
                **{field.name: field.default for field in fields(Synthetic)},
                "users": users,
                "clusters": 1,
                "dim": dim,
                "items": items,
                "frequencies": frequencies,
                "rewards": rewards,
                "noise": noise,
                "users_a_round": users_a_round,
                "reward_scale": reward_scale,
                "newcomers_every": newcomers_every,
                "change_at": change_at,
            }
        )
        reading = Reading(
            user_column, item_column, rating_column, like_from, rating_values, skip_bad_lines
        )
        if isinstance(weights, (str, os.PathLike)) or is_ratings(weights, reading):
            data, self.file = data_of(weights, reading)
            with watching(progress, "B") as watch:
                self._setting, said = LabSetting.vectors_of_data(made_from, data, watch)
            self.like_from = like_from
            _warn(said)
        else:
            array: NDArray[np.float64] = np.ascontiguousarray(weights, dtype=np.float64)
            if array.ndim != 2:
                raise ValueError(f"weights has the shape {array.shape}; (users, d) is expected")
            if not np.isfinite(array).all():
                raise ValueError("weights has a number that is not finite")
            self._setting = LabSetting.vectors(made_from, array)

    def __repr__(self) -> str:
        return f"Vectors({self.file or 'array'!r})"


class Ratings(Setting):
    """Real users, real items, and the items that the users really took.

    Features are made from half of the users, rounds from the other half. A round has an item that the
    user took among others that the user did not take. The reward is 1 if the former is shown. Items have
    ids. No item is offered to a user twice; a user has no more rounds when the others run out.

    Parameters
    ----------
    file
        Pairs of users and items: a file in any format that ``sclub features`` reads, also compressed with gzip or
        zstd; or a table with a column of users and one of items: a DataFrame of pandas or polars, a table of
        pyarrow, a mapping of columns.
    dim
        The number of features of an item.
    items
        The number of items in a round, including the one taken.
    others
        The draw of items that the user did not take: "uniform", or "popular", in proportion to their
        popularity, so that popularity does not tell which item was taken.
    feature_scale
        A factor of all features.
    placebo
        Give policies the user of some other round, so that what they learn about users is useless.
    leaky
        Offer items that a user did not take to the user again, to reproduce older figures. Then an item that was
        offered before is never the one taken, and a policy that remembers items gains by that.
    item_features
        Features of items in place of those made from the feature users: a file of vectors, such as the ``items.csv`` of
        ``sclub features --items``, or a pair of ids and an array with a row for each.
    with_interactions
        With `item_features`: make features from the feature users as well. Items that they took have these, and for other
        items they are predicted from `item_features`.
    cold_items
        The share of items that are cold: features are made as if no feature user took them, and all candidates are
        such items.
    user_column, item_column, rating_column
        The names of the columns, also of the fields of JSON objects. By default columns that are called user,
        item, rating and the like; in a file without a header the first three.
    like_from
        Count a rating of this or more as a like, and leave out all others. Without it every row counts.
    rating_values
        Use ratings, divided by the highest one, as values in place of 1: in the matrix that features are made from, and as
        rewards of the items taken.
    skip_bad_lines
        Count and skip bad lines instead of stopping at the first.
    progress
        As of `run`; a function is called with the bytes read and the bytes in all.

    Examples
    --------
    >>> import numpy as np, sclub
    >>> draws = np.random.default_rng(1)
    >>> table = {"user": draws.integers(100, size=4000), "item": draws.integers(80, size=4000)}
    >>> world = sclub.lab.Ratings(table, dim=4, items=5)
    >>> results = sclub.lab.run(world, ["linucb-one"], rounds=100, seeds=1, progress=False)
    >>> results[0].rounds
    100
    """

    def __init__(
        self,
        file: Source,
        *,
        dim: int = 20,
        items: int = 20,
        others: str = "uniform",
        feature_scale: float = 1.0,
        placebo: bool = False,
        leaky: bool = False,
        item_features: str | os.PathLike[str] | tuple[Iterable[object], ArrayLike] | None = None,
        with_interactions: bool = False,
        cold_items: float = 0.0,
        user_column: str | None = None,
        item_column: str | None = None,
        rating_column: str | None = None,
        like_from: float | None = None,
        rating_values: bool = False,
        skip_bad_lines: bool = False,
        progress: bool | Progress | None = None,
    ) -> None:
        scale = real("feature_scale", feature_scale)
        if scale is None or not 0 < scale <= 1e6:
            raise ValueError(
                f"feature_scale is {feature_scale}; it must be above 0 and at most 1000000"
            )
        cold = real("cold_items", cold_items)
        if cold is None or not 0 <= cold <= 1:
            raise ValueError(f"cold_items is {cold_items}; it must be at least 0 and at most 1")
        if with_interactions and item_features is None:
            raise ValueError("with_interactions needs item_features")
        data, self.file = data_of(
            file,
            Reading(
                user_column, item_column, rating_column, like_from, rating_values, skip_bad_lines
            ),
        )
        shape = whole("dim", dim), whole("items", items)
        content = _content(item_features)
        with watching(progress, "B") as watch:
            self._setting, said = LabSetting.ratings(
                data, watch, *shape, str(others), scale, bool(placebo), bool(leaky),
                content, bool(with_interactions), cold,
            )
        self.like_from = like_from
        _warn(said)

    def __repr__(self) -> str:
        return f"Ratings({self.file or 'table'!r})"


def _content(
    given: str | os.PathLike[str] | tuple[Iterable[object], ArrayLike] | None,
) -> str | tuple[list[str], NDArray[np.float64]] | None:
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    ids, vectors = given
    return [str(name) for name in ids], np.ascontiguousarray(vectors, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Taken:
    """Pairs of users and items: pair k is user ``users[user[k]]`` and item ``items[item[k]]``."""

    #: The names of the users.
    users: list[str]
    #: The names of the items.
    items: list[str]
    #: The user of each pair, by number.
    user: NDArray[np.uint32]
    #: The item of each pair, by number.
    item: NDArray[np.uint32]
    #: The value of each pair: its rating divided by the highest one; None unless ratings are values.
    value: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<Taken: {len(self)} pairs of {len(self.users)} users and {len(self.items)} items>"

    def matrix(self) -> NDArray[np.float64]:
        """1, or the value, where a user took an item, else 0: an array of shape (users, items)."""
        table = np.zeros((len(self.users), len(self.items)))
        table[self.user, self.item] = 1.0 if self.value is None else self.value
        return table


def read_ratings(
    file: Source,
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    rating_column: str | None = None,
    like_from: float | None = None,
    rating_values: bool = False,
    skip_bad_lines: bool = False,
    progress: bool | Progress | None = None,
) -> Taken:
    """Reads pairs of users and items, from a file or a table. The arguments are those of `Ratings`.

    Each pair counts once. Of several ratings of a pair the highest counts.

    >>> import os, tempfile, sclub
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "ratings.csv")
    ...     with open(path, "w") as out:
    ...         _ = out.write("user,item\\nanna,tea\\nbert,tea\\nanna,mate\\n")
    ...     taken = sclub.lab.read_ratings(path)
    >>> taken
    <Taken: 3 pairs of 2 users and 2 items>
    >>> taken.matrix()
    array([[1., 1.],
           [1., 0.]])
    >>> table = {"who": ["anna", "bert", "anna"], "item": ["tea", "tea", "mate"], "stars": [5, 2, 4]}
    >>> sclub.lab.read_ratings(table, user_column="who", like_from=4)
    <Taken: 2 pairs of 1 users and 2 items>
    """
    data, _ = data_of(
        file,
        Reading(user_column, item_column, rating_column, like_from, rating_values, skip_bad_lines),
    )
    with watching(progress, "B") as watch:
        user, item, value, users, items, said = lab_read(data, watch)
    _warn(said)
    return Taken(users, items, user, item, value)


def _warn(said: list[str]) -> None:
    for message in said:
        warnings.warn(message, stacklevel=3)
