"""Names of repositories of the Hugging Face hub: `owner/name` or `hf-hub:owner/name`, with `@revision`."""

import re

_NAME = re.compile(r"(?:hf[-_]hub:)?([\w.-]+/[\w.-]+(?:@[\w.-]+)?)")
_OWNER = "timm/"  # of the repositories that have the names of timm
# Repositories for transformers whose weights timm publishes.
_SAME = {
    f"facebook/dinov2-{registers}{size}": f"vit_{size}_patch14_{tokens}dinov2.lvd142m"
    for registers, tokens in (("", ""), ("with-registers-", "reg4_"))
    for size in ("small", "base", "large", "giant")
}


def repository_of(name: str) -> str | None:
    """`owner/name` or `owner/name@revision` of a repository; None for another name."""
    match = _NAME.fullmatch(name)
    return match and match[1]


def name_of_timm(name: str) -> str:
    """The name of timm for a repository of timm, and for one whose weights timm publishes; another name as it
    is."""
    repository = repository_of(name)
    if repository is None or "@" in repository:
        return name
    return _SAME.get(repository, repository.removeprefix(_OWNER) if repository.startswith(_OWNER) else name)
