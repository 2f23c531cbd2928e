"""The nouns of the English-French lexicon, with gender, plurals and the kinds that verbs and prepositions ask for."""

from __future__ import annotations

from dataclasses import dataclass

from attnkit.text.toy import english, french


@dataclass(frozen=True)
class Noun:
    """One noun in both languages; ``kinds`` say what it can be done with, the first being its own class."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool
    kinds: tuple[str, ...]

    @property
    def countable(self) -> bool:
        """Whether the noun is used in the plural at all."""
        return bool(self.en_plural)


# A line: class and kinds, then nouns as english[/plural] = french[/plural] gender. A plural of "-" means none is used.
_TABLE = """
person: man/men = homme m; woman/women = femme f; boy = garçon m; girl = fille f; lady = dame f; king = roi m;
  queen = reine f;
  princess = princesse f; tourist = touriste m;
  thief/thieves = voleur m
person own: child/children = enfant m; friend = ami m; cousin = cousin m; neighbor = voisin m; baby = bébé m;
  guest = invité m
person kin unique: father = père m; mother = mère f; husband = mari m; wife/wives = femme f
person kin: brother = frère m; sister = sœur f; uncle = oncle m; aunt = tante f;
  grandfather = grand-père/grands-pères m; grandmother = grand-mère/grands-mères f; son = fils m;
  daughter = fille f
person job: student = étudiant m; teacher = professeur m; doctor = médecin m; nurse = infirmière f;
  baker = boulanger m;
  farmer = fermier m; singer = chanteur m; writer = écrivain m; lawyer = avocat m; engineer = ingénieur m;
  musician = musicien m; soldier = soldat m; cook = cuisinier m; driver = chauffeur m; waiter = serveur m;
  actor = acteur m; actress = actrice f; artist = artiste m; journalist = journaliste m; painter = peintre m
animal pet: cat = chat m; dog = chien m; rabbit = lapin m; mouse/mice = souris f
animal: horse = cheval m; cow = vache f; bird = oiseau m; duck = canard m; pig = cochon m; lion = lion m;
  bear = ours m;
  monkey = singe m; fox = renard m; elephant = éléphant m; snake = serpent m; wolf/wolves = loup m;
thing portable readable: book = livre m; newspaper = journal m; letter = lettre f
thing portable: key = clé f; watch = montre f; umbrella = parapluie m; phone = téléphone m; computer = ordinateur m;
  lamp = lampe f; pen = stylo m; pencil = crayon m; gift = cadeau m; toy = jouet m; doll = poupée f; ball = balle f;
  photo = photo f; map = carte f; ticket = billet m; clock = horloge f; painting = tableau m;
  candle = bougie f; flower = fleur f; ring = bague f; blanket = couverture f
thing portable container: bag = sac m; suitcase = valise f; box = boîte f; basket = panier m
thing portable dish: bottle = bouteille f; cup = tasse f; glass = verre m; plate = assiette f;
  knife/knives = couteau m;
  spoon = cuillère f
thing instrument: piano = piano m; guitar = guitare f
thing surface: table = table f; chair = chaise f; bed = lit m; desk = bureau m; mat = natte f;
  shelf/shelves = étagère f; bench = banc m; armchair = fauteuil m; roof = toit m
thing opening: door = porte f; window = fenêtre f; cupboard = placard m
clothes: shirt = chemise f; dress = robe f; hat = chapeau m; coat = manteau m; shoe = chaussure f;
  sock = chaussette f;
  skirt = jupe f; glove = gant m; sweater = pull m; jacket = veste f
food: apple = pomme f; orange = orange f; egg = œuf m; cake = gâteau m; pear = poire f; banana = banane f;
  carrot = carotte f; potato/potatoes = pomme de terre/pommes de terre f; tomato/tomatoes = tomate f;
  strawberry = fraise f; sandwich = sandwich m
mass meal: bread/- = pain m; cheese/- = fromage m; meat/- = viande f; rice/- = riz m;
  soup/- = soupe f; chocolate/- = chocolat m; salad/- = salade f; chicken/- = poulet m; sugar/- = sucre m;
