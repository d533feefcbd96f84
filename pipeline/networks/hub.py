"""Files of repositories of the Hugging Face hub. No pickled file (pytorch_model.bin) is read."""

from pathlib import Path

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from unseen.networks.local_weights import require_connection
from unseen.runtime.errors import UserError
from unseen.runtime.files import system_problem


def fetched(repository: str, file: str) -> Path:
    """A file of `owner/name[@revision]` in the cache of the hub, downloaded if it is not there.

    Raises UserError for a repository or file that does not exist, and without a connection.
    """
    name, _, revision = repository.partition("@")
    page = f"{constants.ENDPOINT}/{name}"
    try:
        path = try_to_load_from_cache(name, file, revision=revision or None)
        if isinstance(path, str):  # otherwise None, or an object for a file that the repository lacks
            return Path(path)
        require_connection(page)
        return Path(hf_hub_download(name, file, revision=revision or None))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(
            f"{page} does not exist, has no revision {revision or 'main'}, or is not public.",
            "Correct the name. For a repository with restricted access, log in with `hf auth login`.",
        ) from error
    except RemoteEntryNotFoundError as error:
        raise UserError(
            f"{page} has no {file}. Pickled weights such as pytorch_model.bin are not read.",
            "Name a repository of timm with config.json and model.safetensors.",
        ) from error
    except Exception as error:  # of the name or the connection, which differ between versions of the library
        if system_problem(error) is not None:
            raise
        reason = str(error) if isinstance(error, ConnectionError | ValueError) else type(error).__name__
        raise UserError(
            f"{file} of {page} is not on this machine and could not be downloaded: {reason}.",
            "Repeat the command with a connection: the cache of the hub keeps the file.",
        ) from error
