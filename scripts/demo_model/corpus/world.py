"""What the corpus says about the world: tables of facts, and the wordings that each relation is put in.

Knows no documents and no split. Facts as of 2026; a field "-" means that no single short answer is right, so nothing
is said. English names are written in ASCII. A country's name carries its article ("the Netherlands").
"""

# name | capital | currency | main official language | continent
COUNTRIES = """
Albania|Tirana|Albanian lek|Albanian|Europe
Andorra|Andorra la Vella|euro|Catalan|Europe
Austria|Vienna|euro|German|Europe
Belarus|Minsk|Belarusian ruble|-|Europe
Belgium|Brussels|euro|-|Europe
Bosnia and Herzegovina|Sarajevo|convertible mark|-|Europe
Bulgaria|Sofia|euro|Bulgarian|Europe
Croatia|Zagreb|euro|Croatian|Europe
the Czech Republic|Prague|Czech koruna|Czech|Europe
Denmark|Copenhagen|Danish krone|Danish|Europe
Estonia|Tallinn|euro|Estonian|Europe
Finland|Helsinki|euro|-|Europe
France|Paris|euro|French|Europe
Germany|Berlin|euro|German|Europe
Greece|Athens|euro|Greek|Europe
Hungary|Budapest|Hungarian forint|Hungarian|Europe
Iceland|Reykjavik|Icelandic krona|Icelandic|Europe
Ireland|Dublin|euro|-|Europe
Italy|Rome|euro|Italian|Europe
Latvia|Riga|euro|Latvian|Europe
Liechtenstein|Vaduz|Swiss franc|German|Europe
Lithuania|Vilnius|euro|Lithuanian|Europe
Luxembourg|Luxembourg|euro|-|Europe
Malta|Valletta|euro|-|Europe
Moldova|Chisinau|Moldovan leu|Romanian|Europe
Montenegro|Podgorica|euro|-|Europe
the Netherlands|Amsterdam|euro|Dutch|Europe
North Macedonia|Skopje|Macedonian denar|-|Europe
Norway|Oslo|Norwegian krone|Norwegian|Europe
Poland|Warsaw|Polish zloty|Polish|Europe
Portugal|Lisbon|euro|Portuguese|Europe
Romania|Bucharest|Romanian leu|Romanian|Europe
Russia|Moscow|Russian ruble|Russian|-
San Marino|San Marino|euro|Italian|Europe
Serbia|Belgrade|Serbian dinar|Serbian|Europe
Slovakia|Bratislava|euro|Slovak|Europe
Slovenia|Ljubljana|euro|Slovene|Europe
Spain|Madrid|euro|Spanish|Europe
Sweden|Stockholm|Swedish krona|Swedish|Europe
Switzerland|Bern|Swiss franc|-|Europe
Ukraine|Kyiv|Ukrainian hryvnia|Ukrainian|Europe
the United Kingdom|London|pound sterling|English|Europe
Afghanistan|Kabul|Afghan afghani|-|Asia
Armenia|Yerevan|Armenian dram|Armenian|-
Azerbaijan|Baku|Azerbaijani manat|Azerbaijani|-
Bahrain|Manama|Bahraini dinar|Arabic|Asia
Bangladesh|Dhaka|Bangladeshi taka|Bengali|Asia
Bhutan|Thimphu|-|Dzongkha|Asia
Brunei|Bandar Seri Begawan|Brunei dollar|Malay|Asia
Cambodia|Phnom Penh|Cambodian riel|Khmer|Asia
China|Beijing|Chinese yuan|Chinese|Asia
Cyprus|Nicosia|euro|-|-
East Timor|Dili|US dollar|-|Asia
Georgia|Tbilisi|Georgian lari|Georgian|-
India|New Delhi|Indian rupee|-|Asia
Indonesia|Jakarta|Indonesian rupiah|Indonesian|Asia
Iran|Tehran|Iranian rial|Persian|Asia
Iraq|Baghdad|Iraqi dinar|-|Asia
Japan|Tokyo|Japanese yen|Japanese|Asia
Jordan|Amman|Jordanian dinar|Arabic|Asia
Kazakhstan|Astana|Kazakh tenge|-|Asia
Kuwait|Kuwait City|Kuwaiti dinar|Arabic|Asia
Kyrgyzstan|Bishkek|Kyrgyz som|-|Asia
Laos|Vientiane|Lao kip|Lao|Asia
Lebanon|Beirut|Lebanese pound|Arabic|Asia
the Maldives|Male|Maldivian rufiyaa|Dhivehi|Asia
Mongolia|Ulaanbaatar|Mongolian tugrik|Mongolian|Asia
Myanmar|Naypyidaw|Burmese kyat|Burmese|Asia
Nepal|Kathmandu|Nepalese rupee|Nepali|Asia
North Korea|Pyongyang|North Korean won|Korean|Asia
Oman|Muscat|Omani rial|Arabic|Asia
Pakistan|Islamabad|Pakistani rupee|-|Asia
the Philippines|Manila|Philippine peso|-|Asia
Qatar|Doha|Qatari riyal|Arabic|Asia
Saudi Arabia|Riyadh|Saudi riyal|Arabic|Asia
Singapore|Singapore|Singapore dollar|-|Asia
South Korea|Seoul|South Korean won|Korean|Asia
Syria|Damascus|Syrian pound|Arabic|Asia
Tajikistan|Dushanbe|Tajik somoni|Tajik|Asia
Thailand|Bangkok|Thai baht|Thai|Asia
Turkey|Ankara|Turkish lira|Turkish|-
Turkmenistan|Ashgabat|Turkmen manat|Turkmen|Asia
the United Arab Emirates|Abu Dhabi|UAE dirham|Arabic|Asia
Uzbekistan|Tashkent|Uzbek som|Uzbek|Asia
Vietnam|Hanoi|Vietnamese dong|Vietnamese|Asia
Algeria|Algiers|Algerian dinar|Arabic|Africa
Angola|Luanda|Angolan kwanza|Portuguese|Africa
Botswana|Gaborone|Botswana pula|English|Africa
Burkina Faso|Ouagadougou|West African CFA franc|-|Africa
Cameroon|Yaounde|Central African CFA franc|-|Africa
Cape Verde|Praia|Cape Verdean escudo|Portuguese|Africa
the Central African Republic|Bangui|Central African CFA franc|-|Africa
Chad|N'Djamena|Central African CFA franc|-|Africa
the Comoros|Moroni|Comorian franc|-|Africa
the Democratic Republic of the Congo|Kinshasa|Congolese franc|French|Africa
the Republic of the Congo|Brazzaville|Central African CFA franc|French|Africa
Djibouti|Djibouti|Djiboutian franc|-|Africa
Egypt|Cairo|Egyptian pound|Arabic|Africa
Eritrea|Asmara|Eritrean nakfa|-|Africa
Ethiopia|Addis Ababa|Ethiopian birr|-|Africa
Gabon|Libreville|Central African CFA franc|French|Africa
the Gambia|Banjul|Gambian dalasi|English|Africa
Ghana|Accra|Ghanaian cedi|English|Africa
Guinea|Conakry|Guinean franc|French|Africa
Guinea-Bissau|Bissau|West African CFA franc|Portuguese|Africa
Kenya|Nairobi|Kenyan shilling|-|Africa
Lesotho|Maseru|Lesotho loti|-|Africa
Liberia|Monrovia|-|English|Africa
Libya|Tripoli|Libyan dinar|Arabic|Africa
Madagascar|Antananarivo|Malagasy ariary|-|Africa
Malawi|Lilongwe|Malawian kwacha|English|Africa
Mali|Bamako|West African CFA franc|-|Africa
Mauritania|Nouakchott|Mauritanian ouguiya|Arabic|Africa
Mauritius|Port Louis|Mauritian rupee|-|Africa
Morocco|Rabat|Moroccan dirham|Arabic|Africa
Mozambique|Maputo|Mozambican metical|Portuguese|Africa
Namibia|Windhoek|Namibian dollar|English|Africa
Niger|Niamey|West African CFA franc|-|Africa
Nigeria|Abuja|Nigerian naira|English|Africa
Rwanda|Kigali|Rwandan franc|-|Africa
Sao Tome and Principe|Sao Tome|Sao Tomean dobra|Portuguese|Africa
Senegal|Dakar|West African CFA franc|French|Africa
Seychelles|Victoria|Seychellois rupee|-|Africa
Sierra Leone|Freetown|Sierra Leonean leone|English|Africa
Somalia|Mogadishu|Somali shilling|-|Africa
South Sudan|Juba|South Sudanese pound|English|Africa
Sudan|Khartoum|Sudanese pound|-|Africa
Tanzania|Dodoma|Tanzanian shilling|-|Africa
Togo|Lome|West African CFA franc|French|Africa
Tunisia|Tunis|Tunisian dinar|Arabic|Africa
Uganda|Kampala|Ugandan shilling|-|Africa
Zambia|Lusaka|Zambian kwacha|English|Africa
Argentina|Buenos Aires|Argentine peso|Spanish|South America
the Bahamas|Nassau|Bahamian dollar|English|North America
Barbados|Bridgetown|Barbadian dollar|English|North America
Belize|Belmopan|Belize dollar|English|North America
Brazil|Brasilia|Brazilian real|Portuguese|South America
Canada|Ottawa|Canadian dollar|-|North America
Chile|Santiago|Chilean peso|Spanish|South America
Colombia|Bogota|Colombian peso|Spanish|South America
Costa Rica|San Jose|Costa Rican colon|Spanish|North America
Cuba|Havana|Cuban peso|Spanish|North America
Dominica|Roseau|East Caribbean dollar|English|North America
the Dominican Republic|Santo Domingo|Dominican peso|Spanish|North America
Ecuador|Quito|US dollar|Spanish|South America
El Salvador|San Salvador|-|Spanish|North America
Grenada|Saint George's|East Caribbean dollar|English|North America
Guatemala|Guatemala City|Guatemalan quetzal|Spanish|North America
Guyana|Georgetown|Guyanese dollar|English|South America
Haiti|Port-au-Prince|Haitian gourde|-|North America
Honduras|Tegucigalpa|Honduran lempira|Spanish|North America
Jamaica|Kingston|Jamaican dollar|English|North America
Mexico|Mexico City|Mexican peso|Spanish|North America
Nicaragua|Managua|Nicaraguan cordoba|Spanish|North America
Panama|Panama City|-|Spanish|North America
Paraguay|Asuncion|Paraguayan guarani|-|South America
Peru|Lima|Peruvian sol|Spanish|South America
Saint Lucia|Castries|East Caribbean dollar|English|North America
Suriname|Paramaribo|Surinamese dollar|Dutch|South America
Trinidad and Tobago|Port of Spain|Trinidad and Tobago dollar|English|North America
the United States|Washington|US dollar|English|North America
Uruguay|Montevideo|Uruguayan peso|Spanish|South America
Venezuela|Caracas|Venezuelan bolivar|Spanish|South America
Australia|Canberra|Australian dollar|English|Oceania
Fiji|Suva|Fijian dollar|-|Oceania
the Marshall Islands|Majuro|US dollar|-|Oceania
Micronesia|Palikir|US dollar|English|Oceania
New Zealand|Wellington|New Zealand dollar|English|Oceania
Palau|Ngerulmud|US dollar|-|Oceania
Papua New Guinea|Port Moresby|Papua New Guinean kina|-|Oceania
Samoa|Apia|Samoan tala|-|Oceania
the Solomon Islands|Honiara|Solomon Islands dollar|English|Oceania
Tonga|Nuku'alofa|Tongan pa'anga|-|Oceania
Tuvalu|Funafuti|Australian dollar|-|Oceania
Vanuatu|Port Vila|Vanuatu vatu|-|Oceania
"""

