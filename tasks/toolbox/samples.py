"""The files that a fresh sandbox holds: texts, tables, drawings and sounds, the same every time."""

import math
import random
from array import array
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw

from tasks.toolbox import drawing
from tasks.toolbox.audio import RATE, Recording, wav_bytes

TEXTS = {
    "letter.txt": """\
To the customer service of Brook and Hill Furniture,
I am writing about my order of a desk, two chairs and a lamp, placed on 3 March.
You promised delivery within ten days, and I stayed at home for two whole mornings.
Nobody came, and the page that follows the parcel still says "on its way".
On 20 March a van brought one chair, with a scratch across the seat.
The driver knew nothing about the desk, the lamp or the second chair.
I have phoned your office four times and was always told to wait another week.
It is now 14 April, and the delivery is more than a month late.
Please send the missing furniture by 25 April and replace the damaged chair.
Otherwise I ask you to cancel the order and to return the full price of 412 euros.
Please answer in writing, because promises by phone have not helped so far.
Yours faithfully, a patient but disappointed customer
""",
    "minutes.txt": """\
Minutes of the monthly meeting of the garden club, 6 May, 19:00, club house.
Present: eleven members; excused: two members.
The minutes of the April meeting were read and accepted without changes.
Treasury: the account holds 1,240 euros after the purchase of the new water pump.
The treasurer asked for all receipts of the spring to be handed in by 20 May.
It was decided to keep the yearly fee at 35 euros.
Tool shed: the roof leaks above the door, and two spades are missing.
A roofer has offered the repair for 480 euros; a second offer is expected next week.
The members decided to wait for the second offer before ordering the repair.
Compost: the heap behind the greenhouse has grown too close to the fence.
It was decided to move the heap to the north corner on Saturday, 18 May.
Five members offered to help; wheelbarrows are to be brought along.
Summer party: the date of 22 June suits nearly everybody.
The members decided to invite the neighbours of the school garden as well.
Music, a grill and about forty chairs have to be borrowed.
Water: after last summer's drought the rain barrels should be doubled.
No agreement was reached about the size of the barrels; the question is put off.
Any other business: the notice board will be painted before the party.
The next meeting is on 3 June at 19:00 in the club house.
The meeting was closed at 20:35.
""",
    "recipe.txt": """\
Onion soup for four people
You need: 1 kg of onions, 60 g of butter, 2 spoons of oil, 1 spoon of sugar.
You also need: 2 cloves of garlic, 30 g of flour, 200 ml of white wine, 1.2 l of broth.
For the top: 8 slices of old bread and 150 g of grated cheese.
Peel the onions, halve them and cut them into thin slices.
Melt the butter with the oil in a large pot over a low flame.
Add the onions and a little salt, put the lid on and cook them for 15 minutes.
Take the lid off, stir in the sugar and let the onions brown slowly for 35 minutes.
Stir every few minutes, so that nothing burns at the bottom.
Add the garlic and the flour and stir for two minutes more.
Pour in the wine, wait until it has almost gone, then add the broth.
Let the soup simmer for 25 minutes and season it with salt and pepper.
Toast the bread, lay it on the soup in four bowls and cover it with the cheese.
Bake the bowls under the hot grill until the cheese is golden, about 4 minutes.
Serve the soup at once; it tastes even better on the next day.
""",
    "report.txt": """\
Report on the harbour of Lindwick, second half of the year

The harbour handled 412 ships between July and December, 37 more than in the same months a year \
before. Cargo grew by nine percent to 186,000 tons. Timber remains the most important cargo, \
followed by grain and gravel. Passenger traffic fell slightly, because the ferry to the islands \
was in dock for three weeks in October.

The northern quay is the weakest part of the harbour. Divers found rust on 14 of the 52 steel \
piles, and two piles have to be replaced before the winter storms. Until then ships of more than \
80 metres must use the southern quay, where they wait four hours on average. The repair of the \
northern quay will cost about 640,000 euros, of which the state pays half.

The harbour has begun to supply ships with electricity from the shore. Six berths have been \
fitted with cables since August. Neighbours report that nights have become quieter, and the \
measured soot at the harbour gate fell by a fifth. Fishing boats do not use the cables yet, as \
their plugs do not fit.

Three accidents were recorded. Nobody was badly hurt, but a crane driver broke a finger when a \
hook swung loose. The harbour office has since ordered new hooks and holds a safety lesson every \
month.

For the coming year the harbour office proposes three steps: to finish the northern quay, to fit \
the fishing berths with matching plugs, and to deepen the channel by half a metre. The channel \
is the most expensive step, but larger grain ships cannot enter the harbour without it.
""",
}

