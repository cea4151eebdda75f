"""A square button with an icon, a name for screen readers, and its key in the tooltip."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QToolButton, QWidget

from app.style.icons import SIZE, icon
from app.style.theme import Appearance
from app.style.tokens import CONTROL_HEIGHT


class IconButton(QToolButton):
    """`framed` ones look like the fields beside them; the others show a ground only under the pointer."""

    def __init__(
        self,
        appearance: Appearance,
        shape: str,
        name: str,
        key: str = "",
        *,
        framed: bool = False,
        side: int = CONTROL_HEIGHT,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._shape = shape
        self.setAccessibleName(name)
        self.setToolTip(with_key(name, key))
        self.setProperty("framed", framed)
        self.setFixedSize(side, side)
        self.setIconSize(QSize(SIZE, SIZE))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        appearance.changed.connect(self._draw)
        self._draw()

    def _draw(self) -> None:
        self.setIcon(icon(self._shape, self._appearance.tokens))


def with_key(text: str, key: str) -> str:
    """A tooltip, with the key as this system writes it."""
    if not key:
        return text
    return f"{text}  ({QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText)})"