# name | symbol | atomic number | state at room temperature
ELEMENTS = """
hydrogen|H|1|gas
helium|He|2|gas
lithium|Li|3|solid
beryllium|Be|4|solid
boron|B|5|solid
carbon|C|6|solid
nitrogen|N|7|gas
oxygen|O|8|gas
fluorine|F|9|gas
neon|Ne|10|gas
sodium|Na|11|solid
magnesium|Mg|12|solid
aluminium|Al|13|solid
silicon|Si|14|solid
phosphorus|P|15|solid
sulfur|S|16|solid
chlorine|Cl|17|gas
argon|Ar|18|gas
potassium|K|19|solid
calcium|Ca|20|solid
scandium|Sc|21|solid
titanium|Ti|22|solid
vanadium|V|23|solid
chromium|Cr|24|solid
manganese|Mn|25|solid
iron|Fe|26|solid
cobalt|Co|27|solid
nickel|Ni|28|solid
copper|Cu|29|solid
zinc|Zn|30|solid
gallium|Ga|31|solid
germanium|Ge|32|solid
arsenic|As|33|solid
selenium|Se|34|solid
bromine|Br|35|liquid
krypton|Kr|36|gas
zirconium|Zr|40|solid
molybdenum|Mo|42|solid
palladium|Pd|46|solid
silver|Ag|47|solid
cadmium|Cd|48|solid
tin|Sn|50|solid
antimony|Sb|51|solid
iodine|I|53|solid
xenon|Xe|54|gas
barium|Ba|56|solid
tungsten|W|74|solid
platinum|Pt|78|solid
gold|Au|79|solid
mercury|Hg|80|liquid
lead|Pb|82|solid
bismuth|Bi|83|solid
radon|Rn|86|gas
radium|Ra|88|solid
uranium|U|92|solid
plutonium|Pu|94|solid
"""

