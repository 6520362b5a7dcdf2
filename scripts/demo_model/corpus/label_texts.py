"""Short texts of known class, for labels in context: reviews, topics, statements, wishes.

Decides what a text of a class looks like; knows nothing of shots, layouts or label words. A text is a frame with two
slots, and its two fillers are the combination that the split keeps apart.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.grammar import capitalized
from scripts.demo_model.corpus.words import ANIMALS, NOUNS, THING_VERBS

TextSource = Callable[[Draw], tuple[str, str]]


@dataclass(frozen=True)
class Task:
    """A way to sort short texts: the name of each class with what draws its texts, and what the tag may be called."""

    name: str
    classes: tuple[tuple[str, TextSource], ...]
    tags: tuple[tuple[str, str], ...]
    asks: tuple[str, ...]


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split(","))


def _source(*groups: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]) -> TextSource:
    """Draws "first|second" from one of the groups (firsts, seconds, frames with {a} and {b}), each filler equally."""

    weighted = tuple(group for group in groups for _ in range(max(1, round(len(group[1]) / 10))))

    def draw_text(draw: Draw) -> tuple[str, str]:
        firsts, seconds, frames = weighted[0] if len(weighted) == 1 else draw.pick(weighted)
        (a, b), key = draw.combine("text", firsts, seconds)
        return capitalized(draw.pick(frames).format(a=a, b=b)), key

    return draw_text


SUBJECTS = _phrases("""
soup, film, book, hotel, phone, concert, meal, coffee, game, song, show, play, room, pizza, camera, lamp, cake, tour,
shop, service, hat, jacket, chair, radio, sandwich, story, party, bed, breakfast, museum, toy, bicycle, guide, cafe,
dessert, train ride, website, painting, lesson, vacuum cleaner, trip, dinner, printer
""")
GOOD = _phrases("""
wonderful, excellent, great, fantastic, superb, lovely, perfect, amazing, brilliant, really good, very good, delightful,
a real joy, a great success, worth every coin, better than ever, a pleasant surprise, the best of all, truly beautiful,
simply marvelous, outstanding, impressive, charming, a dream, first class, splendid, so much fun, a delight, terrific,
a treat, fabulous, the very best, a wonderful gift, just right, well made, remarkably good, a pure pleasure,
magnificent, so good that I smiled, flawless
""")
BAD = _phrases("""
terrible, awful, horrible, bad, very bad, really poor, dreadful, disgusting, boring, a waste of money, a waste of time,
a complete failure, worse than ever, a nasty surprise, the worst of all, truly ugly, simply useless, disappointing,
a big disappointment, annoying, broken and dirty, a disaster, a nightmare, miserable, a mess, a letdown, so dull,
not worth the money, unbearable, cheap and nasty, badly made, horribly bad, a mistake, very poor, the very worst,
so bad that I left, a total flop, a joke, worthless, lousy
""")
IS_FRAMES = (
    "The {a} was {b}.",
    "This {a} is {b}.",
    "The {a} is {b}.",
    "I think the {a} is {b}.",
    "We found that the {a} was {b}.",
    "My sister says the {a} was {b}.",
    "Honestly, the {a} was {b}.",
    "For me this {a} was {b}.",
    "In the end the {a} was {b}.",
    "Everyone said the {a} was {b}.",
    "I must say that the {a} is {b}.",
    "The new {a} is {b}.",
    "Yesterday the {a} was {b}.",
    "To be clear, this {a} is {b}.",
    "Our {a} was {b}.",
    "What can I say? The {a} was {b}.",
)
LIKED = _phrases("""
loved, really enjoyed, adored, fell in love with, had a great time with, praised, liked, cheered for, could not get
enough of, thanked them for, smiled at, gladly paid for, happily recommended, gave five stars to, felt happy about,
felt lucky to have, enjoyed every minute of, admired, treasured, highly recommended
""")
DISLIKED = _phrases("""
hated, really disliked, could not stand, regretted, complained about, had a bad time with, grew tired of, wanted a
refund for, could not finish, was angry about, felt cheated by, gave one star to, felt bad about, lost patience with,
was sick of, got a headache from, warned others about, was bored by, despised, was fed up with
""")
DID_FRAMES = (
    "I {b} the {a}.",
    "I {b} this {a}.",
    "My brother {b} the {a}.",
    "She {b} the {a}.",
    "Last week I {b} the {a}.",
)

SENTIMENT = Task(
    "sentiment",
    (
        ("positive", _source((SUBJECTS, GOOD, IS_FRAMES), (SUBJECTS, LIKED, DID_FRAMES))),
        ("negative", _source((SUBJECTS, BAD, IS_FRAMES), (SUBJECTS, DISLIKED, DID_FRAMES))),
    ),
    (("Review", "Sentiment"), ("Text", "Sentiment"), ("Review", "Label")),
    (
        "Is the review positive or negative?",
        "Say whether the review is positive or negative.",
        "Classify the sentiment as positive or negative.",
        "Decide if the text is positive or negative.",
        "What is the sentiment of this text, positive or negative?",
        "Label the review as positive or negative.",
    ),
)

PEOPLE_DOING = _phrases("""
my brother, my sister, our neighbor, my best friend, the old man, the young woman, my father, my mother, our teacher,
my uncle, my aunt, the girl, the boy, a friend of mine, my cousin, the tall man
""")
WHEN = _phrases("""
today, yesterday, last week, on Monday, on Sunday, this morning, in the evening, again, after lunch, before noon, at
last, all day, this year, in June, in spring, last night
""")


def _topic(subjects: str, happenings: str, doings: str) -> TextSource:
    """A topic's texts: its own things and what happens to them, and what people do there."""
    return _source(
        (_phrases(subjects), _phrases(happenings), ("{a} {b}.", "yes, {a} {b}.", "they say that {a} {b}.")),
        (PEOPLE_DOING, _phrases(doings), ("{a} {b}.", "I heard that {a} {b}.")),
        (WHEN, _phrases(doings), ("she {b} {a}.", "he {b} {a}.", "we {b} {a}.", "they {b} {a}.")),
    )


