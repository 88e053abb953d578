"""Policies and worlds that are written in Python, as the lab takes them."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._lab_checks import real
from ._policies import policy_classes
from ._sclub import Items as ItemsWithIds
from ._sclub import LabWorld, LinUcb
from ._sclub import Policy as OwnPolicy

#: The candidates of a round, one row an item; read-only.
Items = NDArray[np.float64]
#: The features of one item; read-only.
Item = NDArray[np.float64]

#: The classes of policies of this package.
OWN: tuple[type, ...] = (*policy_classes.values(), LinUcb)

#: Makes a policy from features, users, items, rounds, its seed, the world's, items shown at once, and what is known.
PolicyMaker = Callable[[int, int, int, int, int, int, int, Sequence[tuple[str, float]]], object]


@dataclass(frozen=True)
class About:
    """The size of the world that a policy will play in."""

    #: The number of features of an item.
    dim: int
    #: The number of users; users are numbered from 0.
    users: int
    #: The number of items in a round.
    items: int
    #: The number of rounds that will be played.
    rounds: int
    #: The seed of the policy's own draws, below 2**32: a number of its own for each seed of the world and each name of a
    #: policy, so that ``default_rng(about.seed)`` draws neither what the world draws nor what another policy does.
    seed: int
    #: The number of items that are shown at once; if it is not 1, ``recommend_list`` is called.
    slots: int = 1
    #: What papers take as known, and the world tells built-in policies as constants of these names: ``components``, the number
    #: of clusters; ``error``, of linear rewards; ``noise``, of Gaussian rewards; ``servers``, their number.
    known: Mapping[str, float] = field(default_factory=dict, compare=False)
    #: The seed of the world, for policies that know it: ``world.world(about.world_seed)``. Draws that begin from it may be the
    #: world's own.
    world_seed: int = 0


@runtime_checkable
class Policy(Protocol):
    """The methods that a policy for the lab must have. It need not be a subclass.

    Optional members:

    - ``cluster_of(user)`` returns anything hashable. Clusters are counted and compared with the true ones
      at the end.
    - ``learn_round(users, items, rewards)`` learns all users of a round at once, in worlds in which several
      appear in one. Without it ``learn`` is called for each.
    - ``recommend_list(user, items, k)`` returns the positions of `k` different items, in worlds that show several at once.
      Without it the policy cannot play there.
    - ``learn_lists(lists)`` learns such lists, each a `sclub.ShownList`. Without it ``learn_round`` or ``learn`` gets the items that
      the user looked at.
    - ``uses_item_ids = True`` makes the lab pass item ids: ``recommend(user, items, ids=ids)``,
      ``recommend_list(user, items, k, ids=ids)``, ``learn(user, item, reward, id=id)`` and
      ``learn_round(users, items, rewards, ids=ids)``. Ids are
      numbers (`sclub.item_id`), `ids` is an array of uint64. Both are None in worlds without ids.
    """

    def recommend(self, user: int, items: Items, /) -> int:
        """The position of the item to show."""

    def learn(self, user: int, item: Item, reward: float, /) -> object:
        """Learns the reward of the item that was shown."""


@runtime_checkable
class World(Protocol):
    """The members that a world for the lab must have. It need not be a subclass.

    Optional attributes:

    - ``noise``: the standard deviation of Gaussian noise. Without it rewards are 1 with the probability of
      the mean, else 0.
    - ``clusters``: the true cluster of each user.
    - ``length``: the number of rounds, if they end.

    >>> import numpy as np, sclub
    >>> class TwoItems:
    ...     dim, users = 2, 10
    ...     def __init__(self, seed):
    ...         self.draws = np.random.default_rng(seed)
    ...     def draw(self, round):
    ...         user = self.draws.integers(self.users)
    ...         best = user % 2
    ...         return user, np.eye(2), np.where(np.arange(2) == best, 0.8, 0.3)
    >>> results = sclub.lab.run(TwoItems, ["linucb-ind", "linucb-one"], rounds=1000, progress=False)
    >>> table = {run.policy: run.regret for run in results}
    >>> table["linucb-ind"] < table["linucb-one"]
    True
    """

    @property
    def dim(self) -> int:
        """The number of features of an item."""

    @property
    def users(self) -> int:
        """The number of users; users are numbered from 0."""

    def draw(self, round: int, /) -> tuple[Any, ...]:
        """A round: ``(user, items, means)``, or ``(user, items, means, rewards)``.

        `items` has one row an item, the same number in every round. It is an array, or a `sclub.Items`
        whose ids policies get. `means` is the mean reward of each item: regret is counted by it. `rewards`
        is the reward of each item in this round, for worlds that draw rewards themselves.

        Rounds are drawn in order, each once, from 0 on.
        """


#: The constants of the policies of this package in a run, by label. Those that a function makes are known when it has.
Constants = dict[str, dict[str, object]]


def policy_list(
    policies: Mapping[str, object] | Iterable[object], constants: Constants
) -> list[tuple[str, object]]:
    """Labels, each with the name of a built-in policy or a function that makes a policy for a world.

    `constants` gets those of policies of this package that are given as objects, classes or functions.
    """
    return [(label, _checked(label, spec, constants)) for label, spec in _labelled(policies)]


def named_constants(
    policies: list[tuple[str, object]], constants: Mapping[str, dict[str, object]]
) -> Constants:
    """The constants of built-in policies with other labels than their names."""
    return {
        label: {"policy": spec, **constants.get(spec, {})}
        for label, spec in policies
        if isinstance(spec, str) and spec != label
    }


def column_list(policies: Mapping[str, object] | Iterable[object]) -> list[tuple[str, object, str]]:
    """As `policy_list`, each with a line about the policy."""
    return [(label, _checked(label, spec, {}), _line(spec)) for label, spec in _labelled(policies)]


def _line(spec: object) -> str:
    """The first line of the documentation of a policy."""
    while isinstance(spec, functools.partial):
        spec = spec.func
    makes = _makes(spec, "recommend")
    text = (spec if makes else type(spec)).__doc__ or ""
    line = text.strip().split("\n", 1)[0].strip().rstrip(".")
    return line or "A policy written in Python"


def _labelled(policies: Mapping[str, object] | Iterable[object]) -> list[tuple[str, object]]:
    if isinstance(policies, str):
        policies = [policies]
    if isinstance(policies, bytes) or not isinstance(policies, Iterable):
        kind = type(policies).__name__
        said = f"the class {policies.__name__}" if isinstance(policies, type) else kind
        raise TypeError(f"policies: a list or a mapping is expected, not {said}")
    if isinstance(policies, Mapping):
        named = [(str(label), spec) for label, spec in policies.items()]
    else:
        named = [(_label(spec), spec) for spec in policies]
    labels = [label for label, _ in named]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(
                f"policy '{label}' is named twice; give them other names with a mapping, "
                f"policies={{'{label}': ..., 'another': ...}}"
            )
    return named


def _label(spec: object) -> str:
    if isinstance(spec, str):
        return spec
    name = getattr(spec, "name", None)
    if isinstance(name, str):
        return name
    if isinstance(spec, functools.partial):
        return _label(spec.func)
    name = getattr(spec, "__name__", None)
    return name if isinstance(name, str) else type(spec).__name__


def _checked(label: str, spec: object, constants: Constants) -> object:
    if isinstance(spec, str):
        return spec
    if _makes(spec, "recommend"):
        return _policy_maker(label, spec, constants)
    for method in ("recommend", "learn"):
        if not callable(getattr(spec, method, None)):
            raise TypeError(
                f"policy '{label}' is neither a name, nor an object with recommend(user, items) and "
                f"learn(user, item, reward), nor a class or function that makes one: it has no {method}"
            )

    if isinstance(spec, OwnPolicy):
        constants[label] = _constants_of(label, spec)
        if not _is_new(spec):
            constants[label]["state"] = f"{spec.digest():016x}"

    def copied(dim: int, *_: object) -> object:
        return _of_dim(dim, label, copy.deepcopy(spec))

    return copied


def _constants_of(label: str, policy: OwnPolicy) -> dict[str, object]:
    """The constants of a policy of this package, and its name if that is not the label."""
    name = getattr(policy, "policy_name", type(policy).__name__)
    constants = policy.constants or {}
    # The configuration of a run has those of built-in policies without the preset.
    if constants.get("preset") in ("default", "tuned"):
        del constants["preset"]
    return {**({} if name == label else {"policy": name}), **constants}


def _is_new(policy: OwnPolicy) -> bool:
    """True if a policy of this package has not learned, and was made from its constants alone."""
    try:
        return bool(type(policy)(policy.dim, **(policy.constants or {})).digest() == policy.digest())
    except (TypeError, ValueError):
        return False


def _makes(spec: object, method: str) -> bool:
    """True for a class or function that makes the object, False for the object itself."""
    return isinstance(spec, type) or (callable(spec) and not hasattr(spec, method))


def _of_dim(dim: int, label: str, policy: Any) -> object:
    """Checks the dim of a policy of this package. Other policies may use the name for anything."""
    if type(policy) in OWN and policy.dim != dim:
        raise ValueError(f"policy '{label}' has dim {policy.dim}, and the world has {dim}")
    return policy


# Held while the constants of a policy are noted: policies are made in several threads.
_noting = threading.Lock()


def _policy_maker(label: str, make: Any, constants: Constants) -> PolicyMaker:
    def made(
        dim: int,
        users: int,
        items: int,
        rounds: int,
        seed: int,
        world_seed: int,
        slots: int,
        known: Sequence[tuple[str, float]],
    ) -> object:
        about = About(
            dim=dim,
            users=users,
            items=items,
            rounds=rounds,
            seed=seed,
            slots=slots,
            known=dict(known),
            world_seed=world_seed,
        )
        policy = make(dim=dim) if make in OWN else make(about)
        if isinstance(policy, OwnPolicy):
            found = _constants_of(label, policy)
            # A function may choose other constants for each seed. The others are known, whichever thread is first.
            with _noting:
                before = constants.get(label, found)
                constants[label] = {key: of for key, of in found.items() if before.get(key) == of}
        return _of_dim(dim, label, policy)

    return made


def world_maker(world: Any) -> Callable[[int], tuple[str, dict[str, object]]]:
    """A function that makes the world of a seed, with its attributes read and validated."""
    if not (_makes(world, "draw") or callable(getattr(world, "draw", None))):
        raise TypeError(
            f"world is {world!r}; 'synthetic', a world of sclub.lab, an object with dim, users and "
            "draw(round), or a class or function that makes one from a seed is expected"
        )
    make = world if _makes(world, "draw") else lambda _: copy.deepcopy(world)
    name = _label(world)

    def made(seed: int) -> tuple[str, dict[str, object]]:
        return name, _attributes(make(seed))

    return made


def _attributes(world: Any) -> dict[str, object]:
    if not callable(getattr(world, "draw", None)):
        raise TypeError(f"the world {world!r} has no method draw(round)")
    users = _count(world, "users")
    assert users is not None
    rewards, noise = getattr(world, "rewards", None), getattr(world, "noise", None)
    if rewards not in (None, "bernoulli", "gaussian"):
        raise ValueError(
            f"rewards of the world is {rewards!r}; it must be 'bernoulli' or 'gaussian'"
        )
    if rewards == "bernoulli" and noise is not None:
        raise ValueError(
            f"noise of the world is {noise!r}, and rewards is 'bernoulli'; noise needs rewards 'gaussian'"
        )
    if rewards == "gaussian" and noise is None:
        noise = 0.5
    noise = real("noise of the world", noise)
    if noise is not None and not 0 < noise <= 1e6:
        raise ValueError(f"noise of the world is {noise}; it must be above 0 and at most 1000000")
    return {
        "draw": _draw_with_ids(world) if isinstance(world, LabWorld) else world.draw,
        "dim": _count(world, "dim"),
        "users": users,
        "noise": noise,
        "clusters": _clusters(getattr(world, "clusters", None), users),
        "length": _count(world, "length", is_needed=False),
    }


def _draw_with_ids(world: LabWorld) -> Callable[[int], tuple[Any, ...]]:
    """The rounds of a world of the lab, with the ids of its items."""

    def draw(round: int) -> tuple[Any, ...]:
        user, items, means = world.draw(round)
        return user, ItemsWithIds(items, world.ids(round)), means

    return draw


def _count(world: object, name: str, *, is_needed: bool = True) -> int | None:
    value = getattr(world, name, None)
    if value is None:
        if is_needed:
            raise TypeError(f"the world {world!r} has no attribute {name}")
        return None
    try:
        number = int(value.__index__())
    except AttributeError:
        raise TypeError(f"{name} of the world is {value!r}; a whole number is expected") from None
    if not 1 <= number < 2**63:
        raise ValueError(f"{name} of the world is {number}; it must be at least 1")
    return number


def _clusters(clusters: ArrayLike | None, users: int) -> list[int] | None:
    """The clusters counted from 0."""
    if clusters is None:
        return None
    labels: list[Hashable] = np.asarray(clusters).tolist()
    if np.ndim(clusters) != 1 or len(labels) != users:
        shape = np.shape(clusters)
        raise ValueError(f"clusters of the world has the shape {shape}; ({users},) is expected")
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]
