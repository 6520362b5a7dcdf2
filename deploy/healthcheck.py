"""Exit code 0 if the server of this container is alive: /health, by RAMET_PORT and whether RAMET_SSL_CERTFILE is set.

A server whose port or certificate is set by a flag instead is not found by it: set the variable.
"""

import os
import ssl
import sys
import urllib.request

TIMEOUT_S = 10.0


def main() -> int:
    scheme = "https" if os.environ.get("RAMET_SSL_CERTFILE") else "http"
    url = f"{scheme}://127.0.0.1:{os.environ.get('RAMET_PORT') or 30000}/health"
    unchecked = ssl._create_unverified_context()  # the certificate has another name than 127.0.0.1
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    try:
        with opener.open(url, timeout=TIMEOUT_S):
            return 0
    except OSError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
