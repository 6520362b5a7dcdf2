"""Earley's recogniser over characters. It knows productions, not the notation that they were written in.

The chart of a text is also the check of a prefix: where every rule derives some text, a text whose last set is not
empty goes on to a sentence.
"""

from collections.abc import Callable, Mapping, Sequence

Terminal = Callable[[str], bool]  # of one character
Symbol = str | Terminal  # the name of a rule, or a character
Rules = Mapping[str, Sequence[Sequence[Symbol]]]  # a rule's name -> its alternatives
Item = tuple[str, int, int, int]  # rule, alternative, symbols that are done, where it began


class Earley:
    def __init__(self, rules: Rules, start: str) -> None:
        self._rules, self._start = rules, start
        self._empty = _nullable(rules)

    def accepts(self, text: str) -> bool:
        last = self._last_set(text)
        return any(self._done(item) and item[0] == self._start and item[3] == 0 for item in last)

    def begins(self, text: str) -> bool:
        """Some sentence begins with `text`, where every rule derives a text."""
        return bool(self._last_set(text))

    def _last_set(self, text: str) -> set[Item]:
        first = {(self._start, option, 0, 0) for option in range(len(self._rules[self._start]))}
        chart = [self._closed(first, [], 0)]
        for at, character in enumerate(text):
            moved = {
                (rule, option, dot + 1, origin)
                for rule, option, dot, origin in chart[at]
                if (symbol := self._next((rule, option, dot, origin))) is not None
                and not isinstance(symbol, str)
                and symbol(character)
            }
            chart.append(self._closed(moved, chart, at + 1))
        return chart[-1]

    def _closed(self, items: set[Item], chart: list[set[Item]], at: int) -> set[Item]:
        """`items` with all that they predict and complete. `chart`: the sets before place `at`."""
        waiting, found = list(items), set(items)
        while waiting:
            item = waiting.pop()
            for more in self._completed(item, chart, found, at) if self._done(item) else self._predicted(item, at):
                if more not in found:
                    found.add(more)
                    waiting.append(more)
        return found

    def _predicted(self, item: Item, at: int) -> list[Item]:
        symbol = self._next(item)
        if not isinstance(symbol, str):
            return []
        rule, option, dot, origin = item
        # a rule that derives the empty text may also be passed at once (Aycock and Horspool)
        passed = [(rule, option, dot + 1, origin)] if symbol in self._empty else []
        return [(symbol, number, 0, at) for number in range(len(self._rules[symbol]))] + passed

    def _completed(self, item: Item, chart: list[set[Item]], found: set[Item], at: int) -> list[Item]:
        origin = item[3]
        parents = list(found) if origin == at else chart[origin]
        return [
            (rule, option, dot + 1, start)
            for rule, option, dot, start in parents
            if self._next((rule, option, dot, start)) == item[0]
        ]

    def _next(self, item: Item) -> Symbol | None:
        rule, option, dot, _ = item
        symbols = self._rules[rule][option]
        return symbols[dot] if dot < len(symbols) else None

    def _done(self, item: Item) -> bool:
        return item[2] == len(self._rules[item[0]][item[1]])


def _nullable(rules: Rules) -> set[str]:
    empty: set[str] = set()
    while True:
        more = {
            name
            for name, options in rules.items()
            if name not in empty and any(all(isinstance(s, str) and s in empty for s in option) for option in options)
        }
        if not more:
            return empty
        empty |= more