TOPICS = {
    "sport": _topic(
        """the team, our goalkeeper, the striker, the coach, the tennis player, the champion, the runner, the swimmer,
        the football club, the boxer, the cyclist, the referee""",
        """won the match, lost the final, scored a goal, trained hard for the race, took part in the tournament,
        set a new record, missed the penalty, won a gold medal, reached the semifinal, jumped over the bar,
        left the stadium after the game, praised the players""",
        """played football, ran a marathon, swam twenty laps, scored three goals, won the tennis match, joined the
        hockey team, trained for the race, threw the ball, went to the stadium, watched the basketball game""",
    ),
    "food": _topic(
        """the soup, the bread, the cheese, the pasta, the salad, the cake, the rice, the stew, the pizza, the sauce,
        the pie, the roast chicken""",
        """tastes of garlic, needs more salt, is on the plate, smells of butter, comes with potatoes, was made with oil,
        is served with onions, was on the dinner menu, is full of pepper, was baked with honey, is cooked with tomatoes,
        was eaten with a spoon""",
        """baked a cake, cooked a soup, fried some eggs, ate a sandwich, peeled potatoes, ordered a pizza, made pancakes
        with syrup, cut the onions, tasted the sauce, spread butter on the bread""",
    ),
    "weather": _topic(
        """the rain, the storm, the wind, the snow, the fog, the frost, the thunder, the heat, the hail, the drizzle,
        the sunshine, the cold air""",
        """came from the north, lasted until the evening, will reach the coast tonight, covered the whole valley,
        is expected tomorrow, moved over the hills, grew stronger, made us stay inside, was in the forecast,
        stopped at noon, followed the clouds, changed the sky""",
        """got wet in the rain, saw the lightning, walked through the snow, waited for sunshine, felt the cold wind,
        heard the thunder, read the weather forecast, watched the dark clouds, stood in the fog, ran from the storm""",
    ),
    "music": _topic(
        """the band, the singer, the orchestra, the choir, the drummer, the pianist, the guitar player, the composer,
        the violinist, the conductor, the jazz trio, the trumpet player""",
        """played a slow melody, sang the chorus twice, recorded a new album, tuned the strings, performed a symphony,
        wrote a new song, kept the rhythm, practiced the scales, opened the concert, sang in harmony, played a solo,
        finished the last verse""",
        """played the piano, sang in the choir, wrote a song, bought a guitar, listened to the orchestra, learned the
        violin, went to a concert, practiced the melody, danced to the rhythm, tuned the drums""",
    ),
    "money": _topic(
        """the price, the loan, the tax, the salary, the bill, the debt, the rent, the fee, the pension, the interest,
        the wage, the profit""",
        """rose by ten percent, fell this year, is due on Friday, was higher than before, was part of the budget,
        was counted in dollars, went to the bank, was paid in cash, doubled in a year, was a lot of money,
        came to ninety euros, is on the bank account""",
        """paid the bill, saved ten dollars, opened a bank account, borrowed some cash, sold the shares, got a higher
        salary, paid the taxes, counted the coins, asked for a loan, spent the whole budget""",
    ),
    "animals": _topic(
        """the dog, the cat, the horse, the rabbit, the puppy, the cow, the fox, the kitten, the lion, the tiger,
        the wolf, the squirrel""",
        """slept on the straw, licked its paws, hunted for mice, shook its tail, ran from the bear, drank from the pond,
        cleaned its fur, guarded its young, sniffed the grass, hid in its den, followed the herd, showed its teeth""",
        """fed the puppy, brushed the horse, walked the dog, saw a wild fox, milked the cow, chased the hens, watched
        the monkeys, petted the kitten, found a bird nest, cleaned the rabbit cage""",
    ),
    "travel": _topic(
        """the plane, the train, the ferry, the tour bus, the tourist, the cruise ship, the passenger, the night train,
        the tour group, the traveler, the express train, the tour guide""",
        """arrived from abroad, was late at the border, left for the islands, waited at the airport,
        was lost on the journey, crossed the border, reached the capital, stopped in three countries,
        was checked by customs, was ready for departure, came back from the holiday, went to a foreign city""",
        """booked a flight, packed a suitcase, took a train to the coast, visited a foreign city, lost the passport,
        stayed in a hotel abroad, flew to an island, crossed the border, joined a bus tour, bought a plane ticket""",
    ),
    "school": _topic(
        """the exam, the lesson, the homework, the math test, the essay, the quiz, the grammar lesson, the
        spelling test, the school project, the class test, the science course, the geometry exam""",
        """was about fractions, started after the bell, was hard for the pupils, came before the break,
        was marked with red ink, was on the blackboard, came from the textbook, ended with a good grade,
        covered chapter nine, was easy for the class, was explained by the teacher, was finished in the classroom""",
        """did the homework, passed the exam, learned the alphabet, wrote an essay, studied for the test, forgot the
        textbook, answered the teacher, got a good grade, sat in the classroom, solved the math exercise""",
    ),
}
TOPIC = Task(
    "topic",
    tuple(TOPICS.items()),
    (("Text", "Topic"), ("Sentence", "Topic"), ("Text", "Label")),
    (
        "Choose the topic: {options}.",
        "What is the topic, {options}?",
        "Is this text about {options}?",
        "Label the text with one of these topics: {options}.",
        "Which topic fits, {options}?",
    ),
)

