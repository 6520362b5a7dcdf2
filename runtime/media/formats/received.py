"""Arrays that a client computed in the place of media: the checks that formats share."""

from collections.abc import Mapping
from typing import Any

from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Processed

FEATURES = "feature"


def shaped(arrays: Mapping[str, Any], name: str, shape: tuple[int | None, ...]) -> Any:
    """The array of this name. None in its shape: any size. Raises ClientError without a place."""
    if name not in arrays:
        raise ClientError("", f"has no {name!r}, which this model needs")
    found = arrays[name].shape
    if len(found) != len(shape) or any(want is not None and want != have for want, have in zip(shape, found)):
        wanted = ["any" if want is None else str(want) for want in shape]
        raise ClientError("", f"has {name} of shape {list(found)}, must be [{', '.join(wanted)}]")
    return arrays[name]


def received_features(arrays: Mapping[str, Any], size: int) -> Processed:
    """One array [tokens, size] of a model that needs no grids."""
    features = shaped(arrays, FEATURES, (None, size))
    return Processed({FEATURES: features}, (len(features),))
