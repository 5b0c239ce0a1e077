"""What the load suite shares: the scripts' packages on the path, payload files, and servers that behave as told."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
