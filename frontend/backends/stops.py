"""Where an output ends: services differ in the stop texts that they take, so the text is cut here in any case."""

from collections.abc import Iterable

from ramet.frontend.backends.base import OnText


def first_stop(text: str, stops: Iterable[str]) -> tuple[int, str] | None:
    """Where the first stop text begins, and which it is; the one that is complete first ends an output."""
    found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    return min(found)[1:] if found else None


class UntilStop:
    """A text as it comes, up to the first stop text. `on_text` gets what is certain not to be part of one."""

    def __init__(self, stops: Iterable[str], on_text: OnText | None = None) -> None:
        self.text, self.matched = "", ""
        self._stops, self._on_text, self._num_passed = tuple(stops), on_text, 0

    def add(self, piece: str) -> None:
        if self.matched:
            return
        self.text += piece
        found = first_stop(self.text, self._stops)
        if found is not None:
            self.text, self.matched = self.text[: found[0]], found[1]
        self._tell(len(self.text) if found is not None else len(self.text) - self._num_unsure())

    def end(self) -> None:
        self._tell(len(self.text))

    def _num_unsure(self) -> int:
        """Characters at the end that a stop text may begin with."""
        most = max((len(stop) - 1 for stop in self._stops), default=0)
        for num in range(min(most, len(self.text)), 0, -1):
            if any(len(stop) > num and self.text.endswith(stop[:num]) for stop in self._stops):
                return num
        return 0

    def _tell(self, until: int) -> None:
        if self._on_text is not None and until > self._num_passed:
            self._on_text(self.text[self._num_passed : until])
            self._num_passed = until
