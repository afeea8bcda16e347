"""Children's stories made up from a grammar, so that the first training run needs no network.

A story is a plot told beat by beat. Of every beat one of several tellings is drawn; a telling names the slots of the
story in braces ({hero}, {Place} with a capital) and chooses between words in brackets ([big|small], also nested). Slots
are drawn once per story, so the hero, the thing, the place and the goal of the first lines come back in the last ones.
"""

import random
import re
from dataclasses import dataclass, field
from functools import cache

CHOICE = re.compile(r"\[([^\[\]]*)\]")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou]|honest)")  # no word of ours is like "unicorn"


@dataclass(frozen=True)
class Plot:
    """Beats, each a list of tellings; what the hero learns; and the tables whose rows fill slots of this plot."""

    beats: list[list[str]]
    lessons: list[str]
    tables: list[tuple[list[str], list[list[str]]]] = field(default_factory=list)  # (slot names, rows)


class World(dict):
    """The slots of one story. `{Elder}` is `{elder}` with a capital."""

    def __missing__(self, key: str) -> str:
        value = self[key[0].lower() + key[1:]] if key[0].isupper() else None
        if value is None:
            raise KeyError(key)
        return value[0].upper() + value[1:]


def generate(seed: int, characters: int) -> list[str]:
    """Stories, no two alike, until they hold at least `characters` characters together.

    A pure function of its arguments; a larger number of characters only appends. A story has roughly 400 to 1000
    ASCII characters in one or more paragraphs, which a single line end separates.
    """
    rng = random.Random(seed)
    told: dict[str, None] = {}
    total = 0
    while total < characters:
        story = tell(rng)
        if story not in told:
            told[story] = None
            total += len(story)
    return list(told)


def tell(rng: random.Random) -> str:
    """One story."""
    plot = rng.choice(PLOTS)
    world = cast(rng, plot)
    beats = [OPENINGS, PASTIMES, *plot.beats, AFTERWARDS, ENDINGS]
    spoken = [text for beat in beats if (text := phrase(rng, world, rng.choice(beat)))]
    new_paragraph = rng.choice((0.0, 0.0, 0.2, 0.45))  # the chance that a beat begins one
    story = spoken[0]
    for text in spoken[1:]:
        story += ("\n" if rng.random() < new_paragraph else " ") + text
    return story


def cast(rng: random.Random, plot: Plot) -> World:
    """Draw who and what the story is about."""
    world = World()
    people = rng.random() < 0.6
    she = rng.random() < 0.5
    _character(rng, world, "", people, she)
    # Mostly of the other sex, so that "he" and "she" tell the two apart.
    _character(rng, world, "f", people, she if rng.random() < 0.25 else not she)
    world["hand"] = "hand" if people else "paw"
    for names, rows in [*COMMON, (["home"], CHILD_HOMES if people else ANIMAL_HOMES), *plot.tables]:
        _fill(rng, world, names, rng.choice(rows))
    spots = rng.sample(world["spots"].split(", "), 3)
    world.update(spot=spots[0], spot2=spots[1], spot3=spots[2])
    world["adj"] = rng.choice(world["adjs"].split(", "))
    likes = rng.sample(LIKES, 3)
    for names, row in zip((["like"], ["like2"], ["like3"]), likes, strict=True):
        _fill(rng, world, names, row)
    world["lesson"] = phrase(rng, world, rng.choice(plot.lessons))
    return world


def _character(rng: random.Random, world: World, prefix: str, person: bool, she: bool) -> None:
    """Slots of the hero (prefix "") or the friend ("f"): name, kind, trait and pronouns."""
    names = [name for name in (GIRLS if she else BOYS) if name != world.get("hero")]
    kinds = [kind for kind in ANIMALS if kind != world.get("kind")]
    world["friend" if prefix else "hero"] = rng.choice(names)
    world[prefix + "kind"] = ("girl" if she else "boy") if person else rng.choice(kinds)
    world[prefix + "trait"] = rng.choice(TRAITS)
    forms = ("she", "her", "her", "herself") if she else ("he", "him", "his", "himself")
    world.update(zip((prefix + "he", prefix + "him", prefix + "his", prefix + "himself"), forms, strict=True))


def _fill(rng: random.Random, world: World, names: list[str], row: list[str]) -> None:
    for name, template in zip(names, row, strict=True):
        world[name] = phrase(rng, world, template)


def phrase(rng: random.Random, world: World, template: str) -> str:
    """Make the choices of a template, fill its slots, and mend "a" before a vowel."""
    template = _with_synonyms(template)
    while "[" in template:
        template = CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return ARTICLE.sub(r"\1n ", " ".join(template.format_map(world).split()))


@cache
def _with_synonyms(template: str) -> str:
    for words, choice in SYNONYMS.items():
        template = template.replace(words, choice)
    return template


def _beats(text: str) -> list[list[str]]:
    """Blank lines separate beats, hyphens begin tellings; a hyphen alone leaves the beat out, two in three times."""
    beats = [[" ".join(telling.split()) for telling in f"\n{beat}".split("\n-")[1:]] for beat in text.split("\n\n")]
    return [beat + [""] * (2 * len(beat) - 3) if "" in beat else beat for beat in beats]


def _table(text: str) -> list[list[str]]:
    """One row a line, fields separated by " / "."""
    return [line.split(" / ") for line in text.strip().splitlines()]


def _list(text: str) -> list[list[str]]:
    """One row for each item, separated by commas."""
    return [[" ".join(item.split())] for item in text.split(",")]


GIRLS = [
    name
    for (name,) in _list("""
Lily, Mia, Anna, Rosa, Emma, Nora, Ella, Sara, Lucy, Molly, Ruby, Clara, Hana, Tilly, Zoe, Maya, Ida, Daisy, Poppy,
Wren,
Nina, Elsie, Bella, Amy, Sophie, Mina, Flora, Juna, Kira, Tessa, Lotte, Ellie, Penny, Ivy, Hazel, Matilda
""")
]
BOYS = [
    name
    for (name,) in _list("""
Tom, Ben, Max, Tim, Sam, Leo, Finn, Jack, Oscar, Hugo, Milo, Theo, Pip, Otto, Noah, Emil, Toby, Luca, Adam, Ravi, Omar,
Joe, Bruno, Kai, Billy, Danny, Arlo, Henry, Nico, Walter, Peter, Freddy, Oliver, Jasper, Victor, Simon
""")
]
ANIMALS = [
    name
    for (name,) in _list("""
rabbit, fox, bear, mouse, squirrel, hedgehog, kitten, puppy, otter, mole, badger, raccoon, beaver, hamster, panda,
koala,
wolf cub, lion cub, monkey, tiger cub, chipmunk, guinea pig
""")
]
TRAITS = [
    name
    for (name,) in _list("""
kind, curious, shy, cheerful, gentle, clever, playful, careful, stubborn, quiet, friendly, dreamy, busy, merry, polite,
lively, thoughtful, silly, patient, eager, honest, sleepy, hungry
""")
]

CHILD_HOMES = _table("""
in a [small|white|yellow] house by the sea
in a [tall|noisy|narrow] house in the middle of the city
on a [little|big|quiet] farm
in a village at the foot of a [green|steep] hill
in a cottage at the edge of the woods
above a [bakery|toy shop|book shop]
in a house with a [red|blue|green] door
on a boat in the harbor
next to an old [windmill|lighthouse|bridge]
in a little town where everyone knew everyone
""")
ANIMAL_HOMES = _table("""
in a [deep|quiet|green] forest
under the roots of an old [oak|apple tree]
in a [warm|cozy|tidy] den by the river
behind a [farm|windmill|little church]
at the edge of a [wide|sunny] meadow
in a valley between two [hills|mountains]
in a hollow log beside a pond
in a house made of [sticks|clay|stones] in the woods
on an island full of flowers
under a hedge at the end of a garden
""")

