"""Word pools that the generators share. Decides which words the corpus knows, not what is said with them.

Every pool is a tuple in a fixed order, so that a seed always draws the same word.
"""

from dataclasses import dataclass

from scripts.demo_model.corpus.grammar import with_article


@dataclass(frozen=True)
class Noun:
    """A countable thing: "apple", "an apple", "apples"."""

    word: str
    one: str
    many: str


@dataclass(frozen=True)
class Person:
    """A first name with the pronouns that stand for it."""

    name: str
    he: str
    him: str
    his: str


@dataclass(frozen=True)
class Verb:
    base: str
    past: str


def _noun(entry: str) -> Noun:
    word, _, plural = entry.partition("/")
    return Noun(word, with_article(word), plural or word + "s")


def _nouns(text: str) -> tuple[Noun, ...]:
    return tuple(_noun(entry.strip()) for entry in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split(","))


def _verbs(text: str) -> tuple[Verb, ...]:
    return tuple(Verb(*entry.split("/")) for entry in text.split())


FEMALE_NAMES = _words("""
Anna Maria Emma Olivia Sophia Mia Lena Clara Nora Alice Julia Sara Laura Eva Ida Ella Lucy Grace Hannah Ruth Rosa
Maya Zoe Lily Amy Kate Jane Helen Diana Irene Greta Martha Marta Elena Nina Vera Olga Tanya Sonia Yuki Aiko Mei Lin
Priya Anita Leila Fatima Amina Zahra Noor Samira Layla Aisha Chloe Camille Claire Louise Margot Amelie Ines Carmen
Lucia Paula Teresa Pilar Bianca Chiara Giulia Paola Silvia Ingrid Astrid Freya Sigrid Karin Britta Petra Heidi Monika
Renata Agnes Beata Zofia Hana Jana Katya Mila Daria Polina Esther Miriam Naomi Rachel Leah Judith Abigail Stella
Violet Hazel Daisy Ivy Flora Iris Molly Holly Megan Bridget Fiona Isla Ailsa Moira Wendy Tessa Celia Thea Wilma Edith
Dora Celine
""")
MALE_NAMES = _words("""
Tom Ben Max Leo Paul Peter John James David Daniel Samuel Adam Noah Liam Lucas Felix Oscar Hugo Emil Anton Karl Otto
Fritz Hans Jonas Simon Martin Robert Henry George Arthur Frank Fred Jack Harry Charlie Oliver William Edward Philip
Andrew Mark Luke Matthew Thomas Stephen Michael Kevin Brian Ryan Sean Patrick Owen Dylan Evan Rhys Ivan Boris Dmitri
Pavel Marek Jakub Tomas Milan Goran Luka Marko Stefan Andrei Victor Omar Ali Hassan Karim Yusuf Ibrahim Tariq Samir
Rashid Bilal Ravi Arjun Amit Rahul Vikram Sanjay Kenji Hiro Takeshi Satoshi Wei Jun Chen Minh Kofi Kwame Jabari Tendai
Carlos Diego Pablo Miguel Jorge Luis Pedro Mateo Andres Rafael Marco Luca Paolo Enzo Matteo Pierre Louis Andre Henri
Olaf Sven Lars Nils Erik
""")
PEOPLE = tuple(Person(n, "she", "her", "her") for n in FEMALE_NAMES) + tuple(
    Person(n, "he", "him", "his") for n in MALE_NAMES
)
FIRST_NAMES = FEMALE_NAMES + MALE_NAMES

