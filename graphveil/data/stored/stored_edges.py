"""The edges of a prepared folder for a process that did not open it: each block is checked when it is read.

The manifest comes from whoever opened the folder. So what is read is what was opened there, whatever lies in
the folder by now, or under the same name on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from graphveil.data.blocks import EdgeBlock
from graphveil.data.stored.file_stamps import Stamp, check_stamps
from graphveil.data.stored.manifest import OFFSETS, SOURCES, Manifest
from graphveil.data.stored.reading import check_block, mapped


@dataclass(eq=False, repr=False)
class StoredEdges:
    """Mapped edges, and which of their blocks have been found as they were written."""

    folder: Path
    manifest: Manifest
    _checked: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, object]:
        """Return what is sent: nothing has been checked elsewhere."""
        return {"folder": self.folder, "manifest": self.manifest, "_checked": set()}

    def map_files(self) -> None:
        """Map the files.

        Raises:
            GraphError: one is missing, or of another length.
        """
        self._stamps = [Stamp.from_file(self.folder / name) for name in (OFFSETS, SOURCES)]
        self._indptr: npt.NDArray[np.integer] = mapped(self.folder / OFFSETS, "<i8", self.manifest.nodes + 1)
        self._sources: npt.NDArray[np.integer] = mapped(self.folder / SOURCES, "<i4", self.manifest.edges)

    def rows(self, start: int, stop: int) -> EdgeBlock:
        """Return the edges into some rows.

        Raises:
            GraphError: a block that they lie in is not as it was written, or a file has changed since.
        """
        check_stamps(self._stamps)
        for number, block in enumerate(self.manifest.blocks):
            first = self.manifest.blocks[number - 1].stop if number else 0
            if first < stop and start < block.stop and number not in self._checked:
                check_block(self.folder, self.manifest, number, self._indptr, self._sources)
                self._checked.add(number)
        bounds = torch.from_numpy(self._indptr[start : stop + 1])
        some = slice(int(bounds[0]), int(bounds[-1]))
        return EdgeBlock(
            start, stop, (bounds - bounds[0]).to(torch.int32), torch.from_numpy(self._sources[some])
        )
