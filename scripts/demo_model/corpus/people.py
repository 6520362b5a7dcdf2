"""Invented records: people, products and events with attributes that agree with each other.

Decides the pools of values and what a record holds. Knows no sentence: `passages.py` words the records.
A record's combination is its name with one attribute (kind "record", "record_job", "product" or "event").
"""

from typing import NamedTuple

from scripts.demo_model.corpus.draw import Draw, combination_key
from scripts.demo_model.corpus.grammar import joined


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WOMEN = words(
    """
    Ada Alice Amina Amy Ana Anna Aria Astrid Beth Bella Bianca Carla Carmen Cara Chloe Clara Dana Daisy Diana Dora
    Edith     Elena Elise Ella Emily Emma Erin Esther Eva Fatima Fiona Flora Freya Gina Gloria Grace Greta Hana Hannah
    Hazel Heidi     Helen Hilda Ida Ines Ingrid Irene Iris Isla Ivy Jane Jenny Jill Joan Julia June Karen Kate Keiko
    Kim Laila Lara Laura     Lena Leila Lily Linda Lisa Lola Lucy Maria Mara Marta Maya Mei Mia Mina Molly Nadia Naomi
    Nina Nora Olga Olive Paula     Petra Priya Rita Rosa Ruth Sara Sofia Stella Tara Tina Uma Vera Wendy Yara Yuki Zoe
    """
)
MEN = words(
    """
    Aaron Adam Ahmed Alan Albert Alex Amir Andre Anton Arthur Axel Ben Bill Boris Bruno Carl Cesar Chris Colin Dan
    David     Dennis Diego Dmitri Eli Emil Enzo Eric Ethan Felix Finn Frank Fred Gary George Glen Hans Harry Hassan
    Henry Hugo Ian     Igor Ivan Jack Jacob James Jan Jason Jean Joe Joel John Jonas Jorge Juan Kai Karl Kenji Kevin
    Kofi Lars Leo Liam Louis     Luca Luis Luke Marco Mark Martin Max Mike Milo Nathan Ned Nick Noah Oliver Omar Oscar
    Otto Owen Pablo Paul Pedro Peter     Ravi Ray Robert Roy Sam Samir Scott Simon Stefan Steve Theo Tim Tom Victor
    Walter Yusuf
    """
)
FIRST_NAMES = WOMEN + MEN
SHE = frozenset(WOMEN)
FAMILY_NAMES = words(
    """
    Adams Allen Baker Banks Barnes Bell Bennett Berg Black Blake Bond Brown Bryant Burke Carter Chen Clark Cole Cook
    Cooper Costa Cruz Dale Davis Dean Diaz Dixon Doyle Drake Dunn Ellis Evans Fisher Flores Ford Foster Fox Frost
    Garcia     Gibson Gray Green Grant Hall Hardy Hart Hayes Hill Holt Hunt Jensen Jones Kelly Khan Kim King Klein
    Lake Lane Larsen     Lee Lopez Marsh Mason Meyer Miller Moore Morris Nash Novak Olsen Owens Park Parker Patel
    Perez Pike Porter Price Quinn     Reed Rivera Roberts Rossi Ruiz Sato Shaw Silva Singh Smith Stone Sato Tanaka
    Taylor Torres Turner Walker Wang Ward     Weber West White Wood Young
    """
)
CITIES = (
    *words(
        """
        Paris London Berlin Madrid Rome Vienna Lisbon Dublin Oslo Stockholm Helsinki Warsaw Prague Budapest Athens
        Cairo     Nairobi Lagos Tokyo Osaka Kyoto Seoul Beijing Shanghai Delhi Mumbai Bangkok Hanoi Manila Jakarta
        Sydney Melbourne     Auckland Toronto Montreal Vancouver Boston Chicago Denver Dallas Houston Seattle Miami
        Atlanta Lima Bogota Quito     Santiago Havana Hamburg Munich Cologne Lyon Nice Milan Turin Naples Venice Porto
        Seville Valencia Geneva Zurich Basel     Brussels Antwerp Rotterdam Utrecht Krakow Riga Tallinn Vilnius Zagreb
        Belgrade Sofia Bergen Glasgow Leeds Bristol     York Bath Oxford Cambridge Cardiff Belfast Cork
        """
    ),
    "New York",
    "Cape Town",
    "Hong Kong",
    "Buenos Aires",
)
JOBS = (
    *words(
        """
        teacher nurse baker farmer doctor lawyer pilot painter singer writer driver cook waiter plumber carpenter
        gardener     dentist judge tailor barber butcher florist librarian mechanic musician dancer actor poet potter
        welder fisherman     postman banker builder chemist clerk coach designer editor engineer firefighter guard
        journalist manager miner     optician pharmacist photographer programmer reporter sailor scientist secretary
        soldier surgeon translator vet     weaver architect accountant electrician
        """
    ),
    "bus driver",
    "police officer",
    "shop assistant",
    "tour guide",
)
PETS = words("cat dog parrot rabbit hamster goldfish turtle horse pony goat duck hen lizard snake canary mouse")
PET_NAMES = words(
    """
    Bella Biscuit Bobby Bruno Bubbles Buddy Button Caesar Chip Coco Cookie Daisy Dot Duke Fluffy Ginger Gizmo Goldie
    Happy Hazel Honey Jelly Kiki Lucky Luna Max Milo Misty Mocha Muffin Nugget Olive Oreo Patch Peanut Pebble Pepper
    Pip     Pippin Poppy Pumpkin Rex Rocky Rusty Sandy Scout Shadow Smoky Snowy Socks Spot Sparky Star Sunny Teddy
    Tiger Toffee     Twix Waffle Ziggy
    """
)
HOBBIES = (
    *words(
        """
        chess painting reading swimming hiking cooking dancing singing fishing gardening cycling running sailing
        skiing     knitting pottery photography baking yoga tennis football basketball climbing rowing skating drawing
        sewing surfing     camping golf judo juggling archery
        """
    ),
    "bird watching",
    "board games",
    "card games",
)
COLOURS = words("red blue green yellow orange purple pink brown black white grey silver gold")
FOODS = (
    *words(
        """
        pizza pasta rice soup salad curry sushi bread cheese chocolate pancakes noodles tacos dumplings honey apples
        grapes     cherries mangoes strawberries potatoes mushrooms
        """
    ),
    "ice cream",
    "apple pie",
    "fried fish",
    "lemon cake",
)
DRINKS = (*words("tea coffee milk water lemonade cocoa cider"), "apple juice", "orange juice", "green tea")
LANGUAGES = words("English French German Spanish Italian Greek Polish Dutch Arabic Hindi Japanese Korean Turkish")
INSTRUMENTS = words("piano guitar violin flute drums cello harp trumpet banjo clarinet")
ITEMS = (
    *words(
        """
        lamp chair table kettle backpack jacket watch radio camera bicycle tent clock mirror vase blanket pillow desk
        sofa     shelf mug teapot pan toaster fan heater umbrella wallet scarf hat sweater ladder hammer drill speaker
        keyboard     monitor printer scooter helmet guitar
        """
    ),
    "coffee grinder",
    "desk lamp",
    "water bottle",
    "travel bag",
)
MATERIALS = words("wood steel glass cotton wool leather plastic paper copper stone silk bamboo")
EVENTS = tuple(
    f"{season} {thing}"
    for season in words("spring summer autumn winter town school village garden harvest city")
    for thing in words("fair concert festival market show party race picnic")
)
PLACES = (
    *(f"the {place}" for place in words("library museum park theatre harbour station castle stadium school church")),
    "the town hall",
    "the old mill",
    "the main square",
    "the city garden",
    "the sports hall",
    "the boat house",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = words("January February March April May June July August September October November December")
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DATES = tuple(f"{day} {month}" for month, days in zip(MONTHS, MONTH_LENGTHS, strict=True) for day in range(1, days + 1))
TIMES = tuple(f"{hour}:{minute:02d}" for hour in range(6, 23) for minute in (0, 15, 30, 45))
PRICES = tuple(range(3, 100)) + tuple(n + cents for n in range(2, 60) for cents in (0.25, 0.5, 0.75, 0.99))
COMPANY_ENDS = words("Foods Motors Books Press Tools Toys Design Labs Bank Airlines Trading Systems Media Farms")

_STARTS = words("B Br C Cr D Dr F Fl G Gr H J K Kl L M N P Pr R S St T Tr V W Z Sh Bl Gl")
_VOWELS = words("a e i o u a e o")
_MIDDLES = words("l r n m v d t k s lm rn nd lt nt rd st lv rm ck mb")
_ENDS = words("a o en ar is or el on in us an ia y ex um")


def invented_word(draw: Draw) -> str:
    """A capitalised word that exists nowhere, such as "Velmar" or "Drastolen"."""
    pick = draw.pick
    middle = pick(_MIDDLES) + pick(_VOWELS) if draw.chance(0.3) else ""
    return pick(_STARTS) + pick(_VOWELS) + middle + pick(_MIDDLES) + pick(_ENDS)


def company(draw: Draw) -> str:
    return f"{invented_word(draw)} {draw.pick(COMPANY_ENDS)}"


def dollars(amount: float) -> str:
    return f"${amount}" if amount == int(amount) else f"${amount:.2f}"


class Value(NamedTuple):
    """An attribute as a passage writes it and as JSON has it."""

    text: str
    plain: object


class Record(NamedTuple):
    """An invented person, product or event. `pronoun` is "She", "He" or "It"; `short` names it later on."""

    kind: str
    name: str
    short: str
    pronoun: str
    values: dict[str, Value]
    keys: tuple[str, ...]


def same(text: str) -> Value:
    return Value(text, text)


def count(number: int) -> Value:
    return Value(str(number), number)


def person(draw: Draw) -> Record:
    pick = draw.pick
    while True:
        (first, city), key = draw.combine("record", FIRST_NAMES, CITIES)
        job = pick(JOBS)
        job_key = combination_key("record_job", first, job)
        if draw.allows(job_key):
            break
    family = invented_word(draw) if draw.chance(0.15) else pick(FAMILY_NAMES)
    hobbies = draw.sample(HOBBIES, 2 + draw.chance(0.4))
    age = draw.number(18, 89)
    values = {
        "city": same(city),
        "job": same(job),
        "age": count(age),
        "company": same(company(draw)),
        "pet": same(pick(PETS)),
        "pet_name": same(pick(PET_NAMES)),
        "hobbies": Value(joined(hobbies), hobbies),
        "colour": same(pick(COLOURS)),
        "food": same(pick(FOODS)),
        "drink": same(pick(DRINKS)),
        "language": same(pick(LANGUAGES)),
        "instrument": same(pick(INSTRUMENTS)),
        "birth_month": same(pick(MONTHS)),
        "children": count(draw.number(2, 6) if age > 30 else 2),
        "married": Value("", draw.chance(0.5)),
        "car": Value("", draw.chance(0.5)),
        "start_year": count(draw.number(max(1985, 2042 - age), 2024)),
        "phone": same(f"555-{draw.number(1000, 9999)}"),
        "email": same(f"{first.lower()}@{invented_word(draw).lower()}.com"),
        "family": same(family),
        "first": same(first),
    }
    return Record("person", f"{first} {family}", first, "She" if first in SHE else "He", values, (key, job_key))


def product(draw: Draw) -> Record:
    pick = draw.pick
    (item, price), key = draw.combine("product", ITEMS, PRICES)
    brand = invented_word(draw)
    colours = draw.sample(COLOURS, 2 + draw.chance(0.4))
    weight = draw.number(2, 90) / 10 if draw.chance(0.5) else draw.number(2, 40)
    values = {
        "price": Value(dollars(price), price),
        "item": same(item),
        "brand": same(brand),
        "colours": Value(joined(colours), colours),
        "material": same(pick(MATERIALS)),
        "weight": Value(str(weight), weight),
        "stock": Value("", draw.chance(0.5)),
        "shop_city": same(pick(CITIES)),
        "warranty": count(draw.number(2, 10)),
        "rating": Value(str(rating := draw.number(11, 49) / 10), rating),
        "year": count(draw.number(1995, 2024)),
        "code": same(f"{brand[0]}{draw.number(10, 999)}"),
    }
    return Record("product", f"{brand} {item}", item, "It", values, (key,))


def event(draw: Draw) -> Record:
    pick = draw.pick
    (title, date), key = draw.combine("event", EVENTS, DATES)
    host = pick(FIRST_NAMES)
    fee = pick(PRICES)
    values = {
        "date": same(date),
        "day": same(pick(DAYS)),
        "time": same(pick(TIMES)),
        "place": same(pick(PLACES)),
        "event_city": same(pick(CITIES)),
        "fee": Value(dollars(fee), fee),
        "guests": count(draw.number(20, 900)),
        "host": same(f"{host} {pick(FAMILY_NAMES)}"),
        "outdoors": Value("", draw.chance(0.5)),
    }
    return Record("event", title, title, "It", values, (key,))


def record(draw: Draw) -> Record:
    """A person most of the time, else a product or an event."""
    chance = draw.random.random()
    return person(draw) if chance < 0.65 else product(draw) if chance < 0.85 else event(draw)