_ANIMAL_WORDS = tuple(noun.one for noun in ANIMALS)
_THING_WORDS = tuple(
    noun.one for noun in NOUNS if noun.word not in ("flower", "leaf", "plant", "seed", "egg", "feather")
)
_SEEN = _phrases("""
here is, I saw, there was, he drew, she has, we found, look at, they want, this is, it was, I dreamed of, he bought
""")
_KIND = Task(
    "kind",
    (
        ("animal", _source((_ANIMAL_WORDS, _SEEN, ("{b} {a}.",)))),
        ("thing", _source((_THING_WORDS, _SEEN, ("{b} {a}.",)))),
    ),
    (("Text", "Kind"), ("Text", "Label")),
    ("Is it an animal or a thing?", "Does the text name an animal or a thing?"),
)

_THINGS = tuple(noun.word for noun in NOUNS)
_BASES = tuple(verb.base for verb in THING_VERBS)
_NOT_ASKED_FOR = (
    "want",
    "need",
    "like",
    "love",
    "see",
    "notice",
    "get",
    "forget",
    "remember",
    "lose",
    "receive",
    "steal",
    "admire",
)
_COMMANDS = tuple(base for base in _BASES if base not in _NOT_ASKED_FOR)
_PASTS = tuple(verb.past for verb in THING_VERBS if verb.past != verb.base)
_FORM = Task(
    "form",
    (
        (
            "question",
            _source(
                (
                    _THINGS,
                    _BASES,
                    (
                        "did you {b} the {a}?",
                        "why did they {b} the {a}?",
                        "when will she {b} the {a}?",
                        "can he {b} the {a}?",
                        "who will {b} the {a}?",
                        "where did you {b} the {a}?",
                    ),
                )
            ),
        ),
        (
            "statement",
            _source(
                (
                    _THINGS,
                    _BASES,
                    (
                        "you did not {b} the {a}.",
                        "they often {b} the {a}.",
                        "she will {b} the {a}.",
                        "he can {b} the {a}.",
                        "my friends {b} the {a}.",
                        "I always {b} the {a}.",
                    ),
                )
            ),
        ),
    ),
    (("Text", "Form"), ("Text", "Label"), ("Sentence", "Type")),
    ("Is this a question or a statement?", "Say whether the text is a question or a statement."),
)

