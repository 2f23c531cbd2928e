"""The English-French corpus: what the README promises of it, counted from the outside."""

from __future__ import annotations

import random
import re
from itertools import combinations

import pytest
import sacrebleu

from attnkit.text.toy.corpus import NOTES_SENTENCES, Corpus, make_corpus
from attnkit.text.toy.english_french import Sampler
from attnkit.text.toy.grammar import noun_phrase
from attnkit.text.toy.lexicon import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    adjectives_for,
    nouns_of,
    translate_word_for_word,
    verbs_of,
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(1, 16_000, 200, 400)


def test_same_seed_same_corpus() -> None:
    assert make_corpus(3, 300, 20, 20) == make_corpus(3, 300, 20, 20)
    assert make_corpus(3, 300, 20, 20).train != make_corpus(4, 300, 20, 20).train


def test_sizes_and_no_source_twice(corpus: Corpus) -> None:
    sources = [en for part in (corpus.train, corpus.valid, corpus.test) for en, _ in part]
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (16_000, 200, 400)
    assert len({source.lower() for source in sources}) == len(sources)


def test_lexicon_has_300_words_a_side(corpus: Corpus) -> None:
    assert len({word.en for word in (*NOUNS, *ADJECTIVES, *VERBS)}) >= 300
    assert len({word.fr for word in (*NOUNS, *VERBS)} | {word.masculine for word in ADJECTIVES}) >= 300
    for side in (0, 1):
        assert len({word for pair in corpus.train for word in re.findall(r"\w+", pair[side].lower())}) >= 900


def test_lengths(corpus: Corpus) -> None:
    for pair in corpus.train:
        for text in pair:
            n_tokens = len(re.sub(r"([,.?!'])", r" \1 ", text).replace(" ' ", "' ").split())
            assert 3 <= n_tokens <= 20, text
    assert {len(en.split()) for en, _ in corpus.train} >= set(range(3, 17))


@pytest.mark.parametrize("n", [4_000, pytest.param(12_000, marks=pytest.mark.slow)])
def test_one_english_sentence_has_one_translation(n: int) -> None:
    sampler = Sampler(random.Random(11))
    known: dict[str, str] = {}
    for _ in range(n):
        sentence = sampler.sentence()
        french = sentence.fr.rstrip(" .!?")
        assert known.setdefault(sentence.key, french) == french


@pytest.mark.slow
def test_ten_million_sentences() -> None:
    """Enumerate both halves of "The [adjective] person verb-ed the [adjective] thing": any two make a sentence."""

    def described(kinds: frozenset[str]) -> set[str]:
        return {
            noun_phrase(noun, "the", adjectives=chosen).en.lower()
            for noun in nouns_of(kinds)
            if "kin" not in noun.kinds
            for chosen in ((), *((adjective,) for adjective in adjectives_for(noun.kinds)))
        }

    people = described(frozenset(["person"]))
    verbs = [
        verb for verb in verbs_of("does") if not verb.flags & {"generic", "movement"} and "person" in verb.subjects
    ]
    predicates = {f"{verb.past} {thing}" for verb in verbs for thing in described(verb.objects)}
    assert len(people) * len(predicates) >= 10**7
    # The sampler does draw such sentences.
    sampler, found = Sampler(random.Random(5)), 0
    for _ in range(20_000):
        words = sampler.sentence().key
        halves = [(words[: cut.start()], words[cut.start() + 1 :]) for cut in re.finditer(" ", words)]
        found += any(first in people and rest in predicates for first, rest in halves)
    assert found >= 5


def test_notes_sentences_are_new_but_their_parts_are_not(corpus: Corpus) -> None:
    everything = {en for part in (corpus.train, corpus.valid, corpus.test) for en, _ in part}
    assert not everything & {variant for line in NOTES_SENTENCES for variant in (line, line.replace("I am", "I'm"))}
    training = [en for en, _ in corpus.train]
    for wanted in (
        r"\bI('m| am) a ",
        r"\bis a student\b",
        r"\bcat (sat|(is|was) sitting)\b",
        r"\b(sat|sitting) on the mat\b",
    ):
        assert sum(bool(re.search(wanted, line)) for line in training) >= 3, wanted


