"""Counters of a service in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from attnkit.serving.models import Models

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of answering times."""
_BOUNDS = (*SECONDS, float("inf"))
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Numbers of requests and their times; those of models are read from their queues."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  #: (route, status) -> requests
        self._seconds: Counter[tuple[str, float]] = Counter()
        self._total: Counter[str] = Counter()

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[route, status] += 1
        self._seconds[route, _BOUNDS[bisect_left(_BOUNDS, seconds)]] += 1
        self._total[route] += seconds  # type: ignore[assignment]

    def text(self, models: Models) -> str:
        """Return all counters in Prometheus' text format, version 0.0.4."""
        return "".join(f"{line}\n" for line in self._lines(models))

    def _lines(self, models: Models) -> Iterator[str]:
        yield from _header("attnkit_requests_total", "counter", "Answered requests.")
        for (route, status), n in sorted(self.requests.items()):
            yield f'attnkit_requests_total{{route="{route}",status="{status}"}} {n}'
        yield from _header("attnkit_request_seconds", "histogram", "Time from request to answer.")
        for route in sorted(self._total):
            counts = {bound: self._seconds[route, bound] for bound in (*SECONDS, float("inf"))}
            yield from _histogram("attnkit_request_seconds", f'route="{route}"', counts.items(), self._total[route])
        served = models.by_name.values()
        yield from _header("attnkit_model_up", "gauge", "1 for a model that is served, 0 for one that is not.")
        for name in (*models.by_name, *models.failed):
            yield f'attnkit_model_up{{model="{_label(name)}"}} {int(name in models.by_name)}'
        yield from _header("attnkit_waiting_lines", "gauge", "Lines that wait for a model.")
        for model in served:
            yield f'attnkit_waiting_lines{{model="{_label(model.name)}"}} {model.batcher.n_waiting}'
        yield from _header("attnkit_waiting_characters", "gauge", "Characters that wait for a model.")
        for model in served:
            yield f'attnkit_waiting_characters{{model="{_label(model.name)}"}} {model.batcher.n_characters}'
        yield from _header("attnkit_lines_total", "counter", "Lines that models have processed.")
        for model in served:
            yield f'attnkit_lines_total{{model="{_label(model.name)}"}} {model.batcher.counts.n_lines}'
        yield from _header("attnkit_model_seconds_total", "counter", "Time in models.")
        for model in served:
            yield f'attnkit_model_seconds_total{{model="{_label(model.name)}"}} {model.batcher.counts.seconds:.6f}'
        yield from _header("attnkit_reloads_total", "counter", "Models that were replaced by newer checkpoints.")
        for model in served:
            yield f'attnkit_reloads_total{{model="{_label(model.name)}"}} {model.n_reloads}'
        yield from _header("attnkit_batch_lines", "histogram", "Lines of a batch.")
        for model in served:
            sizes = dict(model.batcher.counts.sizes)
            counts = dict.fromkeys((*SIZES, float("inf")), 0)
            for size, n in sizes.items():
                counts[next((bound for bound in SIZES if size <= bound), float("inf"))] += n
            total = sum(size * n for size, n in sizes.items())
            yield from _histogram("attnkit_batch_lines", f'model="{_label(model.name)}"', counts.items(), total)


def _label(text: str) -> str:
    """Return the value of a label: names of models may be names of folders."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _header(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _histogram(name: str, label: str, counts: Iterable[tuple[float, int]], total: float) -> Iterator[str]:
    """Yield the lines of a histogram; ``counts`` has numbers per bucket, in order."""
    n = 0
    for bound, count in counts:
        n += count
        shown = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{shown}"}} {n}'
    yield f"{name}_sum{{{label}}} {total:.6f}"
    yield f"{name}_count{{{label}}} {n}"