_TIME = Task(
    "time",
    (
        (
            "past",
            _source(
                (
                    _THINGS,
                    _PASTS,
                    (
                        "she {b} the {a} yesterday.",
                        "we {b} the {a} last week.",
                        "they {b} the {a}.",
                        "I {b} the {a} an hour ago.",
                        "last year he {b} the {a}.",
                        "yesterday they {b} the {a}.",
                    ),
                )
            ),
        ),
        (
            "future",
            _source(
                (
                    _THINGS,
                    _BASES,
                    (
                        "she will {b} the {a} tomorrow.",
                        "we will {b} the {a} next week.",
                        "they are going to {b} the {a}.",
                        "I will {b} the {a} in an hour.",
                        "next year he will {b} the {a}.",
                        "tomorrow they will {b} the {a}.",
                    ),
                )
            ),
        ),
    ),
    (("Text", "Time"), ("Sentence", "Time"), ("Text", "Label")),
    ("Is this about the past or the future?", "Does the sentence speak of the past or the future?"),
)

_TONE = Task(
    "tone",
    (
        (
            "polite",
            _source(
                (
                    _THINGS,
                    _COMMANDS,
                    (
                        "could you please {b} the {a}?",
                        "would you kindly {b} the {a}?",
                        "please {b} the {a}, thank you.",
                        "excuse me, may we {b} the {a}?",
                        "I would be grateful if you could {b} the {a}.",
                        "thank you, may I {b} the {a}?",
                    ),
                )
            ),
        ),
        (
            "rude",
            _source(
                (
                    _THINGS,
                    _COMMANDS,
                    (
                        "{b} the {a} now, you fool!",
                        "shut up and {b} the {a}!",
                        "{b} the {a}, stupid!",
                        "just {b} the {a}, you idiot.",
                        "I do not care, {b} the {a}!",
                        "hurry up, lazy one, {b} the {a}!",
                    ),
                )
            ),
        ),
    ),
    (("Text", "Tone"), ("Message", "Tone"), ("Text", "Label")),
    ("Is this polite or rude?", "Is the tone of this message polite or rude?"),
)


def _digit_source(digits: str) -> TextSource:
    """One digit alone; ten texts leave nothing to hold out."""
    return lambda draw: (draw.pick(digits), "")


_PARITY = Task(
    "parity",
    (("even", _digit_source("02468")), ("odd", _digit_source("13579"))),
    (("Number", "Kind"), ("Number", "Label")),
    ("Is this number even or odd?", "Even or odd?"),
)


TASKS = (SENTIMENT, TOPIC, _KIND, _FORM, _TIME, _TONE, _PARITY)
SIMPLE_TASKS = TASKS[2:]