TABLES = {
    "sales.csv": """\
month,region,product,units,price
2024-01,North,lamp,34,29.90
2024-01,South,chair,21,79.00
2024-01,East,desk,9,249.00
2024-01,West,lamp,27,29.90
2024-02,North,chair,18,79.00
2024-02,South,desk,12,249.00
2024-02,East,lamp,41,29.90
2024-02,West,chair,16,79.00
2024-03,North,desk,7,249.00
2024-03,South,lamp,38,27.50
2024-03,East,chair,24,79.00
2024-03,West,desk,11,249.00
2024-04,North,lamp,29,27.50
2024-04,South,chair,26,74.50
2024-04,East,desk,8,249.00
2024-04,West,lamp,33,27.50
2024-05,North,chair,22,74.50
2024-05,South,desk,14,239.00
2024-05,East,lamp,36,27.50
2024-05,West,chair,19,74.50
2024-06,North,desk,10,239.00
2024-06,South,lamp,44,27.50
2024-06,East,chair,23,74.50
2024-06,West,desk,13,239.00
""",
    "staff.csv": """\
name,team,city,salary
Ada,Sales,Porto,41200
Bruno,Support,Ghent,36800
Carla,Design,Turin,45500
Dario,Sales,Ghent,39900
Elin,Design,Bergen,52300
Farid,Support,Porto,35400
Greta,Sales,Bergen,47800
Hugo,Support,Turin,37100
Ines,Design,Porto,44000
Jonas,Sales,Turin,42600
Kira,Support,Bergen,43900
Leon,Design,Ghent,46200
""",
    "cities.csv": """\
city,country,population
Porto,Portugal,231800
Ghent,Belgium,265100
Turin,Italy,847300
Bergen,Norway,291200
Graz,Austria,298500
Tampere,Finland,255100
Cork,Ireland,224000
Aarhus,Denmark,290600
""",
    "shelf.csv": """\
product,shelf,stock
lamp,A3,120
chair,C1,64
desk,D2,31
""",
}


def make_samples(folder: Path) -> None:
    """Write the files of a fresh sandbox into an existing folder.

    The same version of Pillow writes the same bytes.
    """
    for name, text in {**TEXTS, **TABLES}.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for name, draw in {"beach": _beach, "forest": _forest, "poster": _poster}.items():
        (folder / f"{name}.png").write_bytes(drawing.png_bytes(draw()))
    _portrait().save(folder / "portrait.jpg", quality=90)
    for name, seconds, wave in (
        ("bell", 2.0, _bell),
        ("rain", 4.0, _rain()),
        ("speech", 3.0, _speech),
        ("whistle", 1.0, _whistle),
    ):
        (folder / f"{name}.wav").write_bytes(wav_bytes(_recorded(seconds, wave)))


def _beach() -> Image.Image:
    picture = Image.new("RGB", (320, 200), (150, 205, 245))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((240, 20, 285, 65), (255, 225, 90))
    draw.rectangle((0, 90, 320, 140), (30, 110, 180))
    for y in range(96, 140, 10):
        draw.line([(x, y + 2 * math.sin(x / 9 + y)) for x in range(0, 321, 4)], (120, 180, 225), 2)
    draw.rectangle((0, 140, 320, 200), (235, 210, 150))
    draw.polygon([(60, 175), (150, 175), (135, 188), (75, 188)], (165, 70, 45))
    draw.polygon([(105, 115), (105, 172), (150, 172)], (250, 250, 245))
    return picture


