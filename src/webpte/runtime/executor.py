"""What a method and all its forks run with, one call at a time."""

from __future__ import annotations

from ..device import Gpu, Session, Weights, Workspace
from ..plan import Plan
from ..progress import OnProgress, ignore
from .steps import Wiring


class Executor:
    """Shared by a method and its forks, whose calls take turns."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.wirings: dict[object, Wiring] = {}
        self._workspace: Workspace | None = None

    def open(self, gpu: Gpu, weights: Weights, progress: OnProgress = ignore, *, filled: bool = True) -> Session:
        """Memory for one more state. Whoever comes first on a device makes what all others share there."""
        workspace = self._workspace
        if workspace is not None and workspace.gpu is gpu:
            return Session(workspace, filled=filled)
        self.close()
        workspace = self._workspace = Workspace(self.plan, gpu, weights, progress)
        try:
            return Session(workspace, first=True, filled=filled)
        except BaseException:
            self.close()
            raise

    def let_go(self) -> None:
        """Drop what was on a device that is gone."""
        if self._workspace is not None and not self._workspace.gpu.alive():
            self.close()

    def close(self) -> None:
        """Give back what is shared. Sessions that use it must be closed, too."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()
