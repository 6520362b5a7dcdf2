"""The sentence frames of the prose: what a sentence looks like, with slots that prose.py fills.

Slots: n, N hero, he, He, him, his, His; m friend, mhe; thing "red kite", a_thing, A_thing, thing2, a_thing2, things;
spot "the park", at "in the park", At; Time, day, season; sky any weather, storm bad weather; food a dish, Food, food2
a fruit; job, an_job, hobby, animal, an_animal, An_animal; rel "sister", city, feel, trait, size, color, color2.
"""

from dataclasses import dataclass

Frames = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One step of a text; an optional one is left out now and then."""

    frames: Frames
    chance: float = 1.0


Arc = tuple[Stage, ...]


def _always(*frames: str) -> Stage:
    return Stage(frames)


def _often(*frames: str) -> Stage:
    return Stage(frames, 0.6)


TIMES = (
    "One morning",
    "One evening",
    "One day",
    "Last week",
    "On Sunday",
    "On Monday",
    "One afternoon",
    "In the summer",
    "In the winter",
    "Late one night",
    "Early in the morning",
    "After breakfast",
    "Before dinner",
)
FEELINGS = ("happy", "proud", "tired", "calm", "excited", "thankful", "cheerful", "hopeful", "surprised", "relieved")
TRAITS = (
    "kind",
    "brave",
    "clever",
    "shy",
    "patient",
    "curious",
    "quiet",
    "friendly",
    "careful",
    "honest",
    "gentle",
    "funny",
)
RELATIVES = (
    "brother",
    "sister",
    "mother",
    "father",
    "aunt",
    "uncle",
    "grandmother",
    "grandfather",
    "cousin",
    "neighbor",
)
SEASONS = ("spring", "summer", "autumn", "winter")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SKIES = (
    "the sun was shining",
    "it was raining a little",
    "the sky was clear",
    "the air was fresh",
    "a few clouds were in the sky",
    "the wind was soft",
    "the birds were singing",
)
STORMS = (
    "it was raining",
    "the wind was cold",
    "the sky was gray",
    "the fog was thick",
    "dark clouds hung in the sky",
    "a strong wind was blowing",
    "the streets were wet",
)

LOST_THING: Arc = (
    _always(
        "{N} had {a_thing}, and {he} took it everywhere.",
        "{Time}, {n} could not find {his} {thing}.",
        "{N} was {trait}, but {he} often lost things.",
        "{Time}, when {n} came home, {his} {thing} was gone.",
        "There was nothing that {n} liked more than {his} {thing}.",
        "{N} got {a_thing} from {his} {rel}.",
    ),
    _always(
        "Then the {thing} was gone, and nobody knew where it was.",
        "Where was the {thing}?",
        "{He} had left the {thing} {at}, but {he} did not know it.",
        "Because {he} was in a hurry, {he} forgot where the {thing} was.",
        '"Where is my {thing}?" {he} asked.',
    ),
    _often(
        "{He} looked under the bed, behind the door and in every box.",
        "First {he} searched the house, and then {he} searched the garden.",
        "{He} looked everywhere, although it was already dark.",
        "For an hour {he} looked in every corner.",
    ),
    _often(
        "{He} was so sad that {he} did not want to eat.",
        "{He} almost cried, but then {he} had an idea.",
        "At first {he} was angry, and then {he} was only sad.",
    ),
    _always(
        "{m} saw it and wanted to help.",
        "{He} asked {m}, who lived next door.",
        "{m} said that they should look {at}.",
        '"I will help you," said {m}.',
        "Luckily, {m} came by and asked what was wrong.",
    ),
    _often(
        "Together they walked back to {spot}.",
        "They went along the road and looked at every stone.",
        "While they were walking, {sky}.",
        "So the two of them went to {spot} at once.",
    ),
    _always(
        "There it was, {at}!",
        "At last {m} found the {thing} {at}.",
        "The {thing} was lying {at}, just where {n} had left it.",
        "When they came to {spot}, they saw the {thing} right away.",
        "A {trait} old woman had found it {at} and gave it back.",
    ),
    _always(
        "{n} thanked {m} and smiled.",
        "{n} was so {feel} that {he} danced.",
        "From that day on, {n} always took good care of the {thing}.",
        "{He} never lost the {thing} again.",
        "In the evening they ate {food} together and laughed about it.",
        "If you lose something, it helps to have a friend.",
    ),
)
DAY_TRIP: Arc = (
    _always(
        "{Time}, {n} went to {spot} with {m}.",
        "{Time}, {n} and {m} decided to spend the day {at}.",
        "{n} had never been to {spot} before, so {m} went with {him}.",
        "When the holidays began, {n} wanted to visit {spot} with {m}.",
        "{n} and {m} lived in {city}, not far from {spot}.",
    ),
    _often(
        "Although {storm}, {he} was in a good mood.",
        "It was early, and {sky}.",
        "Because {storm}, {he} took an umbrella.",
        "{He} packed {a_thing2} and some {food2}.",
    ),
    _always(
        "{At} {he} saw {an_animal}, and it was not afraid of {him}.",
        "There were many people {at}, and some of them were singing.",
        "On the way {he} found {a_thing} and picked it up.",
        "{He} walked slowly and looked at everything.",
        "The first thing that {he} saw there was {a_thing}.",
    ),
    _often(
        '"Look at that {animal}!" said {m}.',
        '"What a fine day!" {n} said to {m}.',
        "{m} told a story about {a_thing}, and they both laughed.",
        "{m} wanted to rest, but {n} wanted to see more.",
    ),
    _often(
        "At noon they ate {food} and drank cold water.",
        "When they got hungry, they shared some {food2}.",
        "{m} had brought {food}, which tasted wonderful.",
    ),
    _often(
        "Later it began to rain, so they ran to the next house.",
        "In the afternoon they met {his} {rel}, who was very surprised.",
        "After that they played a game until they were tired.",
    ),
    _always(
        "When the sun went down, they walked home.",
        "They came home late, tired but {feel}.",
        "It was the best day of the whole {season}.",
        "{n} was {feel} and wanted to come back soon.",
        "At night {n} dreamed of {spot}.",
        "Since then {n} has gone to {spot} every {season}.",
    ),
)
LEARNING: Arc = (
    _always(
        "{n} wanted to learn {hobby}.",
        "{n} was {an_job} who dreamed of {hobby}.",
        "For a long time {n} had thought about {hobby}.",
        "{n} saw how well {m} was doing at {hobby}, and {he} wanted to try it too.",
    ),
    _always(
        "At first it was hard, and {he} made many mistakes.",
        "The first lesson was not easy.",
        "{He} did not know how to begin, so {he} asked {m}.",
        "Everyone said that {he} was too old for it.",
    ),
    _often(
        '"Do not give up," said {his} {rel}.',
        "{His} {rel} told {him} to be patient.",
        '"It takes time," said {m}, "but you can do it."',
        "{m} showed {him} a simple trick.",
    ),
    _always(
        "Every {day} {he} practiced for an hour.",
        "{He} practiced day after day, even when {storm}.",
        "So {he} got up early and worked hard.",
        "{He} practiced {at}, where nobody could see {him}.",
    ),
    _often(
        "After a month {he} was much better.",
        "Slowly it became easier.",
        "Then, all at once, it worked.",
        "By the end of the {season}, {he} had learned a lot.",
    ),
    _always(
        "In the end, even {m} was surprised.",
        "Now {n} teaches {hobby} to others.",
        "{n} was {feel}, because {he} had not given up.",
        "Today {he} is one of the best in {city}.",
        "What {he} liked most was that {he} had done it alone.",
    ),
)
GIFT: Arc = (
    _always(
        "It was the birthday of {m}, and {n} had no present.",
        "{n} wanted to give something special to {m}.",
        "{Time}, {n} thought about a present for {m}.",
        "{n} did not have much money, but {he} wanted to make {m} happy.",
    ),
    _often(
        "{He} had only three coins.",
        "In the shop everything was too expensive.",
        "{He} asked {his} {rel} for advice.",
        "What does a friend really need?",
    ),
    _always(
        "{At} {he} saw {a_thing}, and {he} liked it at once.",
        "So {he} decided to make {a_thing}.",
        "Then {he} remembered the {thing} in {his} room.",
        "{His} {rel} gave {him} {a_thing} and some paper to wrap it in.",
    ),
    _often(
        "{He} worked on it all night.",
        "{He} wrapped it carefully and wrote a short letter.",
        "On the way, {he} almost dropped it.",
        "{He} hid it until the next {day}.",
    ),
    _always(
        "When {m} opened the box, {mhe} smiled.",
        '"This is just what I wanted!" said {m}.',
        "{m} was so happy that {mhe} could not speak.",
        "{m} held the {thing} in both hands and laughed.",
    ),
    _always(
        "After that they ate {food} and talked for hours.",
        "{n} learned that a present does not have to be expensive.",
        "{n} went home and was {feel}.",
        "They have been good friends ever since.",
        "{m} still has the {thing} today.",
    ),
)
RESCUE: Arc = (
    _always(
        "{Time}, {n} heard a strange sound {at}.",
        "{Time}, {n} found {an_animal} {at}.",
        "{n} was on the way home when {he} saw {an_animal}.",
        "While {n} was waiting {at}, {an_animal} came up to {him}.",
    ),
    _always(
        "The {animal} was small and very thin.",
        "The {animal} looked hungry and cold.",
        "It was {an_animal}, and it could not get away.",
        "The poor {animal} had hurt its leg.",
    ),
    _often(
        "{n} did not know what to do, so {he} called {his} {rel}.",
        "Although {he} was a little afraid, {n} came closer.",
        '"Do not be afraid," {n} said softly.',
    ),
    _always(
        "{He} gave it some water and a warm place to sleep.",
        "{n} and {m} took it home in a basket.",
        "{He} put {his} coat around it and carried it home.",
        "{m}, who knew a lot about animals, told {him} what to do.",
    ),
    _often(
        "For a week it slept by the door.",
        "After a few days the {animal} was strong again.",
        "Every morning {n} looked after it before {he} went out.",
    ),
    _always(
        "Then {n} took it back to {spot}, and it looked back once.",
        "Now the {animal} comes to visit {him} every {season}.",
        "{n} was {feel}, because the {animal} was well again.",
        "The {animal} never forgot what {n} had done.",
    ),
)
PERSON_STORIES: tuple[Arc, ...] = (LOST_THING, DAY_TRIP, LEARNING, GIFT, RESCUE)

# The hero of these is an animal: "the little fox", it.
HUNGRY: Arc = (
    _always(
        "Once there was {a_hero} who lived {at}.",
        "{Time}, {n} woke up and was very hungry.",
        "{A_hero} lived {at} with three brothers.",
        "It was {season}, and {n} had nothing to eat.",
    ),
    _often(
        "It was cold, and {storm}.",
        "All the others were still asleep.",
        "There had been no food for two days.",
    ),
    _always(
        "{N} looked for food {at}, but found nothing.",
        "So {n} went out to look for something to eat.",
        "{N} ran up the hill and down again.",
        "First {n} went to {spot}, where it was quiet.",
    ),
    _always(
        "There sat {an_animal} with a big piece of bread.",
        "Behind a tree stood {an_animal}.",
        "Then {an_animal} came along the path.",
        "Who was there? It was {an_animal}!",
    ),
    _often(
        '"Are you hungry too?" asked the {animal}.',
        '"Please share your food with me," said {n}.',
        "At first they only looked at each other.",
        "{N} was shy and did not say a word.",
    ),
    _always(
        "The {animal} was kind and shared everything.",
        "They cut the bread in two, and each got one half.",
        "Together they found enough food for both.",
        "The {animal} knew a place where berries grew.",
    ),
    _always(
        "Since that day they have been friends.",
        "When {n} went to sleep that night, {he} was {feel}.",
        "And so {n} was never hungry again.",
        "A friend is worth more than a full bowl.",
        "After that, they met {at} every day.",
    ),
)
STORM: Arc = (
    _always(
        "{N} was afraid of storms.",
        "{Time}, {n} was far from home.",
        "Once {a_hero} got lost {at}.",
        "{N} lived in a small house near {spot}.",
    ),
    _always(
        "Suddenly the sky turned black, and the wind began to howl.",
        "Then a storm came, and the rain was heavy.",
        "When the thunder came, {n} hid under a bush.",
        "It grew dark, and {n} could not see the path.",
    ),
    _often(
        '"Is anybody there?" {he} called, but nobody answered.',
        "{N} shook from head to tail.",
        "{N} wanted to go home, but {he} did not know the way.",
    ),
    _always(
        "Just then {an_animal} came by with a lantern.",
        "An old {animal} heard the cry and opened the door.",
        "Then {n} saw a light and ran to it.",
    ),
    _often(
        '"Come in and get warm," said a soft voice.',
        "Inside it was warm, and there was {food} on the table.",
        "They told each other stories until the storm was over.",
    ),
    _always(
        "In the morning the sun was shining again.",
        "The next day {n} found the way home.",
        "Soon the rain stopped, and the birds began to sing.",
    ),
    _always(
        "Now {n} is not afraid of storms anymore.",
        "{N} was {feel} and ran home over the wet grass.",
        "Whenever it rains, {n} thinks of that night.",
        "Being brave means that you go on although you are afraid.",
    ),
)
ANIMAL_STORIES: tuple[Arc, ...] = (HUNGRY, STORM)

PLACE_ARC: Arc = (
    _always(
        "{city} is a small town near the sea.",
        "{city} is an old town between two hills.",
        "My favorite place is {city}.",
        "If you like quiet places, you should visit {city}.",
        "There is a place that I will never forget: {city}.",
    ),
    _always(
        "The houses are {color}, and their roofs are {color2}.",
        "In the middle there is a {size} square with a fountain.",
        "A {size} river runs through it, and there are three bridges.",
        "Its streets are narrow, but its gardens are {size}.",
    ),
    _often(
        "Every {day} there is a market where people sell {food} and {food2}.",
        "You can buy fresh {food2} on every corner.",
        "On {day} the shops are closed, and the streets are empty.",
    ),
    _often(
        "In {season} many visitors come, because the air is so clean.",
        "In {season} it is so quiet that you can hear the birds.",
        "When it rains, people meet in the cafe and drink tea.",
    ),
    _often(
        "The people are {trait}, and they like to talk about the weather.",
        "Nobody is ever in a hurry there.",
        "Almost everyone knows everyone else.",
        "The oldest person in the town is {an_job} called {n}.",
    ),
    _always(
        "I would like to live there one day.",
        "When I think of it, I have to smile.",
        "Once you have been there, you want to come back.",
        "It is not famous, but it is beautiful.",
        "Would you like to see it too?",
    ),
)
ROOM_ARC: Arc = (
    _always(
        "The room is {size} and full of light.",
        "My room is not big, but I like it.",
        "The kitchen is the warmest room in our house.",
        "In our house there is a {size} room that nobody uses.",
    ),
    _always(
        "Next to the window stands {a_thing}.",
        "On the table there is {a_thing}, and beside it lies an open book.",
        "There is {a_thing} in the corner.",
        "The walls are {color}, and the door is {color2}.",
    ),
    _often(
        "Under the bed lies {a_thing2} that belongs to my {rel}.",
        "If you open the door, you see {a_thing2}.",
        "Above the door hangs a picture of {an_animal}.",
    ),
    _often(
        "In the morning the sun comes in through the window.",
        "From the window you can see {spot}.",
        "It always smells of {food}.",
    ),
    _always(
        "I feel at home when I am there.",
        "It is a good place to read and to think.",
        "My friends like it as much as I do.",
        "I would not change a thing.",
    ),
)
LETTER_ARC: Arc = (
    _always(
        "Thank you for your letter.",
        "How are you?",
        "I hope that you are well.",
        "I have not heard from you for a long time.",
        "It was good to see you last week.",
    ),
    _always(
        "I am writing to you from {city}, where I have been since {day}. You would like it here.",
        "Last {day} I went to {spot} with my {rel}, and it was fun, although {storm}.",
        "My {rel} has bought {a_thing}, and now everybody wants one.",
        "We have a new neighbor, {an_job} who loves {hobby}.",
    ),
    _often(
        "Yesterday we ate {food} and talked until it was dark.",
        "I am well, and I work a lot.",
        "This morning I saw {an_animal}, which made me think of you.",
    ),
    _often(
        "Do you still have the {thing2} that I gave you?",
        "Have you started {hobby} again?",
        "Can you bring your {thing2} when you come?",
        "What are you doing in {season}?",
    ),
    _always(
        "Please write back soon.",
        "I hope to see you on {day}.",
        "Come and visit me when you have time.",
        "Give my best wishes to your family.",
    ),
)
DIARY_ARC: Arc = (
    _always(
        "Today was a long day.",
        "Today was a good day.",
        "I got up late today.",
        "I am tired, but I want to write this down.",
        "Nothing went as I had planned today.",
    ),
    _always(
        "In the morning I went to {spot}, and {sky}.",
        "I met {m} {at}, and we talked for an hour.",
        "I wanted to buy {a_thing}, but the shop was closed.",
        "My {rel} came to see me and brought {food}.",
    ),
    _often(
        "We talked about {hobby} and about old times.",
        "Then I lost my {thing2} and had to look for it.",
        "For lunch I had {food}, because there was nothing else.",
        "At work nobody was there except {m}.",
    ),
    _often(
        "I saw {an_animal} {at}, which does not happen every day.",
        "In the evening I read a book until I fell asleep.",
        "{m} says that I should try {hobby}.",
    ),
    _always(
        "Tomorrow I will get up earlier.",
        "Now I am {feel} and ready for bed.",
        "I hope that tomorrow will be just as good.",
        "Perhaps I will call {m} tomorrow.",
    ),
)
# Two people speak by turns, the hero first; "|" parts what the one says from what the other answers.
TALK_ARC: Arc = (
    _always(
        "Hello, {m}. How are you?|I am fine, thank you, {n}.",
        "Good morning, {m}!|Good morning, {n}. You are up early.",
        "Hi, {m}. Where have you been?|Hello, {n}. I have just come from {spot}.",
        "Good evening, {m}.|Hello, {n}. It is good to see you.",
        "Hello, is that you, {m}?|Yes, it is me.",
    ),
    _always(
        "What did you do on {day}?|I went to {spot} with my {rel}.",
        "Did you have a good weekend?|Yes, although {storm}.",
        "What is that in your hand?|It is {a_thing}. My {rel} gave it to me.",
        "What are you looking for?|I have lost my {thing}.",
        "Are you hungry?|Yes, I have not eaten since breakfast.",
        "Have you heard the news?|No, what has happened?",
        "Is your {rel} still {an_job}?|Yes, and happy about it.",
        "Do you like {hobby}?|Yes, I do it every {day}.",
        "Have you ever been to {city}?|Only once, in {season}.",
    ),
    _often(
        "Can you help me tomorrow?|Of course. When shall I come?",
        "Would you like some {food}?|Yes, please. That would be nice.",
        "What shall we eat tonight?|Let us have {food}.",
        "Do you know where my {thing2} is?|I think I saw it {at}.",
        "Is it far to {spot}?|No, we can walk.",
        "What will you do in {season}?|I want to learn {hobby}.",
    ),
    _often(
        "Shall we go for a walk?|Good idea. I will get my coat.",
        "Would you like to come with me?|I would love to, but I have no time.",
        "Look, there is {an_animal}!|Where? Oh, now I see it.",
        "Why are you so quiet today?|I am a little tired, that is all.",
    ),
    _always(
        "I have to go now.|All right. See you on {day}.",
        "Thank you for your help.|You are welcome.",
        "Will you call me tomorrow?|Yes, I will call you in the evening.",
        "Goodbye, {m}!|Goodbye, {n}!",
        "Then let us meet on {day}.|I will be there.",
    ),
)

# What is done, and how, one step after the other.
HOW_TO: tuple[tuple[str, Frames], ...] = (
    (
        "make a cup of tea",
        (
            "boil some water",
            "put a tea bag into a cup",
            "pour the hot water over it",
            "wait for three minutes",
            "take out the bag",
        ),
    ),
    (
        "boil an egg",
        (
            "fill a small pot with water",
            "heat the water until it boils",
            "put the egg in carefully",
            "wait for eight minutes",
            "cool the egg in cold water",
        ),
    ),
    (
        "plant a seed",
        (
            "fill a pot with soil",
            "make a small hole with your finger",
            "put the seed into the hole",
            "cover it with soil",
            "give it a little water",
        ),
    ),
    (
        "wash your hands",
        (
            "wet your hands with warm water",
            "take some soap",
            "rub your hands for twenty seconds",
            "rinse off the soap",
            "dry them with a clean towel",
        ),
    ),
    (
        "wrap a present",
        (
            "put the box on a sheet of paper",
            "cut the paper to the right size",
            "fold the paper around the box",
            "fix it with tape",
            "tie a ribbon around it",
        ),
    ),
    (
        "make a sandwich",
        (
            "take two slices of bread",
            "spread butter on one of them",
            "add a slice of cheese",
            "put some lettuce on top",
            "cover it with the other slice",
        ),
    ),
    (
        "write a letter",
        (
            "take a sheet of paper and a pen",
            "write the date at the top",
            "greet the person by name",
            "say what you want to say",
            "sign your name at the end",
        ),
    ),
    (
        "clean a window",
        (
            "fill a bucket with warm water",
            "add a little soap",
            "wash the glass with a soft cloth",
            "pull the water off",
            "dry the edges",
        ),
    ),
    (
        "paint a wall",
        (
            "cover the floor with paper",
            "put tape along the edges",
            "stir the paint well",
            "paint the wall from top to bottom",
            "let the paint dry",
        ),
    ),
    (
        "pack a suitcase",
        (
            "make a list of what you need",
            "put the heavy things at the bottom",
            "roll up your shirts",
            "fill the gaps with socks",
            "close the lid",
        ),
    ),
    (
        "borrow a book from the library",
        (
            "look for the book on the shelf",
            "take it to the desk",
            "show your card",
            "ask when it is due",
            "bring it back in time",
        ),
    ),
    (
        "change a light bulb",
        (
            "turn off the power",
            "wait until the old bulb is cool",
            "unscrew the old bulb",
            "screw in the new one",
            "turn the power on again",
        ),
    ),
    (
        "cook rice",
        (
            "wash the rice in cold water",
            "put it into a pot with twice as much water",
            "let it boil",
            "turn down the heat and close the lid",
            "wait until the water is gone",
        ),
    ),
    (
        "make a fruit salad",
        (
            "wash the fruit",
            "peel the apples and the bananas",
            "cut everything into small pieces",
            "mix the pieces in a bowl",
            "add some lemon juice",
        ),
    ),
    (
        "set the table",
        (
            "spread a clean cloth",
            "put a plate in front of each chair",
            "lay the fork on the left",
            "lay the knife on the right",
            "place a glass above the knife",
        ),
    ),
    (
        "send a parcel",
        (
            "put the thing into a box",
            "fill the box with soft paper",
            "close it with tape",
            "write the address on it",
            "take it to the post office",
        ),
    ),
)
TIPS: tuple[tuple[str, Frames], ...] = (
    (
        "sleeping well",
        (
            "Go to bed at the same time every day.",
            "Keep your room dark and cool.",
            "Do not drink coffee in the evening.",
            "Put your phone away an hour before bed.",
            "Read a few pages of a calm book.",
            "Open the window for a while.",
        ),
    ),
    (
        "learning a language",
        (
            "Learn a few words every day.",
            "Listen to songs and try to sing along.",
            "Speak with people as often as you can.",
            "Do not be afraid of mistakes.",
            "Write short texts about your day.",
            "Read simple books first.",
        ),
    ),
    (
        "saving money",
        (
            "Write down what you spend.",
            "Cook at home instead of eating out.",
            "Compare prices before you buy.",
            "Wait a day before you buy something big.",
            "Put some money aside every month.",
            "Repair things when you can.",
        ),
    ),
    (
        "staying healthy",
        (
            "Drink enough water.",
            "Eat fruit and vegetables every day.",
            "Take a walk after lunch.",
            "Use the stairs when you can.",
            "Sleep for about eight hours.",
            "Take a break when you are tired.",
        ),
    ),
    (
        "a good talk",
        (
            "Plan what you want to say.",
            "Start with a short story.",
            "Speak slowly and clearly.",
            "Look at the people in front of you.",
            "Use simple words.",
            "End with one clear thought.",
        ),
    ),
    (
        "keeping a garden",
        (
            "Water the plants early in the morning.",
            "Pull out weeds before they grow large.",
            "Give every plant enough space.",
            "Cut off dry leaves.",
            "Choose flowers that bees like.",
            "Keep the soil loose.",
        ),
    ),
    (
        "a tidy room",
        (
            "Put things back after you use them.",
            "Give each thing its own place.",
            "Make your bed in the morning.",
            "Clean a little every day.",
            "Give away what you do not need.",
            "Use boxes for small things.",
        ),
    ),
    (
        "a long train ride",
        (
            "Buy your ticket early.",
            "Take a book or some music.",
            "Bring water and something to eat.",
            "Wear comfortable shoes.",
            "Check the time of your next train.",
            "Keep your bag close to you.",
        ),
    ),
    (
        "studying",
        (
            "Find a quiet place.",
            "Put your phone in another room.",
            "Make a plan for the week.",
            "Take a short break every hour.",
            "Explain the topic to a friend.",
            "Repeat what you learned the day before.",
        ),
    ),
    (
        "making friends",
        (
            "Smile when you meet someone.",
            "Ask questions and listen to the answers.",
            "Remember the names of people.",
            "Join a club that you like.",
            "Be honest and patient.",
            "Invite people for a walk.",
        ),
    ),
)
# A subject and what can be said about it; each point is a sentence with its reason.
ESSAYS: tuple[tuple[str, Frames], ...] = (
    (
        "reading",
        (
            "it opens the door to other worlds",
            "it teaches us new words",
            "it is quiet and calm",
            "a book costs little and lasts long",
            "we learn how other people think",
        ),
    ),
    (
        "walking",
        (
            "it keeps the body healthy",
            "it costs nothing",
            "we see more when we go slowly",
            "it clears the head",
            "it is possible in every season",
        ),
    ),
    (
        "music",
        (
            "it brings people together",
            "it can make a sad day better",
            "everyone can learn to sing",
            "a song helps us to remember",
            "it needs no words",
        ),
    ),
    (
        "friendship",
        (
            "a friend helps when things go wrong",
            "joy is greater when it is shared",
            "friends tell us the truth",
            "nobody can do everything alone",
            "old friends share many memories",
        ),
    ),
    (
        "cooking at home",
        (
            "we know what is in our food",
            "it is cheaper than a restaurant",
            "it is fun to try new things",
            "a meal brings the family together",
            "fresh food tastes better",
        ),
    ),
    (
        "the library",
        (
            "it is open to everyone",
            "it offers more books than any house can hold",
            "it is a quiet place to work",
            "people there know how to help",
            "borrowing is better than buying too much",
        ),
    ),
    (
        "having a pet",
        (
            "an animal is never bored with us",
            "it teaches us to take care of others",
            "it makes a home less lonely",
            "a dog makes us go for walks",
            "children learn to be patient",
        ),
    ),
    (
        "getting up early",
        (
            "the morning is quiet",
            "there is more time for breakfast",
            "the air is fresh",
            "we can finish our work sooner",
            "we see the sun rise",
        ),
    ),
    (
        "riding a bicycle",
        (
            "it is fast and clean",
            "it makes the legs strong",
            "it needs little space",
            "there is no need to look for fuel",
            "the city becomes quieter",
        ),
    ),
    (
        "learning from mistakes",
        (
            "everybody makes them",
            "they show us what to change",
            "we remember them for a long time",
            "they make us patient with others",
            "without them we would not try new things",
        ),
    ),
    (
        "gardening",
        (
            "plants teach us to wait",
            "fresh vegetables taste good",
            "bees and birds find food there",
            "working outside is healthy",
            "even a small balcony is enough",
        ),
    ),
    (
        "writing letters",
        (
            "a letter can be kept for years",
            "we think before we write",
            "everybody likes to get mail",
            "it shows that we care",
            "paper needs no power",
        ),
    ),
)
ESSAY_OPENINGS = (
    "Many people like {s}, and there are good reasons for it.",
    "Why is {s} so good for us?",
    "I want to say a few words about {s}.",
    "There is much to be said for {s}.",
    "Not everyone thinks about {s}, but everyone should.",
    "When we talk about a good life, we should also talk about {s}.",
)
ESSAY_FIRSTS = (
    "First, {p}.",
    "To begin with, {p}.",
    "The first reason is that {p}.",
    "One reason is simple: {p}.",
    "For one thing, {p}.",
)
ESSAY_SECONDS = (
    "Second, {p}.",
    "Besides, {p}.",
    "Another reason is that {p}.",
    "We should also remember that {p}.",
    "What is more, {p}.",
)
ESSAY_CLOSINGS = (
    "That is why I think that {s} is worth our time.",
    "For these reasons, {s} should have a place in our lives.",
    "In short, {s} does us good.",
    "If you have not thought about {s} yet, today is a good day to start.",
    "So the next time somebody asks me about {s}, I know what to say.",
)

SENTENCES: Frames = (
    "{n} has {a_thing}.",
    "{n} lives in {city}.",
    "{n} is {an_job} and lives in {city}.",
    "{n} likes {food}, but {he} does not like {food2}.",
    "{Time}, {n} went to {spot}.",
    "When {n} came to {spot}, {sky}.",
    "Although {storm}, {n} stayed {at}.",
    "{n} smiled because {m} had brought {food}.",
    "Because {storm}, they did not go to {spot}.",
    "The {thing} that {n} bought was not expensive.",
    "Have you seen the {thing} {at}?",
    "Why did {n} leave the {thing} {at}?",
    "Who left {a_thing} {at}?",
    "{m} told {n} that the {thing} was broken.",
    "If {n} finds {his} {thing}, {he} will be {feel}.",
    "{n} and {m} met {at} and talked about {hobby}.",
    "There is {a_thing} {at}.",
    "There are many {things} {at}.",
    "{An_animal} was sitting {at}.",
    "The {animal} ran away when it saw {n}.",
    "{n}, who is {an_job}, loves {hobby}.",
    "After {he} had eaten, {n} went to bed.",
    "Before {n} left, {he} gave {a_thing} to {m}.",
    "{n} wants to visit {m} on {day}.",
    "It was {n} who found the {thing}.",
    "{n} is as {trait} as {his} {rel}.",
    "My {rel} has been {an_job} for ten years.",
    "While {n} was reading, {m} was making {food}.",
    "{n} did not know where the {thing} was.",
    "Please give the {thing} to {m}.",
    "Do not forget your {thing} when you go to {spot}.",
    "In {season}, {n} often goes to {spot}.",
    "{n} asked whether there was {food} for dinner.",
    "Nobody knew that {n} had {a_thing}.",
    "{A_thing} was lying {at}.",
    "What {n} needs is {a_thing}.",
    "{n} never goes to {spot} without {his} {rel}.",
    "Either {n} or {m} will bring the {food}.",
    "{n} was {feel}, and so was {m}.",
    "We waited {at} until {n} came.",
    "The {job} showed {a_thing} to {n}.",
    "On {day}, {n} will buy {a_thing} for {m}.",
    "Not far from {spot} lives {an_job} named {n}.",
    "How did {n} carry the {thing} to {spot}?",
    "{n} has always wanted to learn {hobby}.",
    "The more {n} practiced {hobby}, the better {he} became.",
    "As soon as {n} saw {m}, {he} began to laugh.",
    "{n} would rather eat {food} than {food2}.",
    "{Food} and {food2} were on the table.",
    "Since {day}, {n} has been in {city}.",
    "{n} thinks that {city} is beautiful.",
    "It is too cold to sit {at}.",
    "{n} put the {thing} next to the {thing2}.",
    "First {n} cleaned the {thing}, and then {he} rested.",
    "Both {n} and {m} enjoy {hobby}.",
    "{n} cannot sleep when {m} is singing.",
    "The old {job} from {city} told us a story.",
    "Has {n} ever been to {city}?",
    "{n} said that {he} would come on {day}.",
    "Even {m}, who is usually {trait}, was angry.",
    "Every {day}, {n} drinks tea {at}.",
    "No one was {at} except {n} and {his} {rel}.",
    "{n} forgot {his} {thing} {at} again.",
    "How {feel} {n} was!",
    "{n} was looking for {a_thing}, not for {a_thing2}.",
)
STORY_REQUESTS: Frames = (
    "Write a short story about {s}.",
    "Tell me a story about {s}.",
    "Write a story about {s}.",
    "Please tell a short story about {s}.",
    "I would like to hear a story about {s}.",
    "Story: {s}",
)
GREETINGS: Frames = ("Dear {m},", "Hello {m},", "Hi {m},", "My dear {m},")
CLOSINGS: Frames = ("Best wishes,", "Yours,", "See you soon,", "With love,", "Kind regards,")
COLORS = ("white", "red", "blue", "yellow", "green", "brown", "gray", "black", "orange", "pink")
SIZES = ("small", "large", "wide", "long", "quiet", "lovely", "little", "pretty")
DISHES = (
    "soup",
    "pasta",
    "salad",
    "pizza",
    "stew",
    "porridge",
    "toast",
    "pancakes",
    "cake",
    "pie",
    "noodles",
    "dumplings",
    "rice",
    "fresh bread",
    "sandwiches",
    "fried fish",
    "hot potatoes",
    "bread and cheese",
)
FRUITS = ("apples", "pears", "plums", "grapes", "cherries", "berries", "bananas", "oranges", "peaches", "nuts", "figs")
# Places that suit an animal, and animals that suit a story.
WILD_PLACES = (
    "in the park",
    "in the garden",
    "by the river",
    "on the beach",
    "in the forest",
    "on the hill",
    "at the lake",
    "on the farm",
    "in the barn",
    "in the valley",
    "on the island",
    "in the meadow",
    "in the orchard",
)
CREATURES = (
    *("cat", "dog", "rabbit", "hamster", "horse", "cow", "goat", "pig", "duck", "goose", "hen", "mouse", "fox", "wolf"),
    *(
        "bear",
        "deer",
        "owl",
        "frog",
        "turtle",
        "monkey",
        "lion",
        "tiger",
        "donkey",
        "squirrel",
        "hedgehog",
        "otter",
        "crow",
    ),
)
SMALL_CREATURES = (
    *(
        "cat",
        "dog",
        "rabbit",
        "duck",
        "goose",
        "hen",
        "mouse",
        "frog",
        "turtle",
        "squirrel",
        "hedgehog",
        "crow",
        "swan",
    ),
    *("goat", "lizard", "parrot", "fox", "owl"),
)
PROSE_ADJECTIVES = (
    *("red", "blue", "green", "yellow", "white", "black", "brown", "golden", "silver", "small", "big", "large", "tiny"),
    *("new", "old", "heavy", "light", "shiny", "plain", "pretty", "strange", "simple", "modern", "rare", "special"),
    *("lovely", "beautiful", "ordinary", "useful", "famous"),
)
CREATURE_TRAITS = (
    "little",
    "young",
    "old",
    "small",
    "brown",
    "shy",
    "clever",
    "brave",
    "friendly",
    "curious",
    "lazy",
    "gray",
)
