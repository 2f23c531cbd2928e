"""Choice of a run's direction by the languages that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnkit.errors import UsageError
from attnkit.text.tags import TranslationDirection, code_of, language_tag, named_direction, tag_ids

if TYPE_CHECKING:
    from attnkit.tasks.translation.loading import OpenedRun
    from attnkit.text.tokenizer import Tokenizer

OPTIONS = ("--src-lang", "--tgt-lang")  #: that name the languages
BACK_OPTIONS = ("--mono-lang", "--tgt-lang")  #: those of back-translation, whose text is the target of its pairs
SIDES = ("source", "target")


class LanguagePair(NamedTuple):
    """Languages of source and target as a user names them; None: those of the run."""

    src: str | None = None
    tgt: str | None = None


USUAL = LanguagePair()  #: those that a run has without a choice


def languages_of(direction: str) -> LanguagePair:
    """Return the languages of a direction such as ``en:de``; empty: those of the run.

    >>> languages_of("en:de"), languages_of("")
    (LanguagePair(src='en', tgt='de'), LanguagePair(src=None, tgt=None))
    """
    src, _, tgt = direction.partition(":")
    return LanguagePair(src or None, tgt or None)


def has_choice(run: OpenedRun) -> bool:
    """Return whether languages of a run can be chosen: it has codes, or several tags."""
    return bool(run.src_tokenizer.language_codes) or len(run.config.data.target_languages) > 1


def needed(run: OpenedRun, languages: LanguagePair) -> LanguagePair:
    """Return languages without that of the source, unless the run has codes."""
    return languages if run.src_tokenizer.language_codes else languages._replace(src=None)


def share_languages(runs: Sequence[tuple[OpenedRun, LanguagePair]]) -> list[LanguagePair]:
    """Return the languages of each run of a job, given those of its text.

    A run without a choice, which refuses languages, gets none that is chosen for another run.
    """
    chosen = {language for run, languages in runs if has_choice(run) for language in languages}
    return [
        languages if has_choice(run) else LanguagePair(*(None if one in chosen else one for one in languages))
        for run, languages in runs
    ]


def languages_of_each(runs: Sequence[OpenedRun], languages: LanguagePair) -> list[LanguagePair]:
    """Return the languages of each run that translates the same text.

    Beside a run with codes, the source language is not for those with tags.
    """
    has_codes = any(run.src_tokenizer.language_codes for run in runs)
    return share_languages([(run, needed(run, languages) if has_codes else languages) for run in runs])


def check_languages_used(languages: LanguagePair, needs: str, options: tuple[str, str] = OPTIONS) -> None:
    """Raise ``UsageError`` for any language; ``needs`` names what would use it."""
    for option, language in zip(options, languages, strict=True):
        if language is not None:
            raise UsageError(f"{option} requires {needs}", where=option, help=f"leave out {option}")


def find_direction(
    run: OpenedRun, languages: LanguagePair = USUAL, options: tuple[str, str] = OPTIONS
) -> TranslationDirection:
    """Return a direction of a run; ``options`` give the languages.

    Raises ``UsageError``, which names the option, if the run does not know a language, or None leaves a choice.
    """
    data, tokenizers = run.config.data, (run.src_tokenizer, run.tgt_tokenizer)
    if run.src_tokenizer.language_codes:
        trained = (data.source_languages, data.target_languages)
        src, tgt = map(_with_code, tokenizers, languages, trained, SIDES, options)
        return TranslationDirection.of_codes(src, tgt)
    if languages.src is not None and languages.src not in data.source_languages:
        what = "this run has no source languages to choose from"
        if data.source_languages:
            raise _unknown(languages.src, data.source_languages, SIDES[0], options[0])
        raise UsageError(what, where=options[0], help=f"leave out {options[0]}")
    tgt_lang = _chosen(languages.tgt, data.target_languages, options[1])
    tag = "" if tgt_lang is None else language_tag(tgt_lang)
    return TranslationDirection(*tokenizers, tuple(tag_ids(run.src_tokenizer, tag)), tgt_lang)


def needs_languages(run: OpenedRun) -> bool:
    """Return whether a run has language codes, but no usual language of a side."""
    tokenizers, data = (run.src_tokenizer, run.tgt_tokenizer), run.config.data
    return data.directions is None and any(one.language_codes and not one.code_ids for one in tokenizers)


def first_direction(run: OpenedRun) -> TranslationDirection:
    """Return the first direction that a run was trained in, or its usual one.

    Raises ``UsageError`` for an imported run without usual languages.
    """
    if needs_languages(run):
        help = "import it with --src-lang and --tgt-lang, or train it with --pair"
        raise UsageError("this run has no usual languages, which an export needs", where=str(run.path), help=help)
    name = run.config.data.training_pairs[0].direction
    return named_direction((run.src_tokenizer, run.tgt_tokenizer), name)


def _with_code(tokenizer: Tokenizer, language: str | None, trained: Sequence[str], side: str, option: str) -> Tokenizer:
    """Return a tokenizer with the code of a language, by default that of the run."""
    if language is None and len(trained) > 1:
        raise _unknown(None, trained, side, option)
    if language is None and not trained and tokenizer.code_ids:
        return tokenizer
    return tokenizer.with_code(code_of(tokenizer.language_codes, language or next(iter(trained), None), option))


def _chosen(language: str | None, known: Sequence[str], option: str) -> str | None:
    """Return the target language of a run whose languages have tags, if any."""
    if language is None and len(known) < 2:
        return known[0] if known else None
    if language is not None and not known:
        what = "this run has one target language, which has no tag"
        raise UsageError(what, where=option, help=f"leave out {option}")
    if language is None or language not in known:
        raise _unknown(language, known, SIDES[1], option)
    return language


def _unknown(language: str | None, known: Sequence[str], side: str, option: str) -> UsageError:
    what = f"unknown {side} language '{language}'" if language is not None else f"no {side} language is chosen"
    return UsageError(f"{what}; this run has {', '.join(known)}", where=option, help=f"add {option} {known[0]}")
