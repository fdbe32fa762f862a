"""Models of other libraries by name, where those are installed."""

from __future__ import annotations

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.job import runner
from foretrace.tracer.lab.zoo import named as zoo_named
from foretrace.tracer.lab.zoo.models import BY_NAME
from foretrace.tracer.lab.zoo.named import find_model
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES
from foretrace.tracer.lab.zoo.variants import Variant, build

pytest.importorskip("torch")


def test_the_zoo_comes_first() -> None:
    """Its models need no other library."""
    assert find_model("gnn") is BY_NAME["gnn"]


def test_unknown_names_are_refused() -> None:
    """The sentence lists what there is, the libraries included."""
    for name in ("gnm", "timm:resnet18"):
        with pytest.raises(RecordError, match=f"{name}.*gnn, or write torchvision:MODEL"):
            find_model(name)


def test_a_library_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setattr(zoo_named, "find_spec", lambda _name: None)
    for library in zoo_named.LIBRARIES:
        with pytest.raises(RecordError, match=f"needs {library}: pip install {library}"):
            find_model(f"{library}:x")


@pytest.mark.filterwarnings("ignore")  # of the libraries themselves
@pytest.mark.parametrize(
    "name",
    ["torchvision:resnet18", "transformers:bert", "transformers:gpt2", "transformers:vit"],
)
def test_a_named_model_trains(name: str) -> None:
    """One step of its small form, from random weights; it has no blocks to checkpoint."""
    pytest.importorskip(name.partition(":")[0])
    model = find_model(name)
    job = build(model, Variant(optimizer="loop"), device="cpu", small=True)
    runner(job)()

    assert job.batch_size == model.small.batch_size
    assert not CHANGES["checkpointing"].applies_to(model, cpu=True)


@pytest.mark.parametrize("name", ["torchvision:resnet", "transformers:brt"])
def test_a_library_s_unknown_model_is_refused(name: str) -> None:
    """One line that says so."""
    library, _, model = name.partition(":")
    pytest.importorskip(library)
    with pytest.raises(RecordError, match=f"{library} has no .*'{model}'"):
        find_model(name)
