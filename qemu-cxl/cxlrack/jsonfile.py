"""A JSON file that is never seen half written."""
import json
import os
import threading
from pathlib import Path


def write_json(path: Path, value: object) -> None:
    temporary = path.with_name(f'{path.name}.{os.getpid()}.{threading.get_ident()}.tmp')
    temporary.write_text(json.dumps(value, indent=2) + '\n')
    os.replace(temporary, path)
