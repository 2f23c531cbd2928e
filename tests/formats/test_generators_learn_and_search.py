"""Imported text generators learn as in transformers, and a beam finds the same ids.

``attnkit generate`` has greedy search and sampling; the beam is that of ``attnkit.decoding``, as for translators.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import test_gpt2_export as gpt2
import test_llama_import as llama
import test_mistral_import as mistral
from hub_encoders import odd_lines

from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.engine.search_backend import exclude_padding_ids
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID

FOLDERS: dict[str, Callable[..., Any]] = {
    **{f"gpt2, {name}": partial(gpt2.gpt2_folder, **shape) for name, shape in gpt2.SHAPES.items()},
    **{f"llama, {name}": partial(llama.llama_folder, **shape) for name, shape in llama.SHAPES.items()},
    **{f"mistral, {name}": partial(mistral.mistral_folder, name=name) for name in mistral.SHAPES},
}
PROMPTS = list(dict.fromkeys(line.strip()[:24] for line in odd_lines(500, 5) if line.strip()))[:300]


class Imported:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, name: str, **changes: Any) -> None:
        self.theirs: Any = FOLDERS[name](place / "hub", **changes).eval()
        self.opened = llama.imported(place / "hub", place / "run")
        n_rows = json.loads((place / "hub/config.json").read_text())["vocab_size"]
        order = read_vocabulary(place / "hub", name.partition(",")[0], n_rows).order
        self.order: list[int] = [-1 if id is None else id for id in order]
        # One of our ids for each of theirs: an entry of GPT-2 may be several of ours, of which EOS is generated.
        ours = {id: number for number, id in enumerate(self.order) if id >= 0} | {self.order[EOS_ID]: EOS_ID}
        self.known = torch.tensor([ours.get(id) == number for number, id in enumerate(self.order)])


@pytest.fixture(params=FOLDERS)
def imported(request: pytest.FixtureRequest, tmp_path: Path) -> Imported:
    return Imported(tmp_path, request.param)


def test_three_steps_of_training_are_equal(imported: Imported) -> None:
    """Without dropout, and with the entries that transformers has."""
    model, theirs = imported.opened.model, imported.theirs
    choices = imported.known.nonzero().flatten()[4:]
    ours = choices[torch.randint(len(choices), (4, 20), generator=torch.Generator().manual_seed(2))]
    ids = torch.tensor(imported.order)[ours]
    optimizers, losses = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, theirs)], []
    for _ in range(3):
        expected = theirs(ids, labels=ids).loss
        logits = model.head(model.hidden(ours, PackedLayout.unpacked(4)))[:, :-1]
        logits = logits.masked_fill(~imported.known, -torch.inf)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ours[:, 1:].flatten())
        losses.append((float(loss.detach()), float(expected.detach())))
        for optimizer, value in zip(optimizers, (loss, expected), strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    assert all(abs(own - other) < 1e-5 for own, other in losses), losses
    assert losses[2][0] < losses[0][0] - 0.01, "nothing was learned"


class Known:
    """A model whose entries are those that transformers has."""

    def __init__(self, model: Any, known: torch.Tensor) -> None:
        self.model, self.known = model, known
        self.start, self.step = model.start, model.step

    def head(self, hidden: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        assert ids is None
        logits: torch.Tensor = self.model.head(hidden).masked_fill(~self.known, -torch.inf)
        return logits


@pytest.mark.sample(5)
def test_three_hundred_beams_are_equal(imported: Imported) -> None:
    tokenizer, order, theirs = read_tokenizer(imported.opened.checkpoint), imported.order, imported.theirs.double()
    config = exclude_padding_ids(SearchConfig(beam_size=4, max_length=12), tokenizer)
    ours = cast(Any, Known(imported.opened.model.double(), imported.known))
    allowed = {order[number] for number in range(3, tokenizer.n_words)} | {order[EOS_ID]}
    options = {"num_beams": 4, "max_new_tokens": 12, "do_sample": False, "early_stopping": True}
    options |= {"eos_token_id": order[EOS_ID], "pad_token_id": order[EOS_ID], "length_penalty": 1.0}
    options["suppress_tokens"] = [id for id in range(theirs.config.vocab_size) if id not in allowed]
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for row in tokenizer.encode(PROMPTS):
        by_length[len(row[:24])].append([BOS_ID, *row[:24]])
    made = set()
    for rows in by_length.values():
        ids = torch.tensor(rows)
        found = search([ours], Sources(ids, torch.ones_like(ids).bool()), config)
        given = torch.tensor(order)[ids]
        expected = theirs.generate(given, attention_mask=torch.ones_like(given), **options)[:, ids.shape[1] :].tolist()
        for hypotheses, wanted in zip(found, expected, strict=True):
            best = [order[id] for id in hypotheses[0].ids]
            assert best == [id for id in wanted if id != order[EOS_ID]]
            made.add(tuple(best))
    assert len(PROMPTS) == 300 and len(made) > 30, "the test needs a model that says something"
