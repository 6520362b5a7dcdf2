"""The tools of the corpus: groups of verbs and nouns that make hundreds of names, with their arguments and requests.

A request names the noun as {noun} and the arguments by their order ({0}, {1}); `answers` say the result, {r}.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scripts.demo_model.corpus.people import (
    CITIES,
    COLOURS,
    DATES,
    DAYS,
    FIRST_NAMES,
    HOBBIES,
    ITEMS,
    LANGUAGES,
    TIMES,
    words,
)


class Argument(NamedTuple):
    """One argument: the names that it may have, its type, its values. An enum has its few values as the type."""

    names: tuple[str, ...]
    type: str
    pool: Sequence[object]


class Group(NamedTuple):
    """Tools that work alike. The first argument and the tool's name make the combination."""

    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    describes: tuple[str, ...]
    arguments: tuple[Argument, ...]
    requests: tuple[str, ...]
    results: Sequence[str]
    answers: tuple[str, ...]
    cannot: str


_CITY = Argument(("city", "location", "place", "town", "city_name"), "string", CITIES)
_DATE = Argument(("date", "on", "day", "when"), "string", DATES)
_TIME = Argument(("time", "at", "start", "hour"), "string", TIMES)
_PERSON = Argument(("name", "person", "user", "who", "contact"), "string", FIRST_NAMES)
_TO = Argument(("to", "recipient", "receiver", "name", "contact"), "string", FIRST_NAMES)
_ITEM = Argument(("item", "product", "name", "article", "thing"), "string", ITEMS)
_ROOMS = ("kitchen", "bedroom", "bathroom", "hall", "office", "garage", "living room", "cellar", "garden", "guest room")
_ROOM = Argument(
    ("room", "where", "location", "place"), "string", tuple(f"{a}{b}" for a in ("", "small ", "old ") for b in _ROOMS)
)
_COUNT = tuple(range(2, 60))
_TEXTS = tuple(
    f"{start} {end}"
    for start in ("I will be", "We are", "Please be", "The train is", "Everybody is", "The keys are", "Lunch is")
    for end in (
        "late",
        "at home",
        "in the garden",
        "here at 5",
        "ready soon",
        "on time",
        "at the station",
        "not far away",
    )
)
_TITLES = tuple(
    f"{a} {b}"
    for a in ("team", "budget", "dentist", "school", "garden", "birthday", "project", "music", "chess", "planning")
    for b in ("meeting", "visit", "lunch", "party", "talk", "lesson", "call", "day")
)
_SUBJECTS = (
    *HOBBIES,
    *(f"{colour} {item}" for colour in COLOURS for item in ("shoes", "cars", "hats", "flowers", "birds")),
)

