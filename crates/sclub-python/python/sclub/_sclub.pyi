from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The lab.

class LabSetting:
    @staticmethod
    def synthetic(recipe: Mapping[str, object]) -> LabSetting: ...
    @staticmethod
    def vectors(recipe: Mapping[str, object], weights: NDArray[np.float64]) -> LabSetting: ...
    @staticmethod
    def vectors_of_file(
        recipe: Mapping[str, object], path: Path, skip_bad_lines: bool
    ) -> tuple[LabSetting, list[str]]: ...
    @staticmethod
    def ratings(
        path: Path,
        dim: int,
        items: int,
        others: str,
        feature_scale: float,
        placebo: bool,
        skip_bad_lines: bool,
        graph_users: int,
    ) -> tuple[LabSetting, list[str]]: ...
    def world(self, seed: int) -> LabWorld: ...

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

def lab_run(
    world: LabSetting | Callable[[int], tuple[str, dict[str, object]]],
    policies: Sequence[tuple[str, object]] | None,
    options: Mapping[str, object],
    watch: Callable[[int, int], object],
) -> tuple[list[tuple[str, list[tuple[int, float]], bool, bool]], str]: ...

# Until the rest is written down.
def __getattr__(name: str) -> Any: ...
