"""ELECTRA: sampling, loss, gradients and scores against transformers' models, and what its runs are used for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hub_runs import shaken
from language import prepare

from attnkit.data.language_modeling import LanguageModelBatch
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.engine.task import task_of
from attnkit.formats.huggingface import layout
from attnkit.models import electra
from attnkit.models.electra import Electra, sample
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.data import load_text
from attnkit.tasks.language_modeling.electra import electra_loss
from attnkit.tasks.language_modeling.task import make_model
from attnkit.training.config import LimitsConfig

CPU = torch.device("cpu")
PUBLISHED = {"model__positions": "learned", "model__pooler": "gelu", "electra__detection_weight": 3.0}


def setting(workshop: Any, run: Path, **changes: Any) -> tuple[Any, Any, Any]:
    """Return configuration, text and a model of random weights, in float64."""
    config = workshop.configure_task("replaced tokens", **changes)
    prepare(config, run)
    prepared = load_text(config, run / "data")
    torch.manual_seed(3)
    return config, prepared, shaken(make_model(config, prepared.tokenizer.vocab_size).double())


def test_tokens_are_drawn_from_the_softmax() -> None:
    """Evenly spread numbers give each token its share, to within one number; what is impossible is never drawn."""
    logits = torch.tensor([[0.3, -1.0, 2.0, -torch.inf, 0.5, -torch.inf]])
    n = 10_000
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    found = torch.bincount(sample(logits.expand(n, -1), draws), minlength=6)
    expected = np.exp(logits[0].double().numpy())
    expected /= expected.sum()
    assert (np.abs(found.numpy() - n * expected) <= 1).all() and found[3] == found[5] == 0
    assert sample(logits, torch.tensor([0.0])).tolist() == [0]
    assert sample(logits, torch.tensor([1 - 2**-24])).tolist() == [4]
    first = torch.tensor([[-torch.inf, 1.0, 1.0]])
    assert sample(first.expand(3, -1), torch.tensor([0.0, 0.49, 0.51])).tolist() == [1, 1, 2]
    assert sample(torch.zeros(0, 5), torch.zeros(0)).tolist() == []


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
def test_draws_are_those_of_cumulative_sums(size: int) -> None:
    """The search by blocks finds what a search over the whole vocabulary does, in both precisions and at the ends."""
    rng = np.random.default_rng(size)
    logits = rng.normal(size=(400, size)) * 4
    logits[:, rng.random(size) < 0.3] = -np.inf
    logits[:, size // 2] = 0.0
    draws = np.append(rng.random(398), [0.0, 1 - 2**-24])
    probs = np.exp(logits - logits.max(1, keepdims=True))
    sums = probs.cumsum(1) / probs.sum(1, keepdims=True)
    for kind, room in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        found = sample(torch.tensor(logits, dtype=kind), torch.tensor(draws)).numpy()
        each = np.arange(400)
        assert (probs[each, found] > 0).all()
        below = np.where(found > 0, sums[each, found - 1], 0)
        assert (below <= draws + room).all() and (draws < sums[each, found] + room).all()


def passages_of(batch: LanguageModelBatch) -> list[list[int]]:
    """Return the places of each passage in the flattened rows, without padding."""
    length = batch.ids.shape[1]
    found = []
    for row, ids in enumerate(batch.ids):
        passages = torch.zeros_like(ids) if batch.passages is None else batch.passages[row]
        for passage in passages.unique():
            places = (passages == passage).nonzero().flatten()
            if ids[places[0]] != 0:
                found.append((row * length + places).tolist())
    return found


def walk(batch: LanguageModelBatch, generator: Any, discriminator: Any) -> tuple[Any, Any, list[tuple[bool, float]]]:
    """Return both losses by transformers, passage by passage, and of each token: was it replaced, and a logit."""
    targets = dict(zip(batch.chosen.tolist(), batch.targets.tolist(), strict=True))
    draws = dict(zip(batch.chosen.tolist(), batch.draws.double().tolist(), strict=True))
    flat = batch.ids.flatten()
    nll, detection, judged = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64), []
    for places in passages_of(batch):
        logits = generator(input_ids=flat[places][None]).logits[0]
        read = flat[places].clone()
        labels = []
        for i, place in enumerate(places):
            if place not in targets:
                labels.append(0)
                continue
            log_probs = logits[i].log_softmax(-1)
            nll = nll - log_probs[targets[place]]
            sums = np.cumsum(log_probs.detach().exp().numpy())
            read[i] = int(np.flatnonzero(sums > draws[place] * sums[-1])[0])
            labels.append(int(read[i] != targets[place]))
        found = discriminator(input_ids=read[None]).logits[0]
        # -log of the probability of each label: log(1 + exp(logit)) less the logit of what was replaced
        detection = detection + torch.log1p(found.exp()).sum() - (found * torch.tensor(labels)).sum()
        judged += list(zip(map(bool, labels), found.tolist(), strict=True))
    return nll, detection, judged


def peers(model: Electra, config: Any, vocab_size: int) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return generator and discriminator of transformers with the same weights, and how their names correspond."""
    transformers = pytest.importorskip("transformers")
    body, own = config.model, config.model.generator_architecture(config.electra.generator_size)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    of_encoder = layout.with_prefix("encoder", layout.bert_body(body, "electra.")) + layout.detection_head()
    of_generator = layout.bert_body(own, "electra.") + layout.bert_head(own, "electra")
    of_generator = layout.with_prefix("generator", of_generator)
    found = []
    for kind, sizes, links in (("MaskedLM", own, of_generator), ("PreTraining", body, of_encoder)):
        described = transformers.ElectraConfig(
            vocab_size=vocab_size,
            embedding_size=body.embedding_width,
            hidden_size=sizes.d_model,
            num_hidden_layers=sizes.n_layers,
            num_attention_heads=sizes.n_heads,
            intermediate_size=sizes.d_ff,
            hidden_act="gelu",
            max_position_embeddings=body.max_length,
            layer_norm_eps=body.norm_eps,
        )
        peer = getattr(transformers, f"ElectraFor{kind}")(described).double().eval()
        missing, left = peer.load_state_dict(layout.to_theirs(links, state), strict=False)
        assert not left and {name for name in missing if "position_ids" not in name} <= {"generator_lm_head.weight"}
        peer.tie_weights()
        found.append(peer)
    return found[0], found[1], of_generator, of_encoder


