"""Facts about the world: one in many wordings, some in a row, a paragraph about one subject, a table.

Decides which fact is told in which wording; the tables are in `world`. A combination is (relation, item, wording): a
held-out one is never in training in any layout, while the fact itself is, in other wordings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.demo_model.corpus import world
from scripts.demo_model.corpus.draw import Document, Draw, Question

KIND = "fact"
ROW_MARKS = (":", " -", " =")
# The short answer, or the whole sentence, after each layout of a question.
SHORT_LAYOUTS = ("Question: {}\nAnswer:", "Q: {}\nA:")
NUM_PLAIN = 4  # the first sentences of every relation are plain enough to answer any of its questions
SENTENCE_LAYOUT = "Question: {}\nAnswer in a full sentence:"


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


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def with_article(noun: str) -> str:
    """A noun after a or an; right for the nouns of the tables, of which none has a silent or consonant-like vowel."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def training_side(draw: Draw) -> Draw:
    """The same random source, but combinations of the training side: for what only stands around the one asked."""
    if not draw.held_out:
        return draw
    seen = Draw(0)
    seen.random = draw.random
    return seen


def _rows(table: str) -> list[list[str]]:
    return [line.split("|") for line in table.strip().split("\n")]


def _pairs(table: str) -> list[list[str]]:
    return [pair.split() for pair in table.replace("\n", " ").split(",")]


def _fact(item: str, subject: str, answer: str, **more: str) -> Fact:
    fields = {"n": item, "x": subject, "X": capitalised(subject), "a": answer, "A": capitalised(answer)}
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
        more = {"s": small, "b": article, "B": capitalised(article)}
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
                more = {"p": row[1], "P": capitalised(row[1]), "as": classes}
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


