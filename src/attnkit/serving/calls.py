"""What each route computes: bodies in, plain data out."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from attnkit.errors import DataError
from attnkit.formats.documents import with_language
from attnkit.library.translations import Translation
from attnkit.runtime.scheduling import schedule_computing
from attnkit.serving import schemas
from attnkit.serving.limits import Limits, RefusedError
from attnkit.serving.models import Models, ServedModel
from attnkit.serving.requests import check_texts
from attnkit.serving.specs import UNKNOWN
from attnkit.tasks.language_modeling.config import MASK
from attnkit.text.glossary import Glossary
from attnkit.text.tags import language_of_code

_AROUND = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)
MAX_NUMBER = 1e30  #: largest number of a vector: float32 ends at 3.4e38, and models standardise them
CLASSIFIERS = ("text-classification", "token-classification")


@dataclass
class TranslatedText:
    """A text whose lines were translated; white space around lines is the source's."""

    text: str
    alternatives: list[str]
    lines: list[Translation] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return text and lines as plain data."""
        lines = [line.to_dict() for line in self.lines]
        return {"text": self.text, "alternatives": self.alternatives, "lines": lines}


async def translate_texts(
    model: ServedModel,
    texts: Sequence[str],
    options: Mapping[str, Any],
    prefixes: Sequence[str] | None = None,
    *,
    detailed: bool = False,
) -> list[TranslatedText]:
    """Translate texts of any number of lines: N lines in, N lines out.

    Lines have tokens, scores and signs only if ``detailed``.

    Raises:
        RefusedError: a limit, a full queue, or a prefix for a text of several lines.
    """
    check_texts(list(texts), model.limits)
    _check_search(options, model.limits, model.beam_size)
    if prefixes is not None and (len(prefixes) != len(texts) or any("\n" in text for text in texts)):
        raise RefusedError(400, "give one prefix for each text, and texts of one line")
    split = [[_parts(line) for line in text.split("\n")] for text in texts]
    begun = [""] * sum(map(len, split)) if prefixes is None else list(prefixes)
    cores = [core for parts in split for _, core, _ in parts]
    call: tuple[str, tuple[tuple[str, Any], ...]] = "translate" if detailed else "translate_texts", _options(options)
    lines: list[Any] = list(zip(cores, begun, strict=True)) if detailed else cores
    if options.get("sampling"):
        # A sample depends on its place among the lines: each request is a batch of its own.
        (samples,) = await model.batcher.submit([lines], ("translate_samples", call[1]))
        found = iter(samples)
    else:
        found = iter(await model.batcher.submit(lines, call))
    done = []
    for parts in split:
        own = [next(found) for _ in parts]
        ranks = [[one.text, *(other.text for other in one.alternatives)] for one in own] if detailed else own
        n_ranks = max(map(len, ranks))
        whole = [
            "\n".join(
                f"{before}{rank[min(k, len(rank) - 1)]}{after}"
                for (before, _, after), rank in zip(parts, ranks, strict=True)
            )
            for k in range(n_ranks)
        ]
        done.append(TranslatedText(whole[0], list(dict.fromkeys(whole[1:])), own if detailed else []))
    return done


def _parts(line: str) -> tuple[str, str, str]:
    """Return the white space before a line, its text, and the white space after it."""
    match = _AROUND.fullmatch(line)
    assert match is not None
    return match[1], match[2], match[3]


def _options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in options.items() if value is not None))


def _check_search(options: Mapping[str, Any], limits: Limits, beam_size: int = 1) -> None:
    """Raise ``RefusedError`` (400) for a beam or a length above a limit.

    ``beam_size`` is the model's own, which is allowed, whatever the limit.
    """
    most = dict.fromkeys(("num_hypotheses", "n"), limits.max_beam_size)
    most["beam_size"] = max(limits.max_beam_size, beam_size)
    most |= dict.fromkeys(("min_length", "max_length", "max_new_tokens"), limits.max_new_tokens)
    for name, limit in most.items():
        value = options.get(name)
        if value is not None and value > limit:
            raise RefusedError(400, f"{name} is {value}; this service allows {limit}")


async def translate_documents(model: ServedModel, texts: Sequence[str]) -> list[str]:
    """Translate HTML, whose pages name the target language, if it is known.

    Raises ``RefusedError`` for a limit or a full queue.
    """
    check_texts(list(texts), model.limits)
    pages: list[str] = await model.batcher.submit(list(texts), ("translate_html", ()))
    if (languages := model.languages) is None or (code := languages[1]) in UNKNOWN:
        return pages
    # The name that the service gives the language, not that of the model.
    return [with_language(page, "html", language_of_code(code).replace("_", "-")) for page in pages]


async def libretranslate(models: Models, body: schemas.LibreTranslateBody) -> dict[str, Any]:
    """Answer ``/translate`` as LibreTranslate does."""
    model, texts = models.translator(body.source, body.target), schemas.listed(body.q)
    if body.format == "html":
        found: dict[str, Any] = {"translatedText": await translate_documents(model, texts)}
        others: list[list[str]] = [[] for _ in texts]
    else:
        n = body.alternatives + 1
        options = {"num_hypotheses": n, "beam_size": max(n, model.beam_size)} if n > 1 else {}
        translated = await translate_texts(model, texts, options)
        found = {"translatedText": [one.text for one in translated]}
        others = [one.alternatives for one in translated]
    if body.alternatives:
        found["alternatives"] = others
    if isinstance(body.q, str):
        found = {name: values[0] for name, values in found.items()}
    return found


async def deepl(models: Models, body: schemas.DeepLBody) -> dict[str, Any]:
    """Answer ``/v2/translate`` as DeepL does."""
    if body.formality in ("more", "less"):
        what = f"this service cannot set the formality; prefer_{body.formality} leaves it to the model"
        raise RefusedError(400, what)
    if body.glossary_id:
        raise RefusedError(400, "this service keeps no glossaries; /v1/translate takes one with the request")
    model, texts = models.translator(body.source_lang, body.target_lang.partition("-")[0]), schemas.listed(body.text)
    if body.tag_handling is not None:
        done = await translate_documents(model, texts)
    else:
        done = [one.text for one in await translate_texts(model, texts, {})]
    source = (model.languages or ("", ""))[0].upper()
    return {"translations": [{"detected_source_language": source, "text": text} for text in done]}


async def translations(models: Models, body: schemas.TranslationsBody) -> dict[str, Any]:
    """Answer ``/v1/translations`` as vLLM does: one text."""
    named = body.model if body.model in (*models.by_name, *models.failed) else None
    model = (
        models.find(named, "translation") if named else models.translator(body.source_language, body.target_language)
    )
    options: dict[str, Any] = {"max_length": body.max_tokens}
    if body.temperature:
        options |= {"sampling": True, "temperature": body.temperature, "top_p": body.top_p, "seed": body.seed}
    (done,) = await translate_texts(model, [body.text], options, detailed=True)
    n_source, n_target = (sum(len(getattr(line, name)) for line in done.lines) for name in ("source_tokens", "tokens"))
    return {
        "id": f"transl-{uuid4().hex}",
        "object": "translation",
        "created": int(time.time()),
        "model": model.name,
        "translated_text": done.text,
        "source_language": body.source_language,
        "target_language": body.target_language,
        "usage": {"prompt_tokens": n_source, "completion_tokens": n_target, "total_tokens": n_source + n_target},
    }


async def translations_stream(models: Models, body: schemas.TranslationsBody) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of ``/v1/translations``: the text as a whole, and the end.

    A search has no part of its text before its end.
    """
    found = await translations(models, body)
    shared = {name: found[name] for name in ("id", "created", "model")} | {"object": "translation.chunk"}

    async def chunks() -> AsyncGenerator[dict[str, Any], None]:
        text = {"index": 0, "delta": {"translated_text": found["translated_text"]}, "finish_reason": None}
        yield {**shared, "choices": [text]}
        n_tokens = found["usage"]["completion_tokens"]
        reason = "length" if body.max_tokens is not None and n_tokens >= body.max_tokens else "stop"
        end = {"index": 0, "delta": {"translated_text": None}, "finish_reason": reason}
        yield {**shared, "choices": [end], "usage": found["usage"]}

    return chunks()