NOUNS = _nouns("""
apple, book, box/boxes, bag, ball, bell, bottle, bowl, brush/brushes, bucket, button, cake, camera, candle, card,
chair, clock, coat, coin, comb, cup, curtain, cushion, desk, dish/dishes, doll, door, drum, egg, envelope, fan,
feather, flag, flower, fork, glass/glasses, glove, guitar, hammer, hat, helmet, key, kettle, kite, ladder, lamp,
leaf/leaves, lemon, letter, lock, map, marble, mask, mirror, mug, nail, needle, net, notebook, orange, oven, paddle,
painting, pan, paper bag, pear, pen, pencil, pillow, pin, pipe, plate, pocket, pot, puzzle, radio, ring, rope, rug,
ruler, sack, scarf/scarves, shell, shirt, shoe, shovel, sock, sofa, spoon, stamp, sticker, stone, stool, suitcase,
table, tent, ticket, towel, toy, tray, trumpet, umbrella, vase, violin, wallet, watch/watches, wheel, whistle, window,
axe, basket, bead, belt, bench/benches, blanket, boat, bolt, brick, broom, bulb, cap, carpet, chain, cork, crown,
dress/dresses, eraser, flute, folder, frame, hook, jacket, jar, jug, knife/knives, lantern, magazine, magnet, medal,
newspaper, onion, photo, picture, plant, postcard, ribbon, seed, shelf/shelves, sponge, tile, torch/torches, tractor,
truck, wagon, wooden spoon, zip, bicycle, phone, robot, peach/peaches, plum, statue, train ticket, wreath
""")
_LARGE = _words("""
bicycle boat carpet bench chair curtain desk door ladder shelf sofa statue table tent tractor truck window robot plant
""")
SMALL_THINGS = tuple(noun for noun in NOUNS if noun.word not in _LARGE)  # what fits by the dozen into boxes
FOODS = _words("""
bread rice soup pasta cheese butter honey jam milk yogurt salad pizza stew porridge toast bacon ham fish chicken beef
lamb turkey salmon tuna tofu beans lentils peas corn carrots potatoes tomatoes onions garlic spinach cabbage lettuce
cucumber pumpkin mushrooms peppers olives apples pears plums grapes cherries berries bananas oranges lemons melon
mango pineapple peaches figs dates raisins nuts almonds walnuts peanuts chocolate biscuits cookies cake pie pancakes
waffles muffins pudding custard noodles dumplings sausages burgers chips popcorn crackers cereal oats eggs
omelettes curry tacos hummus sushi tea coffee cocoa juice lemonade water cream syrup vanilla ginger cinnamon mustard
vinegar pickles
""")
CITIES = _words("""
Oakford Brindel Marlow Tansey Elmbridge Fairhaven Northwick Silverton Redhill Greenport Stonegate Ashbury Millbrook
Westmere Lakewood Fernley Harbury Kingsmoor Dunmore Larkfield Rosedale Thornby Whitcombe Eastvale Bramley Copperton
Windham Pinecrest Hollowell Maplewood Seaford Foxley Ravensby Goldbridge Clayton Summerton Winterbourne Hazelton
Riverbend Calder
""")
# Each place stands with the preposition that it takes.
PLACES = _phrases("""
in the park, at the market, in the garden, at the library, at school, in the kitchen, at the station, by the river,
on the beach, in the forest, on the hill, at the museum, in the village, at the lake, on the farm, at the bakery,
in the square, at the harbor, in the old town, at the zoo, on the bridge, in the barn, at the airport, in the yard,
at the shop, in the attic, at the theater, in the valley, at the pool, on the island, in the meadow, at the cafe,
in the street, at the bus stop, in the orchard, at the gym, in the hotel, at the hospital, in the workshop,
at the playground
""")

ACTION_VERBS = _verbs("""
walk/walked run/ran sing/sang dance/danced sleep/slept read/read swim/swam wait/waited rest/rested play/played
work/worked cook/cooked paint/painted draw/drew write/wrote laugh/laughed smile/smiled cry/cried jump/jumped
climb/climbed ride/rode travel/traveled talk/talked listen/listened dream/dreamed study/studied train/trained
practice/practiced whistle/whistled eat/ate drink/drank think/thought sit/sat stand/stood shout/shouted
whisper/whispered hurry/hurried fish/fished sail/sailed row/rowed shop/shopped ski/skied skate/skated relax/relaxed
wander/wandered hide/hid fall/fell win/won lose/lost arrive/arrived leave/left stay/stayed return/returned
""")
THING_VERBS = _verbs("""
find/found buy/bought carry/carried clean/cleaned repair/repaired paint/painted sell/sold hold/held drop/dropped
lose/lost hide/hid bring/brought take/took keep/kept lift/lifted move/moved open/opened push/pushed pull/pulled
throw/threw catch/caught wash/washed wrap/wrapped borrow/borrowed lend/lent choose/chose see/saw want/wanted
need/needed like/liked love/loved share/shared show/showed send/sent get/got make/made build/built break/broke
fix/fixed count/counted collect/collected pack/packed draw/drew describe/described forget/forgot remember/remembered
admire/admired use/used check/checked touch/touched order/ordered polish/polished measure/measured
photograph/photographed weigh/weighed store/stored receive/received return/returned
examine/examined notice/noticed label/labeled save/saved
steal/stole bury/buried dig/dug sew/sewed
""")
VERBS = tuple(dict.fromkeys(ACTION_VERBS + THING_VERBS))

