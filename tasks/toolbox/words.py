"""The small word lists that the tools for texts use."""

STOP_WORDS = frozenset({
    "a", "about", "above", "after", "again", "against", "all", "also", "although", "always", "am",
    "an", "and", "any", "are", "around", "as", "at", "away", "back", "be", "because", "been",
    "before", "being", "below", "between", "both", "but", "by", "can", "cannot", "come", "could",
    "did", "do", "does", "doing", "done", "down", "during", "each", "either", "else", "even",
    "ever", "every", "few", "for", "from", "further", "get", "got", "had", "has", "have", "having",
    "he", "her", "here", "hers", "herself", "him", "himself", "his", "how", "however", "i", "if",
    "in", "into", "is", "it", "its", "itself", "just", "last", "least", "less", "let", "like",
    "many", "may", "me", "might", "more", "most", "much", "must", "my", "myself", "near", "never",
    "new", "next", "no", "nor", "not", "nothing", "now", "of", "off", "often", "on", "once", "one",
    "only", "or", "other", "our", "ours", "out", "over", "own", "per", "put", "rather", "same",
    "see", "shall", "she", "should", "since", "so", "some", "soon", "still", "such", "than", "that",
    "the", "their", "theirs", "them", "then", "there", "these", "they", "this", "those", "three",
    "through", "thus", "to", "too", "two", "under", "until", "up", "upon", "us", "very", "was",
    "we", "well", "were", "what", "when", "where", "whether", "which", "while", "who", "whom",
    "whose", "why", "will", "with", "within", "without", "would", "yet", "you", "your", "yours",
    "yourself",
})  # fmt: skip
"""English words that say little about what a text is about, in lower case."""

SPANISH = dict(line.split(" = ") for line in """
the = el
a = un
an = un
and = y
or = o
but = pero
not = no
no = no
yes = sí
with = con
without = sin
of = de
from = de
to = a
in = en
on = en
at = en
for = para
by = por
under = bajo
over = sobre
between = entre
before = antes
after = después
until = hasta
since = desde
because = porque
if = si
when = cuando
where = donde
who = quien
what = qué
how = cómo
i = yo
you = usted
he = él
she = ella
it = ello
we = nosotros
they = ellos
my = mi
your = su
his = su
her = su
our = nuestro
their = su
this = este
that = ese
these = estos
those = esos
is = es
are = son
was = era
were = eran
be = ser
has = tiene
have = tienen
had = tenía
can = puede
will = va
must = debe
do = hacer
make = hacer
made = hecho
go = ir
come = venir
see = ver
say = decir
give = dar
take = tomar
put = poner
add = añadir
cut = cortar
cook = cocinar
stir = remover
serve = servir
wait = esperar
write = escribir
read = leer
send = enviar
sent = enviado
buy = comprar
sell = vender
open = abrir
close = cerrar
begin = empezar
end = fin
decided = decidió
arrived = llegó
promised = prometió
one = uno
two = dos
three = tres
four = cuatro
five = cinco
six = seis
seven = siete
eight = ocho
nine = nueve
ten = diez
hundred = cien
thousand = mil
first = primero
second = segundo
last = último
next = siguiente
all = todo
every = cada
many = muchos
more = más
less = menos
very = muy
only = solo
again = otra vez
now = ahora
today = hoy
tomorrow = mañana
yesterday = ayer
always = siempre
never = nunca
day = día
days = días
week = semana
weeks = semanas
month = mes
year = año
years = años
hour = hora
hours = horas
minute = minuto
minutes = minutos
morning = mañana
evening = tarde
night = noche
monday = lunes
tuesday = martes
wednesday = miércoles
thursday = jueves
friday = viernes
saturday = sábado
sunday = domingo
good = bueno
bad = malo
big = grande
large = grande
small = pequeño
long = largo
short = corto
old = viejo
new = nuevo
hot = caliente
cold = frío
late = tarde
early = temprano
dear = estimado
white = blanco
black = negro
red = rojo
green = verde
blue = azul
house = casa
room = sala
kitchen = cocina
table = mesa
chair = silla
lamp = lámpara
desk = escritorio
door = puerta
window = ventana
street = calle
city = ciudad
harbour = puerto
ship = barco
ships = barcos
boat = bote
sea = mar
beach = playa
forest = bosque
water = agua
rain = lluvia
sun = sol
wind = viento
bread = pan
cheese = queso
butter = mantequilla
onion = cebolla
onions = cebollas
soup = sopa
salt = sal
pepper = pimienta
oil = aceite
wine = vino
garlic = ajo
pot = olla
friend = amigo
people = gente
man = hombre
woman = mujer
child = niño
team = equipo
work = trabajo
meeting = reunión
report = informe
letter = carta
money = dinero
price = precio
order = pedido
delivery = entrega
customer = cliente
company = empresa
office = oficina
letters = cartas
news = noticias
hello = hola
goodbye = adiós
thanks = gracias
please = por favor
""".strip().splitlines())  # fmt: skip
"""Spanish by English, in lower case."""