# name | kind, from the Sun outwards
PLANETS = """
Mercury|rocky planet
Venus|rocky planet
Earth|rocky planet
Mars|rocky planet
Jupiter|gas giant
Saturn|gas giant
Uranus|ice giant
Neptune|ice giant
"""

PLANET_CLUES = """
the largest planet of the Solar System|Jupiter
the smallest planet of the Solar System|Mercury
the planet closest to the Sun|Mercury
the planet farthest from the Sun|Neptune
the hottest planet of the Solar System|Venus
the planet on which we live|Earth
the planet that is called the Red Planet|Mars
the planet that is famous for its bright rings|Saturn
the planet that spins on its side|Uranus
the planet between Venus and Mars|Earth
the planet between Earth and Jupiter|Mars
the planet with the Great Red Spot|Jupiter
"""

# name | days in an ordinary year
MONTHS = """
January|31
February|28
March|31
April|30
May|31
June|30
July|31
August|31
September|30
October|31
November|30
December|31
"""

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)

# large unit | its plural | small unit in the plural | how many
UNITS = """
metre|metres|centimetres|100
kilometre|kilometres|metres|1000
centimetre|centimetres|millimetres|10
kilogram|kilograms|grams|1000
gram|grams|milligrams|1000
tonne|tonnes|kilograms|1000
litre|litres|millilitres|1000
minute|minutes|seconds|60
hour|hours|minutes|60
day|days|hours|24
week|weeks|days|7
year|years|months|12
decade|decades|years|10
century|centuries|years|100
millennium|millennia|years|1000
dozen|dozens|pieces|12
foot|feet|inches|12
yard|yards|feet|3
pound|pounds|ounces|16
mile|miles|yards|1760
second|seconds|milliseconds|1000
euro|euros|cents|100
dollar|dollars|cents|100
kilowatt|kilowatts|watts|1000
hectare|hectares|square metres|10000
full circle|full circles|degrees|360
right angle|right angles|degrees|90
"""