def _tickets(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """Each relation as often as its weight says, so that one even choice is a weighted one."""
    return tuple(relation for relation in relations for _ in range(round(relation.weight * 10)))


TICKETS = _tickets(tuple(RELATIONS.values()))
TABLE_TICKETS = _tickets([RELATIONS[name] for name in world.TITLES])


def _told_together() -> dict[str, tuple[Relation, ...]]:
    groups: dict[str, list[Relation]] = {}
    for relation in RELATIONS.values():
        if relation.follows:
            groups.setdefault(relation.group, []).append(relation)
    return {group: tuple(relations) for group, relations in groups.items()}


GROUPS = _told_together()
FOLLOW_TICKETS = _tickets([relation for relations in GROUPS.values() for relation in relations])


def _others(relation: Relation, item: str) -> list[Relation]:
    """The other relations that tell something of the same subject."""
    return [other for other in GROUPS.get(relation.group, ()) if other is not relation and item in other.facts]


PARAGRAPH_ITEMS = {
    relation.name: tuple(item for item in relation.items if _others(relation, item)) for relation in FOLLOW_TICKETS
}


def _said(relation: Relation, item: str, index: int) -> tuple[str, str]:
    wording, fields = relation.wordings[index], relation.facts[item].fields
    return wording.given.format_map(fields), wording.produced.format_map(fields)


def _choose(draw: Draw, relation: Relation, item: str, indices: Sequence[int]) -> tuple[int, str]:
    """One of these wordings of one item, on the draw's side of the split."""
    (_, _, index), key = draw.combine(KIND, (relation.name,), (item,), indices)
    return index, key


def _sentence(draw: Draw, relation: Relation, item: str) -> tuple[str, str]:
    """A whole plain sentence that training may see, and its key."""
    index, key = _choose(training_side(draw), relation, item, relation.sentences[:NUM_PLAIN])
    return "".join(_said(relation, item, index)), key


def pick_relation(draw: Draw) -> Relation:
    return draw.pick(TICKETS)


def ask_about(draw: Draw, relation: Relation, item: str | None = None) -> Question:
    """A question of a relation; with an item, in a wording that training may see."""
    if item is None:
        (_, item, index), key = draw.combine(KIND, (relation.name,), relation.items, relation.questions)
    else:
        index, key = _choose(training_side(draw), relation, item, relation.questions)
    return _question(draw, relation, item, index, key)


def _question(draw: Draw, relation: Relation, item: str, index: int, key: str) -> Question:
    sentence, sentence_key = _sentence(draw, relation, item)
    keys = (key,) if draw.held_out else (key, sentence_key)
    return Question(_said(relation, item, index)[0], relation.facts[item].answer, sentence, keys)


def ask(draw: Draw) -> Question:
    """A question about anything in the tables."""
    return ask_about(draw, pick_relation(draw))


def wrong_answers(question: Question, draw: Draw, count: int) -> list[str]:
    """`count` different answers of the same kind as the right one, for a question of `ask`; all wrong."""
    relation = RELATIONS[question.keys[0].split("|")[1]]
    wrong: list[str] = []
    while len(wrong) < count:
        answer = draw.pick(relation.answers)
        if answer != question.answer and answer not in wrong:
            wrong.append(answer)
    return wrong


def capital_prompts() -> list[tuple[str, str, str]]:
    """(country, prompt, capital) for every country in three wordings, on both sides of the split."""
    relation = RELATIONS["capital"]
    places = {wording.given: index for index, wording in enumerate(relation.wordings)}
    prompts = []
    for item, fact in relation.facts.items():
        said = _said(relation, item, places["The capital of {x} is"])[0]
        what = _said(relation, item, places["What is the capital of {x}?"])[0]
        which = _said(relation, item, places["Which city is the capital of {x}?"])[0]
        asked = (said, SHORT_LAYOUTS[0].format(what), SHORT_LAYOUTS[1].format(which))
        prompts += [(item, prompt, fact.answer) for prompt in asked]
    return prompts


def fact(draw: Draw) -> Document:
    """One fact: a sentence to complete, or a question in one of the layouts; held out, the short answer of it."""
    relation = pick_relation(draw)
    openings = relation.sentences if draw.chance(0.5) else relation.questions
    (_, item, index), key = draw.combine(KIND, (relation.name,), relation.items, openings)
    if index in relation.questions:
        return _asked(draw, _question(draw, relation, item, index, key))
    given, produced = _said(relation, item, index)
    more, keys = ("", ()) if draw.held_out or draw.chance(0.8) else _more_facts(draw, relation, item)
    return Document("fact", (given, produced + more), (key, *keys))


def _asked(draw: Draw, question: Question) -> Document:
    chance = draw.random.random()
    if chance < 0.65 or draw.held_out:
        parts = (draw.pick(SHORT_LAYOUTS).format(question.question), f" {question.answer}")
    elif chance < 0.9:
        parts = (question.question, f"\n{question.sentence}")
    else:
        parts = (SENTENCE_LAYOUT.format(question.question), f" {question.sentence}")
    return Document("fact", parts, question.keys)


def _more_facts(draw: Draw, relation: Relation, item: str) -> tuple[str, tuple[str, ...]]:
    """One or two sentences more about the same subject, which they name, with their keys."""
    others = _others(relation, item)
    chosen = draw.sample(others, min(len(others), draw.number(1, 2)))
    told = [_sentence(draw, other, item) for other in chosen]
    return "".join(f" {sentence}" for sentence, _ in told), tuple(key for _, key in told)


def quiz(draw: Draw) -> Document:
    """Two to five questions in one layout, of one relation or of any."""
    layout, same = draw.pick(SHORT_LAYOUTS), draw.chance(0.6)
    relation = pick_relation(draw)
    parts: list[str] = []
    keys: list[str] = []
    asked: list[str] = []
    num_questions = draw.number(2, 5)
    for place in range(1, num_questions + 1):
        last = place == num_questions
        side = draw if last else training_side(draw)
        question = ask_about(side, relation if same or last else pick_relation(draw))
        if question.question in asked:
            continue
        asked.append(question.question)
        parts += [("\n\n" if parts else "") + layout.format(question.question), f" {question.answer}"]
        keys += question.keys if last or not draw.held_out else ()
    return Document("quiz", tuple(parts), tuple(keys))


def paragraph(draw: Draw) -> Document:
    """Several facts about one subject as prose; held out is the wording of the last one."""
    last = draw.pick(FOLLOW_TICKETS)
    (_, item, index), key = draw.combine(KIND, (last.name,), PARAGRAPH_ITEMS[last.name], last.follows)
    given, produced = _said(last, item, index)
    sentences, keys_before = _told_before(training_side(draw), last, item)
    joined = len(sentences) > 1 and not draw.held_out and draw.chance(0.3)
    before = " ".join(sentences)
    given = f"{before[:-1]}, and {given[0].lower()}{given[1:]}" if joined else f"{before} {given}"
    keys = (key,) if draw.held_out else (*keys_before, key)
    if draw.held_out or draw.chance(0.4):
        return Document("paragraph", (given, produced), keys)
    return Document("paragraph", ("", given + produced), keys)


def _told_before(draw: Draw, last: Relation, item: str) -> tuple[list[str], list[str]]:
    """A sentence that only names the subject, then some of the other facts; and the keys of these."""
    others = _others(last, item)
    sentences = [draw.pick(world.INTRODUCTIONS[last.group]).format_map(last.facts[item].fields)]
    keys = []
    for other in draw.sample(others, draw.number(1, len(others))):
        index, key = _choose(draw, other, item, other.follows)
        sentences.append("".join(_said(other, item, index)))
        keys.append(key)
    return sentences, keys


def table(draw: Draw) -> Document:
    """Rows of one relation under a title."""
    relation = draw.pick(TABLE_TICKETS)
    mark = draw.pick(ROW_MARKS)
    parts: list[str] = []
    keys: list[str] = []
    items: list[str] = []
    num_rows = draw.number(3, 7)
    while len(items) < num_rows:
        last = len(items) == num_rows - 1
        side = draw if last else training_side(draw)
        (_, item, _), key = side.combine(KIND, (relation.name,), relation.items, (f"row{mark}",))
        if item in items:
            continue
        items.append(item)
        fields = relation.facts[item].fields
        parts += [f"\n{fields['n']}{mark}", f" {fields['a']}"]
        keys += (key,) if last or not draw.held_out else ()
    parts[0] = draw.pick(world.TITLES[relation.name]) + parts[0]
    return Document("table", tuple(parts), tuple(keys))


FAMILIES = ((60, fact), (16, quiz), (16, paragraph), (8, table))
