"""The picture, and nothing on top of it but a thin line along its lower edge."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, QSizeF, Qt, QVariantAnimation, Signal
from PySide6.QtGui import (
    QColor,
    QImage,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import QWidget

from app.studio.images import scaled, to_qimage
from app.studio.progress import Progress
from app.studio.studio import Shown
from app.style.motion import motion_wanted
from app.style.theme import Appearance
from app.style.tokens import CROSSFADE

LINE = 3
DIMMED = 0.35


class Canvas(QWidget):
    """Shows a picture fitted to the canvas, or in its actual size, where it can be dragged about.

    A picture of the same shape crossfades over the one before, with the old one opaque beneath, so that the ground
    never shows between two previews.
    """

    copy_wanted = Signal()
    fit_changed = Signal(bool)

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("canvas")
        self.setMinimumSize(200, 200)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Canvas"))
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self._appearance = appearance
        self._image: QImage | None = None
        self._dimmed = False
        self._pixmap: QPixmap | None = None
        self._before: QPixmap | None = None
        self._before_strength = 1.0
        self._progress = Progress()
        self._fits = True
        self._offset = QPointF()
        self._dragged_from: QPointF | None = None
        self._fade = QVariantAnimation(self, startValue=0.0, endValue=1.0, duration=CROSSFADE)
        self._fade.valueChanged.connect(lambda _: self.update())
        self._fade.finished.connect(self._end_fade)
        appearance.changed.connect(self.update)

    # What is shown

    def show_picture(self, shown: Shown | None) -> None:
        before, old_rect = self._picture_now(), self._target()
        strength = DIMMED if self._dimmed else 1.0
        image = None if shown is None else to_qimage(shown.image)
        self._dimmed = shown is not None and shown.dimmed
        self._image, self._pixmap = image, None
        self._describe(shown)
        same_place = before is not None and image is not None and old_rect == self._target()
        self._end_fade()
        if same_place and not self._dimmed and motion_wanted():
            self._before, self._before_strength = before, strength
            self._fade.start()
        self.update()

    def show_progress(self, progress: Progress) -> None:
        self._progress = progress
        self.update(QRect(0, self.height() - 8, self.width(), 8).united(self._line_rect().toAlignedRect()))

    def _describe(self, shown: Shown | None) -> None:
        if shown is None:
            self.setAccessibleDescription("")
            return
        kind = self.tr("Preview") if shown.preview else self.tr("Picture")
        self.setAccessibleDescription(f"{kind}, {shown.image.width}×{shown.image.height}")

    @property
    def fits(self) -> bool:
        return self._fits

    def fit(self) -> None:
        """The whole picture, as large as the canvas."""
        self._set_fits(True)

    def actual_size(self) -> None:
        """One pixel of the picture on one pixel of the screen."""
        self._set_fits(False)

    def _set_fits(self, fits: bool) -> None:
        self._fits = fits
        self._offset = QPointF()
        self._forget_scaled()
        self.setCursor(Qt.CursorShape.ArrowCursor if fits else Qt.CursorShape.OpenHandCursor)
        self.fit_changed.emit(fits)

    # Painting

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002
        tokens = self._appearance.tokens
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(tokens.ground))
        pixmap = self._pixmap_now()
        if pixmap is not None:
            at = self._target().topLeft()
            strength = DIMMED if self._dimmed else 1.0
            if self._before is not None:
                painter.setOpacity(self._before_strength)
                painter.drawPixmap(at, self._before)
                strength *= self._fade.currentValue()
            painter.setOpacity(strength)
            painter.drawPixmap(at, pixmap)
            painter.setOpacity(1.0)
        self._paint_line(painter)
        if self.hasFocus() and pixmap is not None and self._focus_by_key:
            painter.setPen(QColor(tokens.accent))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _paint_line(self, painter: QPainter) -> None:
        if self._progress.fraction is None:
            return
        line = self._line_rect()
        colour = QColor(self._appearance.tokens.accent)
        done = QRectF(line)
        done.setWidth(line.width() * (1.0 if self._progress.solid else self._progress.fraction))
        if not self._progress.solid:
            track = QColor(self._appearance.tokens.line)
            track.setAlphaF(0.6)
            painter.fillRect(line, track)
        painter.fillRect(done, colour)

    def _line_rect(self) -> QRectF:
        """Along the lower edge of the picture, or of the canvas where the picture goes beyond it."""
        if self._image is None:
            return QRectF(0, self.height() - LINE, self.width(), LINE)
        target = QRectF(self._target()).intersected(QRectF(self.rect()))
        return QRectF(target.left(), target.bottom() - LINE, target.width(), LINE)

    def _target(self) -> QRect:
        """Where the picture lies, in logical pixels."""
        if self._image is None:
            return self.rect()
        size = QSizeF(self._image.size())
        if self._fits:
            size.scale(QSizeF(self.size()), Qt.AspectRatioMode.KeepAspectRatio)
        else:
            size /= self.devicePixelRatioF()
        whole = QSize(max(1, round(size.width())), max(1, round(size.height())))
        corner = QPointF(self.width() - whole.width(), self.height() - whole.height()) / 2 + self._offset
        return QRect(QPoint(round(corner.x()), round(corner.y())), whole)

    def _pixmap_now(self) -> QPixmap | None:
        if self._image is None:
            return None
        ratio = self.devicePixelRatioF()
        if self._pixmap is None or self._pixmap.devicePixelRatio() != ratio:
            self._pixmap = scaled(self._image, self._target().size(), ratio)
        return self._pixmap

    def _picture_now(self) -> QPixmap | None:
        """What is seen at this instant: in the middle of a fade, the blend, so that the next fade begins there."""
        pixmap = self._pixmap_now()
        if pixmap is None or self._before is None:
            return pixmap
        blend = QPixmap(self._before)
        painter = QPainter(blend)
        painter.setOpacity(self._fade.currentValue())
        painter.drawPixmap(0, 0, pixmap)
        painter.end()
        return blend

    def _forget_scaled(self) -> None:
        self._pixmap = None
        self._end_fade()
        self.update()

    def _end_fade(self) -> None:
        self._fade.stop()
        self._before = None
        self.update()

    # Hands

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._offset = self._bounded(self._offset)
        self._forget_scaled()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_wanted.emit()
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton and not self._fits:
            self._dragged_from = event.position() - self._offset
            self.setCursor(Qt.CursorShape.ClosedHandCursor)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._dragged_from is not None:
            self._offset = self._bounded(event.position() - self._dragged_from)
            self.update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: ARG002
        if self._dragged_from is not None:
            self._dragged_from = None
            self.setCursor(Qt.CursorShape.OpenHandCursor)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:  # noqa: ARG002
        self._set_fits(not self._fits)

    def _bounded(self, offset: QPointF) -> QPointF:
        """No further than the picture reaches beyond the canvas."""
        if self._fits or self._image is None:
            return QPointF()
        size = QSizeF(self._image.size()) / self.devicePixelRatioF()
        room = max(0.0, (size.width() - self.width()) / 2), max(0.0, (size.height() - self.height()) / 2)
        return QPointF(min(max(offset.x(), -room[0]), room[0]), min(max(offset.y(), -room[1]), room[1]))

    _focus_by_key = False

    def focusInEvent(self, event: QEvent) -> None:
        by_key = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._focus_by_key = event.reason() in by_key  # type: ignore[attr-defined]
        self.update()

    def focusOutEvent(self, event: QEvent) -> None:  # noqa: ARG002
        self.update()