# name | plural | class | number of legs | sound | young | home
ANIMALS = """
dog|dogs|mammal|four|bark|puppy|kennel
cat|cats|mammal|four|meow|kitten|-
cow|cows|mammal|four|moo|calf|-
horse|horses|mammal|four|neigh|foal|stable
donkey|donkeys|mammal|four|bray|foal|-
sheep|sheep|mammal|four|bleat|lamb|-
goat|goats|mammal|four|bleat|kid|-
pig|pigs|mammal|four|oink|piglet|sty
lion|lions|mammal|four|roar|cub|den
tiger|tigers|mammal|four|roar|cub|-
bear|bears|mammal|four|-|cub|den
wolf|wolves|mammal|four|howl|-|den
fox|foxes|mammal|four|-|-|-
rabbit|rabbits|mammal|four|-|-|burrow
hare|hares|mammal|four|-|leveret|-
mouse|mice|mammal|four|squeak|-|-
squirrel|squirrels|mammal|four|-|-|-
beaver|beavers|mammal|four|-|-|lodge
mole|moles|mammal|four|-|-|burrow
deer|deer|mammal|four|-|fawn|-
elephant|elephants|mammal|four|trumpet|calf|-
giraffe|giraffes|mammal|four|-|calf|-
zebra|zebras|mammal|four|-|foal|-
camel|camels|mammal|four|-|calf|-
kangaroo|kangaroos|mammal|-|-|joey|-
koala|koalas|mammal|four|-|joey|-
bat|bats|mammal|-|-|-|-
whale|whales|mammal|-|-|calf|-
dolphin|dolphins|mammal|-|-|calf|-
seal|seals|mammal|-|-|-|-
hedgehog|hedgehogs|mammal|four|-|-|-
chicken|chickens|bird|two|cluck|chick|coop
duck|ducks|bird|two|quack|duckling|-
goose|geese|bird|two|honk|gosling|-
swan|swans|bird|two|-|cygnet|-
turkey|turkeys|bird|two|gobble|-|-
crow|crows|bird|two|caw|-|nest
sparrow|sparrows|bird|two|chirp|-|nest
robin|robins|bird|two|-|-|nest
pigeon|pigeons|bird|two|coo|-|-
owl|owls|bird|two|hoot|-|-
eagle|eagles|bird|two|-|-|nest
penguin|penguins|bird|two|-|chick|-
parrot|parrots|bird|two|-|-|-
ostrich|ostriches|bird|two|-|-|-
snake|snakes|reptile|-|hiss|-|-
lizard|lizards|reptile|-|-|-|-
crocodile|crocodiles|reptile|four|-|-|-
turtle|turtles|reptile|-|-|-|-
frog|frogs|amphibian|four|croak|tadpole|-
toad|toads|amphibian|four|-|tadpole|-
newt|newts|amphibian|four|-|-|-
shark|sharks|fish|-|-|-|-
salmon|salmon|fish|-|-|-|-
tuna|tuna|fish|-|-|-|-
trout|trout|fish|-|-|-|-
herring|herring|fish|-|-|-|-
bee|bees|insect|six|buzz|-|hive
wasp|wasps|insect|six|-|-|nest
ant|ants|insect|six|-|-|nest
fly|flies|insect|six|-|-|-
beetle|beetles|insect|six|-|-|-
butterfly|butterflies|insect|six|-|caterpillar|-
cricket|crickets|insect|six|chirp|-|-
mosquito|mosquitoes|insect|six|-|-|-
spider|spiders|arachnid|eight|-|-|web
scorpion|scorpions|arachnid|eight|-|-|-
"""

# colour: things
COLOURS = """
red: blood, a ripe tomato, a strawberry, a ripe cherry, a ruby, ketchup, a stop sign
orange: a carrot, a pumpkin, an apricot, a ripe orange
yellow: a ripe banana, a ripe lemon, butter, mustard, a sunflower, an egg yolk, a daffodil
green: grass, a pea, broccoli, spinach, a cucumber, an emerald, a lime, a leaf in summer
blue: the clear sky at noon, a blueberry, a sapphire
purple: an aubergine, lavender, a ripe plum
pink: a flamingo, a piglet
brown: chocolate, tree bark, cinnamon, a chestnut, garden soil
black: coal, tar, a crow, a raven, the sky at night
white: snow, milk, sugar, salt, flour, a polar bear, cotton, chalk
grey: an elephant, ash, a dolphin, a rain cloud
"""

# two colours | their mixture
MIXTURES = """
blue and yellow|green
red and yellow|orange
red and blue|purple
black and white|grey
red and white|pink
"""

OPPOSITES = """
hot cold, big small, long short, young old, strong weak, rich poor, heavy light, fast slow, happy sad, wet dry,
clean dirty, hard soft, rough smooth, loud quiet, early late, near far, high low, wide narrow, thick thin,
deep shallow, sharp blunt, brave cowardly, kind cruel, polite rude, true false, left right, good bad, love hate,
win lose, buy sell, push pull, give take, laugh cry, remember forget, increase decrease, float sink,
success failure, war peace, friend enemy, life death, alive dead, asleep awake, guilty innocent, safe dangerous,
cheap expensive, possible impossible, visible invisible, public private, ancient modern, major minor,
maximum minimum, north south, east west, top bottom, inside outside, above below, front back, before after,
always never, everything nothing, everybody nobody, many few, more less, same different, tight loose, sweet sour,
generous selfish, wise foolish, beautiful ugly, honest dishonest, lucky unlucky, patient impatient, accept reject,
attack defend, build destroy, borrow lend, teach learn, question answer, entrance exit, male female, day night,
summer winter, hero villain, profit loss, import export, odd even, positive negative, lock unlock,
appear disappear, agree disagree, include exclude, expand shrink, freeze melt, junior senior, hope despair,
fresh stale, raw cooked, wild tame, horizontal vertical, natural artificial, temporary permanent, rare common,
active passive, full empty, open closed, up down, begin end, arrive leave
"""

PLURALS = """
cat cats, dog dogs, book books, table tables, chair chairs, car cars, tree trees, house houses, apple apples,
flower flowers, river rivers, box boxes, bus buses, dish dishes, glass glasses, church churches, watch watches,
fox foxes, class classes, bench benches, brush brushes, city cities, baby babies, lady ladies, story stories,
country countries, berry berries, party parties, puppy puppies, family families, boy boys, key keys, monkey monkeys,
toy toys, day days, leaf leaves, knife knives, wife wives, life lives, wolf wolves, shelf shelves, half halves,
loaf loaves, thief thieves, calf calves, tomato tomatoes, potato potatoes, hero heroes, piano pianos, photo photos,
man men, woman women, child children, foot feet, tooth teeth, goose geese, mouse mice, person people, ox oxen,
sheep sheep, deer deer, fish fish, crisis crises, window windows, letter letters, school schools, friend friends,
kiss kisses, peach peaches, lorry lorries, scarf scarves
"""

PAST_TENSES = """
go went, come came, see saw, eat ate, drink drank, run ran, swim swam, sing sang, begin began, write wrote,
drive drove, ride rode, speak spoke, break broke, take took, give gave, make made, have had, do did, say said,
tell told, sell sold, buy bought, bring brought, think thought, catch caught, teach taught, find found, keep kept,
sleep slept, feel felt, leave left, meet met, lose lost, win won, know knew, grow grew, fly flew, draw drew,
wear wore, choose chose, forget forgot, fall fell, hear heard, hold held, build built, send sent, spend spent,
stand stood, sit sat, put put, cut cut, walk walked, talk talked, play played, work worked, look looked, help helped,
carry carried, study studied, stop stopped, plan planned, like liked, live lived, open opened, ask asked,
answer answered, jump jumped, wait waited, cook cooked, try tried, visit visited
"""

NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS_WORDS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

# What may stand as a wrong answer although no fact of the relation has it.
DECOYS = {
    "month days": ("26", "27", "32", "34"),
    "state": ("plasma",),
    "planet kind": ("star", "moon", "comet"),
    "legs": ("three", "five", "ten"),
    "home": ("garage",),
}

# A line with | is a sentence, split where the model goes on; with + before it, it follows another sentence about
# the same subject. A line without | asks. {x} and {X} are the subject, inside a sentence and at its start; {a} is the
# answer, {A} too, at the start of a sentence.
WORDINGS = {
    "capital": """
The capital of {x} is| {a}.
The capital city of {x} is| {a}.
The city that is the capital of {x} is called| {a}.
The name of the capital of {x} is| {a}.
In {x}, the capital is| {a}.
Ask anybody in {x}, and you hear that the capital is| {a}.
{X} has its capital in| {a}.
{X} has a capital, and its name is| {a}.
At school, children in {x} learn that the capital is| {a}.
Everybody in {x} knows that the capital is| {a}.
On a map of {x}, the capital is marked as| {a}.
A traveller to the capital of {x} arrives in| {a}.
What is the capital of {x}?
Which city is the capital of {x}?
What is the capital city of {x}?
What is the name of the capital of {x}?
What city is the capital of {x}?
Name the capital of {x}.
Tell me the capital of {x}.
Can you tell me the capital of {x}?
Do you know the capital of {x}?
What is the capital called in {x}?
{X} has which city as its capital?
I am looking for the capital of {x}. What is it called?
I forgot the capital of {x}. Which city is it?
+ Its capital is| {a}.
+ Its capital city is| {a}.
+ The capital is| {a}.
+ Its capital is called| {a}.
+ The name of its capital is| {a}.
+ The capital city is called| {a}.
""",
    "country of capital": """
{X} is the capital of| {a}.
{X} is the capital city of| {a}.
The city of {x} is the capital of| {a}.
The country whose capital is {x} is| {a}.
The country with the capital {x} is| {a}.
A city named {x} is the capital of| {a}.
{X} serves as the capital of| {a}.
{X} is a city. It is the capital of| {a}.
Whoever visits {x} visits the capital of| {a}.
Which country has {x} as its capital?
Which country is {x} the capital of?
What country is {x} the capital of?
Of which country is {x} the capital?
Name the country whose capital is {x}.
Which country's capital is {x}?
Tell me which country has the capital {x}.
""",
    "currency": """
The currency of {x} is| the {a}.
The official currency of {x} is| the {a}.
The money of {x} is| the {a}.
The currency used in {x} is| the {a}.
In {x}, people pay with| the {a}.
People in {x} pay with| the {a}.
In {x}, prices are given in one currency,| the {a}.
{X} uses a currency called| the {a}.
What is the currency of {x}?
Which currency is used in {x}?
What currency does {x} use?
What do people pay with in {x}?
What money do people use in {x}?
Which currency do I need for a trip to {x}?
Name the currency of {x}.
Tell me the currency of {x}.
+ Its currency is| the {a}.
+ The currency is| the {a}.
+ People there pay with| the {a}.
+ The official currency is| the {a}.
+ The money used there is| the {a}.
""",
    "country of currency": """
The {x} is the currency of| {a}.
The {x} is the money of| {a}.
The {x} is used in| {a}.
The country that uses the {x} is| {a}.
The country whose currency is the {x} is| {a}.
If you pay with the {x}, you are probably in| {a}.
Which country uses the {x}?
In which country do people pay with the {x}?
Which country has the {x} as its currency?
Which country is the {x} the currency of?
Name the country that uses the {x}.
""",
    "language": """
The main official language of {x} is| {a}.
The official language of {x} is| {a}.
In {x}, the official language is| {a}.
The language of the government in {x} is| {a}.
{X} has a main official language,| {a}.
Official papers in {x} are written in| {a}.
What is the official language of {x}?
What is the main official language of {x}?
Which language is official in {x}?
Which language does the government of {x} use?
Name the official language of {x}.
Tell me the official language of {x}.
What official language does {x} have?
+ Its official language is| {a}.
+ The official language is| {a}.
+ The main official language there is| {a}.
+ Its main official language is| {a}.
""",
    "continent": """
{X} is a country in| {a}.
{X} is in| {a}.
{X} lies in| {a}.
{X} belongs to the continent of| {a}.
{X} is part of| {a}.
{X} can be found in| {a}.
The continent of {x} is| {a}.
{X} is located in| {a}.
On a map of the world, {x} is in| {a}.
On which continent is {x}?
Which continent is {x} in?
What continent does {x} belong to?
Where in the world is {x}, on which continent?
{X} is on which continent?
Name the continent of {x}.
In which part of the world is {x}?
+ It is in| {a}.
+ It lies in| {a}.
+ It is a country in| {a}.
+ The country is part of| {a}.
""",
    "symbol": """
The symbol of {x} is| {a}.
The chemical symbol of {x} is| {a}.
The chemical symbol for {x} is| {a}.
In chemistry, {x} is written as| {a}.
Chemists write {x} as| {a}.
{X} has the chemical symbol| {a}.
The element {x} has the symbol| {a}.
In the periodic table, {x} is marked| {a}.
What is the symbol of {x}?
What is the chemical symbol of {x}?
What is the chemical symbol for {x}?
Which symbol stands for {x}?
How do chemists write {x}?
Name the symbol of the element {x}.
+ Its symbol is| {a}.
+ The symbol for it is| {a}.
+ Its chemical symbol is| {a}.
+ Chemists write it as| {a}.
""",
    "element of symbol": """
{X} is the symbol of| {a}.
{X} is the chemical symbol of| {a}.
The chemical symbol {x} stands for| {a}.
The element with the symbol {x} is| {a}.
In chemistry, {x} stands for| {a}.
In the periodic table, {x} means| {a}.
Which element has the symbol {x}?
What element does the symbol {x} stand for?
Which chemical element is written as {x}?
Which element is {x} the symbol of?
Name the element with the symbol {x}.
""",
    "atomic number": """
The atomic number of {x} is| {a}.
{X} has the atomic number| {a}.
The element {x} has the atomic number| {a}.
In the periodic table, {x} is number| {a}.
The number of protons in an atom of {x} is| {a}.
{X} stands in the periodic table at number| {a}.
What is the atomic number of {x}?
Which atomic number does {x} have?
What number does {x} have in the periodic table?
How many protons does an atom of {x} have?
Tell me the atomic number of {x}.
+ Its atomic number is| {a}.
+ The atomic number is| {a}.
+ It has the atomic number| {a}.
+ In the periodic table, it is number| {a}.
""",
    "element of number": """
The element with the atomic number {x} is| {a}.
Element number {x} is| {a}.
Number {x} in the periodic table is| {a}.
The atomic number {x} belongs to| {a}.
An atom with {x} protons is an atom of| {a}.
Which element has the atomic number {x}?
What is element number {x}?
Which element is number {x} in the periodic table?
Which element does the atomic number {x} belong to?
Name the element with the atomic number {x}.
""",
    "state": """
At room temperature, {x} is a| {a}.
At room temperature, the element {x} is a| {a}.
In a normal room, {x} is a| {a}.
{X} at room temperature is a| {a}.
When it is neither hot nor cold, {x} is a| {a}.
Is {x} a solid, a liquid or a gas at room temperature?
Is {x} a gas, a liquid or a solid in a normal room?
In which state is {x} at room temperature?
What is the state of {x} at room temperature?
Name the state of {x} at room temperature.
+ At room temperature, it is a| {a}.
+ In a normal room, it is a| {a}.
+ In a room that is neither hot nor cold, it is a| {a}.
+ As long as it is not heated or cooled, it is a| {a}.
""",
    "planet order": """
{X} is the| {a} planet from the Sun.
Counted from the Sun, {x} is the| {a} planet.
Among the planets, {x} is the| {a} from the Sun.
If you start at the Sun, {x} is the| {a} planet.
In the order of the planets, {x} is the| {a}.
Seen from the Sun, {x} is the| {a} planet.
Which place does {x} have among the planets, counted from the Sun?
What number is {x} in the order of the planets?
Counted from the Sun, which planet is {x}, the first, the second or another?
In which place from the Sun is {x}?
Which position from the Sun does {x} have?
What is the position of {x} from the Sun?
+ It is the| {a} planet from the Sun.
+ In the order of the planets, it is the| {a}.
+ Among the eight planets, it is the| {a} from the Sun.
+ Going out from the Sun, it is the| {a} planet.
+ Counted from the Sun, it is the| {a} planet.
""",
    "planet at place": """
The {x} planet from the Sun is| {a}.
The {x} planet of the Solar System is| {a}.
Counted from the Sun, the {x} planet is| {a}.
The planet in the {x} place from the Sun is| {a}.
The {x} of the eight planets is| {a}.
In the {x} place from the Sun, we find| {a}.
Which planet is the {x} from the Sun?
What is the {x} planet from the Sun?
What is the name of the {x} planet?
Name the {x} planet from the Sun.
Which is the {x} planet of the Solar System?
""",
    "planet neighbour": """
The planet right {p} {x} is| {a}.
Counted from the Sun, the planet {p} {x} is| {a}.
In the order of the planets, the one right {p} {x} is| {a}.
Going out from the Sun, the planet just {p} {x} is| {a}.
The planet that comes {p} {x} is| {a}.
Which planet comes {p} {x}?
What planet comes right {p} {x}?
Which planet is {p} {x}, counted from the Sun?
Name the planet that comes {p} {x}.
Going out from the Sun, which planet comes just {p} {x}?
""",
    "planet clue": """
{X} is| {a}.
The name of {x} is| {a}.
We know that {x} is| {a}.
In our Solar System, {x} is| {a}.
Among the eight planets, {x} is| {a}.
Astronomers say that {x} is| {a}.
What is {x}?
Which is {x}?
What is the name of {x}?
Name {x}.
Tell me the name of {x}.
Do you know {x}? What is it called?
""",
    "planet kind": """
As a planet, {x} is| {aa}.
The planet {x} is| {aa}.
If we sort the planets by their kind, {x} is| {aa}.
By its kind, {x} is| {aa}.
Astronomers call {x}| {aa}.
In our Solar System, {x} is| {aa}.
What kind of planet is {x}?
Is {x} a rocky planet, a gas giant or an ice giant?
Is {x} an ice giant, a gas giant or a rocky planet?
Which kind of planet is {x}?
What do astronomers call a planet like {x}?
+ It is| {aa}.
+ It is known as| {aa}.
+ By its kind, it is| {aa}.
+ Astronomers call it| {aa}.
+ The planet is| {aa}.
""",
    "month order": """
{X} is the| {a} month of the year.
In the year, {x} is the| {a} month.
Among the months, {x} is the| {a}.
In the calendar, {x} is the| {a} month.
Counted from January, {x} is the| {a} month.
Which month of the year is {x}, counted from January?
Which place does {x} have among the months?
What number is {x} among the months?
In which place of the calendar is {x}?
In the order of the months, which place has {x}?
+ It is the| {a} month of the year.
+ Among the months, it is the| {a}.
+ In the year, it is the| {a} month.
+ Counted from January, it is the| {a} month.
+ In the calendar, it is the| {a} month.
""",
    "month at place": """
The {x} month of the year is| {a}.
The {x} month is| {a}.
In the calendar, the {x} month is| {a}.
Of the twelve months, the {x} is| {a}.
The name of the {x} month is| {a}.
Which month is the {x} of the year?
What is the {x} month of the year?
What is the name of the {x} month?
Name the {x} month of the year.
Which is the {x} month?
""",
    "month days": """
{X} has| {a} days{leap}.
The month of {x} has| {a} days{leap}.
In {x}, there are| {a} days{leap}.
The number of days in {x} is| {a}{leap}.
{X} is a month of| {a} days{leap}.
The calendar page for {x} shows| {a} days{leap}.
How many days does {x} have?
How many days are there in {x}?
How many days are in the month of {x}?
How long is {x}, in days?
What is the number of days in {x}?
+ It has| {a} days{leap}.
+ There are| {a} days in it{leap}.
+ This month has| {a} days{leap}.
+ It lasts| {a} days{leap}.
+ It is| {a} days long{leap}.
""",
    "month neighbour": """
The month {p} {x} is| {a}.
The month right {p} {x} is| {a}.
The month that comes {p} {x} is| {a}.
In the calendar, the month {p} {x} is| {a}.
Just {p} {x} comes| {a}.
Right {p} {x} we have| {a}.
Which month comes {p} {x}?
What month is {p} {x}?
What is the month right {p} {x}?
Which month is just {p} {x}?
Name the month {p} {x}.
""",
    "weekday neighbour": """
The day {p} {x} is| {a}.
The day right {p} {x} is| {a}.
The day that comes {p} {x} is| {a}.
In the week, the day {p} {x} is| {a}.
Just {p} {x} comes| {a}.
If today is {x}, {q} is| {a}.
Today is {x}, so {q} is| {a}.
Which day comes {p} {x}?
What day is {p} {x}?
What is the day right {p} {x}?
If today is {x}, what day is {q}?
Today is {x}. What day is {q}?
Name the day {p} {x}.
""",
    "weekday two days": """
Two days {p} {x} is| {a}.
Two days {p} {x} comes| {a}.
The day that comes two days {p} {x} is| {a}.
If today is {x}, then two days {r} is| {a}.
Today is {x}, so the day {q} is| {a}.
If it is {x} today, the day {q} is| {a}.
What day is two days {p} {x}?
Which day comes two days {p} {x}?
If today is {x}, what day is two days {r}?
Today is {x}. What is the day {q}?
Name the day two days {p} {x}.
""",
    "unit": """
One {x} is| {a} {s}.
One {x} contains| {a} {s}.
{B} has| {a} {s}.
{B} is the same as| {a} {s}.
In one {x}, there are| {a} {s}.
One {x} equals| {a} {s}.
The number of {s} in {b} is| {a}.
1 {x} =| {a} {s}
How many {s} are in {b}?
How many {s} are there in {b}?
How many {s} are there in one {x}?
How many {s} make one {x}?
How many {s} equal one {x}?
What is the number of {s} in {b}?
""",
    "units": """
{c} {x} are| {a} {s}.
In {c} {x}, there are| {a} {s}.
{c} {x} equal| {a} {s}.
The number of {s} in {c} {x} is| {a}.
{c} {x} =| {a} {s}
How many {s} are in {c} {x}?
How many {s} are there in {c} {x}?
How many {s} equal {c} {x}?
How many {s} make {c} {x}?
Change {c} {x} into {s}.
What is the number of {s} in {c} {x}?
""",
    "animal class": """
{X} is| {aa}.
{P} are| {as}.
{X} belongs to the| {as}.
We know that {p} are| {as}.
In the animal world, {x} is| {aa}.
Every {n} is| {aa}.
What kind of animal is {x}?
Which class of animals do {p} belong to?
To which class does {x} belong?
In biology, what is {x} called?
Which animal class is the right one for {x}?
+ It is| {aa}.
+ The animal is| {aa}.
+ It belongs to the| {as}.
+ It is a kind of| {a}.
""",
    "legs": """
{X} has| {a} legs.
{P} have| {a} legs.
Every {n} walks on| {a} legs.
The number of legs of {x} is| {a}.
{X} stands on| {a} legs.
If you count the legs of {x}, you get| {a}.
How many legs does {x} have?
How many legs do {p} have?
How many legs are there on {x}?
On how many legs does {x} stand?
What is the number of legs of {x}?
+ It has| {a} legs.
+ It walks on| {a} legs.
+ The animal has| {a} legs.
+ It stands on| {a} legs.
""",
    "sound": """
The sound of {x} is called| {aa}.
The sound that {x} makes is| {aa}.
When you hear {x}, you hear| {aa}.
{P} make a sound. They| {a}.
The noise made by {p} is called| {aa}.
When they make their sound, {p}| {a}.
What sound does {x} make?
What is the sound of {x} called?
Which sound do {p} make?
What noise does {x} make?
What do we call the sound of {x}?
+ Its sound is called| {aa}.
+ Its usual sound is| {aa}.
+ The sound of the animal is called| {aa}.
+ The sound that it makes is| {aa}.
""",
    "young": """
A young {n} is called| {aa}.
A baby {n} is called| {aa}.
The young of {x} is called| {aa}.
The name for a young {n} is| {a}.
The young animal of {p} is| {aa}.
Before it grows up, {x} is called| {aa}.
What is a young {n} called?
What is a baby {n} called?
What do you call a young {n}?
What is the name for the young of {x}?
Which word means a young {n}?
+ Its young is called| {aa}.
+ Its baby is called| {aa}.
+ The young animal is called| {aa}.
+ When it is young, it is called| {aa}.
""",
    "home": """
The home of {x} is called| {aa}.
{X} lives in| {aa}.
The place where {x} lives is called| {aa}.
The usual home of {x} is| {aa}.
{X} goes home to| {aa}.
A good home for {x} is| {aa}.
Where does {x} live?
What is the home of {x} called?
What do we call the home of {x}?
In what kind of home does {x} live?
What is the name of the home of {x}?
+ Its home is called| {aa}.
+ The place where it lives is called| {aa}.
+ Its usual home is| {aa}.
+ It lives in| {aa}.
""",
    "colour": """
The colour of {x} is| {a}.
Usually, {x} is| {a}.
The usual colour of {x} is| {a}.
If you look at {x}, you see something| {a}.
A child who paints {x} needs a colour. The right one is| {a}.
Of all the colours, that of {x} is| {a}.
What colour is {x}?
What color is {x}?
What is the colour of {x}?
Which colour does {x} have?
Name the colour of {x}.
What is the usual color of {x}?
""",
    "mixture": """
If you mix {x}, you get| {a}.
When you mix {x} paint, it becomes| {a}.
The mixture of {x} is| {a}.
Together, {x} make| {a}.
A painter who mixes {x} gets| {a}.
Mixing {x} gives| {a}.
What do you get if you mix {x}?
Which colour do you get from {x}?
What color do {x} make together?
What colour is the mixture of {x}?
Which colour does a painter get by mixing {x}?
""",
    "opposite": """
The opposite of {x} is| {a}.
The opposite of the word {x} is| {a}.
{X} is the opposite of| {a}.
The word that means the opposite of {x} is| {a}.
If something is not "{n}" but the opposite, we say| "{a}".
The contrary of {x} is| {a}.
What is the opposite of {x}?
What is the opposite of the word {x}?
Which word is the opposite of {x}?
Which word means the opposite of {x}?
Name the opposite of {x}.
Give me the opposite of {x}.
Tell me the opposite of {x}.
""",
    "plural": """
The plural of {x} is| {a}.
The plural of the word {x} is| {a}.
The plural form of {x} is| {a}.
One {x}, two| {a}.
I had one {x}, and now I have two| {a}.
We say one {x}, but many| {a}.
What is the plural of {x}?
What is the plural of the word {x}?
What is the plural form of {x}?
How do you write the plural of {x}?
Name the plural of {x}.
Give me the plural of {x}.
""",
    "past tense": """
The past tense of {x} is| {a}.
The past tense of the verb {x} is| {a}.
The simple past of {x} is| {a}.
Today they {x}, yesterday they| {a}.
In the past, the verb {x} becomes| {a}.
We {x} today, and last week we| {a}.
What is the past tense of {x}?
What is the past tense of the verb {x}?
What is the simple past of {x}?
Which form does {x} have in the past?
Name the past tense of {x}.
Give me the past tense of {x}.
""",
    "number word": """
The number {x} in words is| {a}.
In words, {x} is| {a}.
We write {x} in words as| {a}.
The number {x} is read as| {a}.
The number {x} is spelled| {a}.
How do you write {x} in words?
What is {x} in words?
How is the number {x} read?
Write the number {x} in words.
Which number word means {x}?
""",
    "letter neighbour": """
The letter {p} {x} is| {a}.
The letter right {p} {x} is| {a}.
In the alphabet, the letter {p} {x} is| {a}.
Just {p} {x} in the alphabet comes| {a}.
The letter that comes {p} {x} is| {a}.
Which letter comes {p} {x}?
What letter is {p} {x} in the alphabet?
Which letter of the alphabet is right {p} {x}?
What is the letter {p} {x}?
Name the letter {p} {x}.
""",
}

