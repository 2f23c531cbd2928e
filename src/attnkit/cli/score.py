"""``attnkit score``: log-probabilities of given translations."""

from json import dumps
from typing import Annotated, Any

from typer import Option

from attnkit.cli import options


def command(
    run: options.RunPath,
    src: options.Source,
    tgt: options.Target,
    output: options.OutputFile = None,
    summary: options.Summary = False,
    split: options.Split = "auto",
    batch_size: Annotated[int, Option(min=1, help="Pairs per batch.")] = 64,
    checkpoint: options.CheckpointName = None,
    adapter: options.Adapter = None,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    src_lang: options.SourceLanguage = None,
    tgt_lang: options.TargetLanguage = None,
    quiet: options.Quiet = False,
    json: options.JsonPairs = False,
    return_token_scores: options.ReturnTokenScores = False,
) -> None:
    """Print natural log-probabilities, one line per pair; totals go to stderr.

    \b
    Examples:
      attnkit score run test.en test.de
      attnkit score run test.en test.de --summary --json
      attnkit score run test.en test.de --json --return-token-scores
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.text.lines import check_not_overwriting

    if return_token_scores and (summary or not json):
        help = "remove --summary" if json else "add --json"
        raise UsageError("--return-token-scores requires --json", where="--return-token-scores", help=help)
    check_not_overwriting(output, [src, tgt])  # before torch is loaded
    from attnkit.data.loader import Batching
    from attnkit.tasks.translation.directions import LanguagePair, find_direction
    from attnkit.tasks.translation.engines import EngineSearch
    from attnkit.tasks.translation.loading import open_run
    from attnkit.tasks.translation.score import Total, score_pairs
    from attnkit.tasks.translation.segmenting import Segmenter
    from attnkit.tasks.translation.signs import SignCounts
    from attnkit.tasks.translation.translated_line import score_tokens
    from attnkit.text.parallel import read_parallel

    total, counts = Total(), SignCounts()
    opened = open_run(run, checkpoint, adapter)
    for warning in opened.warnings:
        console.warn(warning)
    direction = find_direction(opened, LanguagePair(src_lang, tgt_lang))
    searcher = EngineSearch([opened], device, precision, engine=engine, threads=threads, notify=console.warn)
    scorer, where = searcher.load_scorer()
    longest = opened.config.max_source - len(direction.tag)
    segmenter = Segmenter(direction.src_tokenizer, longest, opened.source_statistics, split)
    segmenter.tell = console.info
    with atomic.open_output(output) as stream:
        pairs, names = read_parallel(src, tgt), (str(src), str(tgt))
        for score in score_pairs(opened, scorer, where, pairs, Batching(batch_size), names, segmenter, direction):
            total.add(score)
            signs = score.signs
            counts.add(signs, line=total.n_pairs)
            if not summary:
                plain: dict[str, Any] = {"log_prob": score.log_prob, "tokens": score.n_tokens, "signs": signs}
                if return_token_scores:
                    plain["token_scores"] = score_tokens(opened.tgt_tokenizer, score.ids, score.log_probs)
                stream.write((dumps(plain, ensure_ascii=False) if json else f"{score.log_prob:.6f}") + "\n")
        totals = {"pairs": total.n_pairs, "tokens": total.n_tokens, "log_prob": total.log_prob}
        totals["perplexity"] = total.perplexity
        if json:
            stream.write(dumps(totals) + "\n")
    said = f"{total.n_pairs:,} pairs, {total.n_tokens:,} target tokens, perplexity {total.perplexity:.4f}"
    (console.result if summary and not json else console.info)(said)
    if found := counts.as_text("pairs"):
        console.info(found if json else f"{found} (--json flags each)")
