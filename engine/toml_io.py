"""TOML in and out for msgspec structs: errors that name the key and the remedy, files that explain themselves."""

import difflib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from engine.errors import BadInput

_T = TypeVar("_T", bound=Struct)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: missing; `andrea-tui init {path.parent}` makes a run directory") from None
    except ValueError as e:  # TOMLDecodeError, UnicodeDecodeError, a number of 5,000 digits
        raise BadInput(f"{path}: not valid TOML: {e}") from None
    except RecursionError:
        raise BadInput(f"{path}: not valid TOML: nested too deeply") from None
    except OSError as e:
        raise BadInput(f"{path}: can't be read: {e.strerror or e}") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise BadInput(f"{where}: not valid TOML: {e}") from None


def convert(table: Any, kind: type[_T], where: str, prefix: str = "") -> _T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as e:
        raise BadInput(f"{where}: {_explain(str(e), kind, prefix)}") from None


def _explain(text: str, kind: type[Struct], prefix: str) -> str:
    """msgspec's message, said with our key names, the key's meaning and the nearest known key."""
    message, _, path = text.partition(" - at `$")
    parts = [p for p in path.rstrip("`").split(".") if p]
    key = ".".join([prefix, *parts] if prefix else parts)
    known, about = _describe(kind, parts)
    unknown = re.match(r"Object contains unknown field `(.*)`", message)
    if unknown:
        name = unknown[1]
        return (
            f"{key + '.' if key else ''}{name}: unknown key{did_you_mean(name, known)}"
            f"; there are {', '.join(known)}; a newer andrea-tui may know it"
        )
    return f"{key or 'file'}: {message[0].lower()}{message[1:]}" + (f" ({about})" if about else "")


def _describe(kind: type[Struct], parts: list[str]) -> tuple[list[str], str]:
    """(keys known at this place, description of the key at this place)"""
    about = ""
    here: Any = kind
    for part in parts:
        if not (isinstance(here, type) and issubclass(here, Struct)):
            return [], about
        hint = get_type_hints(here, include_extras=True).get(part)
        about = _description(getattr(hint, "__metadata__", ()))
        here = hint
    if isinstance(here, type) and issubclass(here, Struct):
        return [f.name for f in msgspec.structs.fields(here)], about
    return [], about


def _description(metas: Any) -> str:
    return next((m.description for m in metas if isinstance(m, Meta) and m.description), "")


def did_you_mean(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def refuse_non_finite(s: Struct, where: str) -> None:
    for key, value in flat(s).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{where}: {key}: {value} is not a finite number")


def key_path(key: str) -> list[str]:
    """`arms."my.text".floor` → its parts."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise BadInput(f"--set {key}: not a key; write it as table.key=value") from None
    parts = []
    node: Any = table
    while isinstance(node, dict):
        ((name, node),) = node.items()
        parts.append(name)
    return parts


def toml_value(text: str) -> Any:
    """A TOML value, or the bare text where it is none (`--set run.name=first`)."""
    try:
        table = tomllib.loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["v"] if list(table) == ["v"] else text


def flat(c: Struct) -> dict[str, Any]:
    """`{"model.n_layer": 4, …}` of any config, for comparison and records."""
    out: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                walk(f"{prefix}.{k}" if prefix else k, v)
        else:
            out[prefix] = value

    walk("", msgspec.to_builtins(c))
    return out


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def keys_text(s: Struct, names: list[str]) -> str:
    hints = get_type_hints(type(s), include_extras=True)
    lines = []
    for name in names:
        about = _description(get_args(hints[name])[1:])
        # JSON scalars and lists of strings are TOML, but for DEL, which TOML wants escaped
        value = json.dumps(getattr(s, name), ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"{name} = {value}".ljust(40) + (f" # {about}" if about else ""))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def table_text(name: str, s: Struct) -> str:
    return f"[{name}]\n" + keys_text(s, [f.name for f in msgspec.structs.fields(type(s))])
