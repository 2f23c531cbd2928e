"""Auto-encoding task for lines (recurrent model) and vectors (MLP)."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import device as Device
from torch import nn

from attnkit.checkpoints.arrays import check_min_parameters
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.arrays import map_npy, read_vectors
from attnkit.data.config import NoiseConfig
from attnkit.data.corpus import load_examples
from attnkit.data.denoising import LineDataset, VectorBatch
from attnkit.data.store import Store
from attnkit.engine.dry_run import SAMPLE, estimate
from attnkit.engine.events import PrepareEvent
from attnkit.engine.examples import estimate_examples, prepare_examples
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq import seq2seq_loss
from attnkit.engine.task import Evaluation, LossFunction, RunEstimate, Stop, Task
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.models.autoencoder import SequenceAutoencoder, VectorAutoencoder
from attnkit.tasks.autoencoding.config import AutoencodeConfig
from attnkit.tasks.autoencoding.lines import LineCorpus, LinesEvaluation, PreparedLines
from attnkit.tasks.autoencoding.vectors import (
    PreparedVectors,
    VectorsEvaluation,
    load_vectors,
    prepare_vectors,
    read_width,
)
from attnkit.training.losses import LossTerm

Prepared = PreparedLines | PreparedVectors


class AutoencodingTask(Task[AutoencodeConfig, Prepared, nn.Module]):
    """Auto-encoding of lines (recurrent model) or of vectors (MLP)."""

    def prepare(
        self, config: AutoencodeConfig, folder: Path, source: Checkpoint | None, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if config.model.kind == "mlp":
            return prepare_vectors(config, folder, origin)
        return prepare_examples(config, folder, source, origin, lambda source: LineCorpus(config))

    def load_data(self, config: AutoencodeConfig, folder: Path) -> Prepared:
        if config.model.kind == "mlp":
            return load_vectors(config, folder)
        noise = {"train": config.noise, "valid": NoiseConfig()}
        return load_examples(folder, lambda path, _: LineDataset(Store.open(path), noise[path.name]), list)

    def build_model(self, config: AutoencodeConfig, data: Prepared) -> nn.Module:
        if not isinstance(data, PreparedVectors):
            assert config.model.kind == "rnn"
            return SequenceAutoencoder(config.model, data.tokenizer.vocab_size)
        assert config.model.kind == "mlp"
        model, mean = VectorAutoencoder(config.model, data.train.width), data.train.mean
        spread = math.sqrt(data.train.spread(mean))
        model.centre(torch.from_numpy(mean), spread if spread > 0 and math.isfinite(spread) else 1.0)
        return model

    def evaluation(self, config: AutoencodeConfig, data: Prepared, device: Device, stop: Stop | None) -> Evaluation:
        if isinstance(data, PreparedVectors):
            return VectorsEvaluation(data, device, stop)
        return LinesEvaluation(data, device, config.evaluation.n_samples, stop)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: AutoencodeConfig) -> nn.Module:
        self.check_compatible(checkpoint, config)
        if config.model.kind == "mlp":
            return VectorAutoencoder(config.model, read_width(checkpoint))
        return SequenceAutoencoder(config.model, read_tokenizer(checkpoint).vocab_size)

    def check_compatible(self, checkpoint: Checkpoint, config: AutoencodeConfig) -> None:
        vectors = config.model.kind == "mlp"
        size = read_width(checkpoint) if vectors else read_tokenizer(checkpoint).vocab_size
        check_min_parameters(checkpoint, config.model.min_parameters(size))

    def model_card(self, config: AutoencodeConfig, name: str) -> ModelCardFields:
        text = config.model.kind == "rnn"
        scored = ": nats per token; exact in percent of lines." if text else ": mean squared error per number."
        model = f"{config.model.kind}, code size {config.model.d_code}"
        return ModelCardFields(
            what=f"An auto-encoder of {'lines' if text else 'vectors'} ({model})",
            data=[f"`{path}`" for path in config.data.files],
            scored=scored,
            use=f"attnkit embed {name} {'input.txt' if text else 'input.npy'} -o codes.npy",
            hub_task="feature-extraction",
        )

    def dry_run(self, config: AutoencodeConfig, init_from: Path | None = None) -> RunEstimate:
        paths, model = [Path(name) for name in config.data.files], config.model
        if model.kind == "mlp":
            width = next(read_vectors(paths[0])).shape[1]
            tables = ([map_npy(path)] if path.suffix == ".npy" else read_vectors(path, width) for path in paths)
            n_rows = sum(len(part) for table in tables for part in table)
            return estimate(config, n_rows, 2.0 * n_rows, lambda: VectorAutoencoder(model, width), width, "vectors")
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        return estimate_examples(config, source, LineCorpus(config, SAMPLE), partial(SequenceAutoencoder, model))

    def loss(self, config: AutoencodeConfig, model: nn.Module, data: Prepared, device: Device) -> LossFunction:
        if not isinstance(data, PreparedVectors):
            return seq2seq_loss(cast(SequenceAutoencoder, model), device, config.optimization.label_smoothing)

        def loss(batch: VectorBatch) -> dict[str, LossTerm]:
            batch = batch.to(device)
            error = model(batch.noisy) - batch.clean
            # The loss is in the scale of the model, the reported error in that of the data.
            total = (error / cast(VectorAutoencoder, model).scale).square().sum()
            return {"error": LossTerm(total, reported=error.detach().square().sum())}

        return loss


TASK = AutoencodingTask()
