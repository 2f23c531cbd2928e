"""Compile the searches to object code; ``native`` runs this in a subprocess.

It writes three parts to standard output: the key of the sources that it has compiled, one line of JSON with the
functions' symbols, and the object code.
"""

import json
import os
import sys
from typing import Any, get_args, get_type_hints

import numpy as np

from attnkit.kernels.native import compute_key
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.runtime.children import end_with_parent


def example(kind: Any) -> Any:
    """Return a value of a named tuple's fields: small arrays and zeros."""
    from attnkit.kernels.layout import DIMENSIONS

    values = []
    for name, hint in get_type_hints(kind).items():
        if hint in (int, float):
            values.append(hint(0))
        elif hasattr(hint, "_fields"):
            values.append(example(hint))
        else:
            dtype = get_args(get_args(hint)[1])[0]
            values.append(np.zeros([1] * DIMENSIONS.get(name, 1), dtype))
    return kind(*values)


def compile_searches(target: Target, precision: Precision) -> tuple[dict[str, str], bytes]:
    """Return the symbols of the compiled searches and their object code."""
    import numba
    from llvmlite import binding

    from attnkit.kernels.jit import FAST
    from attnkit.kernels.layout import Model, Results, Sentences, Settings, Work
    from attnkit.kernels.translation import build_searches

    values = [example(kind) for kind in (Model, Sentences, Settings, Work, Results)]
    types = tuple(numba.typeof(value) for value in [*values, np.zeros(1, np.int64)])  # the last one is ``stop``
    symbols, module = {}, None
    for name, function in build_searches(target, precision).items():
        options: dict[str, Any] = {**FAST, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        native = numba.njit(**options)(function.py_func)
        native.compile(types)
        compiled = native.overloads[types]
        symbols[name] = compiled.fndesc.llvm_func_name
        own = binding.parse_assembly(compiled.library.get_llvm_str())
        if module is None:
            module = own
        else:
            module.link_in(own)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=target.cpu or binding.get_host_cpu_name(),
        features=target.features if target.cpu else binding.get_host_cpu_features().flatten(),
        opt=3,
        codemodel="jitdefault",
    )
    assert module is not None
    # numba would optimize a function again in each of its callers: all of it is optimized once, here.
    tuning: Any = binding.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = tuning.slp_vectorization = False  # vectors are explicit, the rest is control
    passes = binding.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return symbols, machine.emit_object(module)


def main(target: Target, precision: Precision, parent: int) -> None:
    """Compile and write the result; whatever else is printed goes to standard error."""
    end_with_parent(parent)
    output = os.dup(1)
    os.dup2(2, 1)
    key = compute_key(target, precision)
    symbols, code = compile_searches(target, precision)
    sys.stdout.flush()
    os.dup2(output, 1)
    sys.stdout.buffer.write(b"\n".join([key.encode(), json.dumps(symbols).encode(), code]))
