"""The methods of `Client` for operators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Literal, TypeVar

from ._client_attempts import Call
from ._client_base import Base, whole_file
from ._client_downloads import Card, Event, Events, Lines, to_frame
from ._client_operator_calls import LONG

T = TypeVar("T")


class Operator(Base):
    """The methods for operators: what the server knows, experiments, spaces, exports and backups."""

    def _run(self, call: Call[T]) -> T:
        raise NotImplementedError

    def _download(self, path: str, timeout: float | None) -> Generator[bytes, None, None]:
        raise NotImplementedError

    def state(self, *, hash: bool = False) -> Card:
        """The state of the server: rounds, rewards, users, clusters, quality of the clustering.

        With `hash` True there is also `"hash"`, a hash of everything learned. It is slow with many
        users.
        """
        return self._run(self._calls.state(hash))

    def clusters(self, *, limit: int | None = 100) -> list[Card]:
        """The largest clusters, or with `limit` None all."""
        return self._run(self._calls.clusters(limit))

    def cluster(self, id: int, *, items: int = 10, members: int = 20) -> Card:
        """A cluster, with some of its best items and some of its members."""
        return self._run(self._calls.cluster(id, items, members))

    def history(self, *, limit: int | None = 100) -> list[Card]:
        """The latest splits and merges, newest first; with `limit` None all that are kept."""
        return self._run(self._calls.history(limit))

    def timeline(self, range: Literal["10m", "24h", "60d"] = "10m") -> Card:
        """Requests, rewards and latencies over time.

        `range` is ``"10m"`` by the second, ``"24h"`` by the minute, or ``"60d"`` by the hour. ``"steps"`` has the
        figures, oldest first.
        """
        return self._run(self._calls.timeline(range))

    def stream(self, *, timeout: float | None = None) -> Generator[Event, None, None]:
        """Yields the changes of clusters as they happen (``"change"``), and a summary each second (``"state"``).

        ``"missed"`` is the number of changes that came too fast. The stream ends when the server stops. A connection
        that breaks, or that is silent for `timeout` seconds, raises `ConnectionFailed`: begin again, and look at
        `history` for what was missed.

        Example::

            for event, data in client.stream():
                if event == "state":
                    print(data["rewards_per_second"])
        """
        events = Events()
        with contextlib.closing(self._download("/v1/stream", timeout)) as parts:
            for part in parts:
                yield from events.feed(part)

    def metrics(self) -> str:
        """Metrics in the text format of Prometheus."""
        return self._run(self._calls.metrics())

    def nodes(self, *, hash: bool = False) -> Card:
        """The nodes of a cluster, and the owner of each partition; with `hash` also hashes of their states."""
        return self._run(self._calls.nodes(hash))

    def experiments(self) -> Card:
        """The experiment under way (``"running"``) and those that have ended (``"past"``), with their results."""
        return self._run(self._calls.experiments())

    def start_experiment(
        self,
        name: str,
        arms: Iterable[Mapping[str, Any]],
        *,
        shadows: Iterable[Mapping[str, Any]] = (),
    ) -> Card:
        """Starts an experiment: each arm serves its share of the users.

        Parameters
        ----------
        name
            A name that no experiment had before.
        arms
            The arms that are shown, the control first. Their shares sum to 100.
        shadows
            Arms that learn and are never shown.

        It is not sent again if the answer is lost: look at `experiments` then.

        Example::

            client.start_experiment("soft-against-one", [
                {"name": "control", "policy": "sclub-soft", "share": 50},
                {"name": "test", "policy": "linucb-one", "share": 50},
            ])
        """
        return self._run(self._calls.start_experiment(name, arms, shadows))

    def end_experiment(self, name: str, winner: str) -> Card:
        """Ends the experiment under way. The policy of the winner is in force from now on."""
        return self._run(self._calls.end_experiment(name, winner))

    def spaces(self) -> list[Card]:
        """The spaces that the key opens."""
        return self._run(self._calls.spaces())

    def describe_space(self, name: str) -> Card:
        """A space: its status, policy, settings and numbers."""
        return self._run(self._calls.describe_space(name))

    def make_space(self, name: str, settings: Mapping[str, Any] | None = None) -> Card:
        """Makes a space, with settings by their names as flags of ``sclub serve``.

        One that exists with the same settings is left as it is.

        Example::

            client.make_space("news", {"dim": 16, "policy": "sclub-soft"})
            news = sclub.Client(client.url, space="news")
        """
        return self._run(self._calls.make_space(name, settings or {}))

    def delete_space(self, name: str) -> None:
        """Deletes a space with everything that it has learned."""
        self._run(self._calls.delete_space(name))

    def export(self, *, timeout: float = LONG) -> Generator[Card, None, None]:
        """Yields every item that was shown and has a reward, then those that have none.

        Lines are not kept in memory. An interrupted download raises `ConnectionFailed`. If nodes of a
        cluster are not running, their part is missing, and a `RuntimeWarning` names them.

        Example::

            rewards = [line["reward"] for line in client.export() if line["reward"] is not None]
        """
        lines = Lines()
        with contextlib.closing(self._download("/v1/admin/export", timeout)) as parts:
            for part in parts:
                yield from lines.feed(part)
        lines.end(self.url)

    def export_frame(self, *, timeout: float = LONG) -> Any:
        """The export as a pandas DataFrame. A missing reward or propensity is NaN, a missing position NA."""
        return to_frame(list(self.export(timeout=timeout)))

    def backup(self, path: str | os.PathLike[str], *, timeout: float = LONG) -> int:
        """Writes a backup of the server's data folder to a file, for ``sclub restore``.

        An existing file is replaced, and only by a complete one. Returns the size in bytes.
        """
        with whole_file(path) as file:
            with contextlib.closing(self._download("/v1/admin/backup", timeout)) as parts:
                return sum(file.write(part) for part in parts)

    def expect(self, users: int) -> int:
        """Sets the number of users that exist before the first round.

        Optional: without it users exist once they appear.
        """
        return self._run(self._calls.expect(users))

    def compact(self, *, timeout: float = LONG) -> Card:
        """Removes forgotten users from the server's data folder."""
        return self._run(self._calls.compact(timeout))

    def snapshot(self, *, timeout: float = LONG) -> int | dict[str, int]:
        """Takes a snapshot, which makes the server's next start fast.

        Returns its last event; in a cluster, that of each partition.
        """
        return self._run(self._calls.snapshot(timeout))

    def ready(self) -> bool:
        """True if the server answers calls now. Tries once."""
        return self._run(self._calls.ready())

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Returns once the server answers calls.

        After `timeout` seconds it raises the last error: `ConnectionFailed` or `Unavailable`.
        """
        self._run(self._calls.wait_until_ready(timeout))
