"""Captions that describe nothing, and captions that must not be taken for them: the yardstick of `ambiguity_text`.

They are encoded with the model of the audit (auditor/score/vocabulary.py), which shows where captions that say nothing
are in *its* space. tests/bench/ambiguity.py measures the result on vague captions that are not in this list.
"""

from collections.abc import Set

VAGUE_CAPTIONS = tuple(
    """
a photo|an image|a picture|a photograph|a snapshot|a shot|this is a photo|this is an image of something|the picture
a photo of something|a picture of a thing|an image of an object|a scene|a scene of something|a view|a general view
something|a thing|things|some things|various things|a few objects|an object|stuff|some stuff in a place|anything
someone|a person|people|some people|a person somewhere|somebody doing something|someone is doing something
outside|outdoors|indoors|inside|something outside|a place|somewhere|an area|a location|an unknown place|the world
nice|beautiful|cool|wow|amazing|great picture|a nice shot|a beautiful picture|a lovely view|best photo ever|i like this
look at this|check this out|here it is|here is another one|just a random shot|see the description|as described|this one
my photo|my picture|our photos|my favorite|one of mine|photo of the day|a photo taken yesterday|taken on holiday
a photo taken with a camera|picture number one|photo 2|image 7|a place that i saw|an assortment of things|several items
untitled|no title|no description|no caption|unknown|not available|description|caption|image|photo|picture|file
a moment|a nice moment|a memory|an event|an activity|some kind of activity|an action|something is happening
there is something here|there are some things|a thing on another thing|one thing next to another|two things|many things
it is what it is|everyday life|life|a day|a nice day|good times|fun|the background|a detail|an example|a sample
a clip|a video|a video of something|footage|a scene from a video|a recording|content|material|an interesting image
the image shows something|the photo shows some objects|this picture was taken somewhere|a color picture|an illustration
""".strip()
    .replace("\n", "|")
    .split("|")
)
CLEAR_CAPTIONS = tuple(
    """
a black dog|a brown horse in a field|a red car on a street|two children playing soccer|a woman riding a bicycle|cyclists
a man playing the guitar on stage|a cup of coffee on a wooden table|a bird on a branch|a train at a station|a surfer
a bowl of soup with vegetables|a tall building with glass windows|a cat sleeping on a sofa|a yellow flower in a garden
a boat on a lake|a plate of spaghetti|a girl in a pink dress|a mountain covered with snow|an airplane above the clouds
a laptop and a phone on a desk|a football player kicking a ball|an old church with a tower|a baby with a toy|an elephant
a chef cutting onions|a group of people dancing at a wedding|a map of France|a blue circle on a white background
a green star|a drawing of a house|a pair of leather shoes|a bottle of perfume|a bridge over a river at night
strawberries|a tiger walking through grass|a doctor talking with a patient|fireworks over a city|a waterfall in a forest
a child blowing out candles|a woman taking a photo of a church|a man holding a camera|a picture on a wall|a photographer
a camera crew filming a crowd|spectators at a sports event|people standing in a line|three people smiling at the camera
a crowd at a concert|a group of friends posing for a picture|people sitting on benches|a man in a suit|a woman in a hat
a family at the beach|kids in a swimming pool|a person climbing a rock|people crossing a street
a boy looking at a screen|a close-up of a face|a large group of people seen from above
two men talking in a room|a snowy landscape|a busy market|a beach
a girl looking at pictures in a book|a dog looking at the camera|people watching a parade|a party with balloons|a crowd
""".strip()
    .replace("\n", "|")
    .split("|")
)
NON_CAPTIONS = tuple(
    """
IMG_0412.JPG|DSC_1934.jpg|photo-final-2.png|P1020344|screenshot_2021-04-11.png|http://www.site.com/page.html
https://cdn.shop.net/img/88123.jpg|www.myphotos.com/view?id=3|user@mail.com|<a href="x">link</a>|<div>img</div>|&nbsp;
123456|2019-05-12 11:45|v1.0.3|qwerty asdf zxcv|xkcd jjfw pqrt|SKU 44-192-X|order number 5512|buy now, free shipping
copyright 2015 all rights reserved|stock photo #88231|royalty free stock image 12345|click to enlarge|lorem ipsum dolor
""".strip()
    .replace("\n", "|")
    .split("|")
)
# Ordinary captions by language. Those in languages of the corpus are left out.
FOREIGN_CAPTIONS = {
    "de": ("Ein Mann steht auf der Straße.", "Eine Frau mit einem Kind im Park."),
    "fr": ("Un chien court dans la neige.", "Une femme porte une robe rouge."),
    "es": ("Un perro juega con una pelota.", "Una mujer camina por la calle."),
    "it": ("Un uomo va in bicicletta.", "Due bambini giocano sulla spiaggia."),
    "pt": ("Um menino joga bola na praia.", "Uma mulher com um chapéu."),
    "nl": ("Een man zit op een bank.", "Twee kinderen spelen in het gras."),
    "pl": ("Mężczyzna stoi na ulicy.", "Dziecko bawi się piłką."),
    "sv": ("En hund springer i gräset.", "En kvinna cyklar på vägen."),
    "tr": ("Bir adam sokakta yürüyor.", "Kırmızı elbiseli bir kadın."),
    "ru": ("Собака бежит по траве.", "Женщина в красном платье."),
    "el": ("Ένας άντρας στο δρόμο.", "Μια γυναίκα με ένα παιδί."),
    "ar": ("كلب يجري على العشب", "امرأة تمشي في الشارع"),
    "hi": ("एक आदमी सड़क पर खड़ा है", "एक कुत्ता घास पर दौड़ रहा है"),
    "ja": ("男の人が自転車に乗っている", "犬が草の上を走っている"),
    "zh": ("一个女人站在街上", "一只狗在草地上奔跑"),
    "ko": ("남자가 거리에 서 있다", "개가 잔디 위를 달린다"),
}


def group_examples(languages: Set[str | None] = frozenset()) -> dict[str, list[str]]:
    """The examples by kind, without foreign ones in these languages of the corpus."""
    foreign = [caption for code, captions in FOREIGN_CAPTIONS.items() if code not in languages for caption in captions]
    kinds = {"vague": VAGUE_CAPTIONS, "clear": CLEAR_CAPTIONS, "non-caption": NON_CAPTIONS, "foreign": foreign}
    return {kind: list(captions) for kind, captions in kinds.items()}
