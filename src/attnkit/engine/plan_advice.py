"""Advice on the size of models and corpora, by published results. Torch-free."""

TOKENS_PER_PARAMETER = 20  #: of compute-optimal training (Hoffmann et al. 2022, table 3)
MAX_REPEATS = 4  #: epochs up to which repeated text is almost as good as new (Muennighoff et al. 2023, abstract)
FEW_TOKENS = 0.002  #: tokens per parameter in the text of a translator below which it mostly learns it by heart
FEW_PAIRS = 200_000  #: below, smaller models than the usual ones are better (Araabi and Monz 2020)
PUBLISHED = ((4_500_000, "base", 65e6, 5e9), (4_500_000, "big", 213e6, 15e9), (36_000_000, "big", 213e6, 15e9))
"""Pairs, model, parameters and tokens of Vaswani et al. 2017: tables 2 and 3, sections 5.1 and 5.2; steps times about
50,000 tokens of both sides."""


def advise(task: str, n_parameters: int, n_examples: int, tokens: float, tokens_per_epoch: float) -> list[str]:
    """Return what published results say of a run; nothing for masked language models."""
    if task == "clm":
        return _of_language_models(n_parameters, tokens, tokens_per_epoch)
    return _of_translation(n_parameters, n_examples) if task == "translation" else []


def warn_of_size(n_parameters: int, tokens_per_epoch: float) -> str:
    """Return a warning if a translator is far too large for its text, else nothing.

    >>> warn_of_size(46_000_000, 40_000)
    '46 million parameters for a text of 40,000 tokens: a smaller model learns more, such as --preset tiny'
    """
    if tokens_per_epoch >= FEW_TOKENS * n_parameters:
        return ""
    what = f"{n_parameters / 1e6:.2g} million parameters for a text of {round(tokens_per_epoch):,} tokens"
    return f"{what}: a smaller model learns more, such as --preset tiny"


def _of_language_models(n_parameters: int, tokens: float, tokens_per_epoch: float) -> list[str]:
    # The compute of N parameters and D tokens is 6 N D, so 20 tokens per parameter need sqrt(N D / 20) parameters.
    best = (n_parameters * tokens / TOKENS_PER_PARAMETER) ** 0.5
    found = [
        f"{tokens / n_parameters:.3g} tokens per parameter; about {TOKENS_PER_PARAMETER} make the most of the compute "
        f"(Hoffmann et al. 2022, table 3): here {best / 1e6:.2g} million parameters and "
        f"{TOKENS_PER_PARAMETER * best / 1e6:.2g} million tokens"
    ]
    if (epochs := tokens / max(1.0, tokens_per_epoch)) > MAX_REPEATS:
        what = f"{epochs:.3g} epochs: beyond {MAX_REPEATS}, repeated text is worth less than new text"
        found.append(f"{what} (Muennighoff et al. 2023)")
    return found


def _of_translation(n_parameters: int, n_pairs: int) -> list[str]:
    if n_pairs < FEW_PAIRS:
        what = "fewer layers and heads, a smaller vocabulary and more dropout than in a base model"
        return [f"for {n_pairs:,} pairs: {what} (Araabi and Monz 2020)"]
    sizes = "; ".join(
        f"{size / 1e6:.0f} million ({name}) for {pairs / 1e6:g} million pairs, on {tokens / 1e9:g} billion tokens"
        for pairs, name, size, tokens in PUBLISHED
    )
    return [f"published sizes: {sizes} (Vaswani et al. 2017); here {n_parameters / 1e6:.3g} million"]