async def translate(models: Models, body: schemas.TranslateBody) -> dict[str, Any]:
    """Answer ``/v1/translate``."""
    if body.model is None:
        model = models.translator(body.source_lang, body.target_lang)
    else:
        model = models.find(body.model, "translation")
    options = {key: getattr(body, key) for key in schemas.SEARCH_KEYS}
    if body.num_hypotheses is not None and body.beam_size is None and not body.sampling:
        options["beam_size"] = max(body.num_hypotheses, model.beam_size)
    prefixes = None if body.prefix is None else schemas.listed(body.prefix)
    options |= {name: True for name in ("attention", "token_scores") if getattr(body, name)}
    if body.suppress:
        options["suppress"] = tuple(body.suppress)
    if body.glossary:
        options["glossary"] = _checked_glossary(body)
    done = await translate_texts(model, schemas.listed(body.text), options, prefixes, detailed=True)
    return {"model": model.name, "translations": [one.to_dict() for one in done]}


def _checked_glossary(body: schemas.TranslateBody) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the glossary of a request in a form that batches compare.

    Raises ``RefusedError`` (400) for a term without letters or signs, and for sampling.
    """
    if body.sampling:
        raise RefusedError(400, "a glossary needs a beam search, not sampling")
    try:
        Glossary(body.glossary)
    except DataError as error:
        raise RefusedError(400, error.what) from error
    forms = {term: [own] if isinstance(own, str) else own for term, own in body.glossary.items()}
    return tuple(sorted((term, tuple(own)) for term, own in forms.items()))


async def score(models: Models, body: schemas.ScoreBody) -> dict[str, Any]:
    """Answer ``/v1/score``."""
    if body.text is not None:
        model, texts = models.find(body.model, "mlm", "clm"), schemas.listed(body.text)
        check_texts(texts, model.limits)
        found = await model.batcher.submit(texts, ("score", ()))
        return {"model": model.name, "scores": [one.to_dict() for one in found]}
    if body.source is None or body.target is None:
        raise RefusedError(400, "give source and target, or text for a language model")
    src, tgt = schemas.listed(body.source), schemas.listed(body.target)
    model = models.find(body.model, "translation")
    check_texts([*src, *tgt], model.limits)
    if len(src) != len(tgt) or any("\n" in text for text in (*src, *tgt)):
        raise RefusedError(400, "give one target for each source, and texts of one line")
    found = await model.batcher.submit(list(zip(src, tgt, strict=True)), ("score", ()))
    return {"model": model.name, "scores": [one.to_dict() for one in found]}


async def predict(models: Models, body: schemas.PredictBody) -> dict[str, Any]:
    """Answer ``/v1/predict``."""
    asks = body.question is not None or body.context is not None
    first, second = (body.question, body.context) if asks else (body.text, body.pair)
    if first is None or (asks and second is None):
        raise RefusedError(400, "give text, or question and context")
    model = models.find(body.model, *(("question-answering",) if asks else CLASSIFIERS))
    texts, others = schemas.listed(first), None if second is None else schemas.listed(second)
    check_texts([*texts, *(others or ())], model.limits)
    if others is not None and len(others) != len(texts):
        raise RefusedError(400, f"{len(texts)} texts, but {len(others)} of the other field")
    items = texts if others is None else list(zip(texts, others, strict=True))
    found = await model.batcher.submit(items, ("predict", ()))
    return {"model": model.name, "predictions": [one.to_dict() for one in found]}


async def fill_mask(models: Models, body: schemas.FillMaskBody) -> dict[str, Any]:
    """Answer ``/v1/fill-mask``."""
    model, texts = models.find(body.model, "mlm"), schemas.listed(body.text)
    check_texts(texts, model.limits)
    n = body.top * sum(text.count(MASK) * len(text) for text in texts)  # each prediction has the text
    if n > model.limits.max_answer:
        raise RefusedError(413, f"the answer would have {n:,} characters; ask for fewer predictions or masks")
    found = await model.batcher.submit(texts, ("fill", (("top", body.top),)))
    return {"model": model.name, "results": [one.to_dict() for one in found]}


async def embed(models: Models, body: schemas.EmbedBody) -> dict[str, Any]:
    """Answer ``/v1/embed``."""
    model = models.find(body.model, "mlm", "clm", "autoencode", "word2vec")
    if (body.text is None) == (body.vector is None) or (body.vector is not None) != model.reads_vectors:
        field = "vector" if model.reads_vectors else "text"
        raise RefusedError(400, f"give '{field}' for model '{model.name}', and no other input")
    items: list[Any]
    if body.vector is not None:
        items, call = _checked_vectors(body.vector, model.limits), "embed_vectors"
    else:
        items, call = schemas.listed(body.text or ""), "embed_words" if model.task == "word2vec" else "embed"
        check_texts(items, model.limits)
    found = await model.batcher.submit(items, (call, ()))
    return {"model": model.name, "embeddings": [[float(value) for value in row] for row in found]}


def _checked_vectors(vectors: list[float] | list[list[float]], limits: Limits) -> list[list[float]]:
    """Return the vectors of a request, of one width.

    Raises ``RefusedError``: several widths, or a number out of range (400), too many (413).
    """
    # One vector, or several: the schema allows no mixture.
    rows: Any = vectors if vectors and isinstance(vectors[0], list) else [vectors]
    if len(rows) > limits.max_texts or sum(map(len, rows)) > limits.max_characters:
        raise RefusedError(413, f"at most {limits.max_texts:,} vectors of {limits.max_characters:,} numbers in all")
    if len({len(row) for row in rows}) > 1 or not all(abs(value) <= MAX_NUMBER for row in rows for value in row):
        raise RefusedError(400, f"vectors must have one width, and numbers up to {MAX_NUMBER:g}")
    return list(rows)


async def similar(models: Models, body: schemas.SimilarBody) -> dict[str, Any]:
    """Answer ``/v1/similar``."""
    model, words = models.find(body.model, "word2vec"), schemas.listed(body.word)
    check_texts(words, model.limits)
    found = await model.batcher.submit(words, ("similar", (("topn", body.top),)))
    rows = [[{"word": word, "similarity": float(cosine)} for word, cosine in row] for row in found]
    return {"model": model.name, "results": rows}


def _generation(body: schemas.GenerateBody, limits: Limits) -> dict[str, Any]:
    """Return the options of a generation, checked."""
    options = {name: getattr(body, name) for name in ("temperature", "top_k", "top_p", "repetition_penalty", "seed")}
    _check_search({"n": body.n, "max_new_tokens": body.max_new_tokens}, limits)
    return {"max_new_tokens": body.max_new_tokens, **dict(_options(options))}


async def generate(models: Models, body: schemas.GenerateBody) -> dict[str, Any]:
    """Answer ``/v1/generate`` as a whole."""
    model, prompts = models.find(body.model, "clm"), schemas.listed(body.prompt)
    check_texts(prompts, model.limits)
    options = {**_generation(body, model.limits), "n": body.n}
    # A sample depends on its place among the prompts: each request is a batch of its own.
    found = await model.batcher.submit([prompts], ("generate", _options(options)))
    return {"model": model.name, "texts": [one.to_dict() for one in found[0]]}


async def generate_stream(models: Models, body: schemas.GenerateBody) -> AsyncGenerator[dict[str, Any], None]:
    """Yield one text in pieces, as it is generated."""
    model, prompts = models.find(body.model, "clm"), schemas.listed(body.prompt)
    check_texts(prompts, model.limits)
    if len(prompts) != 1 or body.n != 1:
        raise RefusedError(400, "one text can be streamed at a time")
    pieces: Iterator[str] = model.model.stream(prompts[0], **_generation(body, model.limits))
    return _in_thread(pieces)


async def _in_thread(pieces: Iterator[str]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield what a blocking iterator yields; close it when the reader stops.

    It has a thread of its own: those of a pool could all wait for the model that one of them is to take pieces from.
    """
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, initializer=schedule_computing)
    try:
        while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
            yield {"text": piece}
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            await asyncio.shield(loop.run_in_executor(thread, close))
        thread.shutdown(wait=False)
