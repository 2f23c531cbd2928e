"""Translation of passages with inline tags and with parts that must be kept.

A passage is translated without its tags, sentence by sentence as the policy says; then the tags go around the words
that attention aligns to their own. A sentence whose translation lacks a protected part is translated again without
these parts, and each is put back next to the word that it was next to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from attnkit.data.loader import Batching
from attnkit.decoding.config import SearchConfig
from attnkit.formats.passages import Passage, Piece, Tag, render
from attnkit.tasks.translation.placement import Marked, find_words, place_tags, take_tags
from attnkit.tasks.translation.segmenting import join_segments
from attnkit.tasks.translation.signs import SignCounts
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.inline_symbols import MaskedText, places_in_plain
from attnkit.text.offsets import align
from attnkit.text.protected import Protected, find_protected, is_kept
from attnkit.text.tokenizer import Tokenizer

_PASSAGES = 1024  # translated together


@dataclass
class DocumentCounts:
    """What happened to the passages of a document."""

    signs: SignCounts = field(default_factory=SignCounts)  #: of sentences
    n_passages: int = 0
    n_tags: int = 0
    n_protected: int = 0  #: parts that had to be kept
    n_restored: int = 0  #: protected parts that the model lost, and that were put back


@dataclass
class _Sentence:
    """A sentence of a passage and its translation.

    ``origins`` are places in the source, one per character of the translation.
    """

    source: str
    gap: str  #: white space before it
    begin: int  #: in the text of the passage
    text: str = ""
    origins: list[int] = field(default_factory=list)


class DocumentTranslator:
    """Translates the passages of documents with a translator."""

    def __init__(
        self,
        translator: TranslationPipeline,
        config: SearchConfig | None = None,
        batching: Batching | None = None,
        signs: SignCounts | None = None,
    ) -> None:
        """Take a translator and its settings.

        A run without statistics of its training text translates sentence by sentence.
        """
        config = config or translator.search
        self._translator, self._batching = translator, batching
        self._config = config.model_copy(update={"num_hypotheses": 1})
        self._has_attention = all(run.config.model.has_attention for run in translator.runs)
        self.counts = DocumentCounts(signs or SignCounts())
        self._segmenter = copy(translator.segmenter)
        if translator.runs[0].source_statistics is None and self._segmenter.policy == "auto":
            self._segmenter.policy = "sentences"

    def translate(self, pieces: Iterable[Piece], progress: Callable[[int], None] = lambda n: None) -> Iterator[Piece]:
        """Yield the pieces of a document with translated passages.

        ``progress`` receives the number of passages so far.
        """
        remaining = iter(pieces)
        while window := list(islice(remaining, _PASSAGES)):
            passages = self._with_values([piece for piece in window if isinstance(piece, Passage)])
            translated = iter(self._translate(passages))
            for piece in window:
                yield next(translated) if isinstance(piece, Passage) else piece
            self.counts.n_passages += len(passages)
            progress(self.counts.n_passages)

    def _with_values(self, passages: Sequence[Passage]) -> list[Passage]:
        """Return passages with the values of their tags translated."""
        tags = [part for passage in passages for part in passage.parts if isinstance(part, Tag) and part.values]
        split = [list(tag.pieces()) for tag in tags]
        values = [piece for pieces in split for piece in pieces if isinstance(piece, Passage)]
        if not values:
            return list(passages)
        translated = iter(list(self._translate(values)))
        self.counts.n_passages += len(values)
        written = iter(
            [render(next(translated) if isinstance(piece, Passage) else piece for piece in pieces) for pieces in split]
        )
        return [
            replace(
                passage,
                parts=[
                    replace(part, text=next(written), values=()) if isinstance(part, Tag) and part.values else part
                    for part in passage.parts
                ],
            )
            for passage in passages
        ]

    def _translate(self, passages: Sequence[Passage]) -> Iterator[Passage]:
        marked = [take_tags(passage.parts) for passage in passages]
        split = self._segmenter.sentences([one.text for one in marked], self.counts.n_passages + 1)
        sentences = [make_sentences(one.text, found) for one, found in zip(marked, split, strict=True)]
        tagged = [sentence for one, own in zip(marked, sentences, strict=True) if one.nodes for sentence in own]
        plain = [sentence for one, own in zip(marked, sentences, strict=True) if not one.nodes for sentence in own]
        for group, is_tagged in ((tagged, True), (plain, False)):
            found = self._search([sentence.source for sentence in group], record=is_tagged)
            for sentence, translation in zip(group, found, strict=True):
                self.counts.signs.add(translation.signs, [term.is_used for term in translation.terms])
                sentence.text = translation.outputs[0].text
                if is_tagged:
                    anchors = word_anchors(translation, self._translator.tgt_tokenizer)
                    sentence.origins = spread(sentence.text, anchors)
        self._restore([*tagged, *plain])
        for passage, one, own in zip(passages, marked, sentences, strict=True):
            self.counts.n_tags += sum(isinstance(part, Tag) for part in passage.parts)
            yield replace(passage, parts=join_sentences(one, own))

    def _search(self, lines: list[str], record: bool) -> list[TranslatedLine]:
        """Return the translations of sentences, which are not split any further."""
        segmenter = self._translator.segmenter
        policy, segmenter.policy = segmenter.policy, "lines"
        try:
            recorded = record and self._has_attention
            return list(self._translator.stream(lines, self._config, self._batching, record=recorded))
        finally:
            segmenter.policy = policy

    def _restore(self, sentences: Sequence[_Sentence]) -> None:
        """Translate sentences that lost protected parts without them; put these back."""
        losing: list[tuple[_Sentence, list[Protected], Marked]] = []
        for sentence in sentences:
            parts = find_protected(sentence.source)
            self.counts.n_protected += len(parts)
            times = Counter(part.text for part in parts)
            lost = [part for part in parts if not is_kept(part, sentence.text, times[part.text])]
            if lost:
                self.counts.n_restored += len(lost)
                losing.append((sentence, parts, take_tags(cut_out(sentence.source, parts))))
        found = self._search([one.text for _, _, one in losing], record=True)
        for (sentence, parts, one), translation in zip(losing, found, strict=True):
            text = translation.outputs[0].text
            words = find_words(one.text)
            anchors = word_anchors(translation, self._translator.tgt_tokenizer)
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


def make_sentences(text: str, found: Sequence[tuple[str, str]]) -> list[_Sentence]:
    """Return the sentences of a passage, given their texts and gaps."""
    sentences, gap = [], ""
    place = len(text) - len(text.lstrip()) if len(found) > 1 else 0
    for source, after in found:
        sentences.append(_Sentence(source, gap, place))
        gap, place = after, place + len(source) + len(after)
    return sentences


def join_sentences(marked: Marked, sentences: Sequence[_Sentence]) -> list[str | Tag]:
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


Anchor = tuple[tuple[int, int], int]
"""A word of a translation, as begin and end, and the place in the source that it is aligned to."""


def word_anchors(translation: TranslatedLine, tokenizer: Tokenizer) -> list[Anchor]:
    """Align each word of the best translation to a place in the source.

    By attention; without, or if the sentence was cut, by relative position.
    """
    output = translation.outputs[0]
    words, sources = find_words(output.text), find_words(translation.source)
    if output.attention is None or len(output.attention) != 1 or not sources:
        n = max(1, len(words))
        return [(word, len(translation.source) * k // n) for k, word in enumerate(words)]
    ids = output.ids[0]
    weights = np.asarray(output.attention[0], np.float64)[: len(ids), : len(translation.source_ids[0])]
    of_source = source_words_of_tokens(translation, sources)
    of_target = target_words_of_tokens(tokenizer, ids, translation.masked, words)
    sums = np.zeros((len(words), len(sources)))
    for row, word in enumerate(of_target[: len(weights)]):
        if word >= 0:
            np.add.at(sums[word], of_source[of_source >= 0], weights[row][of_source >= 0])
    return [(word, sources[int(sums[k].argmax())][0]) for k, word in enumerate(words)]


def source_words_of_tokens(translation: TranslatedLine, words: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the word of each token of a source of one segment, -1 for white space."""
    (read,), masked = translation.read, translation.masked
    aligned = align(translation.tokenizer, [read])[0]
    in_source = masked.places(masked.text)
    in_masked = places_in_plain(read) if masked.has_symbols else range(len(read) + 1)
    places = [in_source[place] for place in in_masked]
    spans = ((places[begin], places[end]) for begin, end in zip(aligned.begins, aligned.ends, strict=True))
    found = np.array([word_at(words, begin, max(end, begin + 1)) for begin, end in spans], np.int64)
    return found[: len(translation.source_ids[0])]


def target_words_of_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], masked: MaskedText, words: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the word of each token of a translation, -1 for white space.

    ``words`` are those of the translation whose placeholders are restored.
    """
    text = tokenizer.decode([ids])[0]
    # Every byte that does not continue a character begins one.
    sizes = [sum(byte & 0xC0 != 0x80 for byte in tokenizer.bytes_of(id)) for id in ids]
    n_dropped = sum(sizes) - len(text)  # a first space
    restored = [0] * n_dropped + masked.places(text)
    ends = [min(place, len(restored) - 1) for place in accumulate(sizes, initial=0)]
    return [word_at(words, restored[begin], max(restored[end], restored[begin] + 1)) for begin, end in pairwise(ends)]


def word_at(words: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """Return the first word with characters in ``begin:end``, -1 without one."""
    place = bisect_right(words, begin, key=lambda word: word[1])
    return place if place < len(words) and words[place][0] < end else -1


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
