"""The requests that wait for a seat. Decides nothing but who is here; the order is the policy's."""

from collections.abc import Iterator

from ramet.runtime.request import Request


class WaitingQueue:
    """By uid, in order of arrival at the queue."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))

    def add(self, request: Request) -> None:
        self._requests[request.uid] = request

    def remove(self, uid: int) -> Request | None:
        return self._requests.pop(uid, None)

    def get(self, uid: int) -> Request | None:
        return self._requests.get(uid)
