"""Word vectors as a task: a run of its own compiled loop instead of gradients by torch. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_state
from attnkit.engine.session import TrainingSession, TrainRequest
from attnkit.engine.task import RunEstimate, Task
from attnkit.errors import UsageError
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.estimate import estimate
from attnkit.tasks.word2vec.initial import check_init_vectors
from attnkit.tasks.word2vec.plan import piece_size
from attnkit.tasks.word2vec.session import Word2VecSession
from attnkit.tasks.word2vec.workload import check_available, copies


class Word2VecTask(Task[Word2VecConfig, Any, Any]):
    """Skip-gram, CBOW and GloVe."""

    def session(self, request: TrainRequest) -> TrainingSession:
        config = cast(Word2VecConfig, request.config)
        if request.init_from is not None:
            raise UsageError(
                "word vectors are initialized by a key", where="--init-from", help="use --set init_from=RUN"
            )
        if config.init_from is not None and Path(config.init_from).resolve() == request.path.resolve():
            raise UsageError("a run cannot be initialized from itself", where="--init-from", help="choose another -o")
        if request.overwrite or not RunFolder(request.path).steps():
            check_available(config)
            check_init_vectors(config)
        return Word2VecSession(request)

    def dry_run(self, config: Word2VecConfig, init_from: Path | None = None) -> RunEstimate | None:
        found = estimate(config)
        if found is None:
            return None
        n_words = f"{found.n_words:,}" if found.share == 1 else f"about {found.n_words:,}"
        read = "all text" if found.share == 1 else f"the first {found.share:.2%} of the text"
        return RunEstimate(
            n_examples=found.n_raw,
            n_parameters=sum(shape.n * shape.width for shape in mats.shapes(config, found.n_words).values()),
            tokens_per_epoch=found.n_raw,
            steps_per_epoch=-(-found.n_raw // piece_size(found.n_raw, copies(config))),
            memory=found.memory,
            device="cuda" if config.device == "cuda" else "cpu",
            precision="float32",
            unit="words",
            disk=found.disk,
            seconds=found.seconds,
            note=f"{n_words} words get a vector (counted in {read})",
        )

    def check_compatible(self, checkpoint: Checkpoint, config: Word2VecConfig) -> None:
        mats.read(checkpoint, mats.shapes(config, len(mats.read_words(checkpoint))))

    def find_errors(self, checkpoint: Checkpoint, config: Word2VecConfig) -> Iterator[str]:
        read_state(checkpoint)
        self.check_compatible(checkpoint, config)
        return iter(())


TASK = Word2VecTask()