# place / with its preposition / three spots are drawn from these / what one notices there
PLACES = _table("""
the park / in the park / under a bench, behind the slide, beside the pond, at the foot of a tall tree, under the swings\
 / [Children were laughing on the swings.|A man was feeding the pigeons.|The fountain sparkled in the light.]
the garden / in the garden / under the rose bush, behind the watering can, between the carrots, beneath an old\
 wheelbarrow / [Bees hummed around the flowers.|The roses smelled sweet.|A snail was climbing up the wall.]
the beach / on the beach / under some seaweed, behind a big rock, beside an old boat, next to a heap of shells\
 / [The waves rolled in and out.|Gulls cried above the water.|The sand felt soft under {his} feet.]
the forest / in the forest / inside a hollow log, under a fern, behind a mossy stone, at the foot of an oak\
 / [The leaves whispered in the wind.|A woodpecker was knocking on a tree.|It smelled of moss and mushrooms.]
the meadow / in the meadow / in the tall grass, behind a fence post, beside a molehill, under some clover\
 / [Butterflies danced over the grass.|Grasshoppers were singing.|Two cows looked up and went on chewing.]
the old barn / in the old barn / under a heap of hay, behind a milk can, inside a bucket, next to a broken ladder\
 / [Dust danced in the sunlight.|It smelled of hay.|Swallows flew in and out.]
the river / by the river / under the little bridge, between the reeds, behind a wet stone, beside a fallen log\
 / [The water sang over the stones.|A blue dragonfly flew past.|Small fish darted to and fro.]
the hill / on the hill / behind a gray rock, in a patch of thistles, under a thorn bush, beside the stone wall\
 / [From up there the houses looked like toys.|The wind pulled at {his} ears.|A cloud shaped like a sheep went by.]
the market / at the market / under a table, behind a basket of pears, next to the flower cart, between two crates\
 / [People were calling and laughing.|It smelled of fresh bread and cheese.|A woman was selling [honey|red apples].]
the orchard / in the orchard / under a ladder, between the roots of a plum tree, behind a basket, in a heap of leaves\
 / [The branches were heavy with fruit.|A blackbird sang its best song.|A wasp buzzed around a pear.]
the playground / at the playground / under the slide, in the sandbox, behind the fence, beside the seesaw\
 / [Two friends went up and down on the seesaw.|Somebody had built a castle of sand.|The slide shone like silver.]
the lake / by the lake / under a rowing boat, behind a willow, between the lilies, next to the wooden steps\
 / [A family of ducks swam past.|The water was as smooth as glass.|Frogs were croaking in the lilies.]
""")
DAYS = _table("""
[sunny|bright|fresh] spring morning
[warm|hot|long] summer [day|afternoon]
[golden|windy|cool] autumn [day|afternoon]
[sunny|clear|quiet] morning
[warm|bright|lazy] afternoon
[Monday|Tuesday|Wednesday|Friday|Saturday|Sunday] [morning|afternoon]
day [in May|in June|in September|after breakfast|after lunch]
""")
THINGS = _table("""
ball / red, blue, striped, bouncy
kite / yellow, green, long
doll / small, wooden, soft
teddy bear / brown, old, fluffy
toy boat / white, wooden, tiny
drum / little, red, round
whistle / silver, tin, shiny
scarf / blue, woolly, striped
hat / purple, pointed, straw
key / golden, rusty, tiny
button / shiny, round, green
book / thick, old, blue
bell / small, golden, shiny
lantern / little, green, old
basket / brown, round, little
spoon / silver, wooden, long
feather / white, long, blue
marble / green, glass, shiny
umbrella / yellow, spotted, big
toy train / red, wooden, little
music box / tiny, pretty, old
blanket / soft, warm, blue
paper boat / white, little, neat
flute / wooden, thin, old
mitten / red, woolly, warm
""")
ELDERS = _table("""
{his} [mother|grandmother|big sister|aunt] / she / her / her
{his} [father|grandfather|big brother|uncle] / he / him / his
Grandma [Rose|May|Olive] / she / her / her
Grandpa [Joe|Will|Albert] / he / him / his
""")
HELPERS = _table("""
[old|slow|wise] turtle
[small|gray|friendly] sparrow
[wise|sleepy|brown] owl
[black|clever] crow
[green|jolly] frog
[fat|funny] goose
[brown|busy] ant
[tiny|round] ladybug
[old|gray] donkey
[white|bony] goat
""")
SNACKS = _list("""cookies, strawberries, apples, pancakes, muffins, plums, cherries, pears, buns, nuts, grapes, berries,
carrots, waffles, peaches, raisins, dumplings, rolls""")
GAMES = _table("""
hide-and-seek
tag
catch
pirates
leapfrog
[kings and queens|knights and dragons]
[lions and tigers|cops and robbers]
blind man's buff
""")
LIKES = _list("""
[fresh|sweet] {snack}, rainy days, long stories, warm socks, the smell of bread, jokes, [big|small] puddles, drawing,
the color [red|blue|green|yellow], funny hats, [shiny|round] stones, counting stars, soup with noodles, riddles, snails,
old songs, the sound of bells, [tall|hollow] trees, hot milk with honey, dancing in the kitchen, ladybugs, clean paper,
[loud|soft] music, the moon, picking flowers, maps of far countries, pillows, getting letters, climbing, feathers,
talking to birds, long names, sleeping late, getting up early, marbles, the first snow
""")
HABITS = _table("""
[counted|fed|greeted] the [birds|chickens|fish|ducks]
brushed {his} [teeth|hair] and sang a song
watered the flowers on the windowsill
stood on one leg and counted to [five|ten|twenty]
drank a [big|little] cup of milk
helped {elder} in the [kitchen|garden|shop|stable]
ran [once|twice|three times] around the house
said hello to the [old tree|moon|neighbors|spider in the corner]
drew a picture of {his} dreams
looked for [a letter|a treasure|spiders|snails] by the gate
told {elder} about {his} [dreams|plans|ideas]
""")
COMMON = [
    (["day"], DAYS),
    (["place", "at", "spots", "detail"], PLACES),
    (["thing", "adjs"], THINGS),
    (["elder", "ehe", "ehim", "ehis"], ELDERS),
    (["helper"], HELPERS),
    (["snack"], SNACKS),
    (["game"], GAMES),
    (["habit"], HABITS),
]

PASTIMES = _beats("""
- {Hero} liked {like}, {like2} and {like3}.
- {He} liked {like} and {like2}, but {he} did not like {like3} at all.
- If you had asked {him} what {he} liked best, {he} would have said: {like}, and maybe {like2}.
- Every morning, {he} {habit}. [Then {he} had breakfast.|Then the day could begin.|]
- Every [morning|evening], {he} {habit}, [and nobody knew why|for that was the way {he} liked it|come rain or shine].
- {He} had [two|three|four] [brothers|sisters|cousins], and none of them liked {like} as much as {he} did.
- There were [two|three] things {hero} could not get enough of: {like} and {like2}[. And {snack}, of course|].
- {Elder} always said that {hero} thought too much about {like}. [Perhaps it was true.|]
-
""")[0]
AFTERWARDS = _beats("""
- In the evening, there were {snack} for dinner, and everyone talked about {like}.
- That night, {hero} dreamed of {place} and of {like}.
- Before {he} went to bed, {he} {habit}, as always.
- {Hero} had not thought of {like} for a whole day.
- "What a day," said {elder}, and {hero} [nodded|yawned].
- "Did you have a good day {at}?" [asked {elder}|{elder} wanted to know]. {Hero} had a lot to tell.
-
""")[0]
# Each is replaced in every telling, which multiplies the ways to say the same.
SYNONYMS = {
    "Suddenly": "[Suddenly|All at once|All of a sudden]",
    "At last": "[At last|Finally|In the end]",
    "Just then": "[Just then|At that moment|Right then]",
    "In the evening": "[In the evening|That evening|When it got dark]",
    "The next morning": "[The next morning|Early the next morning|When the sun rose]",
    "The next day": "[The next day|The day after|One day later]",
    "A week later": "[A week later|Some weeks later|Not long after that]",
    "From then on": "[From then on|After that|From that time on]",
    "From that day on": "[From that day on|After that day|Ever since that day]",
    "began to": "[began|started] to",
    "beautiful": "[beautiful|lovely|wonderful]",
    "went to {place}": "[went|walked|came|wandered] to {place}",
    "looked around": "[looked around|looked left and right|looked about]",
    "looked at": "[looked at|stared at|gazed at]",
    "smiled.": "[smiled|smiled a little|smiled from ear to ear].",
    "said {hero}.": "said {hero}[||| quietly| after a moment| in a low voice| slowly].",
    "said {friend}.": "said {friend}[||| gently| after a moment| with a nod].",
    "said {elder}.": "said {elder}[||| calmly| after a moment| in a warm voice].",
    "asked {hero}.": "asked {hero}[|| softly| at once].",
    "thought {hero}": "[thought|wondered] {hero}",
    "as fast as {he} could": "as [fast|quickly] as {he} could",
    "laughed": "[laughed|giggled|chuckled]",
    "shouted": "[shouted|cried|called]",
    "could not": "[could not|couldn't]",
    "did not": "[did not|didn't]",
    "It is": "[It is|It's]",
    "do not": "[do not|don't]",
    "I am": "[I am|I'm]",
    "I will": "[I will|I'll]",
    "tiny": "[tiny|very small]",
    "One {day}": "[One {day}|One {day}|On a {day}]",
    "best friend": "[best|oldest|dearest] friend",
    "jumped up": "[jumped up|leaped up|got up]",
    "was afraid of": "was [afraid|afraid|scared] of",
    "wanted to": "[wanted|wanted|wished] to",
    "took a deep breath": "[took a deep breath|breathed in deeply|breathed in and out]",
    "whispered": "[whispered|whispered|murmured]",
    "nodded.": "[nodded|nodded twice|only nodded].",
    "sat down": "[sat|sat|settled] down",
    "ran home": "[ran|hurried|raced] home",
    "came running": "came [running|running|rushing|hopping]",
    "Then {he}": "[Then|Then|And then|Now] {he}",
    "suddenly": "[suddenly|all at once]",
    "looked for": "[looked|looked|searched] for",
    "learn to {skill}": "[learn|learn how] to {skill}",
    "stood up": "[stood|got] up",
    "happily": "[happily|cheerfully]",
    "to bed": "to [bed|bed|sleep]",
    "for a long time": "for a [long|very long] time",
    "was so": "was [so|so|so very]",
    "small voice": "[small|thin|quiet] voice",
    "the ground": "the [ground|ground|grass|earth]",
}

