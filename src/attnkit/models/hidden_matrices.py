"""Matrices of hidden layers, and the maps that each of them holds."""

from itertools import chain

from torch import nn

from attnkit.models.attention.multihead import MultiHeadAttention
from attnkit.models.linear import PerHeadLinear
from attnkit.models.lora import row_blocks


def hidden_matrices(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return name -> rows of each map, for the trainable matrices of hidden layers.

    Excluded are embeddings, position tables and output layers, and matrices with a single row or column. Query, key and
    value are a map each, as are the gates of a recurrent cell, and weights per head (H, rows, columns) one per head.
    """
    modules = dict(model.named_modules())
    embedded = {id(module.weight) for module in modules.values() if isinstance(module, nn.Embedding)}
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    # Without embeddings, the first linear map reads the data and the last one reconstructs them.
    ends = () if embedded else (*linear[:1], *linear[-1:])
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    rows: dict[str, tuple[int, ...]] = {}
    for path, module in modules.items():
        parent, _, own = path.rpartition(".")
        if isinstance(module, nn.RNNBase):
            for name, parameter in module.named_parameters(prefix=path, recurse=False):
                if parameter.dim() == 2:
                    rows[name] = (module.hidden_size,) * (len(parameter) // module.hidden_size)
        elif isinstance(module, PerHeadLinear):
            n_heads, n_rows, _ = module.weight.shape
            rows[f"{path}.weight"] = (n_rows,) * n_heads
        elif isinstance(module, nn.Linear) and path not in ends and id(module.weight) not in embedded:
            # All output layers are called so, and so is the last map of an attention.
            if own != "output" or isinstance(modules[parent], MultiHeadAttention):
                blocks = row_blocks(f"{path}.weight", shapes)
                rows[f"{path}.weight"] = tuple(b.rows.stop - b.rows.start for b in blocks) or (module.out_features,)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: sizes for name, sizes in rows.items() if name in trained and min(chain(sizes, shapes[name][-1:])) > 1}
