"""For all tests, before anything imports torch: no thread spins while it waits, and no draw has a deadline.

Both matter on a busy machine: small models crawl where threads spin, and a deadline fails whoever waits.
Workers beside each other (``pytest -n auto``) have one thread each, of which small models do not need more.
Properties are tried on the same cases each time, so that a failure is one that anybody can repeat. To look
for new ones: ``pytest --hypothesis-profile=search``.
"""

import gc
import itertools
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke, Progress, calling
from hypothesis import settings
from quick_charts import QuickCharts
from seeded_noise import SeededSecrets

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Workers and the processes that tests start import the same modules: one of them compiles each.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
gc.disable()  # while tests are collected, which all stay
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # a commit to a disk takes 40 ms
settings.register_profile("graphveil", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("graphveil")


SECRETS, CHARTS = SeededSecrets(), QuickCharts()
collect_ignore = ["quick_workers.py"]  # which replaces charts where it is imported
MOST_WORKERS = 4  # each imports all of torch


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody calls it
def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers ``-n auto`` starts."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


COLLECTED = pytest.StashKey[set[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the names of all tests, before any is deselected."""
    config.stash[COLLECTED] = {item.nodeid for item in items}


def pytest_collection_finish() -> None:
    """Seed the noise of tests, after all test modules have set what must be set before imports."""
    SECRETS.install()
    CHARTS.install()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger):
            logger.propagate = True  # pytest attaches itself to each other one, six times a test
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # by default a twentieth of the time of all tests
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give each test noise of its own that is the same in each run, and charts where it looks at them."""
    seed = None if item.get_closest_marker("system_noise") else item.nodeid
    with SECRETS.seeded(seed), CHARTS.drawn(item.get_closest_marker("drawn_charts") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Give fixtures that tests share noise that does not depend on the test that comes first."""
    if fixturedef.scope == "function":
        return (yield)
    number = getattr(request, "param_index", 0)
    with SECRETS.seeded(f"{fixturedef.baseid}::{fixturedef.argname}[{number}]"):
        return (yield)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders that do not exist yet, one per test."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep ledgers and keys of unfinished releases out of the user's folders and of other tests."""
    home = next(homes)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv("GRAPHVEIL_LEDGER", raising=False)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of public data sets, or a skip with the reason."""
    neighbor = Path(__file__).parents[1].parent / "shared" / "data"
    root = Path(os.environ.get("GRAPHVEIL_DATA", neighbor))
    if not root.is_dir():
        pytest.skip("the public data sets are not here; set GRAPHVEIL_DATA to their folder")
    return root


@pytest.fixture
def fewer_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Release a part of the canaries that audits insert: bounds are then a few percent lower."""
    fewer = {"_RECORDS": 1 << 10, "_RELEASES": 32, "_SCORES": 1 << 12, "_FAMILIES": 40, "_COUNTED": 1 << 14}
    for name, number in fewer.items():
        monkeypatch.setattr(f"graphveil.audit.query_canaries.{name}", number)


@pytest.fixture
def quick_classcode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train little in ClassCode, and for rows of tables."""
    from tests.estimators.conftest import with_little_training

    with_little_training(monkeypatch)


def with_few_epochs(patch: pytest.MonkeyPatch, module: str, most: int) -> None:
    """Train for so many epochs at most wherever a module has a training schedule."""
    shipped = import_module(module).TrainingSchedule

    def schedule(epochs: int, **given: Any) -> Any:
        return shipped(epochs=min(epochs, most), **given)

    patch.setattr(f"{module}.TrainingSchedule", schedule)


@pytest.fixture
def quick_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train networks on LDP reports for a few epochs."""
    with_few_epochs(monkeypatch, "graphveil.local.lpgnn", 5)


@pytest.fixture
def quick_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the networks of attackers for a few epochs."""
    with_few_epochs(monkeypatch, "graphveil.attacks.membership", 10)


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy workers from a process that has loaded the package; a new interpreter takes seconds to do so."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["quick_workers"])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # where it lies
    monkeypatch.setattr("graphveil.runs.grid.get_context", lambda _: context)


@pytest.fixture
def ray_here(ray_folder: Path) -> Iterator[Path]:
    """Join a cluster of Ray on this machine, with room for two workers; give the folder that it writes to."""
    from graphveil.cluster.backend import import_ray

    ray = import_ray()
    if not ray.is_initialized():
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(num_cpus=2, object_store_memory=100 << 20, _temp_dir=str(ray_folder), **quiet)
    yield ray_folder


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[Path]:
    """Give an empty folder with a short name, as sockets need it; end what was started there."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")
    folder = Path(tempfile.mkdtemp(prefix="gv"))
    yield folder
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page name weights and methods of its own, which other pages do not find."""
    from graphveil import estimators
    from graphveil.estimators.own import code
    from graphveil.release import weights

    for module, name in ((weights, "_NAMED"), (estimators, "_REGISTERED"), (code, "_REGISTERED")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Put the quick method for units of records into the table of methods."""
    from estimators.doubles import Double

    from graphveil import estimators

    monkeypatch.setitem(estimators._CLASSES, Double.method, (Double.__module__, Double.__name__))
    return Double


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Call the command in an empty folder of its own, on a wide screen."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GRAPHVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    return calling(capsys)


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Take the place of the progress bars of commands."""
    from graphveil.cli.console import ProgressBars

    progress = Progress()
    monkeypatch.setattr(ProgressBars, "__call__", lambda self, *report: progress(*report))
    return progress


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Write a small graph of three teams."""
    return Files.written(tmp_path)