OPENINGS = _beats("""
- Once upon a time, there was a {trait} {kind} named {hero}. {He} lived {home}.
- Once upon a time, a {trait} {kind} [called|named] {hero} lived {home}.
- Once there [was|lived] a [little|small|young] {kind} named {hero}. {Hero} was very {trait}.
- {Hero} was a {trait} [little|young] {kind} who lived {home}.
- {Home} lived a {trait} {kind} [named|called] {hero}.
- A long time ago, {home}, there lived a {kind} [named|called] {hero}. Everyone knew that {hero} was {trait}.
- There was once a {kind} whose name was {hero}. {He} lived with {elder} {home}.
- This is the story of {hero}, a {trait} {kind} who lived {home}.
- {Hero} lived {home} with {elder}. {He} was a {trait} [little|young] {kind}.
- Do you know {hero}? {Hero} is a {trait} {kind}, and this is what once happened to {him}.
- Not far from here, {home}, lived {hero}, a {trait} little {kind}.
- Once there was a {kind} named {hero} who was [so {trait} that everyone smiled at {him}|as {trait} as a {kind} can be].
""")[0]
ENDINGS = _beats("""
- From that day on, {hero} [never forgot|always remembered|knew] that {lesson}.
- That night, {hero} lay in bed and thought about the day. Now {he} knew that {lesson}.
- [{Hero} had|By then {he} had|That day {hero} had] learned that {lesson}. [The end.|]
- And so {hero} learned that {lesson}.
- "{Lesson}," {hero} said [softly|happily|to {himself}], and {he} fell asleep with a smile.
- When {elder} asked what {he} had learned, {hero} said, "{Lesson}."
- {Elder} kissed {hero} good night. "Remember," {ehe} said, "{lesson}."
- The stars came out over the roof, and {hero} slept [well|soundly|deeply] that night. {He} knew that {lesson}.
- If you ever meet {hero}, [{he} will tell you|ask {him}, and {he} will say] that {lesson}.
- {Hero} [often|sometimes] told this story later, and it always ended the same way: "{Lesson}."
- They lived happily, and none of them forgot that {lesson}.
- And that is how a {trait} {kind} found out that {lesson}.
""")[0]

LOST = Plot(
    _beats("""
- {Hero} had a {adj} {thing}. It was a gift from {elder}, and {he} [took it everywhere|never went out without it].
- What {hero} loved most in the whole world was {his} {adj} {thing}. [At night it lay beside {his} pillow.|]
- For {his} birthday, {hero} got a {adj} {thing} from {elder}. {He} promised to [look after it|keep it safe].
- There was one thing {hero} would never give away: {his} {adj} {thing}. [It was old, but it was the best.|]
- {Elder} had [made|found|bought] a {adj} {thing} for {hero}, and {he} [showed it to everyone|was very proud of it].

- One {day}, {he} took the {thing} to {place}. {Detail}
- One {day}, {hero} and {elder} went to {place}. {Detail} The {thing} came along, of course.
- One {day}, {hero} ran to {place} with the {thing} [in|under] {his} {hand}. {Detail}
- {Hero} liked to play {at}. One {day}, {he} brought the {thing} there to show it to {friend}.

- {Hero} [ran|played|jumped] until {he} was tired. Then {he} looked around. Where was the {thing}? It was gone!
- {He} played {game} with {friend} for a long time. When it was time to go home, the {thing} was not there anymore.
- {He} put it down just for a [moment|minute] to watch [a beetle|a butterfly|the clouds]. When {he} turned around, the
  {thing} had disappeared.
- On the way home, {he} [felt|saw] that {his} {hand} was empty. "Oh no!" {he} cried. "I have lost my {thing}!"

- {He} looked {spot2}. {He} looked {spot3}. The {thing} was not there. [A tear rolled down {his} nose.|]
- First {he} searched {spot2}, and then {spot3}. "It is no use," {he} [said|sighed] and sat down.
- {Hero} [felt sick with worry|wanted to cry]. What would {elder} say?
- "Think, {hero}, think," {he} told {himself}. But {he} could not remember where {he} had left it.
-

- Just then {friend} came by. {Friend} was a {ftrait} {fkind} who lived next door. "Why are you so sad?" {fhe} asked.
  {Hero} told {fhim} about the {thing}.
- A {helper} had been watching. "Are you looking for something?" it asked. "Yes, for my {adj} {thing}," said {hero}.
- "Can I help?" asked a [voice|small voice]. It was {friend}, a {fkind} from the neighborhood. "Four eyes see more than
  two," {fhe} said.
- {Elder} took {his} {hand}. "Let us walk back the way we came," {ehe} said, "and look [slowly|carefully|everywhere]."

- They [walked|went] back step by step. They looked {spot2} once more. Then something {adj} caught {his} eye {spot}.
- "Where did you stop to rest?" was the first question. {Hero} thought hard. Then {he} jumped up and ran. And really,
  something was lying {spot}!
- They searched high and low. At last they heard a rustle. There, {spot}, [sat a magpie on top of something|a puppy was
  digging].
- They asked everyone they met. In the end a {helper} said, "I saw something {adj} {spot}." Off they ran.

- It was the {thing}! {Hero} [hugged it|held it tight] and danced in a circle. "Thank you, thank you!" {he} cried.
- There was the {thing}, a little dirty but not broken. {Hero} laughed [with joy|out loud].
- "My {thing}!" {hero} [shouted|cried]. {He} wiped off the dirt and held it close to {his} heart.
- And there it was, the {adj} {thing}, as good as new. {Hero} could hardly believe {his} luck.

- To say thank you, {hero} shared {his} {snack}. They tasted better than ever {at}.
- At home, {he} put the {thing} on the shelf where {he} could see it. [{Elder} nodded.|]
- {He} carried it home very carefully, and {he} did not put it down once.
-
"""),
    [
        "it helps to look slowly and to ask for help",
        "lost things are found faster with a friend",
        "you must look after what you love",
        "you should never give up too early",
    ],
)

FRIEND = Plot(
    _beats("""
- {He} had many toys, but {he} had nobody to play with. [Playing {game} alone is no fun.|]
- {Hero} was new there. {He} did not know anyone yet, and the days were long.
- Every day {hero} played alone {at}. {He} [talked to the clouds|gave names to the trees] because {he} had no friend.
- More than anything, {hero} wanted a friend. [But {he} did not know how to find one.|]

- One {day}, {he} saw somebody [new|{he} did not know] {at}. It was a {ftrait} {fkind}.
- One {day}, {hero} went to {place}. {Detail} {Spot} sat a {fkind} with a {adj} {thing}.
- One {day}, a {adj} {thing} flew through the air and landed right in front of {hero}. A {fkind} came running after it.
- One {day}, {elder} said, "A new family has moved in. They have a {fkind} of your age. Go and say hello."

- {Hero} wanted to say hello, but {his} [voice was|words were] stuck. {He} hid {spot2} instead.
- "What if they do not like me?" {hero} thought. {His} heart beat like a drum.
- {Hero} took one step forward and two steps back. It is not easy to be the first to speak.
- "Hello," said {hero} in a tiny voice. Nobody heard it.
-

- Then {he} had an idea. {He} [took|picked up] {his} {snack} and held them out. "Would you like some?" {he} asked.
- Then a gust of wind took the {fkind}'s hat and blew it into the [water|bushes]. {Hero} did not think twice. {He}
  [climbed|ran] in and
  got it back.
- "Do not be afraid," whispered a {helper}. "The other one is just as shy as you." So {hero} took a deep breath and
  [waved|said hello again].
- {He} remembered what {elder} always said: "A smile is the shortest bridge." So {hero} smiled.

- The {fkind} [looked up|turned around] and smiled. "My name is {friend}," {fhe} said. "What is yours?"
- "Thank you! I am {friend}," said the {fkind}. "I do not know anybody here."
- "I am {friend}," said the {fkind}. "I was hoping that somebody would talk to me."
- The {fkind} gave a little laugh. "Hello! They call me {friend}. Do you like {game}?"

- Soon they were playing {game} and laughing so loudly that a {helper} woke up.
- They played {game} all afternoon. First {hero} won, then {friend} won, and nobody minded.
- {Hero} showed {friend} the best places: one {spot2}, and one {spot3}. "[I love it here|This is wonderful]!" {friend}
  said.
- They shared some {snack} and told each other [jokes|secrets|stories] until the sun went down.
-

- "Will you come back tomorrow?" asked {friend}. "[Of course|Yes|Tomorrow and every day]!" said {hero}.
- Before they parted, {friend} gave {hero} a {adj} {thing}. "So that you do not forget me," {fhe} said. But how could
  {hero} forget?
- When {elder} called, {hero} did not want to leave. "May {friend} come to dinner?" {he} asked.
- The next day they met again {at}, and the day after that, too.
"""),
    [
        "one small word can be the start of a friendship",
        "others are often just as shy as you are",
        "a friend may be waiting around the corner",
        "it is worth it to be the first to say hello",
    ],
)