THING_ADJECTIVES = _words("""
red blue green yellow white black brown gray purple orange pink golden silver small big large tiny huge long short
round flat old new heavy light soft hard warm cold wet dry clean dirty broken shiny plain pretty ugly strange simple
cheap useful wooden empty full thin thick narrow wide sharp smooth rough bright dark loud square open curved fine
modern ancient common rare special ordinary famous lovely beautiful expensive
""")
PERSON_ADJECTIVES = _words("""
happy sad tired hungry thirsty angry calm proud shy brave kind clever curious careful lazy busy quiet friendly nervous
excited surprised worried lonely cheerful patient polite honest gentle funny serious strong weak young wise generous
grateful hopeful jealous bored afraid healthy sleepy eager
""")
ADJECTIVES = THING_ADJECTIVES + PERSON_ADJECTIVES

JOBS = _words("""
teacher doctor nurse baker farmer driver pilot cook painter singer writer builder gardener lawyer dentist
carpenter plumber electrician engineer librarian waiter tailor butcher cashier sailor soldier musician dancer actor
journalist photographer scientist mechanic cleaner shepherd miner judge mayor vet hairdresser architect pharmacist
""")
HOBBIES = _words("""
reading swimming painting cooking cycling hiking dancing singing fishing gardening knitting drawing skating skiing
running sailing climbing baking chess football tennis photography pottery yoga sewing surfing rowing camping
birdwatching juggling
""")
ANIMALS = _nouns("""
cat, dog, rabbit, hamster, parrot, goldfish/goldfish, horse, cow, sheep/sheep, goat, pig, duck, goose/geese, hen,
mouse/mice, rat, fox/foxes, wolf/wolves, bear, deer/deer, owl, eagle, frog, turtle, snake, lizard, monkey, elephant,
lion, tiger, zebra, camel, donkey, squirrel, hedgehog, otter, penguin, dolphin, whale, swan, crow, bee, ant, snail
""")
PET_NAMES = _words("""
Rex Bella Luna Milo Coco Toby Rusty Ginger Smokey Pepper Biscuit Patch Fluffy Sunny Nala Bruno Buddy Oreo Pip Tiger
""")

PLAIN_LABELS = _words("""
lamp river oak stone cloud chair table door window garden bridge tower castle forest island valley mountain ocean
desert meadow harbor anchor arrow basket bell blade blanket bottle branch brick brush bucket button cabin candle
canvas card carpet chain circle clay clock coat coin copper corner cotton crown crystal cup curtain desk diamond drum
dust eagle earth echo ember engine feather fence field flag flame flute fog fork fossil fountain frame gate glass
glove grain granite grass gravel hammer hat hedge helmet hill hinge hook horn iron ivory jacket jar jewel key kettle
kite knot ladder lantern leaf ledge lens letter lever lock log loom magnet maple marble mask mast metal mirror moss
moon mug nail needle nest net north notch oar olive onyx opal orbit orchid paddle page palm panel paper path pearl
pebble pencil petal pillar pillow pin pine pipe planet plate pocket pond post pot prism pulley quartz quill rail
raft ribbon ridge ring robe rocket roof root rope rose ruby rug ruler saddle sail salt sand satin scarf seed shadow
shed shelf shell shield ship shoe shore silk silver sky slate sled smoke socket spade spark spear sphere spoon
spring square stair star steam steel stem stick straw string sun sword tent thorn thread tile tin torch track tree
tunnel velvet vine violet wagon wall wax wheel willow wire wool
""")
INVENTED_LABELS = _words("""
blorp tavi zunda mirko felba quist dorvan lupik sarnel vesko plim grado hexa jorin kelba nimro opsil pravo rundo
slevic tombra ulvane wexil yarrow zibbet ardo bintle corvex drimo elvet fonda glimpo hurvin ildra jasko klepto lomri
mavik nostra ombel pexin quarl rivda sompa trelk umbra vandil wompo xander yendo zorbel aflin brusk clavi dempo
erwix frindle gorma hespin inkra jubble kranto lisdo mendra norvix ostel pundle rasko silvet tindor urvel vimple
wendro yolta zamic bexel cando dulvi fexin gravlin hondo jemvi kordel ludra mofin nexel parlo rombi skelf tulvo
vorna welko yibbin zelka
""")
LABEL_WORDS = tuple(dict.fromkeys(PLAIN_LABELS + INVENTED_LABELS))

# Plain one-word things for lists to copy, count and sort.
LIST_WORDS = tuple(
    dict.fromkeys(
        tuple(n.word for n in NOUNS if " " not in n.word)
        + tuple(n.word for n in ANIMALS)
        + PLAIN_LABELS
        + tuple(w for w in FOODS)
    )
)
