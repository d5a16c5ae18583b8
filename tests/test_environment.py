"""What the environment report says with and without Triton."""

import importlib.metadata

import pytest
import torch

from flashlearn.core import environment


@pytest.fixture
def no_triton(monkeypatch):
    real = importlib.metadata.version

    def version(package):
        if package == "triton":
            raise importlib.metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_report_names_versions():
    report = environment.environment()
    assert report["PyTorch"] == torch.__version__
    assert all(isinstance(value, str) and value for value in report.values())


def test_without_triton_it_says_why(no_triton):
    assert environment.environment()["Triton"] == "not installed"
    assert environment.triton_backend().startswith("not at all: Triton has wheels for Linux only")


@pytest.mark.parametrize(
    ("gpu", "interpret", "words"), [(True, "0", "on the GPU"), (True, "1", "interpreter"), (False, "0", "interpreter")]
)
def test_backend(monkeypatch, gpu, interpret, words):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "3.7.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    assert words in environment.triton_backend()