LEARN = Plot(
    _beats("""
- {Hero} wanted to learn to {skill}. [{Friend} could do it already, and it looked so easy.|Everyone else could do it.|]
- {Hero} had one big wish: {he} wanted to {skill} [all by {himself}|like {friend}|before the summer was over].
- {Friend}, the {fkind} next door, could {skill}. {Hero} [watched|admired] {fhim} every day. "I want to do that, too,"
  {he} thought.
- Of all the things in the world, {hero} liked {gerund} best. There was only one problem: {he} could not do it at all.

- One {day}, {he} [decided to try|made up {his} mind]. {He} went to {place}, where nobody could see {him}.
- One {day}, {hero} said to {elder}, "Today I will [learn to {skill}|do it]!" And off {he} set for {place}.
- So one {day}, {hero} [got up early|packed some {snack}] and went to {place} to practice.

- {He} {attempt}. "Ouch," said {hero}.
- {He} tried once. {He} {attempt}. {He} tried again, and it was [even worse|no better].
- But it was harder than it looked. {He} {attempt}. [Somebody giggled.|A {helper} shook its head.|]
- "One, two, three," {he} counted and began. But {he} {attempt}.

- "I will never learn it!" {hero} cried and [kicked a stone|threw {himself} on the ground].
- {Hero} [sat down|went home] with a red face. "{Gerund} is stupid," {he} grumbled.
- "Maybe I am too small," {he} thought, and {his} ears grew hot.
-

- {Elder} had seen it all. "When I was small, I could not do it either," {ehe} said. "{Advice}."
- "May I tell you a secret?" asked a {helper}. "{Advice}. That is all there is to it."
- {Friend} did not laugh. "I needed a whole [week|month|summer] to learn it," {fhe} said. "{Advice}."
- Then {he} [heard|remembered] the words of {elder}: "{Advice}."

- {Hero} tried again the next day, and the next. Every day it went a little better.
- {Hero} nodded and practiced. {He} practiced before breakfast and after dinner. [Even in {his} dreams {he} practiced.|]
- So {hero} stood up and tried again, slowly this time. It [almost|nearly] worked!
- Ten times {he} tried, and ten times it went wrong. "{Advice}," {he} [repeated|whispered].
-

- And then, all at once, {he} {success}! "I did it! I did it!" {he} shouted.
- On the [third|fifth|seventh] day something wonderful happened. {Hero} {success}.
- "Look at me!" {he} called. And before everyone's eyes {he} {success}.
- Finally {his} patience paid off: {he} {success}. {He} could not stop [laughing|smiling].

- {Friend} clapped. "Now we can do it together!" {fhe} said.
- {Elder} [gave {him} a big hug|was very proud]. That evening there were {snack} for everyone.
- A week later, {hero} met a small {fkind} who wanted to learn {gerund}. "{Advice}," {hero} told {fhim} with a wink.
- Now {hero} goes to {place} every day, and {gerund} is [as easy as pie|{his} favorite thing].
"""),
    [
        "nobody can do everything the first time",
        "practice makes hard things easy",
        "you only fail when you stop trying",
        "small steps take you a long way",
    ],
    [
        (
            ["skill", "gerund", "attempt", "advice", "success"],
            _table("""
ride a bike / riding a bike / [wobbled|swayed] to the left and to the right and fell into the grass\
 / look ahead and not at the wheels / rode all the way to the gate and back
swim / swimming / splashed and kicked, but sank like a stone\
 / breathe slowly and let the water carry you / swam to the other side without stopping
whistle / whistling / blew and blew, but only air came out\
 / make your lips small and blow softly / whistled a whole song from beginning to end
skip stones / skipping stones / threw a stone as hard as {he} could, but it only went plop\
 / take a flat stone and throw it low / made a stone jump five times over the water
bake bread / baking bread / made a loaf, but it was as hard as a brick\
 / let the dough rest before you bake it / baked a loaf that was soft and golden
climb trees / climbing trees / climbed up two branches and slid down again\
 / hold on tight and look for the next branch / climbed to the very top and saw the whole valley
juggle / juggling / threw up three apples, and all three fell on {his} nose\
 / start with one, then take two, and only then three / kept three apples in the air
fly a kite / flying a kite / ran as fast as {he} could, but the kite only dragged behind {him}\
 / wait for the wind and run against it / flew a kite so high that it looked like a tiny dot
dance / dancing / stepped on {his} own feet and tumbled over\
 / listen to the music first and count to four / danced a whole dance without one wrong step
read / reading / opened a book, but the letters seemed to jump around\
 / take one letter at a time / read a whole page aloud
count to one hundred / counting / got as far as nineteen and did not know what came next\
 / remember that every ten begins the same way / counted all the way to one hundred
play the flute / playing the flute / blew into the flute, but it only squeaked\
 / cover the holes and blow gently / played a sweet little song
knit / knitting / made such a knot that {he} could not get {his} {hand}s out\
 / make one loop at a time and do not hurry / knitted a long, warm scarf
row a boat / rowing / pulled and pulled, but the boat only went in circles\
 / pull on both sides with the same strength / rowed straight across the water
"""),
        )
    ],
)

SHARE = Plot(
    _beats("""
- One {day}, {elder} gave {hero} a [bag|basket|box] of {snack}. "They are for [you and your friends|the road]," {ehe}
  said.
- One {day}, {hero} [found|got|picked] so many {snack} that {he} could hardly carry them. {He} took them to {place}.
- {Hero} loved {snack} more than anything else. One {day}, {he} had a whole [plate|basket|bag] of them.

- {He} sat down {spot} and began to eat. {Detail}
- "All mine," {he} [thought|said], and {he} looked for a quiet place to eat them. {He} found one {spot}.
- {He} counted them: one, two, three, four, five, six! [It was a good day.|]
- {Detail} {Hero} sat down and [opened|looked into] the bag. It smelled so good.
-

- {Friend} came along. {Friend} was {his} best friend, a {ftrait} {fkind}. "Those {snack} look good," {fhe} said. "May I
  have one?"
- Then a {ftrait} {fkind} named {friend} stopped in front of {him}. "I am so hungry," {fhe} said quietly.
- Just then {friend} walked by. {Fhe} had forgotten {fhis} lunch. "Could you share with me?" {fhe} asked.

- "No," said {hero}. "They are mine." {Friend} [hung {fhis} head|looked at the ground] and went away.
- {Hero} held the {snack} behind {his} back. "There are only a few," {he} said. It was not true.
- {Hero} pretended not to hear. {He} [turned away|looked at the sky] and took another bite.

- But strange to say, the next bite did not taste good. {Hero} looked at the empty place beside {him}.
- {Hero} ate one more, and then another. Soon {his} tummy hurt, and {he} felt lonely.
- A {helper} had seen it. "Full {hand}s and nobody to talk to," it said. "I would not trade with you."
- {Hero} remembered how {friend} had once lent {him} a {adj} {thing}. {He} had not even asked for it back.
- From far away {he} heard the others play {game}. Nobody called {his} name.

- {Hero} jumped up and ran after {friend}. "Wait!" {he} called. "I am sorry. [Please take half|Here, they are for you]."
- "I was wrong," {he} thought. {He} found {friend} {spot2} and put the [biggest|best] one into {fhis} {hand}.
- {He} [divided|put] the {snack} into two equal heaps. "One for me and one for you," {he} told {friend}. "I should have
  done that at once."

- {Friend}'s face lit up. {Fhe} took a bite and laughed. "[They are delicious|These are the best {snack} ever]!"
- They sat side by side and ate until not a crumb was left.
- "Thank you," said {friend}. Then {fhe} [pulled|took] a {adj} {thing} out of {fhis} bag. "Shall we play with it
  together?"
- {Friend} smiled. "Next time I will bring some for you," {fhe} said. And {fhe} did.

- After that they played {game} {at} until it was dark.
- {Elder} saw them coming home side by side and smiled.
- Even the [ants|birds] got a crumb.
-
"""),
    [
        "things taste better when you share them",
        "sharing makes one joy into two",
        "half a treat with a friend is more than a whole one alone",
        "those who share are never alone for long",
    ],
)

STORM = Plot(
    _beats("""
- One {day}, {hero} and {friend} went to {place} to play {game}. {Detail}
- One {day}, {hero} and {friend} went to look for [shells|nuts|feathers|round stones] {at}. {Detail}
- One {day}, {hero} wanted to visit {friend}, {his} best friend. The way led past {place}.
- {Hero} was not afraid of anything except thunder. One {day}, {he} and {friend} were playing {at}.

- Nobody noticed the dark clouds. Then a drop fell on {his} nose. Plop! Then another, and another.
- Suddenly the sky turned [gray|black], and the birds stopped singing. "I do not like this," [said|whispered] {hero}.
- The wind began to blow, first softly, then harder. It [tore the leaves off the trees|took {his} hat and carried it
  away].
- A flash of light crossed the sky. One, two, three, {hero} counted, and then came the thunder. Boom!

- "Run!" cried {friend}. They ran as fast as they could and hid {spot}.
- {Hero} looked for a dry place. There was one {spot}, and {friend} was already sitting there, wet and cold.
- The rain came down in buckets. In no time {hero} was wet to the skin. {He} and {friend} [hid|sat down] {spot}.

- Boom! went the thunder. {Hero} put {his} {hand}s over {his} ears and began to [cry|shake].
- "I want to go home," [sobbed|said] {hero}. "What if it never stops?"
- It was so dark that they could hardly see each other. {Hero} felt {his} heart beat.
- Somebody was crying. It was a {helper} that had lost its way in the storm.
-

- "Do you know what I have heard?" said {friend}. "Thunder is only [the clouds bumping their heads|the sky clearing
  its
  throat]." {Hero} had to giggle.
- {Friend} took {his} {hand}. "Let us sing," {fhe} said. "If we sing loudly, we cannot hear the thunder."
- So they counted after every flash, and each time they could count a little further. "You see?" said {friend}. "It is
  going
  away."
- "Come close," said {hero} to {friend}. "It is warmer for two." They ate {snack} and told each other [jokes|stories].
- {Hero} thought of something nice: [warm soup and dry socks|{his} own soft bed|the smell of {snack}]. It helped a
  little.

- Little by little, the rain grew softer. Then it stopped. The sun came out, and everything [sparkled|shone].
- At last the wind went to sleep. A ray of light fell through the clouds.
- After a while, they heard nothing but drip, drip, drip. "It is over!" cried {friend}.

- "Look!" {hero} pointed up. A big rainbow stood over {place}. [It had more colors than they could name.|]
- There were puddles everywhere. {Hero} jumped into the biggest one, and {friend} jumped after {him}. Splash!
- {Elder} came running with a [blanket|big umbrella]. "There you are!" {ehe} called and hugged them both.
- {Place} smelled [new|clean|like wet earth], and a snail stretched its horns. They laughed and walked home together.

- At home, {elder} made hot [milk|soup|chocolate] and put {his} wet [hat|scarf] by the fire.
- When it thundered again a week later, {hero} [only smiled|began to sing].
-
"""),
    [
        "every storm comes to an end",
        "being afraid is only half as bad when you are not alone",
        "a song helps against almost anything",
        "after the rain the sun comes back",
    ],
)

