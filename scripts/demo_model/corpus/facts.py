"""Facts about the world: one in many wordings, some in a row, a paragraph about one subject, a table.

Decides which fact is told in which wording; the relations are in `relations`. A combination is (relation, item,
wording): a held-out one is never in training in any layout, while the fact itself is, in other wordings.
"""

from collections.abc import Sequence

from scripts.demo_model.corpus import world
from scripts.demo_model.corpus.draw import Document, Draw, Question
from scripts.demo_model.corpus.relations import RELATIONS, Relation

KIND = "fact"
ROW_MARKS = (":", " -", " =")
# The short answer, or the whole sentence, after each layout of a question.
SHORT_LAYOUTS = ("Question: {}\nAnswer:", "Q: {}\nA:")
NUM_PLAIN = 4  # the first sentences of every relation are plain enough to answer any of its questions
SENTENCE_LAYOUT = "Question: {}\nAnswer in a full sentence:"


def training_side(draw: Draw) -> Draw:
    """The same random source, but combinations of the training side: for what only stands around the one asked."""
    if not draw.held_out:
        return draw
    seen = Draw(0)
    seen.random = draw.random
    return seen


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