@pytest.mark.parametrize("narrow", [None, 8, 12])
def test_loss_and_gradients_are_those_of_transformers(workshop: Any, tmp_path: Path, narrow: int | None) -> None:
    """Embeddings as wide as the layers, as the generator's, and between the two; shared gradients add up."""
    config, prepared, model = setting(workshop, tmp_path, **PUBLISHED, model__d_embedding=narrow)
    generator, discriminator, of_generator, of_encoder = peers(model, config, prepared.tokenizer.vocab_size)
    n = len(prepared.train)
    numbers = np.append(np.arange(4), np.arange(n - 5, n))  # the last rows hold several documents
    batch = prepared.train.batch(numbers, 1, 3)
    assert batch.passages is not None and len(batch.chosen) > 20
    nll, detection, judged = walk(batch, generator, discriminator)
    terms = task_of(config).loss(config, model, prepared, CPU)(batch)
    torch.testing.assert_close(terms["nll"].total, nll)
    torch.testing.assert_close(terms["detection"].total, detection)
    counts = prepared.train.counts(numbers, 1, 3)
    assert counts == {"nll": len(batch.targets), "detection": len(judged)}
    assert 0.3 < sum(replaced for replaced, _ in judged) / len(batch.targets) <= 1
    (nll / counts["nll"] + 3 * detection / counts["detection"]).backward()
    sum(term.weight * term.total / counts[name] for name, term in terms.items()).backward()  # type: ignore[union-attr]
    names = dict(model.named_parameters())
    expected = {name: torch.zeros_like(parameter) for name, parameter in names.items()}
    shared = ("embedding.weight", "embedding_norm.", "places.", "segments.")
    for peer, links, prefix in ((generator, of_generator, "generator."), (discriminator, of_encoder, "")):
        theirs = {name: parameter.grad for name, parameter in peer.named_parameters()}
        for link in links:
            own = link.ours.removeprefix(prefix)
            name = f"encoder.{own}" if prefix and own.startswith(shared) else link.ours
            expected[name] += link.join(theirs)
    for name, parameter in names.items():
        assert parameter.grad is not None and bool(parameter.grad.any()), name
        torch.testing.assert_close(
            parameter.grad, expected[name], rtol=1e-8, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_scores_are_those_of_a_walk(workshop: Any, tmp_path: Path) -> None:
    config, prepared, model = setting(workshop, tmp_path, **PUBLISHED)
    evaluation = task_of(config).evaluation(config, prepared, CPU, None)
    found = evaluation(model)
    assert tuple(found) == config.metrics
    lower = {"loss", "detection_loss", "generator_loss"}
    assert {name for name in found if not LimitsConfig(max_steps=1, metric=name).higher_is_better} == lower
    assert evaluation(model) == found and evaluation.samples, "the same tokens are replaced each time"
    generator, discriminator, *_ = peers(model, config, prepared.tokenizer.vocab_size)
    nll = detection = 0.0
    judged: list[tuple[bool, float]] = []
    n_masked = 0
    with torch.no_grad():
        for batch in evaluation.batches():
            a, b, c = walk(batch, generator, discriminator)
            nll, detection, judged, n_masked = (
                nll + float(a),
                detection + float(b),
                judged + c,
                n_masked + len(batch.chosen),
            )
    flagged, replaced = [logit > 0 for _, logit in judged], [was for was, _ in judged]
    right = sum(a and b for a, b in zip(flagged, replaced, strict=True))
    assert right and sum(flagged) != right != sum(replaced)
    assert found["generator_loss"] == pytest.approx(nll / n_masked, rel=1e-5)
    assert found["detection_loss"] == pytest.approx(detection / len(judged), rel=1e-9)
    assert found["loss"] == pytest.approx(nll / n_masked + 3 * detection / len(judged), rel=1e-5)
    assert found["precision"] == pytest.approx(100 * right / sum(flagged))
    assert found["recall"] == pytest.approx(100 * right / sum(replaced))


@pytest.mark.parametrize("units", ["tokens", "words"])
def test_ranks_and_micro_batches_give_the_gradient_of_one(workshop: Any, tmp_path: Path, units: str) -> None:
    """The same tokens are drawn for a row wherever it is computed."""
    _, prepared, model = setting(workshop, tmp_path, masking__mask_unit=units)
    gradients = []
    loss = electra_loss(model, CPU, 0.1, 50.0)
    for world, accumulate in ((1, 1), (2, 2)):
        model.zero_grad()
        for rank in range(world):
            step = BatchLoader(prepared.train, 1, 300, accumulate, rank, world).batch_at(DataPosition(1, 2))[0]
            for batch in step.micro_batches:
                parts = [term.weight * term.total / step.counts[name] for name, term in loss(batch).items()]
                torch.stack(parts).sum().backward()
        gradients.append({key: weight.grad.clone() for key, weight in model.named_parameters()})
    for key, gradient in gradients[0].items():
        assert float((gradients[1][key] - gradient).norm()) <= 1e-9 * float(gradient.norm()), key


def test_epochs_and_seeds_draw_other_tokens(workshop: Any, tmp_path: Path) -> None:
    _, prepared, _ = setting(workshop, tmp_path)
    numbers = np.arange(5)
    draws = [prepared.train.batch(numbers, seed, epoch).draws for seed, epoch in ((1, 0), (1, 0), (2, 0), (1, 1))]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0][:9], draws[2][:9]) and not torch.equal(draws[0][:9], draws[3][:9])
    every = torch.cat(draws)
    assert every.dtype == torch.float32 and float(every.max()) < 1 and 0.4 < float(every.mean()) < 0.6


