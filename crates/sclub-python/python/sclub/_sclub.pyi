"""The compiled part of the package."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self, disjoint_base

from ._types import Assumptions, Cluster, Explanation, Merge, Outlook, Scores, ShownList, Split

__all__ = [
    "Items",
    "LabSetting",
    "LabWorld",
    "LinUcb",
    "Policy",
    "Transform",
    "__version__",
    "_check_users",
    "_policy_of",
    "_restore",
    "_seconds_in_rust",
    "item_id",
    "lab_columns",
    "lab_evaluate",
    "lab_field",
    "lab_field_defaults",
    "lab_paper",
    "lab_paper_defaults",
    "lab_policies",
    "lab_read",
    "lab_run",
    "load",
]

__version__: str

_Path: TypeAlias = str | PathLike[str]
_Users: TypeAlias = Sequence[Hashable] | Iterable[Hashable] | NDArray[Any]
_Ids: TypeAlias = Sequence[Hashable] | Iterable[Hashable] | NDArray[Any]
_Preset: TypeAlias = Literal["tuned", "released", "theory"]
_Index: TypeAlias = Literal["norm", "squared"]

@final
class Items:
    def __new__(cls, features: ArrayLike, ids: _Ids | None = None) -> Items: ...
    @property
    def ids(self) -> list[Hashable] | None: ...
    @property
    def dim(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> NDArray[np.float64]: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    def to_numpy(self) -> NDArray[np.float64]: ...

@disjoint_base
class Policy:
    uses_item_ids: ClassVar[bool]
    def __new__(
        cls,
        dim: int,
        *,
        users: int | Iterable[Hashable] | None = None,
        preset: str | None = None,
        seed: int = 0,
        assumptions: Assumptions | None = None,
        **constants: float | str | bool | Iterable[str] | None,
    ) -> Self: ...
    @property
    def dim(self) -> int: ...
    @property
    def constants(self) -> dict[str, Any] | None: ...
    @property
    def rounds(self) -> int: ...
    @property
    def n_clusters(self) -> int: ...
    @property
    def users(self) -> list[Hashable]: ...
    def recommend(
        self,
        user: Hashable,
        items: ArrayLike | Items,
        *,
        ids: _Ids | None = None,
        draw: int | None = None,
    ) -> int: ...
    def recommend_many(self, users: _Users, items: ArrayLike | Items) -> NDArray[np.int64]: ...
    def best(
        self,
        user: Hashable,
        items: ArrayLike | Items,
        k: int = 10,
        *,
        exclude: Iterable[int] | None = None,
        ids: _Ids | None = None,
    ) -> NDArray[np.int64]: ...
    def recommend_list(
        self,
        user: Hashable,
        items: ArrayLike | Items,
        k: int = 10,
        *,
        exclude: Iterable[int] | None = None,
        ids: _Ids | None = None,
        draw: int | None = None,
    ) -> NDArray[np.int64]: ...
    def scores(
        self,
        user: Hashable,
        items: ArrayLike | Items,
        *,
        ids: _Ids | None = None,
        draw: int | None = None,
    ) -> Scores: ...
    def learn(
        self, user: Hashable, item: ArrayLike, reward: float, *, id: Hashable | None = None
    ) -> None: ...
    def learn_many(
        self, users: _Users, items: ArrayLike, rewards: ArrayLike, *, ids: _Ids | None = None
    ) -> None: ...
    def learn_round(
        self, users: _Users, items: ArrayLike, rewards: ArrayLike, *, ids: _Ids | None = None
    ) -> list[Split | Merge]: ...
    def learn_lists(self, lists: Iterable[ShownList]) -> list[Split | Merge]: ...
    def cluster_of(self, user: Hashable) -> int: ...
    def clusters(self) -> list[Cluster]: ...
    def estimate(self, user: Hashable) -> NDArray[np.float64]: ...
    def explain(self, user: Hashable, items: ArrayLike | Items | None = None) -> Explanation: ...
    def outlook(self) -> Outlook | None: ...
    def forget(self, user: Hashable) -> bool: ...
    def digest(self) -> int: ...
    def save(self, path: _Path) -> None: ...
    @classmethod
    def load(cls, path: _Path) -> Self: ...

class LinUcb(Policy):
    def __new__(
        cls,
        dim: int,
        *,
        shared: bool = False,
        groups: Mapping[Any, Hashable] | None = None,
        preset: _Preset = "tuned",
        beta: float | None = None,
        beta_scale: float | None = None,
        index: _Index | None = None,
        assumptions: Assumptions | None = None,
    ) -> Self: ...

def item_id(id: Hashable) -> int: ...
def load(path: _Path) -> Policy: ...
def _check_users(users: list[Any], argument: str) -> None: ...
def _policy_of(object: object, dim: int) -> Policy: ...
def _restore(
    class_: type[Policy],
    state: bytes,
    users: list[Hashable],
    numbers: tuple[list[int], int, int],
) -> Policy: ...
def _seconds_in_rust(
    policy: Policy, users: list[int], items: ArrayLike, rewards: list[float] | None = None
) -> float: ...

# Features of items.

@final
class Transform:
    @staticmethod
    def fit(
        items: str,
        options: str,
        taken: tuple[list[str], NDArray[np.uint32], NDArray[np.uint32]] | None,
    ) -> tuple[Transform, NDArray[np.float64], str]: ...
    def apply(self, items: str) -> NDArray[np.float64]: ...
    def encode(self) -> bytes: ...
    @staticmethod
    def decode(bytes: bytes) -> Transform: ...
    def feature_names(self) -> list[str]: ...
    def columns(self) -> list[tuple[str, str]]: ...
    @property
    def dim(self) -> int: ...
    @property
    def id_column(self) -> str | None: ...

# The lab.

@final
class LabSetting:
    @staticmethod
    def synthetic(recipe: Mapping[str, object]) -> LabSetting: ...
    @staticmethod
    def catalogue(shop: Mapping[str, object]) -> LabSetting: ...
    @staticmethod
    def vectors(recipe: Mapping[str, object], weights: NDArray[np.float64]) -> LabSetting: ...
    @staticmethod
    def vectors_of_data(
        recipe: Mapping[str, object], data: Mapping[str, object], watch: Callable[[int, int], object]
    ) -> tuple[LabSetting, list[str]]: ...
    @staticmethod
    def ratings(
        data: Mapping[str, object],
        watch: Callable[[int, int], object],
        dim: int,
        items: int,
        others: str,
        feature_scale: float,
        placebo: bool,
        leaky: bool,
        item_features: str | tuple[list[str], NDArray[np.float64]] | None,
        with_interactions: bool,
        cold_items: float,
    ) -> tuple[LabSetting, list[str]]: ...
    def world(self, seed: int) -> LabWorld: ...

@final
class LabWorld:
    @property
    def dim(self) -> int: ...
    @property
    def users(self) -> int: ...
    @property
    def length(self) -> int | None: ...
    @property
    def clusters(self) -> NDArray[np.uint32] | None: ...
    @property
    def noise(self) -> float | None: ...
    def draw(self, round: int) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]: ...
    def ids(self, round: int) -> NDArray[np.uint64] | None: ...
    def __deepcopy__(self, _memo: Any) -> LabWorld: ...

def lab_columns(
    columns: Sequence[str], user: str | None, item: str | None, rating: str | None
) -> tuple[int, int, int | None]: ...
def lab_evaluate(
    log: str,
    policies: Sequence[str],
    options: Mapping[str, object],
    watch: Callable[[int, int], object],
) -> str: ...
def lab_field(
    policies: Sequence[tuple[str, object, str]],
    options: Mapping[str, object],
    watch: Callable[[int, int], object],
) -> tuple[list[tuple[str, str]], tuple[int, int]]: ...
def lab_field_defaults() -> tuple[list[str], list[str], list[tuple[int, int]], int]: ...
def lab_paper(
    policies: Sequence[tuple[str, object, str]],
    options: Mapping[str, object],
    watch_reading: Callable[[int, int], object],
    watch: Callable[[int, int], object],
) -> tuple[tuple[list[tuple[str, bytes]], tuple[int, int]], list[str]]: ...
def lab_paper_defaults() -> tuple[list[str], list[tuple[int, int]]]: ...
def lab_policies() -> list[tuple[str, str, bool]]: ...
def lab_read(data: Mapping[str, object], watch: Callable[[int, int], object]) -> tuple[
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.float64] | None,
    list[str],
    list[str],
    list[str],
]: ...
def lab_run(
    world: LabSetting | Callable[[int], tuple[str, dict[str, object]]],
    policies: Sequence[tuple[str, object]] | None,
    options: Mapping[str, object],
    watch: Callable[[int, int], object],
) -> tuple[list[tuple[str, list[tuple[int, float]], bool, bool]], str]: ...
