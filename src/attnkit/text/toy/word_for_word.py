"""Translation by looking up one word after another: how far a dictionary alone gets (not far: there is the point)."""

from __future__ import annotations

import re
from functools import cache

from attnkit.text.toy import conjugation, english, french, phrases
from attnkit.text.toy.adjectives import ADJECTIVES
from attnkit.text.toy.nouns import NOUNS
from attnkit.text.toy.verbs import GIVE, GO, INTRANSITIVE, KNOW_FACT, LIVE, SAY, THINK, TRANSITIVE, Verb

_WORD = re.compile(r"[\w-]+'?\w*|[^\w\s]")
# The most frequent French form of each function word; an empty one is dropped.
_FUNCTION_WORDS = """
the le | a un | an un | some des | any de | this ce | that que | these ces | those ces | my mon | your votre
his son | her sa | our notre | their leur | i je | you vous | he il | she elle | it il | we nous | they ils | me me
him le | us nous | them les | is est | are sont | am suis | was était | were étaient | be être | will
do est-ce que | does est-ce que | did est-ce que | not pas | never jamais | often souvent | always toujours
can peut | cannot peut | must doit | going va | to à | in dans | on sur | at à | under sous | near près de
behind derrière | next prochaine | front devant | of de | with avec | without sans | from de | by à | and et
because parce que | when quand | while pendant | if si | why pourquoi | where où | who qui | what que | whom qui
how comment | many beaucoup | all tous les | each chaque | several plusieurs | every tous les | very très | too trop
more plus | than que | as aussi | then puis | there il y a | yesterday hier | tomorrow demain | today aujourd'hui
tonight ce soir | now maintenant | soon bientôt | last dernière | day jours | week semaine | month mois | year année
morning matin | evening soir | night soir | summer été | winter hiver | spring printemps | time temps | times fois
ago il y a | o'clock heures | years ans | hours heures | days jours | first premier | here ici | home maison
outside dehors | together ensemble | slowly lentement | quickly rapidement | quietly tranquillement | lot beaucoup
little peu | long longtemps | please s'il vous plaît | mom maman | dad papa | sir monsieur | madam madame
love amour | hungry faim | thirsty soif | afraid peur | cold froid | hot chaud | right raison | wrong tort
sleepy sommeil | weather temps | raining pleut | snowing neige | rains pleut | would voudrais | time temps
london londres | france france | spain espagne | italy italie | germany allemagne | england angleterre
mondays lundi | monday lundi | sunday dimanche | moment moment | bed lit | football football | chess échecs
cards cartes
"""


@cache
def dictionary() -> dict[str, str]:
    """Return the lexicon as one French form for each lower-cased English word form."""
    found: dict[str, str] = {}
    for verb in (*INTRANSITIVE, *TRANSITIVE, GIVE, GO, KNOW_FACT, LIVE, SAY, THINK):
        found.update(_verb_forms(verb))
    for adjective in ADJECTIVES:
        found.setdefault(adjective.en.lower(), adjective.masculine)
        if adjective.comparative and " " not in adjective.comparative:
            found.setdefault(adjective.comparative, f"plus {adjective.masculine}")
    for noun in NOUNS:
        found.update({noun.en: noun.fr, noun.en_plural or noun.en: noun.fr_plural or noun.fr})
    found.update(phrases.NUMBERS)
    for entry in _FUNCTION_WORDS.replace("\n", " | ").split("|"):
        en, _, fr = entry.strip().partition(" ")
        if en:
            found[en] = fr
    return found


def _verb_forms(verb: Verb) -> dict[str, str]:
    """Return the first word of each English form; participles for the past, the third person for the rest."""
    head = verb.fr.split()[0]
    if "state" in verb.flags:
        present = participle = head
    else:
        forms = conjugation.conjugate(head)
        present, participle = forms.present[2], forms.participle
    base, past, ing = (form.split()[0] for form in (verb.en, verb.past, verb.ing))
    return {base: present, english.third_person(base): present, ing: present, past: participle}


def translate_word_for_word(line: str) -> str:
    """Replace each word by its dictionary form, keep order, and spell the result as French is spelled."""
    expanded = line.replace("n't", " not").replace("'m", " am").replace("'re", " are").replace("'ll", " will")
    words = [word.lower() for word in _WORD.findall(expanded)]
    translated = (dictionary().get(word.removesuffix("'s"), word) for word in words)
    return french.write(" ".join(word for word in translated if word))
