"""Text generation from prompts with a trained GPT, greedy or by sampling.

The model reads the begin symbol and the prompt. A right-to-left model reads the prompt in reverse and generates the
text before it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import groupby, product
from typing import Any, Literal

import torch
from torch import Tensor

from attnkit.compiled.generator import CompiledGenerator
from attnkit.config import validate
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import NOTHING, Hypothesis
from attnkit.decoding.search import Sources, search
from attnkit.decoding.stopping import StopCheck, StopFlags
from attnkit.engine.compiled_language_models import compile_generator
from attnkit.engine.engine_choice import Engine
from attnkit.engine.loading import LoadedModel
from attnkit.engine.search_backend import exclude_padding_ids
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.models.gpt import SlidingWindowLM
from attnkit.models.linear import pack
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, Decodable
from attnkit.runtime.devices import one_torch_thread
from attnkit.text.tokenizer import IncrementalDecoder

_BATCH = 64
_DIGITS = 4  # decimals of log-probabilities; further ones depend on the batch
MAX_TEXTS = 1024  #: texts per prompt


@dataclass(frozen=True)
class GeneratedText:
    """A prompt with its generated continuation."""

    text: str  #: prompt and continuation in reading order
    made: str
    pieces: list[str]  #: the generated tokens in reading order
    log_prob: float  #: natural log-probability of the generated tokens, including the end symbol
    end: Literal["end", "length"]  #: reason for stopping: the end symbol or the maximum length

    def to_dict(self) -> dict[str, Any]:
        """Return the text as plain data for ``--json``."""
        return {**asdict(self), "log_prob": round(self.log_prob, _DIGITS)}


def search_config(options: Mapping[str, Any], n: int = 1) -> SearchConfig:
    """Return search settings for ``n`` texts per prompt: greedy or sampling.

    Args:
        options: fields of ``SearchConfig``, None if not given; temperature, top_k, top_p or seed enable sampling.
        n: texts per prompt; more than one enables sampling.

    Raises:
        UsageError: an invalid value, or several texts without sampling, which would be identical.
    """
    given = {name: value for name, value in options.items() if value is not None}
    greedy = given.get("temperature") == 0
    if greedy and n > 1:
        what = f"without sampling, all {n} texts are identical"
        raise UsageError(what, where="--temperature 0", help="raise it, or leave out --n")
    sampled = {"temperature", "top_k", "top_p", "seed"} & given.keys()
    if greedy:
        given = {name: value for name, value in given.items() if name not in sampled}
    sampling = bool(sampled or n > 1) and not greedy
    origins = {name: f"--{name.replace('_', '-')}" for name in given} | {"max_length": "--max-new-tokens"}
    return validate(SearchConfig, {"beam_size": 1, **given, "sampling": sampling}, origins)


class Generator:
    """Text generator; texts depend only on prompt, line, sample number and seed."""

    def __init__(
        self,
        opened: LoadedModel,
        config: SearchConfig,
        window: int | None = None,
        *,
        engine: Engine = "torch",
        precision: Precision = "float32",
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Take a run, the search settings and the context length in tokens.

        Args:
            opened: a GPT run.
            config: the result of ``search_config``.
            window: None for the model's number of positions or, if unlimited, the length of its training rows.

        Raises:
            UsageError: the window is below 2 or exceeds the number of positions of the model, or the engine or the
                precision is not available for it.
        """
        self.opened, self.device = opened, opened.device
        self.tokenizer = read_tokenizer(opened.checkpoint)
        self.config = exclude_padding_ids(config, self.tokenizer)
        self.backwards = opened.config.direction == "right-to-left"
        longest = opened.config.model.max_positions
        if window is not None and window < 2:
            raise UsageError("--window must be at least 2", where=f"--window {window}", help="leave it out")
        if window is not None and longest is not None and window > longest:
            what = f"--window exceeds the model's {longest:,} positions"
            raise UsageError(what, where=f"--window {window}", help=f"give at most {longest}")
        self.window: int = window or longest or opened.config.data.sequence_length
        self.compiled = compile_generator(opened, self.window, engine, precision, notify, self.config.n_words)
        self.model: Decodable = self.compiled or SlidingWindowLM(pack(opened.model), self.window)
        self.stops: StopFlags | None = None  #: flags of the prompts that are to end, if set
        self.n_truncated = 0
        """Number of prompts truncated so far."""

    def generate(self, prompts: Sequence[str], n: int = 1, first: int = 0) -> list[list[GeneratedText]]:
        """Return ``n`` continuations per prompt; ``first`` is the first line number."""
        rows = [self.encode(prompt) for prompt in prompts]
        self.n_truncated += sum(len(row) > self.window for row in rows)
        jobs = sorted(product(range(len(rows)), range(n)), key=lambda job: len(rows[job[0]]))  # (line, sample)
        texts: list[list[GeneratedText]] = [[] for _ in rows]
        # In compiled loops texts of any lengths run together, but padding would count as repeated.
        plain = self.config.repetition_penalty == 1 and not self.config.no_repeat_ngram_size
        together = self.compiled is not None and plain
        for _, group in groupby(jobs, key=lambda job: together or len(rows[job[0]])):
            members = list(group)
            for start in range(0, len(members), _BATCH):
                batch = members[start : start + _BATCH]
                keys = [_key(first + line, number) for line, number in batch]
                hypotheses = self._search([rows[line] for line, _ in batch], keys)
                for (line, _), hypothesis in zip(batch, hypotheses, strict=True):
                    texts[line].append(self._generated_text(rows[line], hypothesis))
        return texts

    def stream(self, prompt: str, show: Callable[[str], None], line: int = 0, number: int = 0) -> GeneratedText:
        """Generate one text, passing its characters to ``show`` as they are generated.

        It equals the ``number``-th text of ``generate`` for that line. Left-to-right models only.
        """
        assert not self.backwards
        row = self.encode(prompt)
        self.n_truncated += number == 0 and len(row) > self.window
        decoder = IncrementalDecoder(self.tokenizer)
        show(decoder.add(row[1:]))

        def on_step(sentences: Tensor, words: Tensor) -> None:
            id = int(words[0, 0])
            if id != EOS_ID and (added := decoder.add([id])):
                show(added)

        hypothesis = self._search([row], [_key(line, number)], on_step)[0]
        show(decoder.end())
        return self._generated_text(row, hypothesis)

    def encode(self, prompt: str) -> list[int]:
        """Return the begin symbol and the ids of a prompt, in the order of reading."""
        if self.tokenizer.config.kind != "char":  # subwords include their leading space
            prompt = prompt.lstrip(" ") if self.backwards else prompt.rstrip(" ")
        ids = self.tokenizer.encode([prompt])[0]
        return [BOS_ID, *(reversed(ids) if self.backwards else ids)]

    def warnings(self) -> list[str]:
        """Return a warning about truncated prompts, if any."""
        if not self.n_truncated:
            return []
        prompts = f"{self.n_truncated:,} prompts have" if self.n_truncated > 1 else "a prompt has"
        part = "end" if self.backwards else "beginning"
        return [f"{prompts} more tokens than the model's window of {self.window:,}: the {part} was truncated"]

    def _search(
        self, rows: list[list[int]], keys: list[int], on_step: Callable[[Tensor, Tensor], None] | None = None
    ) -> list[Hypothesis]:
        if self.compiled is not None and on_step is None:
            return self._search_in_loops(self.compiled, rows, keys)
        return self._search_stepwise(rows, keys, on_step)

    def _search_in_loops(self, compiled: CompiledGenerator, rows: list[list[int]], keys: list[int]) -> list[Hypothesis]:
        """Search whole texts in compiled loops where these have the search, else by steps."""
        limits = [max(self.config.limit(len(row)), self.config.min_length + 1) for row in rows]
        # Text by text: which way one goes must not depend on the others.
        chosen = [compiled.can_search_whole(len(row), n, self.config) for row, n in zip(rows, limits, strict=True)]
        whole, stepwise = ([i for i, is_whole in enumerate(chosen) if is_whole == kind] for kind in (True, False))
        found: dict[int, Hypothesis] = {}
        if whole:
            stops = self._check([keys[i] for i in whole])
            texts = compiled.search([rows[i] for i in whole], [limits[i] for i in whole], self.config, stops)
            found |= zip(whole, texts, strict=True)
        if stepwise:
            texts = self._search_stepwise([rows[i] for i in stepwise], [keys[i] for i in stepwise], None)
            found |= zip(stepwise, texts, strict=True)
        return [found[i] for i in range(len(rows))]

    def _search_stepwise(
        self, rows: list[list[int]], keys: list[int], on_step: Callable[[Tensor, Tensor], None] | None
    ) -> list[Hypothesis]:
        stops = self._check(keys)
        if stops is not None and stops().all():
            return [NOTHING for _ in rows]
        length = max(map(len, rows))
        ids = torch.tensor([row + [PAD_ID] * (length - len(row)) for row in rows], device=self.device)
        mask = torch.arange(length, device=self.device) < torch.tensor([[len(row)] for row in rows], device=self.device)
        sources = Sources(ids, mask, keys=keys, context_ids=ids, stops=stops)
        with one_torch_thread() if self.compiled is not None else nullcontext():
            return [hypotheses[0] for hypotheses in search([self.model], sources, self.config, on_step=on_step)]

    def _check(self, keys: Sequence[int]) -> StopCheck | None:
        """Return the function that says which of these texts are to end, by their keys."""
        return None if self.stops is None else self.stops.check([key // MAX_TEXTS for key in keys])

    def _generated_text(self, row: list[int], best: Hypothesis) -> GeneratedText:
        step = -1 if self.backwards else 1
        made, ids = best.ids[::step], [*row[1:], *best.ids][::step]
        if self.backwards or len(row) == 1:
            continuation = self.tokenizer.decode([made])[0]
        else:  # including the space before its first word
            continuation = b"".join(map(self.tokenizer.bytes_of, made)).decode("utf-8", errors="replace")
        text, pieces = self.tokenizer.decode([ids])[0], self.tokenizer.tokens(made)
        return GeneratedText(text, continuation, pieces, best.log_prob, "end" if best.finished else "length")


def _key(line: int, number: int) -> int:
    return line * MAX_TEXTS + number


def one_line(text: str) -> str:
    """Replace line feeds by spaces, to print one line per text."""
    return text.replace("\n", " ")