mass drink: water/- = eau f; milk/- = lait m; coffee/- = café m; tea/- = thé m; wine/- = vin m; beer/- = bière f;
  juice/- = jus m
vehicle: car = voiture f; train = train m; bus = bus m; bicycle = vélo m; plane = avion m; boat = bateau m;
  motorcycle = moto f
place inside: garden = jardin m; kitchen = cuisine f; house = maison f; room = pièce f; bedroom = chambre f;
  village = village m; town = ville f; forest = forêt f; street = rue f;
  classroom = salle de classe/salles de classe f; field = champ m
place inside goal: park = parc m; hotel = hôtel m; castle = château m; hospital = hôpital m; church = église f;
  museum = musée m; restaurant = restaurant m; library = bibliothèque f; office = bureau m; theater = théâtre m;
  factory = usine f; school = école f
place goal: station = gare f; airport = aéroport m; market = marché m; beach = plage f; bank = banque f;
  pharmacy = pharmacie f; bakery = boulangerie f; stadium = stade m; university = université f; farm = ferme f
sight: tree = arbre m; mountain = montagne f; river = fleuve m; lake = lac m; bridge = pont m; tower = tour f;
  wall = mur m; stone = pierre f; star = étoile f; island = île f
work readable: story = histoire f; poem = poème m
work shown: film = film m; game = jeu m; song = chanson f
work: lesson = leçon f; question = question f; answer = réponse f; problem = problème m; idea = idée f;
  language = langue f; exercise = exercice m; word = mot m; secret = secret m
special: light = lumière f
"""


def _parse_entry(entry: str, kinds: tuple[str, ...]) -> Noun:
    left, right = (side.strip() for side in entry.split("="))
    en, _, en_plural = left.partition("/")
    right, _, gender = right.rpartition(" ")
    fr, _, fr_plural = right.partition("/")
    if en_plural == "-":
        return Noun(en, "", fr, "", gender == "f", kinds)
    return Noun(en, en_plural or english.plural_of(en), fr, fr_plural or french.plural_of(fr), gender == "f", kinds)


def _parse(table: str) -> tuple[Noun, ...]:
    found: list[Noun] = []
    for line in table.replace("\n  ", " ").strip().splitlines():
        kinds, _, entries = line.partition(":")
        found += [_parse_entry(entry, tuple(kinds.split())) for entry in entries.split(";") if entry.strip()]
    return tuple(found)


NOUNS = _parse(_TABLE)


def noun(en: str) -> Noun:
    """Return the noun of that English name. Raises KeyError when the lexicon has none."""
    for candidate in NOUNS:
        if candidate.en == en:
            return candidate
    raise KeyError(en)


# (English name, masculine, feminine): what somebody is; without an article in French, agreeing with the subject.
PROFESSIONS = (
    ("student", "étudiant", "étudiante"),
    ("teacher", "professeur", "professeure"),
    ("doctor", "médecin", "médecin"),
    ("nurse", "infirmier", "infirmière"),
    ("baker", "boulanger", "boulangère"),
    ("farmer", "fermier", "fermière"),
    ("singer", "chanteur", "chanteuse"),
    ("writer", "écrivain", "écrivaine"),
    ("lawyer", "avocat", "avocate"),
    ("engineer", "ingénieur", "ingénieure"),
    ("musician", "musicien", "musicienne"),
    ("soldier", "soldat", "soldate"),
    ("cook", "cuisinier", "cuisinière"),
    ("artist", "artiste", "artiste"),
    ("journalist", "journaliste", "journaliste"),
    ("painter", "peintre", "peintre"),
)
# (name, feminine): the same in both languages.
NAMES = (
    ("Paul", False), ("Thomas", False), ("Lucas", False), ("Louis", False), ("Victor", False), ("Nicolas", False),
    ("Marie", True), ("Alice", True), ("Emma", True), ("Sophie", True), ("Julie", True), ("Claire", True),
)  # fmt: skip