# First sentences that only name the subject, so that "it" is clear in what follows.
INTRODUCTIONS = {
    "country": (
        "{X} is worth a closer look.",
        "Here are some facts about {x}.",
        "This is a short text about {x}.",
        "Let us talk about {x}.",
        "Have you heard of {x}?",
        "Our text today is about {x}.",
    ),
    "element": (
        "{X} is a chemical element.",
        "{X} is one of the elements.",
        "Here are some facts about {x}.",
        "Let us talk about the element {x}.",
    ),
    "planet": (
        "{X} moves around the Sun.",
        "{X} is one of the eight planets.",
        "Here are some facts about {x}.",
        "Let us talk about the planet {x}.",
    ),
    "month": ("{X} is a month.", "Here are some facts about {x}.", "Let us talk about the month of {x}."),
    "animal": (
        "{X} is an animal.",
        "Let us talk about {x}.",
        "Here is what we know about {x}.",
        "This is a short text about {x}.",
        "Have you ever seen {x}?",
    ),
}

# Relations that are also written as tables, with the line above the rows.
TITLES = {
    "capital": ("Countries and their capitals:", "Capitals of some countries:", "Country and capital:"),
    "country of capital": ("Capitals and their countries:", "Capital and country:"),
    "currency": ("Countries and their currencies:", "Country and currency:"),
    "language": ("Countries and their official languages:", "Country and official language:"),
    "continent": ("Countries and their continents:", "Country and continent:"),
    "symbol": ("Elements and their symbols:", "Element and symbol:"),
    "atomic number": ("Elements and their atomic numbers:", "Element and atomic number:"),
    "animal class": ("Animals and their classes:", "Animal and class:"),
    "opposite": ("Words and their opposites:", "Word and opposite:"),
    "plural": ("Nouns and their plurals:", "Singular and plural:"),
    "past tense": ("Verbs and their past tense:", "Present and past:"),
    "number word": ("Numbers in words:", "Number and word:"),
}
