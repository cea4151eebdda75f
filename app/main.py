"""The window's life: filled before the heavy libraries are imported, gone soon after it is closed."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import qasync
from PySide6.QtWidgets import QApplication

from app import __version__, folders, logs, quick_start
from app.interrupt import Interrupt
from app.json_file import JsonFile
from app.process_end import spare_native_threads
from app.settings.remembered import Remembered
from app.settings.settings import Settings
from app.settings.store import SettingsStore
from app.shell import Shell
from app.studio.form import Form
from app.studio.studio import Notice, Studio
from app.style.icons import application_icon
from app.style.theme import Appearance
from app.window import Window
from engine.engine import Engine
from engine.errors import SafelightError
from engine.models.description import describe
from engine.request import EngineSettings

log = logging.getLogger(__name__)

MODEL = "starter"
SWITCH_INTERVAL = 0.001  # seconds; Python's own 5 ms would let an engine thread hold the window for that long


def run(application: QApplication, shell: Shell, started: float) -> int:
    """Fill the shell and run until it is closed; returns the exit status.

    `started` is `time.perf_counter()` at the start of the program.
    """
    logs.start(folders.logs())
    log.info("the frame was on the screen %.3f s after the start", time.perf_counter() - started)
    sys.setswitchinterval(SWITCH_INTERVAL)
    # the last closed window would otherwise end the loop under the tasks that clean up
    application.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(application)
    loop.set_exception_handler(logs.log_loop_exception)
    loop.set_default_executor(ThreadPoolExecutor(2, thread_name_prefix="window"))
    store = SettingsStore(folders.settings_file())
    engine = Engine(_engine_settings(store.current), __version__)
    life = loop.create_task(_live(application, shell, store, engine, started))
    status = 0
    try:
        loop.run_until_complete(life)
    except SafelightError as error:
        log.critical("%s", error)
        print(error, file=sys.stderr)  # noqa: T201
        status = 1
    except RuntimeError:
        if life.done():
            raise
        log.info("the loop was ended from outside, as at the end of a session")
    finally:
        engine.close()
        store.close()
        loop.close()
        spare_native_threads(status)
    return status


async def _live(
    application: QApplication, shell: Shell, store: SettingsStore, engine: Engine, started: float
) -> None:  # fmt: skip
    remembered_file = JsonFile(folders.window_file(), Remembered)
    remembered = remembered_file.load()
    appearance = Appearance(application)
    appearance.use(store.current.theme)
    form = Form(describe(MODEL))
    form.recall(remembered.form)
    studio = Studio(engine, form)
    if damages := [damage for damage in (store.damage, remembered_file.damage) if damage is not None]:
        studio.notice = Notice("warn", " ".join(damages))
    window = Window(studio, store, appearance, folders.pictures(), remembered)
    over = asyncio.Event()

    def on_first_paint() -> None:
        log.info("the first paint of the whole window came %.3f s after the start", time.perf_counter() - started)
        application.setWindowIcon(application_icon())
        engine.warm_up(MODEL)
        window.status.start_measuring()

    def on_settings(settings: Settings) -> None:
        appearance.use(settings.theme)
        engine.configure(_engine_settings(settings))

    def on_close() -> None:
        remembered_file.save(window.remember())
        window.status.stop_measuring()
        studio.close()
        shell.close()
        over.set()

    window.first_painted.connect(on_first_paint)
    window.closed.connect(on_close)
    shell.may_close = studio.may_close
    shell.closed.connect(window.close)
    shell.state_changed.connect(window.follow_window_state)
    store.current_changed.connect(on_settings)
    interrupt = Interrupt(window.close)
    shell.fill(window)
    if shell.is_closed:  # while the rest was imported
        window.close()
    quick_start.end()
    await over.wait()
    interrupt.restore()
    await asyncio.to_thread(engine.close)
    remembered_file.close()


def _engine_settings(settings: Settings) -> EngineSettings:
    if settings.output_folder is None:
        folders.make_pictures()
    return settings.for_engine(folders.pictures(), folders.plans())
