"""French spelling and grammar against forms written by hand from a grammar book."""

from __future__ import annotations

import pytest

from attnkit.text.toy import lexicon
from attnkit.text.toy.english_french import PRONOUNS, you_as
from attnkit.text.toy.grammar import Clause, Phrase, noun_phrase
from attnkit.text.toy.lexicon import ADJECTIVES, NOUNS, VERBS, Adjective, Noun, Verb, conjugate


@pytest.mark.parametrize(
    ("infinitive", "present", "participle"),
    [
        ("manger", "mange manges mange mangeons mangez mangent", "mangé"),
        ("lancer", "lance lances lance lançons lancez lancent", "lancé"),
        ("acheter", "achète achètes achète achetons achetez achètent", "acheté"),
        ("appeler", "appelle appelles appelle appelons appelez appellent", "appelé"),
        ("nettoyer", "nettoie nettoies nettoie nettoyons nettoyez nettoient", "nettoyé"),
        ("finir", "finis finis finit finissons finissez finissent", "fini"),
        ("attendre", "attends attends attend attendons attendez attendent", "attendu"),
        ("comprendre", "comprends comprends comprend comprenons comprenez comprennent", "compris"),
        ("revenir", "reviens reviens revient revenons revenez reviennent", "revenu"),
        ("éteindre", "éteins éteins éteint éteignons éteignez éteignent", "éteint"),
        ("suivre", "suis suis suit suivons suivez suivent", "suivi"),
    ],
)
def test_present_and_participle(infinitive: str, present: str, participle: str) -> None:
    forms = conjugate(infinitive)
    assert (" ".join(forms.present), forms.participle) == (present, participle)


@pytest.mark.parametrize(
    ("infinitive", "imperfect", "future"),
    [
        ("être", "étais étais était étions étiez étaient", "serai seras sera serons serez seront"),
        ("manger", "mangeais mangeais mangeait mangions mangiez mangeaient",
         "mangerai mangeras mangera mangerons mangerez mangeront"),
        ("lancer", "lançais lançais lançait lancions lanciez lançaient",
         "lancerai lanceras lancera lancerons lancerez lanceront"),
        ("acheter", "achetais achetais achetait achetions achetiez achetaient",
         "achèterai achèteras achètera achèterons achèterez achèteront"),
        ("envoyer", "envoyais envoyais envoyait envoyions envoyiez envoyaient",
         "enverrai enverras enverra enverrons enverrez enverront"),
        ("voir", "voyais voyais voyait voyions voyiez voyaient", "verrai verras verra verrons verrez verront"),
        ("répondre", "répondais répondais répondait répondions répondiez répondaient",
         "répondrai répondras répondra répondrons répondrez répondront"),
        ("finir", "finissais finissais finissait finissions finissiez finissaient",
         "finirai finiras finira finirons finirez finiront"),
    ],
)  # fmt: skip
def test_imperfect_and_future(infinitive: str, imperfect: str, future: str) -> None:
    forms = conjugate(infinitive)
    assert (" ".join(forms.imperfect), " ".join(forms.future)) == (imperfect, future)


def test_every_verb_of_the_lexicon_conjugates() -> None:
    for verb in VERBS:
        assert len(conjugate(verb.fr.split()[0]).present) == 6


def test_unknown_ending_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        conjugate("xyz")


@pytest.mark.parametrize(
    ("infinitive", "person", "form"),
    [("ouvrir", 1, "ouvre"), ("prendre", 1, "prends"), ("aller", 1, "va"), ("manger", 3, "mangeons"),
     ("lire", 4, "lisez")],
)  # fmt: skip
def test_imperative(infinitive: str, person: int, form: str) -> None:
    assert conjugate(infinitive).imperative(person) == form


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("le homme va à le jardin .", "L'homme va au jardin."),
        ("je ne ai pas de amis , mais ce est la vie .", "Je n'ai pas d'amis, mais c'est la vie."),
        ("est-ce que elle parle à les enfants ?", "Est-ce qu'elle parle aux enfants ?"),
        ("si il pleut , il revient de le marché .", "S'il pleut, il revient du marché."),
        ("la haute tour de les rois .", "La haute tour des rois."),
        ("il ne y a pas de eau !", "Il n'y a pas d'eau !"),
        ("le œuf de Alice .", "L'œuf d'Alice."),
    ],
)
def test_elision_and_contraction(words: str, written: str) -> None:
    assert lexicon.write_french(words) == written


@pytest.mark.parametrize(
    ("singular", "plural"),
    [("chat", "chats"), ("cheval", "chevaux"), ("gâteau", "gâteaux"), ("jeu", "jeux"), ("souris", "souris"),
     ("bleu", "bleus"), ("voix", "voix")],
)  # fmt: skip
def test_french_plural(singular: str, plural: str) -> None:
    assert lexicon.french_plural(singular) == plural


@pytest.mark.parametrize(
    ("base", "third", "past", "ing"),
    [("look at", "looks at", "looked at", "looking at"), ("study", "studies", "studied", "studying"),
     ("have", "has", "haved", "having"), ("watch", "watches", "watched", "watching"), ("see", "sees", "seed", "seeing"),
     ("play", "plays", "played", "playing"), ("go", "goes", "goed", "going")],
)  # fmt: skip
def test_regular_english_verbs(base: str, third: str, past: str, ing: str) -> None:
    assert [lexicon.inflect(base, ending) for ending in ("s", "ed", "ing")] == [third, past, ing]


