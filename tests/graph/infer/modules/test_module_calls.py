"""Paths of modules from the names that recorders give their calls."""

from __future__ import annotations

from foretrace.graph.build import build
from foretrace.graph.infer.modules.module_calls import find_module_calls
from foretrace.tracer.readers.load import load
from tests.support.paths import public_trace
from tests.support.recordings.events import Row, note, op, parsed, span


def frame(name: str, start: float, length: float, thread: int = 1) -> Row:
    """Return a call of a module as a frame of the Python stack."""
    return {**span("python", f"nn.Module: {name}", start, length), "thread": thread}


def path_of(rows: list[Row]) -> dict[str, str]:
    """Return the path of each name among *rows*."""
    events, _, _ = parsed([*rows, op("aten::mm", 0, 1)])
    calls = find_module_calls(events)
    names = [events.names[code] for code in events.name[calls.rows]]
    return {
        name.removeprefix("nn.Module: "): calls.paths[code]
        for name, code in zip(names, calls.code.tolist(), strict=True)
    }


def test_frames_are_named_as_a_model_is_built() -> None:
    """Members of a sequence and blocks of a list are numbered; the outermost stays outside."""
    rows = [
        frame("Net_0", 0, 100),
        frame("Embedding_0", 1, 4),
        frame("Block_0", 10, 20),
        frame("Linear_0", 11, 5),
        frame("Block_1", 30, 20),
        frame("Linear_1", 31, 5),
        frame("Sequential_0", 60, 20),
        frame("ReLU_0", 61, 5),
        frame("Linear_2", 70, 5),
    ]

    assert path_of(rows) == {
        "Net_0": "Net",
        "Embedding_0": "Embedding_0",
        "Block_0": "Block.0",
        "Linear_0": "Block.0.Linear_0",
        "Block_1": "Block.1",
        "Linear_1": "Block.1.Linear_1",
        "Sequential_0": "Sequential_0",
        "ReLU_0": "Sequential_0.0.ReLU_0",
        "Linear_2": "Sequential_0.1.Linear_2",
    }


def test_a_block_run_again_in_backward_keeps_its_path() -> None:
    """Checkpointing calls it outside of the model, on autograd's thread."""
    rows = [frame("Net_0", 0, 50), frame("Block_0", 5, 10), frame("Block_0", 70, 10, thread=0)]

    assert path_of(rows)["Block_0"] == "Block_0"


def test_compiled_code_that_calls_itself_is_one_module() -> None:
    """A wrapper's frames of one module lie inside each other."""
    rows = [frame("Net_0", 0, 50), frame("Net_0", 1, 48), frame("Linear_0", 5, 10)]

    assert path_of(rows) == {"Net_0": "Net", "Linear_0": "Linear_0"}


def test_ranges_of_a_user_that_name_a_path_are_modules() -> None:
    """Numbers alone make a name a path: "step 3" and "aten.mm" are none."""
    rows = [note("layers.3.attn", 0, 5), note("step 3", 0, 50), note("aten.mm", 0, 5)]

    assert path_of(rows) == {"layers.3.attn": "layers.3.attn"}


def test_modules_that_fsdp_wraps_are_known_by_what_it_does_around_them() -> None:
    """Names as torch 2.13 writes them; a call lasts from "pre" to "post", and may come again."""
    rows = [
        note("FSDP::pre_forward", 0, 1),
        note("FSDP::pre_forward (layers.0)", 2, 1),
        note("FSDP::post_forward (layers.0)", 8, 1),
        note("FSDP::pre_forward (layers.0)", 12, 1),
        note("FSDP::post_forward (layers.0)", 18, 1),
        note("FSDP::post_forward", 20, 1),
        op("aten::mm", 4, 1),
    ]
    events, _, _ = parsed(rows)
    calls = find_module_calls(events)

    assert [calls.paths[code] for code in calls.code] == ["model", "layers.0", "layers.0"]
    assert (calls.end_ns - events.start_ns[calls.rows]).tolist() == [21_000, 7_000, 7_000]


def test_public_recordings_with_stacks_have_modules() -> None:
    """What ran on the device in forward and backward is some module's."""
    for name, modules in (
        ("triosim/vgg13_h100_bs512_adam_iter41", 37),
        ("tracelens/resnet18_single_mi300x_bs512", 68),
        ("tracelens/infer_qwen1.5-0.5b_h100", 316),
    ):
        tasks = build(load(public_trace(f"{name}.json.gz"))).tasks
        passes = tasks["phase"].isin(["forward", "backward"]) & (tasks["kind"] == "kernel")

        assert len(tasks["module"].cat.categories) == modules
        assert tasks["module"][passes].notna().mean() > 0.99