ANIMAL = Plot(
    _beats("""
- One {day}, {hero} was [walking|playing] {at} when {he} heard a [small|thin] voice. "Help! Help!" it called.
- One {day}, {hero} and {friend} went to {place} to play {game}. {Detail} Suddenly {hero} stopped. "Did you hear that?"
  {he} asked.
- One {day}, {elder} sent {hero} to {place} with some {snack}. On the way {he} saw something move {spot}.
- {Hero} wanted to play {game} with {friend}. But on the way to {place}, one {day}, {he} heard somebody crying.

- There was a {creature}. It {trouble}. [It looked at {hero} with big, round eyes.|It was shaking all over.]
- {He} looked {spot2}, and {he} looked {spot3}. Then {he} found it: a {creature} that {trouble}.
- {Hero} came closer. It was a {creature}! "Oh, you poor thing," {he} said. The {creature} {trouble}.

- "Do not be afraid," {hero} whispered. "I will not hurt you. I will help you."
- "How long have you been here?" asked {hero}. "Since last night," said the {creature}, "and nobody stopped."
- {Hero} was in a hurry, and for a moment {he} wanted to walk on. But how could {he}?
- "Please help me," said the {creature}. {Hero} did not have to think long.
-

- {He} tried this and that, but [{he} was too weak|it was no use]. "I will get help," {he} said. "I promise to come
  back!"
- {He} tried once, {he} tried twice, but {he} could not do it alone.
- What would {elder} do? {Hero} [thought hard|asked {himself}]. {He} looked around for something useful.
- A {helper} came by and shook its head. "You will never manage that alone," it said.
-

- {Hero} ran and got {friend}. Together they had an idea. They {rescue}.
- Then {elder} came with a lantern. "Slowly and gently," {ehe} said. {Hero} and {elder} {rescue}.
- "Two are stronger than one," said {friend}, who had followed {him}. So they {rescue}.
- {Hero} called as loudly as {he} could. {Friend} heard {him} and came running. Then the two of them {rescue}.

- The {creature} shook itself and took a deep breath. "Thank you," it said. "I am free!"
- {Hero} gave the {creature} some water and one of {his} {snack}. It ate and ate until it felt better.
- They wrapped the {creature} in a warm cloth and let it rest. [The next morning|After two days|By the evening] it was
  well
  again.
-

- "You helped me, and I will not forget it," said the {creature}. Then it was gone.
- It was hard for {hero} to say goodbye, but {he} knew that the {creature} had to go home.
- When it left, the {creature} turned around one last time and nodded.
-

- A week later, {hero} lost {his} {adj} {thing} {at}. {He} looked everywhere. Who brought it back? It was the
  {creature}!
- From then on, the {creature} came to the window every morning and wished {hero} a good day.
- In the autumn, {hero} got lost near {place}. Then {he} heard a voice {he} knew. It was the {creature}, and it showed
  {him}
  the way.
- {Hero} came home late that day. But when {he} told {elder} about the {creature}, nobody was angry.
"""),
    [
        "no one is too small to help",
        "a kind deed comes back some day",
        "it is right to stop when somebody needs you",
        "those who help find friends everywhere",
    ],
    [
        (
            ["creature", "trouble", "rescue"],
            _table("""
little bird / had fallen out of its nest / carried it up a ladder and put it back into the nest
tiny hedgehog / was caught in an old net / cut the net, one thread after the other, until it fell off
young deer / had its foot stuck between two stones / rolled one of the stones away
baby duck / had lost its mother / walked along the water and called until the mother duck answered
yellow butterfly / could not fly because its wings were wet / held it in the sun until its wings were dry
small turtle / lay on its back and could not turn over / turned it over, very carefully
gray kitten / sat high up in a tree and did not dare to come down / put up a ladder and carried it down
brown puppy / had a thorn in its foot / held it still and pulled out the thorn
white lamb / had slipped into a ditch / laid a board across the ditch and led it out
fat bumblebee / had fallen into a pail of water / held out a leaf and lifted it from the water
little squirrel / was stuck in a hollow tree / made the hole bigger with a stick
green frog / sat at the bottom of a deep hole / let down a bucket on a rope and pulled it up
"""),
        )
    ],
)

SURPRISE = Plot(
    _beats("""
- At last it was {his} birthday. {Hero} had talked about it for weeks, but today nobody seemed to think of it.
- One {day}, {hero} woke up and jumped out of bed. It was {his} birthday! But the house was [quiet|empty].
- {Hero} had counted the days on {his} {hand}s, and now it was here: {his} birthday.

- "Good morning," said {elder} and went on [sweeping the floor|reading|peeling potatoes]. That was all.
- {He} ran to {elder}. "Do you know what day it is?" {he} asked. "Yes," {ehe} said. "It is time to do the dishes."
- {Elder} was not there. There was only a note: "I will be back later. Eat your breakfast."

- So {hero} went to find {friend}. But {friend} [ran past|hid something behind {fhis} back]. "Not now. I am busy," {fhe}
  said.
- {Hero} asked {friend}, {his} best friend, to play {game}. "I cannot," said {friend}, and {fhe} would not say why.
- "{Friend} will not forget me," {he} thought. But when {he} knocked, nobody opened the door.

- Sadly, {hero} walked to {place}. {Detail} But {he} [did not notice|did not care].
- {He} went to {place} all alone and sat down {spot}. "They have forgotten me," {he} said.
- {Hero} kicked a stone all the way to {place}. Even the [snails|sparrows|ants] seemed to be in a hurry.
-

- There {he} found a trail of {snack} on the ground. One here, one there. How strange! {He} followed it.
- Then something moved {spot2}. {Hero} saw the end of a red ribbon and heard somebody giggle.
- Suddenly a {helper} stood before {him}. "Come with me," it said, "and do not ask."
- Then {he} heard {elder} calling. "{Hero}! Come home, quickly!" {He} ran as fast as {he} could.

- The trail ended at {his} own door. {He} opened it. "Surprise!" shouted {friend}, {elder} and all the others.
- {He} came around the corner, and there they all were. "Happy birthday, {hero}!" they called and threw paper stars.
- Behind the door it was dark. Then a light went on, and everybody began to sing.

- There was a big cake with {snack} on top. And next to it lay a [box|parcel]. In it was a {adj} {thing}!
- {Friend} gave {him} a {adj} {thing}. "I made it in secret," {fhe} said. "That is why I was so busy."
- {Elder} held out a [box|parcel] with a bow. {Hero} tore off the paper. It was the {adj} {thing} {he} had wished for.

- "I thought you had all forgotten me," said {hero}. {Friend} laughed. "How could we ever forget you?"
- {Hero} laughed and cried at the same time. [It was the best birthday of all.|]
- They played {game} until late, and the {thing} lay in the middle of the table like a treasure.
- Nobody wanted to go home, and the candles burned down one after the other.
-
"""),
    [
        "true friends do not forget",
        "the best secrets are kept for the ones you love",
        "things are not always what they seem",
        "a good surprise needs a little patience",
    ],
)

