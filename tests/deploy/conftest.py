"""What deploy/ holds. Some of it needs linters and renderers: `make test-deploy`; without them only the rest runs."""

import importlib.util

LINTERS = ("helm_python", "kubernetes_validate", "compose")
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in LINTERS) else ["test_deploy_lint.py"]
