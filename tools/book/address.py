"""Where the project is kept, and the links that follow from it: one setting, `Repository` in pyproject.toml."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Address:
    """A repository on GitHub, as owner/name."""

    name: str

    @classmethod
    def of(cls, root: Path) -> Address:
        """From pyproject.toml; a fork that publishes itself says its own in GITHUB_REPOSITORY, as GitHub's runners do."""
        url = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
        owner, _, name = url.removeprefix("https://github.com/").strip("/").partition("/")
        if not url.startswith("https://github.com/") or not name or "/" in name:
            raise ValueError(f"expected https://github.com/owner/name as Repository in pyproject.toml, got {url!r}")
        return cls(os.environ.get("GITHUB_REPOSITORY", f"{owner}/{name}"))

    def binder(self, notebook: str) -> str:
        """Opens the notebook on mybinder.org, which installs what environment.yml says."""
        return f"https://mybinder.org/v2/gh/{self.name}/main?labpath={quote(f'notebooks/{notebook}', safe='')}"

    def colab(self, notebook: str) -> str:
        """Opens the notebook in Colab, from the branch whose notebooks install the package first (see `tools.book.colab`)."""
        return f"https://colab.research.google.com/github/{self.name}/blob/colab/{quote(notebook)}"

    @property
    def package(self) -> str:
        """What pip installs from there, with the versions of PyTorch and Triton that were measured."""
        return f"flashlearn-course[measured,notebooks,transformers] @ git+https://github.com/{self.name}"
