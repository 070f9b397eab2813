"""Writes docs/openapi.json from the code."""

import json
from pathlib import Path

from rampmeter_coordinator.app import create_app
from rampmeter_coordinator.settings import read_settings

if __name__ == "__main__":
    app = create_app(read_settings({"store": "memory", "capacity": "1GB/s"}, {}))
    path = Path(__file__).parents[2] / "docs" / "openapi.json"
    path.write_text(json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
