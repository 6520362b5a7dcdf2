"""Objects that cannot be copied: a copy would be a second owner of an engine, a thread or a run."""

from typing import ClassVar, NoReturn


class NotCopied:
    """Refuses copy.copy, copy.deepcopy and pickle. `only_one` says why, and what to do."""

    only_one: ClassVar[str]

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: {self.only_one}")
