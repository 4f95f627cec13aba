"""What a folder of a prepared graph says of itself: its blocks, its node arrays, and how far it got.

The folder is as private as the tables that it was made of. Its sums are keyed, with a key of the folder's
own, so that no digest of private data exists that means anything elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from graphveil._util.files import write_atomic
from graphveil.errors import GraphError

MANIFEST = "manifest.json"
SOURCES, OFFSETS = "sources.bin", "offsets.bin"
FORMAT = "graphveil prepared graph, version 2"


class ManifestBlock(BaseModel):
    """Some rows: they end before ``stop``, and the edges of all blocks up to here number ``edges``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    stop: int = Field(ge=0)
    edges: int = Field(ge=0)
    sources: str  # the sum of its part of each file
    offsets: str


class Manifest(BaseModel):
    """A prepared graph, whole or under way.

    ``inputs`` says which tables and choices it is made of, so that no other ones are put in its place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: str = FORMAT
    key: str
    inputs: str
    nodes: int = Field(ge=1)
    directed: bool
    block_rows: int = Field(ge=1)
    released: str = ""
    arrays: dict[str, str]  # files of node arrays and their sums
    facts: dict[str, Any]  # what else a graph has: names of classes, notes, the encoding
    blocks: list[ManifestBlock] = []
    complete: bool = False
    seal: str = ""  # the sum of all else

    @property
    def rows(self) -> int:
        """The rows that are done."""
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def edges(self) -> int:
        """The stored edges of the rows that are done."""
        return self.blocks[-1].edges if self.blocks else 0

    def write(self, folder: Path) -> None:
        """Write the manifest, whole or not at all."""
        plain = self.model_dump(mode="json")
        write_atomic(folder / MANIFEST, json.dumps(plain | {"seal": _seal(plain)}, indent=1).encode())

    def completed(self, folder: Path) -> Manifest:
        """Write and return the manifest of a graph whose blocks are all there."""
        whole = self.model_copy(update={"complete": True})
        whole.write(folder)
        return whole


def new_key() -> str:
    """Return a key for a folder's sums."""
    return secrets.token_hex(32)


def keyed_sum(key: str, part: Any) -> str:
    """Return the keyed sum of an array's bytes."""
    return hashlib.blake2b(part, key=bytes.fromhex(key), digest_size=16).hexdigest()


def _seal(plain: dict[str, Any]) -> str:
    """Return the keyed sum of what a manifest says, however its file is laid out."""
    content = {name: value for name, value in plain.items() if name != "seal"}
    return keyed_sum(plain["key"], json.dumps(content, sort_keys=True).encode())


def read_manifest(folder: Path) -> Manifest | None:
    """Return a folder's manifest, None if it has none.

    Raises:
        GraphError: the manifest is damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        plain = json.loads(path.read_bytes())
        manifest = Manifest.model_validate(plain)
        sealed = manifest.seal == _seal(plain)
    except (ValueError, RecursionError, OSError):  # a validation error quotes what it found
        raise damaged_file_error(path) from None
    if manifest.format != FORMAT:
        raise GraphError(
            f"{path} is not of this version ({FORMAT!r}); prepare the graph again (graphveil prepare)"
        )
    if not sealed:
        raise damaged_file_error(path)
    return manifest


def damaged_file_error(path: Path, part: str = "") -> GraphError:
    """Return the refusal of a file that is not as it was written."""
    return GraphError(
        f"{part + ' of ' if part else ''}{path} is damaged, cut short or missing; prepare the graph again "
        "into a new folder (graphveil prepare), or restore the file from a copy"
    )
