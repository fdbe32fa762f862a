"""``python -m tests.support.docs.screenshots FOLDER``: the pictures of the documentation.

What they show is predicted from a recording of this project's own, out of ``traces``.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from foretrace import __version__, build, predict
from foretrace.analysis.unchanged.baseline import replay_baseline, run_experiment
from foretrace.page.data import outlook, view
from foretrace.page.html import write_page
from foretrace.page.server import ServedTrace, Site, listen
from foretrace.report.forms import as_text
from foretrace.tracer.lab.pairs.read_archive import pair_members, read_pair
from foretrace.transforms.measured.calibration import read_calibration
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.scenario import parse_scenario
from tests.support.browser import chromium, opened, unavailable
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.graph.model import Graph

ARCHIVE = ROOT / "traces" / "cpu-epyc-1.tar"
DESK = {"viewport": {"width": 1100, "height": 1240}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}


def main() -> None:
    """Take all pictures."""
    if reason := unavailable():
        sys.exit(reason)
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        vgg, resnet = (recorded(model, Path(folder)) for model in ("vgg19", "resnet50"))
        workers = reported(resnet, "ddp(workers=4, network='1Gbps')", Path(folder))
        take(browser, workers, out / "report.png", color_scheme="light", **DESK)
        fused = reported(vgg, "fused_optimizer", Path(folder))
        take(browser, fused, out / "report-phone-dark.png", color_scheme="dark", **PHONE)
        with served(resnet) as address, opened(browser, address, **DESK) as page:
            ask(page)
            page.screenshot(path=out / "served.png")


def recorded(model: str, folder: Path) -> Graph:
    """Return the graph of a recording of *model*, with the calibration that lies beside it."""
    pair = read_pair(pair_members(ARCHIVE), f"{model}/fused.pair.json", ARCHIVE)
    calibration = folder / "calibration.parquet"
    calibration.write_bytes(pair.calibration or b"")
    return attach(build(pair.before), read_calibration(calibration))


def reported(graph: Graph, what_if: str, folder: Path) -> str:
    """Write the report of *what_if* and return its address."""
    scenario = parse_scenario([what_if])
    data = {
        **view(run_experiment(graph, scenario)),
        **outlook(replay_baseline(graph)),
        "version": __version__,
    }
    path = folder / f"{scenario[0].name}.html"
    write_page(data, as_text(predict(graph, scenario)), path)
    return path.as_uri()


def take(browser: Any, address: str, path: Path, **context: Any) -> None:
    """Write a picture of what a reader sees first."""
    with opened(browser, address, **context) as page:
        page.screenshot(path=path)


@contextmanager
def served(graph: Graph) -> Iterator[str]:
    """Serve the job while the picture is taken."""
    with listen(Site([ServedTrace("resnet50.parquet", graph)], __version__), 0) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://localhost:{listening.server_address[1]}/"
        listening.shutdown()
        thread.join()


def ask(page: Any) -> None:
    """Ask two what-ifs, as a user would who reads each answer."""
    page.locator("#advice").wait_for()
    for name in ("amp", "batch_size"):
        page.locator("#add").select_option(name)
        page.locator("#add-whatif").click()
        page.locator("h1", has_text=name).wait_for()
    page.get_by_label("n (needed)").fill("16")
    page.locator("h1", has_text="batch_size(n=16)").wait_for()
    page.locator(":focus").blur()


if __name__ == "__main__":
    main()
