"""The words of passages: for every attribute of a record its sentences, its questions and its JSON names.

{S} is the subject that opens a sentence ("Mara" or "She"), {P} its possessive ("Mara's" or "Her"), {n} the name in a
question, {v} the value and {a} the value with its article.
"""

from typing import NamedTuple

from scripts.demo_model.corpus.people import words


class Wording(NamedTuple):
    """How one attribute is said and asked. `names` are the JSON names with the type `type`."""

    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    names: tuple[str, ...]
    type: str = "string"


class Choice(NamedTuple):
    """How a boolean attribute is said, both ways, and asked."""

    yes: tuple[str, ...]
    no: tuple[str, ...]
    questions: tuple[str, ...]
    names: tuple[str, ...]


PERSON: dict[str, Wording] = {
    "age": Wording(
        (
            "{S} is {v} years old.",
            "{S} is {v}.",
            "{S} turned {v} this year.",
            "At the age of {v}, {s} still likes to learn.",
        ),
        ("How old is {n}?", "What is the age of {n}?", "What is {n}'s age?"),
        ("age", "years", "age_in_years", "person_age"),
        "integer",
    ),
    "city": Wording(
        (
            "{S} lives in {v}.",
            "{P} home is in {v}.",
            "{S} has a small flat in {v}.",
            "{S} moved to {v} some years ago.",
            "{S} comes from {v}.",
            "{S} has a house in {v}.",
        ),
        (
            "Where does {n} live?",
            "In which city does {n} live?",
            "What city does {n} live in?",
            "Where is the home of {n}?",
        ),
        ("city", "town", "home_city", "location", "lives_in", "residence"),
    ),
    "job": Wording(
        (
            "{S} is {a}.",
            "{S} works as {a}.",
            "{S} likes to work as {a}.",
            "{P} job is that of {a}.",
            "{S} earns a living as {a}.",
        ),
        ("What is {n}'s job?", "What does {n} do for a living?", "What does {n} work as?", "What is the job of {n}?"),
        ("job", "profession", "occupation", "job_title", "work", "role"),
    ),
    "company": Wording(
        ("{S} works for {v}.", "{P} employer is {v}.", "{S} has a post at {v}.", "{S} is employed by {v}."),
        ("Which company does {n} work for?", "Who employs {n}?", "Where does {n} work?"),
        ("company", "employer", "firm", "organization", "works_for"),
    ),
    "pet": Wording(
        ("{S} has {a} at home.", "{S} owns {a}.", "{S} keeps {a}.", "{S} shares the house with {a}."),
        ("What pet does {n} have?", "Which animal does {n} own?", "What kind of pet does {n} keep?"),
        ("pet", "animal", "pet_type", "pet_kind"),
    ),
    "pet_name": Wording(
        ("{P} pet is called {v}.", "The name of {p} pet is {v}.", "{S} calls {p} pet {v}."),
        ("What is the name of {n}'s pet?", "What is {n}'s pet called?", "What does {n} call the pet?"),
        ("pet_name", "name_of_pet", "animal_name"),
    ),
    "hobbies": Wording(
        (
            "{S} enjoys {v}.",
            "{P} hobbies are {v}.",
            "In the evening {s} enjoys {v}.",
            "{S} loves {v}.",
            "{S} is fond of {v}.",
        ),
        ("What are {n}'s hobbies?", "What does {n} enjoy?", "What does {n} do for fun?", "What does {n} love?"),
        ("hobbies", "interests", "free_time", "likes"),
        "array",
    ),
    "colour": Wording(
        ("{P} favourite colour is {v}.", "{S} likes the colour {v} best.", "Of all colours, {s} prefers {v}."),
        ("What is {n}'s favourite colour?", "Which colour does {n} like best?", "What colour does {n} prefer?"),
        ("favourite_colour", "color", "favorite_color", "colour"),
    ),
    "food": Wording(
        (
            "{P} favourite food is {v}.",
            "{S} likes to eat {v}.",
            "{S} eats {v} every week.",
            "For dinner {s} often has {v}.",
        ),
        ("What is {n}'s favourite food?", "What does {n} like to eat?", "Which food does {n} like?"),
        ("food", "favourite_food", "favorite_food", "dish", "meal"),
    ),
    "drink": Wording(
        ("{S} drinks {v} every morning.", "{P} favourite drink is {v}.", "{S} always orders {v}."),
        ("What does {n} drink?", "What is {n}'s favourite drink?", "Which drink does {n} like?"),
        ("drink", "favourite_drink", "beverage"),
    ),
    "language": Wording(
        ("{S} is learning {v}.", "{S} takes lessons in {v}.", "{S} studies {v} at night."),
        ("Which language is {n} learning?", "What language does {n} study?"),
        ("language", "studies", "learning"),
    ),
    "instrument": Wording(
        ("{S} plays the {v}.", "{S} can play the {v} well.", "{S} practises the {v} every day."),
        ("Which instrument does {n} play?", "What instrument can {n} play?"),
        ("instrument", "music", "plays"),
    ),
    "birth_month": Wording(
        ("{S} was born in {v}.", "{P} birthday is in {v}.", "{S} has a birthday in {v}."),
        ("In which month was {n} born?", "When is {n}'s birthday?", "What is {n}'s birth month?"),
        ("birth_month", "month", "born_in", "birthday"),
    ),
    "children": Wording(
        ("{S} has {v} children.", "{S} is the parent of {v} children.", "{P} {v} children go to school."),
        ("How many children does {n} have?", "What is the number of {n}'s children?"),
        ("children", "num_children", "kids", "child_count"),
        "integer",
    ),
    "start_year": Wording(
        ("{S} started this work in {v}.", "{S} took up the job in {v}.", "{P} working life began in {v}."),
        ("When did {n} start to work?", "In which year did {n} start?", "In what year did {n} begin the job?"),
        ("start_year", "since", "year_started", "joined"),
        "integer",
    ),
    "phone": Wording(
        ("{P} phone number is {v}.", "You can call {p} office at {v}.", "{S} can be reached at {v}."),
        ("What is {n}'s phone number?", "What number reaches {n}?", "Which number should you call for {n}?"),
        ("phone", "phone_number", "telephone", "contact"),
    ),
    "email": Wording(
        ("{P} email address is {v}.", "{S} reads mail sent to {v}.", "You can write to {p} address {v}."),
        ("What is {n}'s email address?", "What is the email address of {n}?", "Where can you write to {n}?"),
        ("email", "email_address", "mail", "e_mail"),
    ),
}
PERSON_CHOICES: dict[str, Choice] = {
    "married": Choice(
        ("{S} is married.", "{S} is happily married.", "{S} married last year."),
        ("{S} is not married.", "{S} is single.", "{S} has never married."),
        ("Is {n} married?",),
        ("married", "is_married"),
    ),
    "car": Choice(
        ("{S} drives to work by car.", "{S} owns a car.", "{S} has a car."),
        ("{S} does not own a car.", "{S} has no car."),
        ("Does {n} have a car?", "Does {n} own a car?"),
        ("has_car", "owns_car", "car"),
    ),
}
PRODUCT: dict[str, Wording] = {
    "price": Wording(
        ("{S} costs {v}.", "{P} price is {v}.", "You can buy it for {v}.", "{S} is sold for {v}.", "It sells at {v}."),
        ("How much does the {n} cost?", "What is the price of the {n}?", "What does the {n} cost?"),
        ("price", "cost", "price_usd", "amount", "unit_price"),
        "number",
    ),
    "material": Wording(
        ("{S} is made of {v}.", "{P} main material is {v}.", "{S} consists mostly of {v}."),
        ("What is the {n} made of?", "Which material is the {n} made of?", "What is the material of the {n}?"),
        ("material", "made_of", "main_material"),
    ),
    "colours": Wording(
        ("{S} comes in {v}.", "You can choose between {v}.", "{P} colours are {v}.", "{S} is sold in {v}."),
        ("In which colours does the {n} come?", "What are the colours of the {n}?", "Which colours does the {n} have?"),
        ("colours", "colors", "available_colors", "variants"),
        "array",
    ),
    "weight": Wording(
        ("{S} weighs {v} kilograms.", "{P} weight is {v} kilograms.", "It has a weight of {v} kilograms."),
        ("How many kilograms does the {n} weigh?", "What is the weight of the {n} in kilograms?"),
        ("weight", "weight_kg", "mass", "kilograms"),
        "number",
    ),
    "shop_city": Wording(
        ("{S} is sold in a shop in {v}.", "You can find it in a shop in {v}.", "Buyers find it in a shop in {v}."),
        ("In which city can you find the {n}?", "Which city has the {n} in a shop?"),
        ("city", "place", "location", "town"),
    ),
    "warranty": Wording(
        ("{S} has a warranty of {v} years.", "{P} warranty lasts {v} years.", "The maker gives {v} years of warranty."),
        ("How many years of warranty does the {n} have?", "How many years does the warranty of the {n} last?"),
        ("warranty", "warranty_years", "guarantee"),
        "integer",
    ),
    "rating": Wording(
        ("Buyers rate it {v} out of 5.", "{P} rating is {v} out of 5.", "{S} has {v} out of 5 stars."),
        ("What is the rating of the {n}?", "How do buyers rate the {n}?", "How many stars does the {n} have?"),
        ("rating", "stars", "score", "review_score"),
        "number",
    ),
    "year": Wording(
        ("{S} was first sold in {v}.", "{S} came out in {v}.", "{S} has been made since {v}."),
        ("When did the {n} come out?", "In which year was the {n} first sold?"),
        ("year", "release_year", "launched", "since"),
        "integer",
    ),
    "code": Wording(
        ("{P} product code is {v}.", "{S} has the code {v}.", "In the list it has the number {v}."),
        ("What is the product code of the {n}?", "What is the code of the {n}?"),
        ("code", "sku", "product_code", "item_number"),
    ),
}
PRODUCT_CHOICES: dict[str, Choice] = {
    "stock": Choice(
        ("{S} is in stock.", "It is in stock now.", "{S} can be delivered today."),
        ("{S} is sold out.", "It is out of stock.", "{S} is not in stock now."),
        ("Is the {n} in stock?",),
        ("in_stock", "available", "is_available"),
    ),
}
EVENT: dict[str, Wording] = {
    "date": Wording(
        ("{S} is on {v}.", "{S} takes place on {v}.", "The date is {v}.", "It is planned for {v}."),
        ("When is the {n}?", "What is the date of the {n}?", "On which date does the {n} take place?"),
        ("date", "event_date", "when", "on"),
    ),
    "time": Wording(
        ("{S} starts at {v}.", "The doors open at {v}.", "{S} begins at {v}."),
        ("At what time does the {n} start?", "What is the start time of the {n}?", "What time does the {n} begin?"),
        ("time", "start_time", "starts_at", "start"),
    ),
    "place": Wording(
        ("{S} is held at {v}.", "People meet at {v}.", "{S} takes place at {v}."),
        ("Where is the {n} held?", "Where does the {n} take place?", "What is the place of the {n}?"),
        ("place", "venue", "where", "site"),
    ),
    "event_city": Wording(
        (
            "{S} brings many people to {v}.",
            "It is the best known event in {v}.",
            "Everyone in {v} looks forward to it.",
        ),
        ("In which city is the {n}?", "What is the city of the {n}?"),
        ("city", "town", "location"),
    ),
    "fee": Wording(
        ("A ticket costs {v}.", "Tickets are {v} each.", "The entry fee is {v}.", "You pay {v} at the door."),
        (
            "How much is a ticket for the {n}?",
            "What does it cost to enter the {n}?",
            "What is the entry fee of the {n}?",
        ),
        ("fee", "ticket_price", "entry", "price", "cost"),
        "number",
    ),
    "guests": Wording(
        ("About {v} guests are expected.", "{S} has room for {v} guests.", "Last year {v} guests came."),
        ("How many guests does the {n} have?", "What is the number of guests at the {n}?"),
        ("guests", "visitors", "num_guests", "capacity"),
        "integer",
    ),
    "host": Wording(
        ("{S} is organised by {v}.", "{v} leads the {n}.", "The host is {v}.", "Questions go to {v}."),
        ("Who is the host of the {n}?", "Who leads the {n}?", "Who organises the {n}?"),
        ("host", "organizer", "organiser", "contact", "leader"),
    ),
}
EVENT_CHOICES: dict[str, Choice] = {
    "outdoors": Choice(
        ("{S} is held outdoors.", "It all happens in the open air.", "{S} takes place under the open sky."),
        ("{S} is held indoors.", "It all happens indoors.", "{S} takes place under a roof."),
        ("Is the {n} outdoors?", "Is the {n} held outdoors?"),
        ("outdoors", "is_outdoors", "open_air"),
    ),
}
WORDINGS = {"person": PERSON, "product": PRODUCT, "event": EVENT}
CHOICES = {"person": PERSON_CHOICES, "product": PRODUCT_CHOICES, "event": EVENT_CHOICES}
NAME_KEYS = {
    "person": ("name", "full_name", "person", "who", "person_name"),
    "product": ("product", "name", "item", "product_name", "title"),
    "event": ("event", "name", "title", "event_name", "what"),
}
OPENERS = {
    "person": (
        "This is {N}.",
        "Let me tell you about {N}.",
        "Everybody knows {N}.",
        "{N} is a friend of mine.",
        "I met {N}.",
    ),
    "product": ("The {N} is new.", "This is the {N}.", "Many people like the {N}.", "We now sell the {N}."),
    "event": (
        "The {N} is near.",
        "Here is the plan for the {N}.",
        "Do not miss the {N}.",
        "Soon it is time for the {N}.",
    ),
}
FILLERS = (
    "The weather was mild that week.",
    "Many people were in the street.",
    "Nobody was in a hurry.",
    "It was a quiet year for most of us.",
    "The summer was long and warm.",
    "There was not much news in the paper.",
    "The shops closed early that day.",
    "Some things never change.",
    "The trains were late again.",
    "All of this was written down in a short letter.",
    "The rain did not stop for hours.",
    "The coffee was hot and strong.",
)
UNKNOWN = "unknown"
LISTS: dict[str, tuple[str, ...]] = {
    "colours": words("red blue green yellow orange purple pink brown black white grey"),
    "fruits": words("apple banana orange pear grape cherry plum peach mango lemon melon kiwi fig strawberry"),
    "vegetables": words("carrot potato onion cabbage spinach bean pea tomato pepper cucumber leek broccoli"),
    "animals": words("cat dog horse cow sheep goat lion tiger elephant bear wolf fox rabbit mouse monkey"),
    "birds": words("eagle owl crow sparrow duck goose swan parrot robin penguin pigeon hawk"),
    "fish": words("salmon trout tuna shark cod herring carp eel"),
    "insects": words("ant bee wasp fly moth butterfly beetle mosquito cricket"),
    "trees": words("oak pine birch maple willow beech elm ash fir cedar"),
    "flowers": words("rose tulip daisy lily sunflower violet orchid iris poppy"),
    "countries": (
        *words(
            """
            France Germany Italy Spain Portugal Poland Sweden Norway Finland Denmark Greece Turkey Egypt Kenya Nigeria
            Ghana         India China Japan Vietnam Thailand Australia Canada Mexico Brazil Peru Chile Argentina
            """
        ),
        "New Zealand",
    ),
    "cities": words("Paris London Berlin Rome Madrid Vienna Tokyo Cairo Lima Oslo Dublin Prague Athens Sydney"),
    "languages": words("English French German Spanish Italian Greek Polish Dutch Arabic Hindi Japanese Korean"),
    "planets": words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
    "continents": ("Africa", "Asia", "Europe", "North America", "South America", "Australia", "Antarctica"),
    "oceans": ("Pacific Ocean", "Atlantic Ocean", "Indian Ocean", "Arctic Ocean", "Southern Ocean"),
    "rivers": ("Nile", "Amazon", "Danube", "Rhine", "Thames", "Volga", "Ganges", "Mississippi", "Congo", "Seine"),
    "metals": words("iron gold silver copper tin lead zinc nickel aluminium"),
    "tools": words("hammer saw drill screwdriver wrench axe shovel rake knife"),
    "instruments": words("piano guitar violin flute drum cello harp trumpet clarinet"),
    "sports": words("football tennis basketball swimming boxing golf rugby hockey volleyball cycling"),
    "drinks": words("water tea coffee milk juice lemonade cocoa cider"),
    "jobs": words("teacher nurse baker farmer doctor lawyer pilot painter writer driver cook waiter"),
    "vehicles": words("car bus train bicycle truck boat ship plane tram van"),
    "kinds of furniture": words("chair table bed sofa desk shelf wardrobe bench"),
    "parts of the body": words("head arm leg hand foot knee elbow shoulder nose ear eye mouth"),
    "clothes": words("shirt coat hat jacket scarf sweater dress skirt belt sock"),
    "rooms of a house": (*words("kitchen bathroom bedroom hall cellar attic"), "living room"),
    "school subjects": words("history biology chemistry physics music art geography mathematics"),
    "shapes": words("circle square triangle rectangle oval star cube"),
}
ORDERED: dict[str, tuple[str, ...]] = {
    "days of the week": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "months of the year": words(
        "January February March April May June July August September October November December"
    ),
    "letters of the alphabet": tuple("ABCDEFGHIJ"),
    "planets from the sun": words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
}
SEASONS = ("spring", "summer", "autumn", "winter")
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
