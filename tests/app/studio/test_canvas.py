from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.studio.canvas import LINE, Canvas
from app.studio.progress import Progress
from app.studio.studio import Shown
from app.style.theme import Appearance
from engine.events import RgbImage
from tests.app.fake_engine import image_of


@pytest.fixture
def canvas(qtbot: QtBot, appearance: Appearance) -> Canvas:
    made = Canvas(appearance)
    qtbot.addWidget(made)
    made.resize(400, 300)
    made.show()
    return made


def seen(canvas: Canvas) -> QImage:
    return canvas.grab().toImage()


def colour(image: QImage, x: int, y: int) -> QColor:
    """The colour at a place in logical pixels, on any screen."""
    ratio = image.devicePixelRatio()
    return image.pixelColor(int(x * ratio), int(y * ratio))


def grey(image: QImage, x: int, y: int) -> int:
    return colour(image, x, y).red()


def test_the_picture_is_fitted_edge_to_edge(canvas: Canvas, appearance: Appearance) -> None:
    canvas.show_picture(Shown(image_of(200)))
    image = seen(canvas)
    assert grey(image, 200, 0) == grey(image, 200, 299) == 200
    assert grey(image, 51, 150) == grey(image, 348, 150) == 200
    assert colour(image, 20, 150) == QColor(appearance.tokens.ground)


def test_actual_size_is_one_pixel_for_one(canvas: Canvas) -> None:
    canvas.show_picture(Shown(image_of(200, 40, 20)))
    canvas.actual_size()
    image = seen(canvas)
    row = image.height() // 2
    shown = sum(image.pixelColor(x, row).red() == 200 for x in range(image.width()))
    assert shown == 40
    canvas.fit()
    assert grey(seen(canvas), 2, 150) == 200


def test_a_preview_fades_over_the_one_before_and_never_to_the_ground(canvas: Canvas) -> None:
    canvas.show_picture(Shown(image_of(100), preview=True))
    canvas.show_picture(Shown(image_of(200), preview=True))
    canvas._fade.pause()
    for at in (0, 20, 40, 60, 79):
        canvas._fade.setCurrentTime(at)
        assert 99 <= grey(seen(canvas), 200, 150) <= 200
    canvas._fade.setCurrentTime(40)
    assert 140 <= grey(seen(canvas), 200, 150) <= 160
    canvas.show_picture(Shown(image_of(0), preview=True))
    canvas._fade.pause()
    canvas._fade.setCurrentTime(0)
    assert 140 <= grey(seen(canvas), 200, 150) <= 160  # from what was on the screen, not from either end


def test_a_cancelled_preview_is_dimmed(canvas: Canvas) -> None:
    canvas.show_picture(Shown(image_of(200), preview=True))
    canvas.show_picture(Shown(image_of(200), preview=True, dimmed=True))
    assert 60 < grey(seen(canvas), 200, 150) < 110


def test_the_line_moves_with_the_steps_and_is_solid_while_decoding(canvas: Canvas, appearance: Appearance) -> None:
    accent = QColor(appearance.tokens.accent)
    canvas.show_picture(Shown(image_of(200)))
    canvas.show_progress(Progress("", 0.5))
    image, low = seen(canvas), 300 - LINE // 2 - 1
    assert colour(image, 100, low) == accent
    assert colour(image, 300, low) != accent
    assert colour(image, 100, 300 - LINE - 2) != accent
    canvas.show_progress(Progress("", 1.0, solid=True))
    assert colour(seen(canvas), 349, low) == accent
    canvas.show_progress(Progress())
    assert colour(seen(canvas), 100, low) != accent


def test_a_picture_larger_than_the_canvas_can_be_dragged_but_not_away(qtbot: QtBot, canvas: Canvas) -> None:
    side = round(800 * canvas.devicePixelRatioF())
    row = b"".join(bytes([x * 255 // (side - 1)] * 3) for x in range(side))
    large = RgbImage(width=side, height=side, pixels=row * side)
    canvas.show_picture(Shown(large))
    canvas.actual_size()
    middle = grey(seen(canvas), 200, 150)
    qtbot.mousePress(canvas, Qt.MouseButton.LeftButton, pos=QPointF(50, 150).toPoint())
    qtbot.mouseMove(canvas, QPointF(150, 150).toPoint())
    assert grey(seen(canvas), 200, 150) < middle
    qtbot.mouseMove(canvas, QPointF(5000, 150).toPoint())
    qtbot.mouseRelease(canvas, Qt.MouseButton.LeftButton)
    assert grey(seen(canvas), 0, 150) == 0


def test_pictures_are_scaled_to_the_screen_s_own_pixels(canvas: Canvas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "devicePixelRatioF", lambda: 2.0)
    canvas.show_picture(Shown(image_of(200, 30, 30)))
    pixmap = canvas._pixmap_now()
    assert pixmap is not None
    assert (pixmap.width(), pixmap.height()) == (600, 600)
    assert pixmap.deviceIndependentSize().toSize() == canvas._target().size()


def test_ctrl_c_asks_for_a_copy(qtbot: QtBot, canvas: Canvas) -> None:
    with qtbot.waitSignal(canvas.copy_wanted):
        qtbot.keyClick(canvas, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)


def test_a_screen_reader_is_told_what_is_shown(canvas: Canvas) -> None:
    canvas.show_picture(Shown(image_of(1, 64, 32), preview=True))
    assert canvas.accessibleDescription() == "Preview, 64×32"
