"""The adjectives of the English-French lexicon: forms, place before or after the noun, and what they describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from attnkit.text.toy import french


@dataclass(frozen=True)
class Adjective:
    """One adjective in both languages.

      ``comparative`` is the English one, None where comparing makes no sense;
    ``before``: French puts it before the noun;
      ``liaison``: the masculine form before a vowel, if it has its own.
    """

    en: str
    comparative: str | None
    masculine: str
    feminine: str
    before: bool
    kinds: tuple[str, ...]
    liaison: str = ""

    def agree(self, *, feminine: bool, plural: bool) -> str:
        """Return the French form; colours of two words (``bleu clair``) never change."""
        if " " in self.masculine:
            return self.masculine
        form = self.feminine if feminine else self.masculine
        if not plural:
            return form
        return form + "s" if feminine else french.plural_of(form)


# A line: place (before|after) and the kinds of noun described, then english[/comparative] = masculine feminine
# [liaison]. "/more" compares with "more". "big" is gros for animals and food, grand for the rest; "old", "new" and
# "beautiful" have a form before vowels.
_TABLE = """
before person: tall/taller = grand grande
before person animal: young/younger = jeune jeune
before person animal thing vehicle place clothes: old/older = vieux vieille vieil
before person animal thing vehicle place clothes: beautiful/more = beau belle bel
before thing vehicle place clothes: new/newer = nouveau nouvelle nouvel
before animal food: big/bigger = gros grosse
before thing vehicle place sight: big/bigger = grand grande
before animal thing vehicle place clothes sight food: small/smaller = petit petite
before clothes place: pretty/prettier = joli jolie
before food mass work: good = bon bonne
before work: bad = mauvais mauvaise; long/longer = long longue
before person: kind/kinder = gentil gentille
after person: happy/happier = heureux heureuse; sad/sadder = triste triste;
  rich/richer = riche riche; famous/more = célèbre célèbre; brave/braver = courageux courageuse;
  serious/more = sérieux sérieuse;
  clever/more = intelligent intelligente; lazy/more = paresseux paresseuse; shy/more = timide timide;
  polite/more = poli polie;
  English = anglais anglaise; French = français française; American = américain américaine;
  German = allemand allemande;
  Spanish = espagnol espagnole
after person animal: tired = fatigué fatiguée; sick = malade malade; strong/stronger = fort forte;
  funny/funnier = amusant amusante
after animal clothes vehicle thing: white = blanc blanche; black = noir noire; brown = brun brune; gray = gris grise
after clothes vehicle thing: red = rouge rouge; blue = bleu bleue; green = vert verte; yellow = jaune jaune;
  light blue = bleu clair -; dark green = vert foncé -
after animal: fast/faster = rapide rapide; dangerous/more = dangereux dangereuse
after portable: heavy/heavier = lourd lourde; light/lighter = léger légère;
  useful/more = utile utile
after dish instrument: broken = cassé cassée
after opening: open = ouvert ouverte; closed = fermé fermée
after container place: empty = vide vide
after thing clothes: expensive/more = cher chère; clean/cleaner = propre propre; dirty/dirtier = sale sale;
  wet = mouillé mouillée
after clothes: warm/warmer = chaud chaude
after food mass: fresh/fresher = frais fraîche
after mass: hot/hotter = chaud chaude; cold/colder = froid froide
after food: sweet/sweeter = sucré sucrée
after vehicle: fast/faster = rapide rapide; modern/more = moderne moderne; slow/slower = lent lente
after place: quiet/quieter = calme calme; modern/more = moderne moderne; clean/cleaner = propre propre;
  dark/darker = sombre sombre
after work: interesting/more = intéressant intéressante; boring/more = ennuyeux ennuyeuse;
  easy/easier = facile facile;
  difficult/more = difficile difficile; simple/simpler = simple simple; important/more = important importante;
  ;
  famous/more = célèbre célèbre; sad/sadder = triste triste; short/shorter = court courte
"""


def _parse(table: str) -> tuple[Adjective, ...]:
    found: list[Adjective] = []
    for line in table.replace("\n  ", " ").strip().splitlines():
        head, _, entries = line.partition(":")
        place, *kinds = head.split()
        for entry in filter(None, (part.strip() for part in entries.split(";"))):
            left, right = (side.strip() for side in entry.split("="))
            en, _, comparative = left.partition("/")
            masculine, forms = _french_forms(right)
            compared = f"more {en}" if comparative == "more" else comparative or None
            found.append(Adjective(en, compared, masculine, forms[0], place == "before", tuple(kinds), forms[1]))
    return tuple(found)


def _french_forms(text: str) -> tuple[str, tuple[str, str]]:
    """Split ``vieux vieille vieil`` or ``bleu clair -`` into masculine and (feminine, liaison)."""
    if text.endswith(" -"):
        return text[:-2], (text[:-2], "")
    masculine, feminine, *liaison = text.split()
    return masculine, (feminine, liaison[0] if liaison else "")


ADJECTIVES = _parse(_TABLE)


@cache
def describing(*kinds: str) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe nouns of one of the kinds (``person``, ``thing``, ``food``…)."""
    return tuple(adjective for adjective in ADJECTIVES if not set(kinds).isdisjoint(adjective.kinds))