BRAVE = Plot(
    _beats("""
- There was one thing that {hero} was afraid of: {fear}. [{He} had never told anyone.|]
- {Hero} was not afraid of [spiders|ghosts] or [mice|thunder]. But {he} was afraid of {fear}.
- "I am not a baby," {hero} always said. But when {he} thought of {fear}, {his} knees became soft.
- Everyone knew that {hero} was afraid of {fear}. Some even laughed about it.

- One {day}, {he} was at home when {friend} came running. {Friend} was {his} best friend, a {ftrait} {fkind}.
- One {day}, {hero} played {game} with {friend} {at}. {Detail} They did not see how late it was.
- One {day}, {elder} had to go away for a while. "Look after {friend}," {ehe} told {hero}.

- "My {adj} {thing}!" cried {friend}. "I dropped it, and now I cannot get it back." To fetch it, somebody had to {dare}.
- Suddenly {friend} was gone. "Help!" called a voice. {Hero} [knew|saw] at once what {he} had to do: {he} had to {dare}.
- Then they heard a {helper} cry. It was in trouble, and there was only one way to reach it. Somebody had to {dare}.

- {Hero} turned pale. "Could not somebody else go?" {he} asked. But there was nobody else.
- "I cannot," {hero} thought. "I really cannot." {His} heart went bump, bump, bump.
- {Hero} stood still as a stone. {He} wanted to run away.
- "You do not have to do it," said {friend}. But {fhis} voice was shaking.
-

- Then {he} remembered what {elder} had said: "To be brave is not to have no
  fear. To be brave is to go anyway."
- {He} closed {his} eyes and counted to three. Then {he} opened them again. "I will do it," {he} said.
- {He} took a deep breath. "One step," {he} told {himself}. "Only one step. And then one more."
- {He} began to hum a little song. It was the song that {elder} always sang.

- With trembling knees, {he} began to {dare}. [It was not as bad as {he} had thought.|Nothing bad happened.|]
- So {he} went to {dare}. {His} {hand}s were wet, but {he} did not turn back.
- {Hero} did not look left or right. {He} set out to {dare}, slowly, bit by bit.

- And {relief}! {Hero} had to laugh.
- After a while {he} noticed that {relief}.
- Halfway there, {he} stopped. {Relief}. "Is that all?" {he} asked.
-

- Before {he} knew it, it was done. "You did it!" {friend} shouted and threw {fhis} arms around {him}.
- When {he} came back, they all cheered. "{Hero} is the bravest {kind} I know," said {friend}.
- Soon {hero} was back, and nothing was lost. {Friend} did not know what to say.
- "Thank you," said {friend}. "I would not have dared to do that."

- That night, {hero} told {elder} everything. {Elder} listened and stroked {his} head.
- And {fear}? {Hero} still did not love that. But {he} was not afraid of it any more.
- To celebrate, there were {snack} for everybody.
- Even the [birds|frogs|crickets] seemed to clap.
"""),
    [
        "you can be afraid and brave at the same time",
        "fear grows small when you walk toward it",
        "you can do more than you think",
        "for a friend you find courage",
    ],
    [
        (
            ["fear", "dare", "relief"],
            _table("""
the dark / go into the dark cellar alone / the dark was only the same room without light
deep water / wade through the deep brook / the water came up to {his} belly and no further
the big dog next door / walk past the big dog / the dog wagged its tail and licked {his} {hand}
high places / climb up the old tower / the view from up there was beautiful
the old woods / walk through the old woods / the strange noises were only birds and squirrels
the cave behind the hill / creep into the cave / the cave glittered like a room full of stars
the grumpy neighbor / knock on the grumpy neighbor's door / the neighbor smiled and asked {him} in
the long bridge / cross the long bridge / the bridge hardly moved at all
the attic / climb up into the attic / the ghost up there was only an old white sheet
"""),
        )
    ],
)

HONEST = Plot(
    _beats("""
- {Elder} had a [blue|white|painted] {fragile}. It was very old, and {ehe} loved it. "Please do not touch it," {ehe}
  always
  said.
- On the shelf stood a [beautiful|painted|precious] {fragile}. It belonged to {elder}.
- {Elder} had only one treasure, and that was a [pretty|green|little] {fragile}.

- One {day}, {hero} was alone at home. {He} played with {his} {adj} {thing}, although {he} was not allowed to play
  there.
- One {day}, {hero} and {friend} played {game} in the house because nobody was watching.
- One {day}, {hero} wanted to look at the {fragile} just once. {He} climbed on a chair and reached out.

- Crash! The {fragile} lay on the floor in [two|three|many] pieces.
- There was a bump and a crack. {Hero} held {his} breath. The {fragile} was broken.
- It happened so fast. The {fragile} [tipped|slid] over the edge, and {he} could not catch it.

- "What have I done?" {hero} whispered. {He} swept up the pieces and hid them {hiding}.
- {Hero} wanted to [hide|run away]. Quickly {he} put the pieces {hiding}, where nobody would look.
- "Nobody saw it," {he} thought. {He} hid the pieces {hiding} and ran to {place}.

- In the evening, {elder} looked at the empty shelf. "Where is my {fragile}?" {ehe} asked. "Maybe the [cat|wind] did
  it,"
  said {hero}.
- "Has anyone seen my {fragile}?" asked {elder}. {Hero} looked at {his} feet and shook {his} head.
- When {elder} came home, {hero} was very quiet. "Is something wrong?" {ehe} asked. "No," said {hero}.

- That night, {hero} could not sleep. {He} turned to the left and to the right. The lie was as heavy as a stone.
- Even the {snack} did not taste good. Each time {elder} smiled at {him}, {hero} felt worse.
- The next day, {hero} told {friend} about it. "I would tell the truth," said {friend}. "It hurts only once."
- {He} went to {place}. "You look as if you carried a heavy bag," said a {helper}. And that was how it felt.

- At last {hero} got up and went to {elder}. "It was me," {he} said, and tears ran down {his} face. "I broke it, and
  then I
  lied."
- {Hero} got the pieces from their place {hiding} and put them on the table. "I broke your {fragile}," {he} said. "I am
  so
  sorry."
- "I have to tell you something," said {hero}. The words came out slowly, but they came out. [All of them.|]

- {Elder} was silent for a while. Then {ehe} took {hero} in {ehis} arms. "I am sad about the {fragile}," {ehe} said,
  "but I
  am glad that you told me."
- "Thank you for the truth," said {elder}. "A {fragile} can be mended. Trust is harder to mend."
- {Elder} sighed. "I knew it," {ehe} said. "I was only waiting for you to tell me."

- Together they glued the pieces. You could see the cracks, but {hero} thought the {fragile} was more beautiful than
  before.
- {Hero} went to {place} and gathered the prettiest flowers. They put them next to the {fragile} while the glue dried.
- {Hero} gave {elder} {his} own {adj} {thing}. "It is not as pretty, but it is for you," {he} said.
- The next day they made a new {fragile} out of clay. It was a bit crooked, but they both loved it.
-
"""),
    [
        "the truth is lighter than a lie",
        "everyone makes mistakes, but it is brave to tell the truth",
        "saying sorry is the first step to making things right",
        "honest words mend more than glue",
    ],
    [
        (["fragile"], _list("vase, teapot, bowl, jug, lamp, plate, cup, clay pot, flowerpot, jar")),
        (
            ["hiding"],
            _list("under the bed, behind the stove, in an old boot, under the rug, in the attic, behind the door"),
        ),
    ],
)

PLANT = Plot(
    _beats("""
- One {day}, {elder} gave {hero} a tiny seed. "There is something wonderful inside," {ehe} said.
- One {day}, {hero} found a strange seed {at}. It was no bigger than a crumb. {Detail}
- One {day}, {hero} met a {helper} {at}. "I have only this seed left," it said. "Would you like to have it?"
- {Hero} wished for {wish} of {his} own. So, one {day}, {elder} gave {him} a seed.

- {Hero} dug a hole [behind the house|next to the door|under {his} window], put in the seed, and covered it with earth.
- {Hero} took {his} [best|biggest] pot, filled it with earth, and laid the seed in it like a baby in a bed.
- {Friend} came to help. {Friend} was a {ftrait} {fkind}. {Fhe} dug the hole, and {hero} put in the seed.

- The next morning, {he} ran outside. Nothing! The day after, nothing again.
- "Grow!" {hero} said to the seed. But the seed took its time.
- Every day {hero} gave it water, and every day {he} looked. There was only earth.
- After one week, {hero} wanted to dig it up to see what was wrong.
-

- "It is [dead|asleep]," said {friend}. "Let us play {game} instead." But {hero} did not give up.
- "Be patient," said {elder}. "Good things grow slowly, and mostly where we cannot see them."
- {Hero} sang to it. {He} told it stories. {Friend} laughed about it, but {hero} did not mind.
-

- Then, after a warm night of rain, something green looked out of the earth. It was as small as a mouse's ear.
- And one morning, there it was: a tiny green leaf! {Hero} danced around it.
- On the tenth day, the earth had a crack. Out of the crack came a thin green stem.

- The plant grew as high as {his} knee, then as high as {his} nose. {He} tied it to a stick so that the wind could not
  break
  it.
- One night a storm came. {Hero} ran out and [held|put] {his} umbrella over the plant until it was over.
- A {helper} was hungry and wanted to eat the leaves. "Please do not," said {hero} and gave it some {snack} instead.
- Then came a hot week without rain. {Hero} carried water from {place}, one bucket after another.
-

- By the end of the summer it had become {wish}. People stopped and stared.
- And what did it become? It was {wish}, and it was [prettier|bigger] than anyone had ever seen.
- {Hero} rubbed {his} eyes one morning. Before {him} stood {wish}!

- "I was wrong," said {friend}. "You were right to wait." And together they {harvest}.
- {Hero} called {elder} and {friend}, and they all {harvest}.
- {Hero} was so proud. {He} and {friend} {harvest} and laughed.

- {Hero} kept one seed. {He} gave it to {friend} and said, "There is something wonderful inside."
- In the autumn, {he} put the new seeds in a little box and wrote {his} name on it.
-
"""),
    [
        "good things need time",
        "patience makes small things big",
        "you must care for a thing every day if you want it to grow",
        "not everything that is quiet is asleep",
    ],
    [
        (
            ["wish", "harvest"],
            _table("""
a giant sunflower / shook out the seeds and shared them with the birds
a huge pumpkin / made soup for the whole street
a strawberry plant / picked the red berries and ate them with cream
a tall bean plant / climbed up the poles and picked the beans
a young apple tree / picked the first three apples and cut them into equal pieces
a rose bush / smelled the roses until they had to sneeze
a big melon / rolled it home and cut it into slices
a tomato plant / made the biggest tomato salad of the year
a poppy as red as fire / sat down in front of it and painted a picture
a plum tree / baked a cake with the plums
"""),
        )
    ],
)

