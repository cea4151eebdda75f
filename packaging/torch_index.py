"""Prints pip's option for torch's own package index, where that index answers; says on stderr what was chosen.

An index that doesn't answer would cost pip minutes of retries, and torch may well be found without it: in a local
wheel folder, or in PyPI's build, which on Linux is the one for CUDA and weighs gigabytes.
"""

from __future__ import annotations

import os
import ssl
import sys
import threading
import urllib.error
import urllib.request

SECONDS = 2.0


def answers(url: str) -> bool:
    """Whether anything at all answers at `url` in time; pip settles certificates and names its own errors."""
    heard = threading.Event()

    def ask() -> None:
        try:
            urllib.request.urlopen(f"{url.rstrip('/')}/torch/", timeout=SECONDS).close()
        except urllib.error.HTTPError:
            heard.set()
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                heard.set()
        except OSError:
            return
        else:
            heard.set()

    # A thread, since looking up a name has no time limit of its own.
    threading.Thread(target=ask, daemon=True).start()
    return heard.wait(2 * SECONDS)


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else ""
    if not url:
        print("torch: the build that pip finds by itself (on Linux, PyPI's is for CUDA)", file=sys.stderr)
    elif url.startswith("http") and not answers(url):
        print(f"torch: {url} doesn't answer, so the build that pip finds without it", file=sys.stderr)
    else:
        print(f"torch: the build from {url}", file=sys.stderr)
        print(f"--extra-index-url {url}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
