"""Compile loops to object code; ``native`` runs this in a subprocess.

It writes three parts to standard output: the key of the sources that it has compiled, one line of JSON with the
functions' symbols, and the object code.
"""

import json
import os
import sys
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from attnkit.kernels.native import Loops, compute_key
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.runtime.signals import end_with_parent


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
            values.append(np.zeros([1] * DIMENSIONS.get(name, 1), dtype_of(hint)))
    return kind(*values)


def dtype_of(hint: Any) -> type[np.generic]:
    """Return the type of an array's elements from the annotation of the array.

    In some versions of numpy, ``NDArray[T]`` is ``ndarray[shape, dtype[T]]``, in others an alias with the argument T.
    """
    if _is_dtype(hint):
        found: type[np.generic] = hint
        return found
    (found,) = {dtype_of(part) for part in get_args(hint) if _has_dtype(part)}
    return found


def _has_dtype(hint: Any) -> bool:
    return _is_dtype(hint) or any(_has_dtype(part) for part in get_args(hint))


def _is_dtype(hint: Any) -> bool:
    # Python 3.10 says that ``list[int]`` is a type.
    return get_origin(hint) is None and isinstance(hint, type) and issubclass(hint, np.generic)


def _arguments(name: str) -> list[Any]:
    """Return examples of a function's arguments."""
    from attnkit.kernels import layout

    model, sentences, buffers, states = (
        example(kind) for kind in (layout.Model, layout.Sentences, layout.Buffers, layout.States)
    )
    numbers, address, n = np.zeros(1, np.int64), 0, 0
    search = [model, sentences, *(example(kind) for kind in (layout.Settings, layout.Work, layout.Results)), numbers]
    return {
        "greedy": search,
        "beam": search,
        "encode": [model, sentences, n, n, numbers, address, n, buffers],
        "decode": [model, n, states, n, n, buffers, address],
        "features": [model, sentences, n, n, n, numbers, buffers, address],
        "extend": [model, n, states, n, buffers, address],
        "project": [model, address, n, buffers, address],
    }[name]


def compile_loops(loops: Loops, target: Target, precision: Precision) -> tuple[dict[str, str], bytes]:
    """Return the symbols of compiled functions and their object code."""
    import numba
    from llvmlite import binding

    from attnkit.kernels import generation, transformer, translation
    from attnkit.kernels.jit import FAST

    _make_no_machine_code()
    build: dict[Loops, Any] = {
        "search": translation.build_searches,
        "steps": transformer.build_steps,
        "encoder": transformer.build_encoder,
        "generator": generation.build_generator,
    }
    symbols, module = {}, None
    for name, function in build[loops](target, precision).items():
        types = tuple(numba.typeof(value) for value in _arguments(name))
        if target.has_matrix_tiles:
            function, types = _with_tiles(function), (numba.types.Tuple(types),)
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


def _with_tiles(function: Any) -> Any:
    """Return a function that configures AMX's tiles around another one."""
    from attnkit.kernels.jit import no_refcount
    from attnkit.kernels.simd.matrix import begin_tiles, end_tiles

    @no_refcount
    def call(*arguments: Any) -> Any:
        begin_tiles()
        function(*arguments)
        end_tiles()

    return call


def _make_no_machine_code() -> None:
    """Keep numba from making machine code and wrappers; LLVM's code is enough.

    Each would take a quarter of the time. These are internals of numba: where they change, compiling takes longer.
    """
    from numba.core.codegen import JITCodeLibrary
    from numba.core.cpu import CPUContext

    def get_executable(context: Any, library: Any, *rest: Any) -> Any:
        library._ensure_finalized()
        return [].append  # numba knows a function by this object, which is never called

    JITCodeLibrary._finalize_specific = lambda library: None  # type: ignore[method-assign]
    CPUContext.get_executable = get_executable  # type: ignore[method-assign]
    # Python and C call none of the inner functions.
    CPUContext.create_cpython_wrapper = lambda self, *rest, **options: None  # type: ignore[method-assign]
    CPUContext.create_cfunc_wrapper = lambda self, *rest, **options: None  # type: ignore[method-assign]


def main(loops: Loops, target: Target, precision: Precision, parent: int) -> None:
    """Compile and write the result; whatever else is printed goes to standard error."""
    end_with_parent(parent)
    output = os.dup(1)
    os.dup2(2, 1)
    key = compute_key(target, precision)
    symbols, code = compile_loops(loops, target, precision)
    sys.stdout.flush()
    os.dup2(output, 1)
    sys.stdout.buffer.write(b"\n".join([key.encode(), json.dumps(symbols).encode(), code]))