def test_detection_does_not_train_the_generator(workshop: Any, tmp_path: Path) -> None:
    """No gradient of detection reaches the generator but by what they share (section 2)."""
    _, prepared, model = setting(workshop, tmp_path)
    electra_loss(model, CPU, 0.0, 1.0)(prepared.train.batch(np.arange(5), 1, 0))["detection"].total.backward()
    own = {name: p.grad for name, p in model.named_parameters() if name.startswith("generator.")}
    assert own and all(gradient is None for gradient in own.values())


def test_nothing_is_kept_for_gradients_through_the_draws(workshop: Any, tmp_path: Path) -> None:
    """Tokens have no gradient, so logits (N, V) of the generator would be kept in vain."""
    _, prepared, model = setting(workshop, tmp_path)
    batch = prepared.train.batch(np.arange(5), 1, 0)
    rows = torch.randn(len(batch.chosen), model.generator.output.in_features).double().requires_grad_()
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        model.replace(batch.ids, rows, batch.chosen, batch.draws)
        assert not kept
        model.generator.output(rows).softmax(-1)
    assert kept, "with gradients"


def test_chunks_of_logits_give_the_tokens_of_one(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, prepared, model = setting(workshop, tmp_path)
    batch = prepared.train.batch(np.arange(5), 1, 0)
    n, output = len(batch.chosen), model.generator.output
    rows = 3 * torch.randn(n, output.in_features).double()
    with torch.no_grad():
        expected = batch.ids.clone().view(-1)
        expected[batch.chosen] = sample(output(rows), batch.draws)
    assert n > 7 and len(expected[batch.chosen].unique()) > 5
    for size in (1, 3, n):
        monkeypatch.setattr(electra, "_MAX_LOGITS_ON_CPU", size * output.out_features)
        assert torch.equal(model.replace(batch.ids, rows, batch.chosen, batch.draws).view(-1), expected), size


def test_an_evaluation_passes_the_generator_once(workshop: Any, tmp_path: Path) -> None:
    config, prepared, model = setting(workshop, tmp_path)
    evaluation, calls = task_of(config).evaluation(config, prepared, CPU, None), []
    model.generator.predictor.register_forward_hook(lambda *given: calls.append(len(given)))
    evaluation(model)
    assert len(calls) == len(list(evaluation.batches())) + len(evaluation.samples)


def test_bfloat16_is_near_float32(workshop: Any, tmp_path: Path) -> None:
    _, prepared, model = setting(workshop, tmp_path)
    batch = prepared.train.batch(np.arange(20), 1, 0)
    exact = electra_loss(model.float(), CPU, 0.0, 1.0)(batch)
    rough = electra_loss(model.bfloat16(), CPU, 0.0, 1.0)(batch)
    for name, term in rough.items():
        assert term.total.dtype == torch.float32
        torch.testing.assert_close(
            term.total, exact[name].total, rtol=0.03, atol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_generators_have_a_share_of_the_heads() -> None:
    config = BertConfig(d_model=256, n_heads=4, d_ff=1024)
    small = config.generator_architecture(0.25)
    assert (small.n_heads, small.d_model, small.d_ff, small.d_embedding) == (1, 64, 256, 256)
    assert small.n_layers == config.n_layers
    assert BertConfig(d_model=256, n_heads=4, d_embedding=64).generator_architecture(0.25).d_embedding is None
    assert config.generator_architecture(0.5).d_model == 128 and config.generator_architecture(0.01).n_heads == 1
    assert config.generator_architecture(1.0).model_copy(update={"pooler": "auto"}) == config
    mixed = BertConfig.model_validate(
        {"d_model": 32, "n_heads": 4, "alignment": ["dot", "scaled_dot", "general", "dot"]}, strict=False
    )
    assert mixed.generator_architecture(0.5).heads == mixed.heads[:2]


def test_embeddings_are_shared_and_stored_once(workshop: Any, tmp_path: Path) -> None:
    _, _, model = setting(workshop, tmp_path, **PUBLISHED)
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if name.startswith(("generator.embedding.", "generator.output.weight"))]
    assert not [name for name in names if name.startswith(("generator.places", "generator.embedding_norm"))]
    assert model.generator.output.weight is model.encoder.embedding.weight
    assert {"generator.embedding_map.weight", "generator.output.bias", "detector.output.bias"} <= set(names)


def test_labels_smooth_the_generator_alone(workshop: Any, tmp_path: Path) -> None:
    _, prepared, model = setting(workshop, tmp_path)
    batch = prepared.train.batch(np.arange(5), 1, 0)
    plain, smooth = (electra_loss(model, CPU, share, 1.0)(batch) for share in (0.0, 0.1))
    assert plain["detection"].total == smooth["detection"].total and plain["nll"].total != smooth["nll"].total
    torch.testing.assert_close(plain["nll"].reported, smooth["nll"].reported)


def test_a_batch_without_masks_is_all_original(workshop: Any, tmp_path: Path) -> None:
    _, prepared, model = setting(workshop, tmp_path)
    batch = prepared.train.batch(np.arange(5), 1, 0)
    assert batch.passages is None
    text = batch.ids.clone()
    text.view(-1)[batch.chosen] = batch.targets
    without = replace(batch, ids=text, chosen=batch.chosen[:0], targets=batch.targets[:0], draws=batch.draws[:0])
    nothing = electra_loss(model, CPU, 0.0, 1.0)(without)
    assert nothing["nll"].total.item() == 0
    logits = model.detector(model.encoder.hidden(text, PackedLayout.unpacked(5)))
    torch.testing.assert_close(nothing["detection"].total, torch.log1p(logits.exp()).sum())
    nothing["detection"].total.backward()
