"""The tables of `world` as relations: items, their answers, and the wordings that tell and ask them.

Decides which columns become a relation, how often each comes up, and the words that its wordings may use. Knows no
document and no split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.demo_model.corpus import world
from scripts.demo_model.corpus.grammar import capitalized, with_article


@dataclass(frozen=True)
class Wording:
    """What is given and how it goes on; for a question `produced` is empty."""

    given: str
    produced: str


@dataclass(frozen=True)
class Fact:
    """One item of a relation with the words that its wordings need; `fields["a"]` is the short answer."""

    item: str
    fields: dict[str, str]

    @property
    def answer(self) -> str:
        return self.fields["a"]


@dataclass(frozen=True)
class Relation:
    """A table of facts and its wordings: indices of sentences, questions and sentences that follow another one."""

    name: str
    group: str
    weight: float
    facts: dict[str, Fact]
    items: tuple[str, ...]
    answers: tuple[str, ...]
    wordings: tuple[Wording, ...]
    sentences: tuple[int, ...]
    questions: tuple[int, ...]
    follows: tuple[int, ...]


def _rows(table: str) -> list[list[str]]:
    return [line.split("|") for line in table.strip().split("\n")]


def _pairs(table: str) -> list[list[str]]:
    return [pair.split() for pair in table.replace("\n", " ").split(",")]


def _fact(item: str, subject: str, answer: str, **more: str) -> Fact:
    fields = {"n": item, "x": subject, "X": capitalized(subject), "a": answer, "A": capitalized(answer)}
    return Fact(item, fields | {"aa": with_article(answer)} | more)


def _wordings(table: str) -> tuple[tuple[Wording, ...], dict[str, tuple[int, ...]]]:
    wordings: list[Wording] = []
    places: dict[str, list[int]] = {"sentences": [], "questions": [], "follows": []}
    for index, line in enumerate(table.strip().split("\n")):
        given, bar, produced = line.removeprefix("+ ").partition("|")
        kind = "follows" if line.startswith("+ ") else "sentences" if bar else "questions"
        places[kind].append(index)
        wordings.append(Wording(given, produced))
    return tuple(wordings), {kind: tuple(found) for kind, found in places.items()}


def _relation(name: str, weight: float, facts: Iterator[Fact] | Sequence[Fact], group: str | None = None) -> Relation:
    by_item = {fact.item: fact for fact in facts}
    answers = dict.fromkeys(fact.answer for fact in by_item.values())
    answers |= dict.fromkeys(world.DECOYS.get(name, ()))
    wordings, places = _wordings(world.WORDINGS[name])
    return Relation(name, group or name, weight, by_item, tuple(by_item), tuple(answers), wordings, **places)


def _country_relations() -> Iterator[Relation]:
    rows = [(name.removeprefix("the "), *row) for row in _rows(world.COUNTRIES) for name in row[:1]]
    columns = {"capital": (2, 27), "currency": (3, 9), "language": (4, 8), "continent": (5, 10)}
    for name, (place, weight) in columns.items():
        facts = [_fact(row[0], row[1], row[place]) for row in rows if row[place] != "-"]
        yield _relation(name, weight, facts, "country")
    yield _relation("country of capital", 8, [_fact(row[2], row[2], row[1]) for row in rows])
    currencies = [row[3] for row in rows]
    alone = [row for row in rows if row[3] != "-" and currencies.count(row[3]) == 1]
    yield _relation("country of currency", 3, [_fact(row[3], row[3], row[1]) for row in alone])


def _element_relations() -> Iterator[Relation]:
    rows = _rows(world.ELEMENTS)
    for place, name in ((1, "symbol"), (2, "atomic number"), (3, "state")):
        yield _relation(name, 2 if place < 3 else 1, [_fact(row[0], row[0], row[place]) for row in rows], "element")
    yield _relation("element of symbol", 1.5, [_fact(row[1], row[1], row[0]) for row in rows])
    yield _relation("element of number", 1, [_fact(row[2], row[2], row[0]) for row in rows])


def _neighbours(names: Sequence[str], steps: int = 1, closed: bool = True, **words: tuple[str, str]) -> Iterator[Fact]:
    """After and before each name; a closed row begins again at its end. `words` are said for after and for before."""
    for place, name in enumerate(names):
        for side, (step, word) in enumerate(((steps, "after"), (-steps, "before"))):
            if closed or 0 <= place + step < len(names):
                more = {field: pair[side] for field, pair in words.items()}
                yield _fact(f"{word} {name}", name, names[(place + step) % len(names)], p=word, **more)


def _planet_relations() -> Iterator[Relation]:
    rows = _rows(world.PLANETS)
    names = [row[0] for row in rows]
    order = list(zip(names, world.ORDINALS, strict=False))
    yield _relation("planet order", 1, [_fact(name, name, place) for name, place in order], "planet")
    yield _relation("planet kind", 0.6, [_fact(name, name, kind) for name, kind in rows], "planet")
    yield _relation("planet at place", 1, [_fact(place, place, name) for name, place in order])
    yield _relation("planet neighbour", 1, _neighbours(names, closed=False))
    yield _relation("planet clue", 1, [_fact(clue, clue, name) for clue, name in _rows(world.PLANET_CLUES)])


def _calendar_relations() -> Iterator[Relation]:
    rows = _rows(world.MONTHS)
    months = [row[0] for row in rows]
    order = list(zip(months, world.ORDINALS, strict=True))
    leap = {"February": ", and 29 in a leap year"}
    yield _relation("month order", 1, [_fact(name, name, place) for name, place in order], "month")
    days = [_fact(name, name, count, leap=leap.get(name, "")) for name, count in rows]
    yield _relation("month days", 1.2, days, "month")
    yield _relation("month at place", 1, [_fact(place, place, name) for name, place in order])
    yield _relation("month neighbour", 1, _neighbours(months))
    near = _neighbours(world.WEEKDAYS, q=("tomorrow", "yesterday"))
    yield _relation("weekday neighbour", 1.2, near)
    further = _neighbours(world.WEEKDAYS, steps=2, q=("after tomorrow", "before yesterday"), r=("later", "earlier"))
    yield _relation("weekday two days", 1, further)


def _unit_relations() -> Iterator[Relation]:
    one, several = [], []
    for name, plural, small, count in _rows(world.UNITS):
        article = "an hour" if name == "hour" else "a euro" if name == "euro" else with_article(name)
        more = {"s": small, "b": article, "B": capitalized(article)}
        one.append(_fact(f"{small} in {name}", name, count, **more))
        # "2 dozens" and long products are not what anybody says or reckons in the head
        for times in range(2, 10) if name != "dozen" and int(count) <= 1000 else ():
            product = str(times * int(count))
            several.append(_fact(f"{small} in {times} {plural}", plural, product, s=small, c=str(times)))
    yield _relation("unit", 2.5, one)
    yield _relation("units", 1.5, several)


def _animal_relations() -> Iterator[Relation]:
    columns = {"animal class": (2, 1.5), "legs": (3, 1), "sound": (4, 1), "young": (5, 1), "home": (6, 0.7)}
    rows = _rows(world.ANIMALS)
    for name, (place, weight) in columns.items():
        facts = []
        for row in rows:
            if row[place] != "-":
                classes = row[2] if row[2] == "fish" else f"{row[2]}s"
                more = {"p": row[1], "P": capitalized(row[1]), "as": classes}
                facts.append(_fact(row[0], with_article(row[0]), row[place], **more))
        yield _relation(name, weight, facts, "animal")


def _word_relations() -> Iterator[Relation]:
    things = [line.split(": ") for line in world.COLOURS.strip().split("\n")]
    colours = [_fact(thing, thing, colour) for colour, names in things for thing in names.split(", ")]
    yield _relation("colour", 1.5, colours)
    mixtures = []
    for both, mixture in _rows(world.MIXTURES):
        turned = " and ".join(reversed(both.split(" and ")))
        mixtures += [_fact(both, both, mixture), _fact(turned, turned, mixture)]
    yield _relation("mixture", 0.6, mixtures)
    opposites = [pair for word, other in _pairs(world.OPPOSITES) for pair in ((word, other), (other, word))]
    yield _relation("opposite", 3, [_fact(word, word, other) for word, other in opposites])
    yield _relation("plural", 1.5, [_fact(word, word, many) for word, many in _pairs(world.PLURALS)])
    yield _relation("past tense", 1.5, [_fact(verb, verb, past) for verb, past in _pairs(world.PAST_TENSES)])
    yield _relation("number word", 1.5, [_fact(str(n), str(n), number_words(n)) for n in range(100)])
    yield _relation("letter neighbour", 1, _neighbours("ABCDEFGHIJKLMNOPQRSTUVWXYZ", closed=False))


def number_words(number: int) -> str:
    """0 to 99 in words."""
    if number < 20:
        return world.NUMBER_WORDS[number]
    tens, ones = divmod(number, 10)
    return world.TENS_WORDS[tens - 2] + (f"-{world.NUMBER_WORDS[ones]}" if ones else "")


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for build in (
        _country_relations,
        _element_relations,
        _planet_relations,
        _calendar_relations,
        _unit_relations,
        _animal_relations,
        _word_relations,
    )
    for relation in build()
}
