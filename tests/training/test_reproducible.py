"""The settings of torch in a training, and their values afterwards."""

import pytest
import torch

from unseen.training.reproducible import reproducible


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_settings_of_a_device_are_restored(
    device: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an error. A CPU has deterministic kernels; a GPU searches for the fastest convolutions."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    threads, is_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()

    def train() -> None:
        with reproducible(torch.device(device), threads + 1):
            assert torch.get_num_threads() == threads + 1
            assert torch.backends.cudnn.benchmark is (before if device == "cpu" else True)
            assert torch.are_deterministic_algorithms_enabled() is (device == "cpu" or is_deterministic)
            raise KeyError

    with pytest.raises(KeyError):
        train()
    assert torch.get_num_threads() == threads
    assert torch.backends.cudnn.benchmark is before
    assert torch.are_deterministic_algorithms_enabled() is is_deterministic
