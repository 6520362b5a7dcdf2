"""Python calls the C++ as the C++ declares it, and refuses what it does not take by the names of the declaration."""

import re
from pathlib import Path

import pytest
import torch
from compiled import compiled_kernels

from ramet.kernels.cpu.build import FOLDER
from ramet.kernels.cpu.declarations import NativeFunction, functions, native
from ramet.kernels.cpu.native import Natives

ROOT = Path(__file__).parents[2]
CALLED = re.compile(
    r'(?:native|direct)\.(\w+)\b|native\([\w.]*library, "(\w+)"\)|'
    r'return \(?"(\w+)", \*|return "(\w+)", self|\("(\w+)", \*'
)
each_function = pytest.mark.parametrize("function", functions().values(), ids=list(functions()))


def test_every_function_of_the_sources_is_understood() -> None:
    lines = [line for path in FOLDER.glob("*.cpp") for line in path.read_text().splitlines() if 'extern "C"' in line]
    assert len(functions()) == len([line for line in lines if "ramet_identity" not in line])


@each_function
def test_a_library_has_what_its_sources_declare(function: NativeFunction) -> None:
    assert native(compiled_kernels().library, function.name)


def test_python_calls_every_function() -> None:
    texts = [path.read_text() for room in ("kernels/cpu", "runtime") for path in (ROOT / room).rglob("*.py")]
    called = {name for text in texts for names in CALLED.findall(text) for name in names if name}
    assert not functions().keys() - called


@each_function
def test_too_few_arguments_are_an_error_that_names_the_function(function: NativeFunction) -> None:
    call, num = getattr(Natives(compiled_kernels().library), function.name), len(function.parameters)
    if num:
        with pytest.raises(TypeError, match=rf"^{function.name}\(\) missing 1 .* '{function.parameters[-1].name}_?'$"):
            call(*[0] * (num - 1))
    with pytest.raises(TypeError, match=rf"^{function.name}\(\) takes {num} .* {num + 1} w"):
        call(*[0] * (num + 1))


@each_function
def test_a_wrong_argument_is_an_error_that_names_it(function: NativeFunction) -> None:
    ops = compiled_kernels()
    for at, parameter in enumerate(function.parameters):
        wrong = torch.zeros(1, dtype=torch.complex64) if parameter.type in ("float", "int32_t", "int64_t") else 1.5
        wrong = "1" if parameter.type == "float" and not parameter.is_pointer else wrong
        arguments = [wrong if i == at else 0 for i in range(len(function.parameters))]
        with pytest.raises(
            TypeError, match=rf"^{function.name}: {parameter.name} is .*, must be {re.escape(str(parameter))}$"
        ):
            getattr(Natives(ops.library), function.name)(*arguments)


def test_a_recorded_call_refuses_what_the_function_does() -> None:
    ops = compiled_kernels()
    table, ids = torch.ones(3, 2), torch.tensor([1], dtype=torch.int32)
    with ops.recorded() as tape:
        with pytest.raises(TypeError, match=r"^gather: ids is a tensor of torch.int32, must be int64_t \*ids$"):
            ops.gather(table, ids, 1.0)
        with pytest.raises(TypeError, match=r"^gather: tokens is 0\.5, must be int64_t tokens$"):
            ops.native.gather(0, table, ids.long(), 1.0, table, 0.5, 2, 1)
    assert not len(tape)
