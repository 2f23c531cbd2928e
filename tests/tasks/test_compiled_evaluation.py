"""The development set in compiled loops, where they have the search: the same texts as torch's."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnkit.compiled import search as compiled_search
from attnkit.engine.loading import load_checkpoint
from attnkit.engine.vocabularies import Vocabularies
from attnkit.errors import SystemFailure
from attnkit.kernels.jit import is_available
from attnkit.models.config import RnnConfig
from attnkit.tasks.translation import evaluate
from attnkit.tasks.translation.evaluate import TranslationEvaluation, compiled_form
from attnkit.tasks.translation.loading import LoadedRun, load_run

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
LINES = [" ".join(str(i * k % 10) for k in range(1, 2 + i % 9)) for i in range(60)]


@pytest.fixture(scope="module")
def run(trained: Path) -> LoadedRun:
    return load_run(trained, device="cpu")


def build_evaluation(run: LoadedRun, compiled: bool, **decoding: Any) -> TranslationEvaluation:
    vocabularies, directions = Vocabularies(run.src_tokenizer, run.tgt_tokenizer), [""] * len(LINES)
    prepared: Any = SimpleNamespace(valid_src=LINES, valid_directions=directions, vocabularies=vocabularies)
    search = run.config.decoding.model_copy(update=decoding)
    form: Any = run.config.model if compiled else None
    return TranslationEvaluation(prepared, search, torch.device("cpu"), 0, run.config.max_source, form)


def translate(run: LoadedRun, compiled: bool, **decoding: Any) -> list[str]:
    with torch.inference_mode():
        return build_evaluation(run, compiled, **decoding).translate(run.model)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the compiled searches that are made."""
    found: list[Any] = []
    plain = evaluate.CompiledSearch

    def make(*arguments: Any, **options: Any) -> Any:
        found.append(plain(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(evaluate, "CompiledSearch", make)
    return found


def test_texts_are_those_of_torch(run: LoadedRun, made: list[Any]) -> None:
    expected = translate(run, False)
    assert made == [] and len(set(expected)) > 10
    assert translate(run, True) == expected
    assert len(made) == 1


def test_each_evaluation_is_of_the_present_weights(
    run: LoadedRun, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []
    load = compiled_search.load_loops
    monkeypatch.setattr(compiled_search, "load_loops", lambda *settings: loaded.append(settings) or load(*settings))
    evaluation, by_torch = build_evaluation(run, True), build_evaluation(run, False)
    model: Any = load_checkpoint(run.path, run.files, run.config, device="cpu", dtype=torch.float32).model
    other = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.inference_mode():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        first, second = (evaluation.translate(each) for each in (model, other))
        assert second == by_torch.translate(other) and second != first
        assert evaluation.translate(model) == first
    assert len(loaded) == 1 and len(made) == 3  # the loops are loaded once


def test_nothing_is_kept_between_evaluations(run: LoadedRun, made: list[Any]) -> None:
    evaluation = build_evaluation(run, True)
    with torch.inference_mode():
        evaluation.translate(run.model)
    kept = weakref.ref(made.pop())
    gc.collect()
    assert kept() is None  # packed weights and working memory are as large as the model


@pytest.mark.parametrize("decoding", [{"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.5}])
def test_torch_has_every_other_search(run: LoadedRun, made: list[Any], decoding: dict[str, Any]) -> None:
    assert translate(run, True, **decoding) == translate(run, False, **decoding)
    assert made == []


def test_torch_translates_without_a_compiler(run: LoadedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise SystemFailure("no compiler")

    monkeypatch.setattr(evaluate, "CompiledSearch", refuse)
    assert translate(run, True) == translate(run, False)


def test_small_sets_other_models_and_gpus_are_torch_s(run: LoadedRun) -> None:
    config = run.config.model_copy(update={"device": "cpu"})
    assert compiled_form(config, 200) == run.config.model
    assert compiled_form(config, 199) is None
    assert compiled_form(config.model_copy(update={"device": "cuda"}), 200) is None
    assert compiled_form(config.model_copy(update={"model": RnnConfig()}), 200) is None
