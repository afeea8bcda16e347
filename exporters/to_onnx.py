"""Export a model's tensor programs to ONNX, with the files that their use needs and an example of it.

`exporters/onnx` describes the programs of each family of models. Each program is compared in onnxruntime with the model
on fresh inputs of varying sizes. An example, which imports nothing of this project, shows how to use them.
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.errors import as_user_error
from exporters import export_folder, onnx
from exporters.cards import identity
from exporters.onnx import FRESH, TOLERANCE, Program
from models import io

OPSET = 20
EXAMPLE = "example.py"


def export(run: Path, model_folder: Path, out: Path) -> str:
    """Write the programs and the example, prove them equal on fresh inputs, and write the manifest if they are."""
    model = io.load(model_folder).float()
    with as_user_error(f"{model_folder} cannot be exported to ONNX: "):
        artifact = onnx.describe(model)
    print(f"converting by torch, then comparing {FRESH} answers: up to a minute on one core", flush=True)
    files = {f"{program.name}.onnx": converted(program) for program in artifact.programs}
    files |= {EXAMPLE: artifact.example, **artifact.files}
    export_folder.begin(out, files, model_folder)
    programs = {program.name: _proved(program, out) for program in artifact.programs}
    facts = identity("onnx", run, model_folder, model)
    size = export_folder.finish(out, tuple(files), {**facts, "opset": OPSET, "programs": programs})
    worst = max(each["largest_difference"] for each in programs.values())
    written = f"{facts['num_parameters']:,} parameters, {size:,} bytes in {len(programs)} programs"
    return f"{out}: {written}, at most {worst:.2g} from the model on {FRESH} fresh inputs"


def converted(program: Program) -> bytes:
    """Convert a program to ONNX, without traces of the machine that converted it."""
    # Torch warns of each library whose operators it could have translated.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    sizes: dict[str, torch.export.Dim] = {}
    shapes = [
        {axis: sizes.setdefault(name, torch.export.Dim(name)) for axis, name in axes.items()}
        for axes in program.inputs.values()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecations
        made = torch.onnx.export(
            program.module.eval(),
            tuple(program.fresh(1)),
            input_names=list(program.inputs),
            output_names=list(program.outputs),
            dynamic_shapes=tuple(shapes),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert made is not None, "a program comes back when no file is named"
    proto = made.model_proto
    # Sizes seen in tracing mean nothing; those of the outputs follow from the inputs'.
    for value, axes in zip(proto.graph.input, program.inputs.values(), strict=True):
        for axis, name in axes.items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    for graph in (proto.graph, *proto.functions):
        del graph.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
    return bytes(proto.SerializeToString(deterministic=True))


def _proved(program: Program, out: Path) -> dict[str, Any]:
    """Return the manifest's facts of a program; RuntimeError if its largest difference exceeds rounding."""
    import onnxruntime  # importing it starts threads

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(out / f"{program.name}.onnx", options)
    worst = 0.0
    for number in range(FRESH):
        given = program.fresh(number)
        with torch.no_grad():
            expected = program.module(*given)
        expected = [expected] if isinstance(expected, Tensor) else expected
        feed = {name: value.numpy() for name, value in zip(program.inputs, given, strict=True)}
        for name, ours, theirs in zip(program.outputs, expected, session.run(list(program.outputs), feed), strict=True):
            if tuple(ours.shape) != theirs.shape:
                raise RuntimeError(f"{program.name}: {name} is {theirs.shape}, not {tuple(ours.shape)}")
            apart = np.abs(ours.double().numpy() - theirs.astype(np.float64))
            # Scores of forbidden nodes are about 1e38, where rounding is larger than any other number.
            apart /= np.maximum(1, np.abs(ours.double().numpy()) / 1e3)
            worst = max(worst, float(apart.max(initial=0)))
    if not worst <= TOLERANCE:
        raise RuntimeError(f"{program.name}.onnx differs by {worst} from the model, more than {TOLERANCE}")
    described = {"inputs": {each.name: each.shape for each in session.get_inputs()}, "outputs": list(program.outputs)}
    return {**described, "fresh_inputs": FRESH, "largest_difference": worst}