RACE = Plot(
    _beats("""
- Every year there was a big race from {place} to the old bridge. This year {hero} wanted to win it.
- {Hero} was the fastest {kind} far and wide. At least, that was what {he} told everybody.
- One {day}, {friend} said, "Let us have a race! Who is the first to reach {place}?" {Friend} was a {ftrait} {fkind}.
- "I am going to win the [cup|prize]," {hero} said every evening. {He} trained every day {at}.

- The prize was a {adj} {thing}. {Hero} already knew where {he} would put it.
- "The winner gets my {adj} {thing}," said {elder}. {Hero} looked at it with shining eyes.
- Whoever came first would get a {adj} {thing} and a basket of {snack}.

- One {day}, it was time. All the runners stood in a row. "Ready, steady, go!" called {elder}.
- They lined up next to each other. A {helper} dropped a leaf, and off they went.
- When the big day came, everyone was there. {Friend} stood next to {hero} and wished {him} luck.

- {Hero} ran like the wind. Soon {he} was far ahead, and {he} could already see the finish.
- At first {friend} was faster. But {hero} caught up, step by step, and then {he} was in front.
- {Hero} and {friend} ran side by side. Neither of them wanted to fall behind.
-

- Then {he} heard a cry. {Friend} had [stumbled over a root|slipped on a stone] and lay on the ground, holding {fhis}
  foot.
- But then, {spot}, {he} saw a {helper} lying on its back. "Could you turn me over, please?" it asked.
- Suddenly a small {kind} stood in the way and cried. "I cannot find my mother," said the little one.
- Right before the end, {hero} looked back. {Friend} was not there. {Fhe} was sitting on the ground, and {fhe} was
  crying.

- For one moment {hero} thought of the {thing}. Then {he} turned around.
- {Hero} slowed down. The finish was so near! But {he} [could not just run on|knew what was right].
- "If I stop, I will lose," thought {hero}. But {his} feet had already stopped.

- {He} helped as well as {he} could. The others ran past, one after another. "Go on!" they called. {Hero} did not go on.
- It took a long time. When everything was all right again, there was nobody left on the road.
- "Thank you," said a quiet voice. "But now you will not win." "That does not matter," said {hero}, and {he} meant it.
-

- {Hero} was the very last to arrive. But what was that? Everybody was clapping!
- When {hero} came to the finish at last, {elder} was waiting. "I saw what you did," {ehe} said.
- {Hero} came in last. {He} was sad for a moment, until {friend} put {fhis} arms around {him}.

- The winner took the {thing} and gave it to {hero}. "You have earned it more than I have," said the winner.
- {Friend} gave {him} half of the {snack}. "For me, you are the winner," {fhe} said.
- "There are two ways to win," said {elder} and gave {hero} a {adj} {thing} that was even nicer than the prize.
- That evening nobody talked about who had been first. They only talked about {hero}.
"""),
    [
        "helping is better than winning",
        "a friend is worth more than a prize",
        "you can be last and still win",
        "it is not important to be first",
    ],
)

ASTRAY = Plot(
    _beats("""
- One {day}, {hero} went to {place} with {elder}. "Stay close to me," said {elder}. {Detail}
- One {day}, {hero} had to take some {snack} to {friend}, who was ill in bed. "Stay on the path," said {elder}.
- {Elder} had told {hero} a hundred times not to go past {place} alone. But one {day}, {he} forgot.

- Then {he} saw {lure}. It was so beautiful that {hero} followed it, a little further, and a little further still.
- On the way {he} met {lure}. {Hero} wanted to see where it was going, and {he} ran after it.
- "Oh!" said {hero}. There was {lure}. {He} only wanted to have a closer look.

- When {hero} looked up, everything was strange. The trees were tall and dark, and there was no path any more.
- Suddenly it was gone. {Hero} turned around. Which way had {he} come? [To the left? To the right?|]
- After a while {he} stopped. {He} had never been here before. "Where are you?" {he} called. Nobody answered.

- The sun was going down, and it was getting cold. {Hero} sat down on a stone and cried a little.
- "Do not cry," {he} told {himself}. "Crying does not show the way." But {his} lip was trembling.
- {Hero} walked in one direction and then in the other. In the end {he} came back to the same old tree.
- {He} ate one of the {snack} and thought. What would {friend} do?
-

- "Are you lost?" asked a {helper}. {Hero} nodded. "I want to go home," {he} said, "but I do not know the way."
- Something rustled. {Hero} was frightened, but it was only a {helper}. "Where do you belong?" it asked.
- Then {he} saw a small light. A {helper} was sitting there. "You are far from home, little {kind}," it said.

- "Tell me what you can see from your window," said the {helper}. "I see {landmark}," said {hero}. "I know that! Follow
  me."
- "What is near your home?" asked the {helper}. {Hero} thought. "There is {landmark}!" "Then it is not far," it said.
- "Climb up and look around," said the {helper}. {Hero} climbed up, and far away {he} saw {landmark}. That was near
  {his}
  home!

- They walked and walked. The {helper} told {him} stories so that {he} would not get tired.
- They went through tall grass and over a little stream. The moon came out and lit the way.
- It was a long way. {Hero} did not let the {helper} out of {his} sight, not for one moment.
-

- At last {he} saw {landmark}, and in front of it stood {elder}. {Hero} ran the last steps.
- And then {he} smelled {snack}. There was {landmark}, and there was {his} own door.
- "{Hero}!" someone called. It was {elder}. {Ehe} had looked for {him} everywhere.

- "I was so worried," said {elder}. "I am sorry," said {hero}. "I will stay close to you next time."
- {Elder} held {him} for a long time. "Thank you for bringing {him} back," {ehe} said to the {helper}, and {ehe} gave it
  some {snack}.
- {Hero} wanted to thank the {helper}, but it had already gone. Only {lure} was still dancing in {his} dreams.
"""),
    [
        "the way home is easier to find when you ask",
        "it is good to stay on the path",
        "not everything that shines is worth following",
        "home is the best place in the world",
    ],
    [
        (
            ["lure"],
            _list("""a blue butterfly, a white feather in the wind, a firefly, a big soap bubble, a tiny fairy,
            a leaf that danced in the wind, a golden beetle, a dragonfly with silver wings, a snow-white moth"""),
        ),
        (
            ["landmark"],
            _list("""a tall chimney, the old windmill, a crooked apple tree, the church tower, a red roof,
            a bridge with two lamps, three birch trees in a row, a big round rock, a yellow haystack"""),
        ),
    ],
)

BUILD = Plot(
    _beats("""
- One {day}, {hero} had a great idea. {He} wanted to build {work} {at}.
- "I am going to build {work}," {hero} told {friend} one {day}. {Friend} was a {ftrait} {fkind} and {his} best friend.
- {Hero} dreamed of {work}. One {day}, {he} decided not to dream any longer, but to begin.

- "May I help you?" asked {friend}. "No," said {hero}. "I can do it all by myself."
- {He} gathered {parts} and carried everything to {place}. {Detail}
- {Friend} brought {parts}, and {hero} brought {his} {adj} {thing} for luck.
- First {he} made a drawing. Then {he} looked for {parts}.
-

- {Hero} worked and worked. In the evening {he} stepped back to look at it. Crack! The whole thing fell down.
- It went well until lunch. Then the wind blew, and everything {he} had made lay on the ground.
- "Done!" said {hero}. {He} touched it with one {hand}, and it fell to pieces.
- They could not agree. "Like this!" said {hero}. "No, like that!" said {friend}. They pulled on both ends until it
  broke.

- {Hero} was so angry that {he} threw {his} hat on the ground. "I give up!" {he} shouted.
- "It is all your fault," {hero} wanted to say. But {he} bit {his} tongue.
- {Hero} sat down {spot} and put {his} head in {his} {hand}s.
-

- {Friend} sat down beside {him}. "One of us can hold it," {fhe} said, "while the other one ties it."
- "You began with the top," said a {helper}. "I would begin with the bottom."
- {Elder} looked at it. "A good idea needs more than two {hand}s," {ehe} said and winked at {friend}.
- Then {he} saw a bird building its nest. It took one straw after another, and when a straw fell down, it got a new one.

- "Let us try it together," said {hero}. {Friend} held, and {hero} tied. Then {hero} held, and {friend} tied.
- They began again from the beginning. This time they made every knot twice.
- They worked for three days. They sang as they worked, and everybody who came by lent a {hand}.
- {Hero} took the old parts and used them again. What was broken was mended, and what
  was bent was made straight.

- And then it was finished: {work}, right there {at}! [It was a little crooked, but it held.|]
- When the sun went down, they stood before {work}. "It is even better than in my dream," said {hero}.
- At last they put the {adj} {thing} on top. It was the finest {what} in the whole country.

- When it was ready, they invited everybody, and there were {snack} and {game} until dark.
- "We did it," said {friend}. "Yes, we," said {hero}, and {he} said the little word "we" twice.
- That evening, they {use} together.
- The next day, they {use} for the first time, and {elder} was allowed to join them.
"""),
    [
        "two friends can do what one cannot",
        "if something falls down, you can build it up again",
        "it is good to let others help",
        "big things are made of many small ones",
    ],
    [
        (
            ["what", "work", "parts", "use"],
            _table("""
tree house / a tree house / old boards and a rope / sat in the tree house and counted the stars
raft / a raft / four logs and some string / floated down the stream on the raft
bridge / a bridge over the brook / stones and long branches / walked over the bridge, back and forth
snail race track / a race track for snails / sand and smooth stones / cheered for the slowest snail
castle / a castle out of boxes / boxes and a pot of glue / sat on the thrones of the castle
boat / a boat with a real sail / a tub, a broom and a sheet / sailed all the way to the other side
hut / a hut / branches, moss and leaves / slept in the hut and listened to the wind
birdhouse / a birdhouse with two doors / wood and a box of nails / watched the first bird move in
swing / a swing / a board and two ropes / swung so high that they could touch the leaves
wagon / a wagon / four wheels and a wooden box / rolled down the hill in the wagon
"""),
        )
    ],
)

