"""Translation of passages with inline tags and with parts that must be kept.

A passage is translated without its tags, sentence by sentence as the policy says; then the tags go around the words
that attention aligns to their own. A sentence whose translation lacks a protected part is translated again without
these parts, and each is put back next to the word that it was next to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice

from attnkit.data.loader import Batching
from attnkit.decoding.config import SearchConfig
from attnkit.formats.passages import Passage, Piece, Tag, render
from attnkit.io.plain_data import PlainResult
from attnkit.tasks.translation.placement import Marked, find_words, place_tags, take_tags
from attnkit.tasks.translation.segmenting import join_segments
from attnkit.tasks.translation.signs import DocumentCounts, Sign, in_order
from attnkit.tasks.translation.terminology import TermUse
from attnkit.tasks.translation.translated_line import TranslatedLine, confidence_of
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.tasks.translation.word_links import Anchor, word_anchors
from attnkit.text.protected import Protected, find_protected, lost_parts
from attnkit.text.tags import leading_code

_PASSAGES = 1024  # translated together


@dataclass
class TranslatedSentence:
    """A sentence of a passage and its translation.

    ``origins`` are places in the source, one per character of the translation.
    """

    source: str
    gap: str  #: white space before it
    begin: int  #: in the text of the passage
    code: str = ""  #: language code or tag that it is read with: its own, or that of the passage
    text: str = ""
    origins: list[int] = field(default_factory=list)
    found: TranslatedLine = field(init=False, repr=False)  #: of the text without the parts that were put back
    signs: list[Sign] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)  #: parts that the model lost, and that were put back


@dataclass(frozen=True)
class TranslatedPassage(Passage):
    """A translated passage and its source."""

    source: str = ""  #: as the format writes it, with white space as one space
    sentences: Sequence[TranslatedSentence] = ()
    inside: Sequence[TranslatedPassage] = ()  #: texts of its tags

    def described(self) -> list[PassageTranslation]:
        """Return what results show of the texts of its tags, and of itself."""
        return [describe_passage(one.line, one.source, one.render(), one.sentences) for one in (*self.inside, self)]


@dataclass(frozen=True)
class SentenceTranslation:
    """A sentence of a passage and its translation, as results show it."""

    source: str
    text: str
    score: float
    log_prob: float
    confidence: float | None
    signs: list[Sign]  #: signs that the translation went wrong, or that the sentence is unlike the training text
    restored: list[str]  #: parts that the model lost, and that were put back


@dataclass(frozen=True)
class PassageTranslation(PlainResult):
    """A passage of a document, or a line, and its translation, as results show it."""

    line: int  #: number of its first line, from 1
    source: str
    text: str
    signs: list[Sign]  #: of all sentences
    confidence: float | None  #: probability that it is acceptable; None if the run cannot tell
    score: float  #: summed over sentences
    log_prob: float  #: summed over sentences
    sentences: list[SentenceTranslation]
    terms: list[TermUse]  #: terms of the glossary in it, and whether the translation has them


def describe_passage(line: int, source: str, text: str, sentences: Sequence[TranslatedSentence]) -> PassageTranslation:
    """Return what results show of a passage or a protected line."""
    lines = [sentence.found for sentence in sentences]
    outputs = [one.outputs[0] for one in lines]
    n_tokens = sum(output.n_tokens for output in outputs)
    score, log_prob = sum(output.score for output in outputs), sum(output.log_prob for output in outputs)
    return PassageTranslation(
        line=line,
        source=source,
        text=text,
        signs=in_order(sign for sentence in sentences for sign in sentence.signs),
        confidence=confidence_of(lines[0].curve, log_prob / n_tokens) if n_tokens else None,
        score=score,
        log_prob=log_prob,
        sentences=[
            SentenceTranslation(
                one.source, one.text, output.score, output.log_prob, one.found.confidence, one.signs, one.restored
            )
            for one, output in zip(sentences, outputs, strict=True)
        ],
        terms=[term for one in lines for term in one.terms],
    )


class DocumentTranslator:
    """Translates the passages of documents with a translator."""

    def __init__(
        self,
        translator: TranslationPipeline,
        config: SearchConfig | None = None,
        batching: Batching | None = None,
        counts: DocumentCounts | None = None,
    ) -> None:
        """Take a translator and its settings; ``counts`` may be those of documents before.

        A run without statistics of its training text translates sentence by sentence.
        """
        config = config or translator.search
        self._translator, self._batching = translator, batching
        self._config = config.model_copy(update={"num_hypotheses": 1})
        self._has_attention = all(run.config.model.has_attention for run in translator.runs)
        self.counts = counts or DocumentCounts()
        self._segmenter = copy(translator.segmenter)
        self._segmenter.tell = lambda text: None  # a passage is not a line, and has sentences
        if translator.runs[0].source_statistics is None and self._segmenter.policy == "auto":
            self._segmenter.policy = "sentences"

    def translate(self, pieces: Iterable[Piece], progress: Callable[[int], None] = lambda n: None) -> Iterator[Piece]:
        """Yield the pieces of a document with translated passages.

        ``progress`` receives the number of passages so far.
        """
        remaining, n_done = iter(pieces), 0
        while window := list(islice(remaining, _PASSAGES)):
            passages = self._with_values([piece for piece in window if isinstance(piece, Passage)])

            def follow(n: int, n_before: int = n_done) -> None:
                progress(n_before + n)

            translated = self._translate(passages, follow)
            for piece in window:
                if not isinstance(piece, Passage):
                    yield piece
                    continue
                passage = next(translated)
                for sentence in (sentence for one in (*passage.inside, passage) for sentence in one.sentences):
                    self.counts.signs.add(sentence.signs, [term.is_used for term in sentence.found.terms], passage.line)
                yield passage
            self.counts.n_passages += len(passages)
            n_done += len(passages)
            progress(n_done)

    def _with_values(self, passages: Sequence[Passage]) -> list[TranslatedPassage]:
        """Return passages with the values of their tags translated."""
        split = [
            [list(part.pieces(passage.line)) for part in passage.parts if isinstance(part, Tag) and part.values]
            for passage in passages
        ]
        values = [piece for own in split for pieces in own for piece in pieces if isinstance(piece, Passage)]
        translated = iter(list(self._translate([_with_source(value) for value in values])) if values else [])
        self.counts.n_passages += len(values)
        found = []
        for passage, own in zip(passages, split, strict=True):
            tags = [[next(translated) if isinstance(piece, Passage) else piece for piece in pieces] for pieces in own]
            written = map(render, tags)
            parts = [
                replace(part, text=next(written), values=()) if isinstance(part, Tag) and part.values else part
                for part in passage.parts
            ]
            inside = [piece for pieces in tags for piece in pieces if isinstance(piece, TranslatedPassage)]
            found.append(replace(_with_source(passage), parts=parts, inside=inside))
        return found

    def _translate(
        self, passages: Sequence[TranslatedPassage], progress: Callable[[int], None] = lambda n: None
    ) -> Iterator[TranslatedPassage]:
        """Yield translated passages; ``progress`` receives how many of these are done."""
        marked = [take_tags(passage.parts) for passage in passages]
        split = self._segmenter.sentences([one.text for one in marked], self.counts.n_passages + 1)
        sentences = [self._with_codes(one.text, found) for one, found in zip(marked, split, strict=True)]
        tagged = [sentence for one, own in zip(marked, sentences, strict=True) if one.nodes for sentence in own]
        plain = [sentence for one, own in zip(marked, sentences, strict=True) if not one.nodes for sentence in own]
        n_done, n_sentences = 0, max(1, len(tagged) + len(plain))
        for group, is_tagged in ((tagged, True), (plain, False)):

            def follow(n: int, before: int = n_done) -> None:
                progress(len(passages) * (before + n) // n_sentences)

            found = self._search([sentence.code + sentence.source for sentence in group], is_tagged, follow)
            n_done += len(group)
            for sentence, translation in zip(group, found, strict=True):
                sentence.found, sentence.signs = translation, translation.signs
                sentence.text = translation.outputs[0].text
                if is_tagged:
                    anchors = word_anchors(translation, self._translator.tgt_tokenizer, len(sentence.code))
                    sentence.origins = spread(sentence.text, anchors)
        self._restore([*tagged, *plain])
        for passage, one, own in zip(passages, marked, sentences, strict=True):
            self.counts.n_tags += sum(isinstance(part, Tag) for part in passage.parts)
            yield replace(passage, parts=join_sentences(one, own), sentences=own)

    def _with_codes(self, text: str, found: Sequence[tuple[str, str]]) -> list[TranslatedSentence]:
        """Return the sentences of a passage with their codes, or with that of its start."""
        tokenizer, sentences = self._translator.src_tokenizer, make_sentences(text, found)
        usual = leading_code(tokenizer, text)
        for sentence in sentences:
            own = leading_code(tokenizer, sentence.source)
            if len(own) < len(sentence.source):  # else the code is all of the text
                sentence.code, sentence.source = own or usual, sentence.source[len(own) :]
                sentence.begin += len(own)
        return sentences

    def _search(
        self, lines: list[str], record: bool, progress: Callable[[int], None] = lambda n: None
    ) -> list[TranslatedLine]:
        """Return the translations of sentences, which are not split any further.

        ``progress`` receives how many are done: to the translator they are lines, which its own callers do not count.
        """
        translator, segmenter = self._translator, self._translator.segmenter
        policy, segmenter.policy = segmenter.policy, "lines"
        of_lines, translator.progress = translator.progress, progress
        try:
            recorded = record and self._has_attention
            return list(translator.stream(lines, self._config, self._batching, record=recorded))
        finally:
            segmenter.policy, translator.progress = policy, of_lines

    def _restore(self, sentences: Sequence[TranslatedSentence]) -> None:
        """Translate sentences that lost protected parts without them; put these back."""
        losing: list[tuple[TranslatedSentence, list[Protected], Marked]] = []
        for sentence in sentences:
            terms = {term.source for term in sentence.found.terms}
            in_terms = terms.union(part.text for term in terms for part in find_protected(term))
            parts = [part for part in find_protected(sentence.source) if part.text not in in_terms]
            self.counts.n_protected += len(parts)
            if lost := lost_parts(parts, sentence.text):
                self.counts.n_restored += len(lost)
                sentence.restored = [part.text for part in lost]
                one = take_tags(cut_out(sentence.source, parts))
                if terms or any(map(str.isalpha, one.text)):
                    losing.append((sentence, parts, one))
                else:  # nothing to translate
                    sentence.text, sentence.origins = sentence.source, list(range(len(sentence.source)))
                    sentence.signs = []
        found = self._search([sentence.code + one.text for sentence, _, one in losing], record=True)
        for (sentence, parts, one), translation in zip(losing, found, strict=True):
            sentence.found, sentence.signs = translation, translation.signs
            text = translation.outputs[0].text
            words = find_words(one.text)
            anchors = word_anchors(translation, self._translator.tgt_tokenizer, len(sentence.code))
            links = links_to(words, anchors)
            kept = source_places(sentence.source, parts, len(words))
            sentence.text, sentence.origins = "", []
            number = 0
            begins = {part.begin: part for part in parts}
            for piece in place_tags(one, text, links):
                last = sentence.origins[-1] if sentence.origins else 0
                if isinstance(piece, Tag):
                    part = begins[int(piece.name)]
                    sentence.text += part.text
                    sentence.origins += range(part.begin, part.end)
                    continue
                own = find_words(piece)
                places = [kept[links[number + k]] if kept else 0 for k in range(len(own))]
                sentence.origins += spread(piece, list(zip(own, places, strict=True)), last)
                sentence.text += piece
                number += len(own)


def _with_source(passage: Passage) -> TranslatedPassage:
    source = replace(passage, breaks=()).render()
    return TranslatedPassage(passage.parts, passage.escape, passage.breaks, passage.line, source)


def make_sentences(text: str, found: Sequence[tuple[str, str]]) -> list[TranslatedSentence]:
    """Return the sentences of a passage, given their texts and gaps."""
    sentences, gap = [], ""
    place = len(text) - len(text.lstrip()) if len(found) > 1 else 0
    for source, after in found:
        sentences.append(TranslatedSentence(source, gap, place))
        gap, place = after, place + len(source) + len(after)
    return sentences


def join_sentences(marked: Marked, sentences: Sequence[TranslatedSentence]) -> list[str | Tag]:
    """Return the parts of a translated passage."""
    text, origins = "", list[int]()
    for sentence in sentences:
        joined = join_segments([text, sentence.text], ["", sentence.gap]) if text else sentence.text
        begin = len(joined) - len(sentence.text)
        origins += [sentence.begin] * (begin - len(text))
        origins += [sentence.begin + origin for origin in sentence.origins]
        text = joined
    if not marked.nodes:
        return [text]
    anchors = [(word, origins[word[0]]) for word in find_words(text)]
    return place_tags(marked, text, links_to(marked.words, anchors))


def cut_out(text: str, parts: Sequence[Protected]) -> list[str | Tag]:
    """Return a text whose protected parts are points, named by where they begin."""
    pieces: list[str | Tag] = []
    place = 0
    for part in parts:
        pieces += [text[place : part.begin], Tag(part.text, "point", str(part.begin))]
        place = part.end
    return [piece for piece in [*pieces, text[place:]] if piece]


def source_places(text: str, parts: Sequence[Protected], n_words: int) -> list[int]:
    """Return the begins of words outside protected parts.

    If there are not ``n_words``, places are spread evenly.
    """
    outside = [
        begin for begin, end in find_words(text) if not any(begin < part.end and part.begin < end for part in parts)
    ]
    if len(outside) == n_words:
        return outside
    return [len(text) * k // max(1, n_words) for k in range(n_words)]


def links_to(words: Sequence[tuple[int, int]], anchors: Sequence[Anchor]) -> list[int]:
    """Return the source word at the place of each anchor, or the one before it."""
    begins = [begin for begin, _ in words]
    return [max(0, bisect_right(begins, place) - 1) for _, place in anchors]


def spread(text: str, anchors: Sequence[Anchor], before: int = 0) -> list[int]:
    """Return a place in the source for each character: that of its word.

    Between words it is that of the word before, at first ``before``.
    """
    origins: list[int] = []
    for (begin, _), place in anchors:
        origins += [before] * (begin - len(origins))
        before = place
    return origins + [before] * (len(text) - len(origins))