def noun(en: str) -> Noun:
    return next(one for one in NOUNS if one.en == en)


def adjective(en: str, kind: str) -> Adjective:
    return next(one for one in ADJECTIVES if one.en == en and kind in one.kinds)


@pytest.mark.parametrize(
    ("en", "determiner", "adjectives", "plural", "expected"),
    [
        ("man", "the", ["old"], False, "le vieil homme"),
        ("woman", "the", ["old"], False, "la vieille femme"),
        ("tree", "a", [], False, "un arbre"),
        ("uncle", "this", [], False, "cet oncle"),
        ("aunt", "my", [], False, "ma tante"),
        ("orange", "my", [], False, "mon orange"),
        ("cat", "some", ["small"], True, "de petits chats"),
        ("cat", "some", ["black"], True, "des chats noirs"),
        ("cat", "a", ["small", "black"], False, "un petit chat noir"),
        ("dress", "two", ["light blue"], True, "deux robes bleu clair"),
        ("dog", "a", ["big"], False, "un gros chien"),
        ("house", "a", ["big"], False, "une grande maison"),
        ("horse", "several", [], True, "plusieurs chevaux"),
        ("water", "some", [], False, "de la eau"),
        ("cat", "", [], True, "les chats"),
    ],
)
def test_noun_phrases(en: str, determiner: str, adjectives: list[str], plural: bool, expected: str) -> None:
    chosen = noun(en)
    found = noun_phrase(
        chosen, determiner, plural=plural, adjectives=tuple(adjective(one, chosen.kind) for one in adjectives)
    )
    assert found.fr == expected


def verb(en: str, fr: str) -> Verb:
    return next(one for one in VERBS if (one.en, one.fr) == (en, fr))


def pronoun(fr: str, form: str = "") -> Phrase:
    return next(one for one in PRONOUNS if one.fr == fr and "person" in one.kinds).form(form)


SHE, ME, THEY, LADIES = pronoun("elle"), pronoun("je"), pronoun("ils"), pronoun("elles")
HER, THEM = pronoun("elle", "object"), pronoun("ils", "indirect")
LETTERS = noun_phrase(noun("letter"), "the", plural=True)
MADAM = you_as(pronoun("vous"), feminine=True, plural=False)


@pytest.mark.parametrize(
    ("clause", "en", "fr"),
    [
        (Clause(SHE, verb("go", "aller"), "past"), "She went.", "Elle est allée."),
        (Clause(LADIES, verb("leave", "partir"), "past"), "They left.", "Elles sont parties."),
        (Clause(MADAM, verb("arrive", "arriver"), "past"), "You arrived.", "Vous êtes arrivée."),
        (Clause(ME, verb("see", "voir"), "past", "not", HER), "I did not see her.", "Je ne l'ai pas vue."),
        (Clause(ME, verb("answer", "répondre"), "past", "not", THEM),
         "I did not answer them.", "Je ne leur ai pas répondu."),
        (Clause(ME, verb("write", "écrire"), "past", gap=LETTERS), "I wrote.", "J'ai écrites."),
        (Clause(SHE, verb("get up", "lever"), "past"), "She got up.", "Elle s'est levée."),
        (Clause(THEY, verb("sit", "être assis"), "past"), "They sat.", "Ils étaient assis."),
        (Clause(LADIES, verb("lie", "être couché"), "progressive"), "They are lying.", "Elles sont couchées."),
        (Clause(SHE, verb("swim", "nager"), "can", "not"), "She cannot swim.", "Elle ne peut pas nager."),
        (Clause(SHE, verb("help", "aider"), "want", "", HER), "She wants to help her.", "Elle veut l'aider."),
        (Clause(SHE, verb("eat", "manger"), "present", "never", noun_phrase(noun("apple"), "some", plural=True)),
         "She never eats any apples.", "Elle ne mange jamais de pommes."),
        (Clause(SHE, verb("need", "avoir besoin"), "past", "", noun_phrase(noun("bread"), "some")),
         "She needed some bread.", "Elle avait besoin de pain."),
        (Clause(ME, verb("play", "jouer"), "progressive", "", noun_phrase(noun("piano"), "the")),
         "I am playing the piano.", "Je joue du piano."),
        (Clause(SHE, verb("be", "être"), "future", "", noun_phrase(noun("queen"), "a")),
         "She will be a queen.", "Elle sera une reine."),
    ],
)  # fmt: skip
def test_clauses(clause: Clause, en: str, fr: str) -> None:
    phrase = clause.phrase()
    assert lexicon.write_english(phrase.en + " .") == en
    assert lexicon.write_french(phrase.fr + " .") == fr


@pytest.mark.parametrize(
    ("clause", "asked"),
    [
        (Clause(SHE, verb("go", "aller"), "past"), "did she go"),
        (Clause(SHE, verb("swim", "nager"), "present", "often"), "does she often swim"),
        (Clause(THEY, verb("be", "être"), "past"), "were they"),
        (Clause(ME, verb("sleep", "dormir"), "going"), "am I going to sleep"),
    ],
)
def test_questions(clause: Clause, asked: str) -> None:
    assert clause.phrase().form("ask").en == asked


@pytest.mark.parametrize(
    ("text", "short"),
    [("I am here and he will not go", "I'm here and he won't go"), ("they did not see it", "they didn't see it"),
     ("where is she", "where is she"), ("I am not old", "I'm not old"), ("we cannot", "we can't")],
)  # fmt: skip
def test_contractions(text: str, short: str) -> None:
    assert lexicon.contract_english(text) == short