GROUPS: dict[str, Group] = {
    "city": Group(
        ("get", "fetch", "find", "check", "show", "read", "lookup"),
        words(
            """
            weather temperature forecast wind population air_quality local_time sunrise_time sunset_time
            traffic_report             postal_code news_report rainfall humidity water_level bread_price fuel_price
            hotel_price city_map
            """
        ),
        (
            "The {noun} of a city",
            "Tells the {noun} of a city",
            "Get the {noun} for a city",
            "Look up the {noun} of a place",
        ),
        (_CITY,),
        (
            "What is the {noun} in {0}?",
            "Tell me the {noun} of {0}.",
            "I need the {noun} for {0}.",
            "Show me the {noun} in {0}.",
            "Can you look up the {noun} of {0}?",
            "Please check the {noun} in {0}.",
            "I am going to {0}. What is the {noun} there?",
        ),
        ("3 dollars", "4 dollars", "7 dollars", "12 dollars", "48 dollars", "95 dollars"),
        ("The {noun} in {0} is {r}.",),
        "look up the {noun}",
    ),
    "person": Group(
        ("get", "find", "show", "fetch", "lookup", "read"),
        words(
            "address phone_number email birthday age job salary balance score status room_number schedule team manager"
        ),
        (
            "The {noun} of a person",
            "Find the {noun} of somebody",
            "Tells the {noun} of a user",
            "Look up a person's {noun}",
        ),
        (_PERSON,),
        (
            "What is the {noun} of {0}?",
            "Tell me {0}'s {noun}.",
            "I need the {noun} of {0}.",
            "Can you find {0}'s {noun}?",
            "Please look up the {noun} of {0}.",
            "Show me {0}'s {noun}.",
        ),
        ("12", "47", "204", "318", "B14", "C7"),
        ("The {noun} of {0} is {r}.", "{0}'s {noun} is {r}."),
        "look up the {noun}",
    ),
    "message": Group(
        ("send", "write", "post", "deliver"),
        words("message email note letter text reply card memo telegram voice_message"),
        ("Sends {article}", "Send {article} to a person", "Writes {article} to somebody"),
        (_TO, Argument(("text", "body", "content", "message"), "string", _TEXTS)),
        (
            'Send {0} {article} that says "{1}".',
            'Write {article} to {0}: "{1}".',
            'Please send this {noun} to {0}: "{1}".',
            'I want to send {0} {article}. It should say "{1}".',
            'Tell {0} "{1}" in {article}.',
        ),
        ("sent", "ok", "done", "delivered"),
        ("I have sent the {noun} to {0}.", "The {noun} to {0} is on its way."),
        "send {article}",
    ),
    "booking": Group(
        ("book", "reserve", "order", "cancel"),
        words("table room taxi flight seat car tour boat hotel bus ticket bed tent"),
        ("{Verb}s {article}", "{Verb} {article} in a city", "Use this to {verb} {article}"),
        (
            _CITY,
            _DATE,
            Argument(("people", "guests", "persons", "num_people", "seats"), "integer", tuple(range(1, 20))),
        ),
        (
            "Please {verb} {article} in {0} on {1} for {2} people.",
            "{Verb} {article} for {2} in {0} on {1}.",
            "I want to {verb} {article} in {0}. We are {2} people and the date is {1}.",
            "On {1} we are {2} people in {0}. Can you {verb} {article}?",
            "Can you {verb} {article} for {2} people? It is for {0} on {1}.",
        ),
        ("done", "ok", "number 4711", "number 312", "number 85", "accepted"),
        ("It is done: {0}, {1}, {2} people.", "Your request for {0} on {1} is done."),
        "{verb} {article}",
    ),
    "event": Group(
        ("create", "add", "plan", "schedule", "make"),
        words("event meeting appointment task reminder entry call lesson session date"),
        ("Adds {article} to the calendar", "{Verb}s {article}", "{Verb} {article} with a title and a time"),
        (Argument(("title", "name", "subject", "label"), "string", _TITLES), _DATE, _TIME),
        (
            'Please {verb} {article} called "{0}" on {1} at {2}.',
            'Put "{0}" in my calendar as {article} on {1} at {2}.',
            '{Verb} {article} for {1} at {2}. The title is "{0}".',
            'I need {article} on {1} at {2}. Call it "{0}".',
        ),
        ("created", "ok", "saved", "done"),
        ('"{0}" is in the calendar on {1} at {2}.', 'I have saved "{0}" for {1} at {2}.'),
        "{verb} {article}",
    ),
    "shop": Group(
        ("add", "buy", "order", "reserve", "remove", "return"),
        ("item", "product", "article", "goods", "stock", "cart_item", "order_item", "list_item"),
        ("{Verb}s a number of one thing", "{Verb} things in the shop", "Use this to {verb} things"),
        (_ITEM, Argument(("quantity", "count", "amount", "number", "num_items"), "integer", _COUNT)),
        (
            "Please {verb} {1} pieces of the {0}.",
            "The {0}: {verb} {1} pieces.",
            "I want to {verb} the {0}. The number is {1}.",
            "Can you {verb} {1} pieces of the {0}?",
            "It is about the {0}. Please {verb} {1} pieces.",
        ),
        ("ok", "done", "accepted", "saved"),
        ("It is done: {1} pieces of the {0}.", "Done. The order is {1} pieces of the {0}."),
        "{verb} things",
    ),
    "price": Group(
        ("get", "find", "check", "compare", "show"),
        (
            "price",
            "discount",
            "stock_level",
            "delivery_date",
            "rating",
            "colour",
            "weight",
            "warranty",
            "shelf_number",
            "barcode",
        ),
        ("The {noun} of a product", "Tells the {noun} of a product", "Find the {noun} of a thing in the shop"),
        (_ITEM,),
        (
            "What is the {noun} of the {0}?",
            "Tell me the {noun} of the {0}.",
            "I would like to know the {noun} of the {0}.",
            "Please look up the {noun} of the {0}.",
            "Can you check the {noun} of the {0}?",
        ),
        ("12", "20", "33", "49", "75", "108"),
        ("The {noun} of the {0} is {r}.",),
        "look up the {noun}",
    ),
    "device": Group(
        ("set", "change", "adjust", "update"),
        words("light heater fan radio lamp speaker blinds_level oven cooler volume brightness temperature_level"),
        ("{Verb}s the {noun} in a room", "{Verb} the {noun} of a room to a level", "Use this to {verb} the {noun}"),
        (_ROOM, Argument(("level", "value", "percent", "to", "target"), "integer", tuple(range(1, 100)))),
        (
            "{Verb} the {noun} in the {0} to {1}.",
            "Please {verb} the {noun} in the {0} to {1}.",
            "In the {0}, {verb} the {noun} to {1}.",
            "I want the {noun} in the {0} at {1}.",
            "Can you {verb} the {noun} to {1} in the {0}?",
        ),
        ("ok", "done", "set", "changed"),
        ("The {noun} in the {0} is now at {1}.",),
        "{verb} the {noun}",
    ),
    "switch": Group(
        ("switch", "toggle", "control", "power"),
        words("light heater fan radio lamp television oven cooler alarm pump door_lock camera"),
        ("Turns the {noun} on or off", "Switch the {noun} of a room", "Controls the {noun} in a room"),
        (_ROOM, Argument(("on", "enabled", "active", "power", "is_on"), "boolean", (True, False))),
        (
            "Turn {1} the {noun} in the {0}.",
            "Please turn {1} the {noun} in the {0}.",
            "Switch the {noun} in the {0} {1}.",
            "In the {0} the {noun} should be {1}.",
        ),
        ("ok", "done", "changed"),
        ("The {noun} in the {0} is now {1}.",),
        "switch the {noun}",
    ),
    "search": Group(
        ("search", "find", "list", "query", "browse"),
        words("web books songs recipes files images articles products photos videos courses notes games"),
        ("Searches {noun}", "Find {noun} about a subject", "Look for {noun} by words"),
        (
            Argument(("query", "q", "words", "topic", "subject", "keyword"), "string", _SUBJECTS),
            Argument(("limit", "max_results", "count", "top", "n"), "integer", tuple(range(2, 30))),
        ),
        (
            "Find {1} {noun} about {0}.",
            "I need {1} {noun} on {0}.",
            "Search {noun} for {0} and give me {1} results.",
            "Show me {1} results for {0} in {noun}.",
            "Please look for {0} in {noun}. I want {1} results.",
        ),
        ("found", "3 results", "5 results", "2 results", "nothing"),
        ("The search for {0} gave this: {r}.", "For {0} I got: {r}."),
        "search {noun}",
    ),
    "convert": Group(
        ("convert", "exchange", "change", "calculate"),
        ("money", "currency", "amount", "cash", "sum_of_money", "price"),
        ("Converts money from one currency to another", "Change money", "Turns one currency into another"),
        (
            Argument(
                ("amount", "value", "number", "quantity"), "number", (*range(2, 400), *(n + 0.5 for n in range(1, 90)))
            ),
            Argument(
                ("from", "source", "from_currency", "currency"),
                "string",
                ("dollars", "euros", "pounds", "francs", "crowns", "dinars"),
            ),
            Argument(
                ("to", "target", "to_currency", "into"),
                "string",
                ("yen", "pesos", "rupees", "rubles", "won", "shillings"),
            ),
        ),
        (
            "Convert {0} {1} to {2}.",
            "How many {2} are {0} {1}?",
            "What are {0} {1} in {2}?",
            "Change {0} {1} into {2}.",
            "I have {0} {1}. What is that in {2}?",
        ),
        tuple(str(n) for n in range(3, 900, 7)),
        ("{0} {1} are {r} {2}.",),
        "change money",
    ),
    "language": Group(
        ("translate", "rewrite", "speak", "read"),
        ("text", "sentence", "phrase", "words", "line"),
        ("Puts a text into another language", "{Verb}s a text in a language", "A text in another language"),
        (
            Argument(("text", "sentence", "content", "input"), "string", _TEXTS),
            Argument(("language", "lang", "to", "target_language"), "string", LANGUAGES),
        ),
        (
            'Put "{0}" into {1}.',
            'How do you say "{0}" in {1}?',
            'Please {verb} "{0}" in {1}.',
            'I need "{0}" in {1}.',
        ),
        ("ok", "done", "ready"),
        ("The text in {1} is ready.",),
        "write other languages",
    ),
    "weekday": Group(
        ("open", "close", "clean", "check", "visit", "lock", "unlock", "inspect"),
        ("garden", "shop", "pool", "office", "kitchen", "museum", "garage", "workshop", "library", "stable"),
        ("{Verb}s the {noun} on a day", "{Verb} the {noun} at a given time", "Use this to {verb} the {noun}"),
        (
            Argument(("day", "weekday", "on", "when"), " | ".join(f'"{day}"' for day in DAYS), DAYS),
            _TIME,
        ),
        (
            "{Verb} the {noun} on {0} at {1}.",
            "Please {verb} the {noun} on {0} at {1}.",
            "On {0} at {1} you should {verb} the {noun}.",
            "I want to {verb} the {noun} at {1} on {0}.",
        ),
        ("ok", "done", "planned"),
        ("It is planned: {0} at {1}.", "The {noun} is noted for {0} at {1}."),
        "{verb} the {noun}",
    ),
}
OPTIONAL = (
    Argument(("unit", "units"), '"celsius" | "kelvin"', ("celsius", "kelvin")),
    Argument(("format", "style"), '"short" | "long"', ("short", "long")),
    Argument(("language", "lang"), "string", LANGUAGES),
    Argument(("limit", "max_items"), "integer", tuple(range(2, 20))),
    Argument(("priority",), '"low" | "normal" | "high"', ("low", "normal", "high")),
    Argument(("colour", "color"), "string", COLOURS),
    Argument(("urgent", "silent", "verbose"), "boolean", (True, False)),
)
OPTION_FRAMES = (" Set {name} to {value}.", " Use {value} for {name}.", " Let {name} be {value}.", " ({name}: {value})")
# What the tools of a noun may find; nouns that are not here share the results of their group.
RESULTS: dict[str, tuple[str, ...]] = {
    "weather": ("sunny", "cloudy", "rainy", "windy", "cold and dry", "warm and sunny"),
    "temperature": tuple(f"{degrees} degrees" for degrees in range(-9, 39)),
    "forecast": ("sun", "rain", "snow", "clear", "a storm", "fog"),
    "wind": ("weak", "strong", "very weak", "very strong"),
    "population": tuple(f"{number}000" for number in range(120, 980, 13)),
    "air quality": ("good", "bad", "very good", "poor"),
    "local time": TIMES,
    "sunrise time": ("5:15", "5:45", "6:10", "6:30", "7:05"),
    "sunset time": ("16:40", "18:05", "19:20", "20:15", "21:05"),
    "traffic report": ("no delays", "long delays", "one road closed", "clear"),
    "postal code": tuple(str(number) for number in range(10_115, 90_000, 977)),
    "news report": ("a new bridge", "a new school", "a free concert", "a big market"),
    "rainfall": tuple(f"{number} millimetres" for number in range(2, 60)),
    "humidity": tuple(f"{number} percent" for number in range(20, 99)),
    "water level": tuple(f"{number} metres" for number in range(2, 12)),
    "city map": ("map 12", "map 7", "map 31", "map 45"),
    "address": tuple(
        f"{number} {street} Street" for number in (3, 8, 14, 27, 52) for street in ("Park", "Mill", "High", "Oak")
    ),
    "phone number": tuple(f"555-{number}" for number in range(1034, 9999, 311)),
    "email": ("info@luna.com", "hello@sol.com", "post@mira.com", "office@vela.com"),
    "birthday": DATES,
    "age": tuple(str(number) for number in range(18, 90)),
    "job": ("teacher", "baker", "nurse", "pilot", "farmer", "cook"),
    "salary": tuple(f"{number}00 dollars" for number in range(18, 70)),
    "balance": tuple(f"{number} dollars" for number in range(5, 900, 17)),
    "status": ("active", "away", "busy", "online", "offline"),
    "schedule": ("free", "full", "free after 3", "full until noon"),
    "team": ("red", "blue", "sales", "support", "design"),
    "manager": FIRST_NAMES,
    "score": tuple(str(number) for number in range(1, 100)),
    "discount": ("5 percent", "10 percent", "15 percent", "20 percent", "25 percent"),
    "delivery date": DATES,
    "colour": COLOURS,
    "weight": tuple(f"{number} kilograms" for number in range(2, 40)),
    "warranty": tuple(f"{number} years" for number in range(2, 9)),
    "rating": ("3.1", "3.8", "4.2", "4.5", "4.9"),
}