def _content_words() -> dict[str, str]:
    """Map every surface form of a noun, adjective or verb to one name, telling nothing of the generator's own tags."""
    forms: dict[str, str] = {}
    for noun in NOUNS:
        forms |= {noun.en: noun.en, noun.en_plural or noun.en: noun.en}
    for adjective in ADJECTIVES:
        forms[adjective.en.lower()] = adjective.en
    for verb in VERBS:
        for form in (verb.en, verb.past, verb.ing):
            forms.setdefault(form.split()[0], verb.en.split()[0])
    return forms


def test_half_of_the_held_out_sentences_combine_words_anew(corpus: Corpus) -> None:
    forms = _content_words()

    def pairs(line: str) -> set[tuple[str, str]]:
        found = {forms[word] for word in re.findall(r"[a-z]+", line.lower()) if word in forms}
        return set(combinations(sorted(found), 2))

    seen = {pair for en, _ in corpus.train for pair in pairs(en)}
    for part in (corpus.valid, corpus.test):
        assert sum(bool(pairs(en) - seen) for en, _ in part) >= len(part) / 2


def test_looking_words_up_is_not_enough(corpus: Corpus) -> None:
    looked_up = [translate_word_for_word(en) for en, _ in corpus.test]
    score = sacrebleu.corpus_bleu(looked_up, [[fr for _, fr in corpus.test]]).score
    assert 10 < score <= 50


@pytest.mark.parametrize(
    ("english", "french"),
    [
        ("knows? where", r"s[aà](i|v)"), ("time is it", "heure"), ("times.$", "fois"), ("time to", "temps"),
        ("bank of the river", "rive du fleuve"), (r"the bank\b(?! of)", "banque"),
        (r"\bbats? (flew|is flying)", "chauve"),
        ("with (a|the|my|his|her) bat", "batte"), ("light blue", "bleu clair"), ("the light ", "lumière|lég|clair"),
        ("years old", r" ans\b"), (r"\bold (man|actor|hotel|artist|tree)\b", "vieil "),
        (r"^(Mom|Dad|Paul|Marie|My love), (are|do|did|will) you\b", r"\btu "),
        (r"^(Madam|Sir|Doctor), (are|do|did|will|can) you\b", "vous"),
        (r"plays? the piano\b", "du piano"), ("played tennis", "au tennis"), (r"\bleft the \w+\.$", "quitté"),
        (r"\bleft the \w+ (on|under) ", "laissé"), (r"visited (Paul|Marie|him|her|them|us)\b", "rendu visite"),
        ("(like|hate)s? (rice|soup|wine|milk|tea|juice)", "(le (riz|vin|lait|thé|jus)|la soupe)"),
        ("need(s|ed)? some", "besoin d(e |')"), ("is hungry", "faim"),
    ],
)  # fmt: skip
def test_words_that_depend_on_context(corpus: Corpus, english: str, french: str) -> None:
    found = [(en, fr) for en, fr in corpus.train if re.search(english, en)]
    assert found
    assert [pair for pair in found if not re.search(french, pair[1])] == []


def test_text_is_written_normally(corpus: Corpus) -> None:
    for en, fr in corpus.train:
        assert re.fullmatch(r"[A-Z][^?!.]*[^ ][.?!]", en), en
        assert re.fullmatch(r"[A-ZÀÉÊÔŒ][^?!.]*([^ ]\.| [?!])", fr), fr
        assert not re.search(r"\b(de le|de les|à le|à les|le [aeéiou]|la [aeéiou]|que (il|elle))\b", fr), fr
        assert "  " not in en + fr
        # A pronoun of one side is on the other: French puts it before the verb, where it is easily lost.
        if re.search(r"\b(him|them)\b", en):
            assert re.search(r"\b(le|la|les|lui|leur|eux|elle)\b|\b[lL]'", fr), (en, fr)
        if re.search(r"\b(me|us)\b", en):
            assert re.search(r"\b(me|moi|nous)\b|\bm'", fr), (en, fr)
