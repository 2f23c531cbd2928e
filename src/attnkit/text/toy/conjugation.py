"""French conjugation: present, imperfect, future, past participle and imperative of the verbs the lexicon uses.

Persons are numbered 0-5: je, tu, il/elle, nous, vous, ils/elles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ez", "ont")
_IMPERFECT_ENDINGS = ("ais", "ais", "ait", "ions", "iez", "aient")


@dataclass(frozen=True)
class Conjugation:
    """The finite forms of one verb by person, and its masculine singular participle."""

    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: str


# infinitive | the six present forms | past participle | future stem
_IRREGULAR = """
être | suis es est sommes êtes sont | été | ser
avoir | ai as a avons avez ont | eu | aur
aller | vais vas va allons allez vont | allé | ir
faire | fais fais fait faisons faites font | fait | fer
pouvoir | peux peux peut pouvons pouvez peuvent | pu | pourr
vouloir | veux veux veut voulons voulez veulent | voulu | voudr
devoir | dois dois doit devons devez doivent | dû | devr
savoir | sais sais sait savons savez savent | su | saur
connaître | connais connais connaît connaissons connaissez connaissent | connu | connaîtr
voir | vois vois voit voyons voyez voient | vu | verr
boire | bois bois boit buvons buvez boivent | bu | boir
lire | lis lis lit lisons lisez lisent | lu | lir
écrire | écris écris écrit écrivons écrivez écrivent | écrit | écrir
dire | dis dis dit disons dites disent | dit | dir
prendre | prends prends prend prenons prenez prennent | pris | prendr
mettre | mets mets met mettons mettez mettent | mis | mettr
conduire | conduis conduis conduit conduisons conduisez conduisent | conduit | conduir
construire | construis construis construit construisons construisez construisent | construit | construir
dormir | dors dors dort dormons dormez dorment | dormi | dormir
partir | pars pars part partons partez partent | parti | partir
sortir | sors sors sort sortons sortez sortent | sorti | sortir
venir | viens viens vient venons venez viennent | venu | viendr
tenir | tiens tiens tient tenons tenez tiennent | tenu | tiendr
ouvrir | ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvert | ouvrir
offrir | offre offres offre offrons offrez offrent | offert | offrir
courir | cours cours court courons courez courent | couru | courr
recevoir | reçois reçois reçoit recevons recevez reçoivent | reçu | recevr
croire | crois crois croit croyons croyez croient | cru | croir
rire | ris ris rit rions riez rient | ri | rir
suivre | suis suis suit suivons suivez suivent | suivi | suivr
vivre | vis vis vit vivons vivez vivent | vécu | vivr
éteindre | éteins éteins éteint éteignons éteignez éteignent | éteint | éteindr
envoyer | envoie envoies envoie envoyons envoyez envoient | envoyé | enverr
pleuvoir | - - pleut - - - | plu | pleuvr
"""
# Verbs made of a prefix and one of the above.
_COMPOUNDS = {"comprendre": "prendre", "apprendre": "prendre", "revenir": "venir", "sourire": "rire",
              "poursuivre": "suivre"}  # fmt: skip
# Verbs in -er whose stem changes before a silent ending (and, apart from é → è, in the future too).
_STEM_CHANGES = {"achet": "achèt", "lev": "lèv", "promen": "promèn", "appel": "appell", "jet": "jett",
                 "préfér": "préfèr",
                 "nettoy": "nettoi", "essuy": "essui"}  # fmt: skip


@cache
def conjugate(infinitive: str) -> Conjugation:
    """Conjugate a verb given by its infinitive without a reflexive pronoun. Raises ValueError for an unknown ending."""
    if infinitive in _COMPOUNDS:
        return _compound(infinitive, _COMPOUNDS[infinitive])
    for line in _IRREGULAR.strip().splitlines():
        name, present, participle, future = (part.strip() for part in line.split("|"))
        if name == infinitive:
            return _assemble(tuple(present.split()), participle, future)
    if infinitive.endswith("er"):
        return _first_group(infinitive[:-2])
    if infinitive.endswith("ir"):
        stem = infinitive[:-2]
        present_forms = tuple(stem + ending for ending in ("is", "is", "it", "issons", "issez", "issent"))
        return _assemble(present_forms, stem + "i", infinitive)
    if infinitive.endswith("re"):
        stem = infinitive[:-2]
        present_forms = tuple(stem + ending for ending in ("s", "s", "", "ons", "ez", "ent"))
        return _assemble(present_forms, stem + "u", stem + "r")
    raise ValueError(f"no rule conjugates {infinitive!r}")


def _assemble(present: tuple[str, ...], participle: str, future: str) -> Conjugation:
    """Derive imperfect (from ``nous`` of the present) and future from the principal parts."""
    stem = "ét" if present[0] == "suis" and present[1] == "es" else present[3].removesuffix("ons")
    if present[3] == "-":
        stem = "pleuv"
    imperfect = tuple(_soft(stem, ending) + ending for ending in _IMPERFECT_ENDINGS)
    return Conjugation(present, imperfect, tuple(future + ending for ending in _FUTURE_ENDINGS), participle)


def _soft(stem: str, ending: str) -> str:
    """Undo the spelling of ``mangeons``, ``commençons`` where an i follows: ``mangions``, ``commencions``."""
    if ending.startswith("i") and stem.endswith("ge"):
        return stem[:-1]
    if ending.startswith("i") and stem.endswith("ç"):
        return stem[:-1] + "c"
    return stem


def _first_group(stem: str) -> Conjugation:
    changed = _STEM_CHANGES.get(stem, stem)
    before_o = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
    present = (changed + "e", changed + "es", changed + "e", before_o + "ons", stem + "ez", changed + "ent")
    future_stem = stem if "é" in stem[-2:] else changed
    return _assemble(present, stem + "é", future_stem + "er")


def _compound(infinitive: str, simple: str) -> Conjugation:
    prefix = infinitive.removesuffix(simple)
    base = conjugate(simple)
    return Conjugation(
        tuple(prefix + form for form in base.present),
        tuple(prefix + form for form in base.imperfect),
        tuple(prefix + form for form in base.future),
        prefix + base.participle,
    )


def imperative(infinitive: str, person: int) -> str:
    """Return the command form for tu (1), nous (3) or vous (4): verbs in -e and aller drop the s of tu."""
    form = conjugate(infinitive).present[person]
    if person == 1 and form.endswith(("es", "vas")):
        return form[:-1]
    return form


def agree(participle: str, *, feminine: bool, plural: bool) -> str:
    """Return a participle in gender and number: ``écrit`` → ``écrites``, ``assis`` stays in the masculine plural."""
    form = {"dû": "du"}.get(participle, participle) + "e" if feminine else participle
    if plural and not form.endswith("s"):
        form += "s"
    return form