WAIT = Plot(
    _beats("""
- One {day}, {elder} baked a [big|huge] cake. The whole house smelled of it. "It is for tonight," {ehe} said. "Please
  wait."
- One {day}, {elder} put a plate of {snack} on the table. "Do not touch them until I am back," {ehe} said and went out.
- One {day}, {friend} gave {hero} a closed box. "Do not open it before the evening," {fhe} said, "or it will not work."

- {Hero} promised to wait. {He} sat on {his} {hand}s. {He} looked out of the window. Then {he} looked back again.
- "That is easy," said {hero}. But one minute can be very long.
- {Hero} walked around the table once. {He} walked around it twice. It was so hard to wait!

- "Just a little," said a voice in {his} head. "Nobody will notice." {Hero} reached out {his} {hand}.
- "Only a look," {hero} thought. {He} came closer, and closer still.
- {He} tried to think of something else, but {he} could think of nothing else.
-

- "Would you like to come out and play {game}?" called a {helper} through the window. "Time goes faster then."
- Just then {friend} came in. "What are you doing?" {fhe} asked. {Hero} turned red and pulled back {his} {hand}.
- Then {he} saw {his} own face in a spoon. It did not look like the face of an honest {kind}.
- {Hero} remembered the last time. {He} had not waited, and in the end everyone had been sad.
-

- {Hero} turned {his} back to the table and ran to {place}. {Detail}
- {He} took {his} {adj} {thing} and went to {place}. There {he} found {friend} sitting {spot}.
- "I will not do it," said {hero} aloud. {He} went outside and closed the door behind {him}.

- {He} played {game} with {friend} {at} and forgot the time.
- They looked for treasure {spot2} and {spot3}. They did not find any, but they laughed a lot.
- {He} lay down in the grass and made up a song about waiting. It had many verses.
- {He} found a {helper} that needed somebody to talk to, and they talked until the shadows grew long.

- When {he} looked up, the sun was going down. "It is time!" {hero} cried and ran home.
- And suddenly it was evening. {Elder} was already standing at the door and waving.
- The clock struck six. {Hero} had almost forgotten what {he} was waiting for.

- "You waited," said {elder}. "I am proud of you." {Hero} got the [biggest|first] piece, and it was worth it.
- "You really did not touch it?" asked {elder}. "[Almost|Nearly]," said {hero}, "but not quite." And {he} told the whole
  story.
- And then came the surprise: there was a {adj} {thing} for the one who had kept {his} promise.
- Everybody sat around the table. Nothing had ever tasted so good to {hero} as what {he} had waited for.
"""),
    [
        "waiting makes good things even better",
        "a promise is a promise",
        "time flies when you have something to do",
        "it feels good to keep your word",
    ],
)

NIGHT = Plot(
    _beats("""
- One night, {hero} lay in bed and could not sleep. {He} heard a strange noise. {Noise}, it went. {Noise}.
- It was the middle of the night. {Hero} woke up because something went {noise} [under the window|over {his} head].
- {Elder} had just blown out the light when {hero} heard it: {noise}! It came from outside.

- {He} pulled the blanket over {his} nose. "There is a monster," {he} whispered.
- {He} sat up and listened. {Noise}! There it was again, and louder.
- "It is only the wind," {hero} told {himself}. But the wind never went {noise}.
-

- {Hero} hugged {his} {adj} {thing}. "We have to look," {he} told it. "If we do not look, we will never sleep again."
- {He} woke {friend}, who was staying for the night. "Do you hear that?" {he} whispered. {Friend} nodded with wide eyes.
- {He} called {elder}, but {elder} was fast asleep. So {hero} put on {his} slippers and took a lamp.

- On tiptoe {he} went down the stairs. Every step creaked. The moon shone through the window.
- {He} opened the door, just a crack. The night was blue and still. A cool wind blew in.
- Step by step {he} came closer. {His} heart beat so loudly that {he} almost did not hear the noise any more.

- {Noise}! Now it was right in front of {him}. {He} held up the lamp. And what did {he} see?
- "Who is there?" {he} asked in a small voice. {Noise}, came the answer. {He} took one more step.
- {Hero} counted to three and looked around the corner.

- It was not a monster at all. It was {visitor}! {Hero} laughed so much that {he} had to hold on to the wall.
- There sat {visitor}. "I am sorry," it seemed to say. "Did I wake you up?"
- Two eyes looked at {him}. They belonged to {visitor}. It was far more scared than {he} was.

- "You must be hungry," said {hero}, and {he} got some {snack} from the kitchen.
- "Are you cold?" asked {hero}. {He} fetched an old blanket and put it on the step.
- "You may stay until the morning," said {hero}. "But please be quiet, because everyone is asleep."
- {Hero} sat down on the step, and together they looked at the moon.
-

- In the morning, {elder} found {hero} asleep next to the door, and beside {him} lay {visitor}.
- The next morning, {he} told {elder} about it. {Elder} did not believe a word until {ehe} heard it, too: {noise}!
- From then on, it came every night. And whenever {hero} heard it go {noise}, {he} smiled and went on sleeping.
- When the sun rose, the visitor was gone. But on the step lay a {adj} {thing}, like a little thank-you.
"""),
    [
        "many a monster is only small and hungry",
        "it is better to look than to be afraid",
        "strange noises have simple reasons",
        "the night is full of friends",
    ],
    [
        (["noise"], _table("tap, tap, tap\nscratch, scratch\nbump, bump\nhoo, hoo\ncrunch, crunch\nsqueak, squeak")),
        (
            ["visitor"],
            _list("""a fat old cat, a small owl with one white ear, a tiny mouse with a nut, a young goat, a lost
  kitten,
            a round little pig, a wet puppy, a baby bat, a very small donkey, a hedgehog with an apple on its back"""),
        ),
    ],
)

GIFT = Plot(
    _beats("""
- It was winter. Snow lay on the roofs, and the {pond} was frozen. {Hero} stayed inside by the fire.
- The first snow had fallen during the night. Everything was white and still. {Hero} could not wait to go out.
- It was the coldest week of the year. Flowers of ice grew on the windows. {Hero} put on {his} warm coat.

- {Hero} had got a {warm} from {elder}. It was {color}, and it was the warmest {warm} in the world.
- {Elder} had spent the whole autumn making a {color} {warm} for {hero}. "So that you do not freeze," {ehe} said.
- Proudly {hero} wore {his} new {warm}. It was {color}, and {he} liked it very much.

- On the way to {place}, {he} met a {fkind} {he} had never seen before. The {fkind} was shivering with cold.
- {He} went to {place}. It looked quite different in the snow. There stood a {ftrait} {fkind} with blue lips.
- Outside, {he} heard somebody sneeze. It was a {fkind} who had no {warm} and no home to go to.

- "What is your name?" asked {hero}. "{Friend}," said the {fkind}, and {fhis} teeth chattered.
- "Are you not cold?" asked {hero}. "Only a little," said the {fkind}. {Fhis} name was {friend}.
- The {fkind} tried to smile. "I am {friend}," {fhe} said. "Do not mind me. I am used to it."

- {Hero} looked at {his} {warm}. It was so soft and so {color}. What would {elder} say?
- {Hero} walked on. But after ten steps {he} stopped. The {warm} felt heavy all of a sudden.
- "I have only this one," thought {hero}. "But I have a fire at home, and {friend} has none."
-

- Then {he} took it off and gave it to {friend}. "It is yours," {he} said. "It will keep you warm."
- Without a word, {he} wrapped {friend} in the {color} {warm}. At once {fhis} cheeks became red.
- "We can share," said {hero}. "You wear it today, and I wear it tomorrow. And now come home with me."

- {Friend} could not speak. {Fhe} stroked the {warm} and smiled, and {hero} did not feel the cold any more.
- "Nobody has ever given me anything," said {friend}. Together they built a snow {kind} with a carrot for a nose.
- They ran home through the snow, {hand} in {hand}, and left two lines of tracks behind them.
-

- "Where is your {warm}?" asked {elder}. {Hero} told {ehim} everything. {Elder} said nothing, but {ehe} put another
  plate on
  the table.
- {Elder} opened the door. "I see that there are two of you," {ehe} said. "Then there must be soup for two."
- When {elder} heard the story, {ehe} got out {ehis} needles. "I have some {color} wool left," {ehe} said.

- In the spring, {friend} came with a basket of {snack}. "Now it is my turn," {fhe} said.
- Soon there were two friends in the same {color} {warm}s, and nobody could tell them apart in the snow.
- They sat by the fire and ate {snack} while the snow fell outside.
- When the snow melted, {friend} brought the {warm} back. But by then the two of them had long been best friends.
"""),
    [
        "giving makes you warm inside",
        "a gift is twice as nice when somebody needs it",
        "kindness is warmer than wool",
        "there is always room for one more",
    ],
    [
        (["warm"], _list("scarf, coat, cap, sweater, cape, vest")),
        (["color"], _list("red, blue, green, yellow, purple, brown, white, orange")),
        (["pond"], _list("pond, lake, brook, well")),
    ],
)

PLOTS = [LOST, FRIEND, LEARN, SHARE, STORM, ANIMAL, SURPRISE, BRAVE, HONEST, PLANT]
PLOTS += [RACE, ASTRAY, BUILD, WAIT, NIGHT, GIFT]
