"""Articles, capitals and comma lists. Right for the words of this corpus, not for all of English."""

from collections.abc import Sequence


def article(phrase: str) -> str:
    """ "a" or "an", as the first word of the phrase asks."""
    if phrase.startswith(("hour", "honest")):
        return "an"
    if phrase.startswith(("uni", "use", "one", "euro")):
        return "a"
    return "an" if phrase[0] in "aeiouAEIOU" else "a"


def with_article(phrase: str) -> str:
    return f"{article(phrase)} {phrase}"


def capitalized(text: str) -> str:
    """The text with its first letter large and the rest as it is."""
    return text[:1].upper() + text[1:]


def joined(items: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"
