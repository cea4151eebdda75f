"""The results of this sitting as a strip of thumbnails."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QMimeData,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QFrame, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.studio.images import mime_of, to_qimage
from app.studio.results import Result, Results
from app.style.icons import pixmap
from app.style.theme import Appearance
from app.style.tokens import CORNER, GRID, LABEL
from app.style.type import sized

CELL = 88
_KEPT = 2 * CELL  # pixels; thumbnails stay sharp up to twice the logical size
_Index = QModelIndex | QPersistentModelIndex


class StripModel(QAbstractListModel):
    """Results as rows, oldest first. A row's mime data is its file and its pixels."""

    def __init__(self, results: Results, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._results = results
        self._shown = len(results.items)
        self._thumbnails: list[QImage] = [_thumbnail(result) for result in results.items]
        results.added.connect(self._add)
        results.saved.connect(self._saved)

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else self._shown

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        result = self._results.items[index.row()]
        match role:
            case Qt.ItemDataRole.DecorationRole:
                return self._thumbnails[index.row()]
            case Qt.ItemDataRole.UserRole:
                return result
            case Qt.ItemDataRole.AccessibleTextRole | Qt.ItemDataRole.ToolTipRole:
                return self._describe(result)
        return None

    def flags(self, index: _Index) -> Qt.ItemFlag:
        return super().flags(index) | Qt.ItemFlag.ItemIsDragEnabled

    def mimeData(self, indexes: Any) -> QMimeData:
        return mime_of(self._results.items[indexes[0].row()])

    def mimeTypes(self) -> list[str]:
        return ["text/uri-list", "application/x-qt-image"]

    def _describe(self, result: Result) -> str:
        request = result.request
        prompt = request.prompt if len(request.prompt) <= 200 else request.prompt[:199] + "…"
        lines = [
            prompt,
            self.tr("Seed {seed} · {width}×{height} · {steps} steps · {sampler}").format(
                seed=request.seed,
                width=request.width,
                height=request.height,
                steps=request.steps,
                sampler=request.sampler,
            ),
            str(result.path.name) if result.path is not None else self.tr("Not saved"),
        ]
        return "\n".join(line for line in lines if line)

    def _add(self, result: Result) -> None:
        self.beginInsertRows(QModelIndex(), self._shown, self._shown)
        self._thumbnails.append(_thumbnail(result))
        self._shown += 1
        self.endInsertRows()

    def _saved(self, result: Result) -> None:
        index = self.index(result.number)
        self.dataChanged.emit(index, index)


def _thumbnail(result: Result) -> QImage:
    keep, smooth = Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
    return to_qimage(result.image).scaled(_KEPT, _KEPT, keep, smooth)


class _Cell(QStyledItemDelegate):
    """A thumbnail with round corners; an accent ring when selected, a mark when it is in memory only."""

    def __init__(self, appearance: Appearance, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:  # noqa: ARG002
        return QSize(CELL, CELL)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        from PySide6.QtWidgets import QStyle  # with all its enums, milliseconds before the first paint

        tokens = self._appearance.tokens
        state: QStyle.StateFlag = option.state
        area: QRect = option.rect
        image: QImage = index.data(Qt.ItemDataRole.DecorationRole)
        size = image.size().scaled(QSize(CELL - 8, CELL - 8), Qt.AspectRatioMode.KeepAspectRatio)
        place = QRectF(
            area.x() + (area.width() - size.width()) / 2, area.y() + (area.height() - size.height()) / 2,
            size.width(), size.height(),
        )  # fmt: skip
        painter.save()
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
        outline = QPainterPath()
        outline.addRoundedRect(place, CORNER - 2, CORNER - 2)
        painter.setClipPath(outline)
        painter.drawImage(place, image)
        painter.setClipping(False)
        painter.setPen(QPen(QColor(tokens.line), 1))
        painter.drawPath(outline)
        ring = place.adjusted(-3, -3, 3, 3)
        if state & QStyle.StateFlag.State_Selected:
            painter.setPen(QPen(QColor(tokens.accent), 2))
            painter.drawRoundedRect(ring, CORNER, CORNER)
        elif state & (QStyle.StateFlag.State_MouseOver | QStyle.StateFlag.State_HasFocus):
            painter.setPen(QPen(QColor(tokens.strong_line), 1))
            painter.drawRoundedRect(ring, CORNER, CORNER)
        result: Result = index.data(Qt.ItemDataRole.UserRole)
        if result.path is None:
            self._paint_mark(painter, place)
        painter.restore()

    def _paint_mark(self, painter: QPainter, place: QRectF) -> None:
        tokens = self._appearance.tokens
        mark: QPixmap = pixmap("warn", tokens.warn, 14, painter.device().devicePixelRatio())
        ground = QRectF(place.right() - 20, place.top() + 2, 18, 18)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tokens.panel))
        painter.drawEllipse(ground)
        painter.drawPixmap(ground.topLeft().toPoint() + QRect(2, 1, 0, 0).topLeft(), mark)


class Strip(QListView):
    """Newest last. A click, or Return, gives back a result's settings; a drag takes it to another program."""

    chosen = Signal(object)

    def __init__(self, results: Results, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("strip")
        self.setAccessibleName(self.tr("Results"))
        self.setViewport(QWidget())  # Qt's own would have all its types looked through to find what it is
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setModel(StripModel(results, self))
        self.setItemDelegate(_Cell(appearance, self))
        self.setUniformItemSizes(True)
        self.setSpacing(GRID // 2)
        self.setViewportMargins(GRID, GRID, 0, 0)
        self.setDragEnabled(True)
        self.setDragDropMode(QListView.DragDropMode.DragOnly)
        self.setDefaultDropAction(Qt.DropAction.CopyAction)
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setWrapping(True)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self._results = results
        self._appearance = appearance
        self.clicked.connect(self._choose)
        self.activated.connect(self._choose)
        results.selected_changed.connect(self._show_selected)
        appearance.changed.connect(self._redraw)
        self.lay_out(Qt.Orientation.Vertical)

    def lay_out(self, orientation: Qt.Orientation) -> None:
        """A column beside the canvas, or a row below it."""
        upright = orientation is Qt.Orientation.Vertical
        self.setFlow(QListView.Flow.LeftToRight if upright else QListView.Flow.TopToBottom)
        never, needed = Qt.ScrollBarPolicy.ScrollBarAlwaysOff, Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self.setHorizontalScrollBarPolicy(never if upright else needed)
        self.setVerticalScrollBarPolicy(needed if upright else never)

    def _redraw(self) -> None:
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.model().rowCount() == 0:
            painter = QPainter(self.viewport())
            painter.setPen(QColor(self._appearance.tokens.muted))
            painter.setFont(sized(LABEL))
            place = self.viewport().rect().adjusted(GRID // 2, GRID // 2, -2 * GRID, -GRID)
            painter.drawText(place, Qt.TextFlag.TextWordWrap, self.tr("Results appear here"))
            painter.end()

    def _choose(self, index: QModelIndex) -> None:
        self.chosen.emit(index.data(Qt.ItemDataRole.UserRole))

    def _show_selected(self, result: Result | None) -> None:
        if result is None:
            self.clearSelection()
            return
        index = self.model().index(result.number, 0)
        self.setCurrentIndex(index)
        self.scrollTo(index)