def _forest() -> Image.Image:
    picture = Image.new("RGB", (240, 240), (185, 215, 195))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 170, 240, 240), (70, 105, 50))
    chance = random.Random(11)
    for _ in range(26):
        x, foot = chance.randrange(0, 240), chance.randrange(165, 232)
        size, green = chance.randrange(50, 100), chance.randrange(70, 125)
        draw.rectangle((x - 4, foot - 20, x + 4, foot), (90, 60, 35))
        for tier in range(3):
            base, half = foot - 15 - tier * size // 4, (3 - tier) * size // 10
            draw.polygon(
                [(x - half, base), (x + half, base), (x, base - size // 2)], (25, green, 45)
            )
    return picture


def _portrait() -> Image.Image:
    picture = Image.new("RGB", (200, 300), (120, 95, 80))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((15, 215, 185, 400), (60, 75, 110))
    draw.rectangle((82, 185, 118, 235), (215, 165, 135))
    draw.ellipse((48, 45, 152, 130), (70, 45, 30))
    draw.ellipse((55, 65, 145, 205), (225, 175, 145))
    for x in (80, 120):
        draw.ellipse((x - 9, 120, x + 9, 132), (250, 250, 250))
        draw.ellipse((x - 4, 122, x + 4, 130), (50, 70, 60))
        draw.line((x - 12, 110, x + 12, 108), (70, 45, 30), 4)
    draw.line((100, 128, 95, 158, 103, 160), (190, 135, 110), 3)
    draw.arc((80, 155, 120, 185), 20, 160, (165, 75, 75), 4)
    return picture


def _poster() -> Image.Image:
    picture = Image.new("RGB", (400, 300), (200, 60, 45))
    draw = ImageDraw.Draw(picture)
    for turn in range(0, 360, 20):
        draw.pieslice((-60, -20, 460, 500), turn, turn + 10, (215, 80, 60))
    draw.rectangle((20, 20, 380, 280), outline=(250, 235, 200), width=4)
    draw.text((200, 80), "SUMMER FAIR", (250, 235, 200), drawing.font(44), anchor="mm")
    draw.text((200, 140), "harbour square", (250, 235, 200), drawing.font(24), anchor="mm")
    draw.ellipse((165, 175, 235, 245), (250, 200, 70))
    return picture


Wave = Callable[[float], float]
"""The swing at a second, -1 to 1."""


def _recorded(seconds: float, wave: Wave) -> Recording:
    count = round(seconds * RATE)
    return Recording(RATE, 1, array("h", (round(32_000 * wave(i / RATE)) for i in range(count))))


def _sine(frequency: float, second: float) -> float:
    return math.sin(2 * math.pi * frequency * second)


def _bell(second: float) -> float:
    """A struck bell: partials that fade, the high ones first."""
    partials = ((1.0, 523.0), (0.6, 1260.0), (0.4, 1730.0), (0.25, 2810.0))
    return sum(a * _sine(f, second) * math.exp(-second * f / 300) for a, f in partials) / 2.25


def _rain() -> Wave:
    """Noise with single drops."""
    chance = random.Random(23)
    drop = 0.0

    def wave(_: float) -> float:
        nonlocal drop
        drop = 0.6 if chance.random() < 0.002 else drop * 0.99
        return (0.15 + drop) * chance.uniform(-1, 1)

    return wave


def _speech(second: float) -> float:
    """Syllables: a voice's overtones, twice a second, with a pause in the middle."""
    if 1.4 < second < 1.7:
        return 0.0
    pitch = 120 + 15 * _sine(0.7, second)
    shape = math.sqrt(max(0.0, _sine(2.0, second)))
    voice = sum(_sine(pitch * n, second) / n for n in (1, 2, 3, 4, 5))
    return 0.3 * shape * voice


def _whistle(second: float) -> float:
    """A whistle that rises by an octave."""
    return 0.5 * math.sin(2 * math.pi * (900 * second + 450 * second**2))
