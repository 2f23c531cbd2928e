"""Descriptions of configuration keys: the docstrings under the fields of a model.

They are read from the sources when asked for: pydantic would read them whenever a command starts.
"""

import ast
import inspect
import textwrap

from pydantic import BaseModel


def describe_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field that has one, those of base classes included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value is not None:
                found[field.target.id] = inspect.cleandoc(str(below.value.value))
    # A type that several models share may describe itself.
    found |= {name: field.description for name, field in model.model_fields.items() if field.description}
    return {name: found[name] for name in model.model_fields if name in found}
