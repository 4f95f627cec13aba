"""The OpenAPI description as an HTML page. It loads nothing from other sites and runs no script."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from graphveil._util.escape import html

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --get: #15803d; --post: #1d4ed8; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2.5em auto; max-width: 54em; padding: 0 1.5em; }
h1 { margin-bottom: 0; } h1 small { font-weight: 400; font-size: .5em; opacity: .7; }
section { border: 1px solid var(--line); border-radius: .5em; margin: 1.5em 0; padding: .3em 1.2em 1em; }
h2 { font-size: 1.1em; margin: .7em 0 .3em; } h3 { font-size: .9em; margin: 1.2em 0 .3em; }
.method { color: #fff; border-radius: .3em; font-size: .75em; padding: .25em .6em; margin-right: .6em; }
.get { background: var(--get); } .post { background: var(--post); }
code, pre { font: .86em/1.45 ui-monospace, monospace; }
nav { display: flex; flex-wrap: wrap; gap: .3em 1.2em; font-size: .9em; } nav code { font-size: .95em; }
pre { background: var(--soft); border-radius: .4em; padding: .7em 1em; margin: .3em 0; }
pre { white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .3em .8em .3em 0; vertical-align: top; }
td:first-child { white-space: nowrap; width: 11em; }
@media (max-width: 34em) {
  body { margin: 1.5em auto; padding: 0 1em; } td { display: block; border: 0; padding: 0 0 .3em; }
  td:first-child { border-top: 1px solid var(--line); padding: .3em 0 0; width: auto; }
}
"""


def render_docs(described: dict[str, Any]) -> str:
    """Return the page: one section for each endpoint, and one for errors."""
    operation = [(path, *one) for path, methods in described["paths"].items() for one in methods.items()]
    links = "".join(
        f'<a href="#{html(one["operationId"])}"><code>{html(path)}</code></a>' for path, _, one in operation
    )
    sections = "".join(_section(described, *one) for one in operation)
    about = described["info"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(about['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{html(about['title'])} <small>{html(about['version'])}</small></h1>"
        f"<p>{html(about['description'])}</p>"
        f'<nav>{links}<a href="#errors">errors</a><a href="openapi.json">openapi.json</a></nav>{sections}'
        f'<section id="errors"><h2>Errors</h2>{_pre({"error": {"kind": "..", "message": ".."}})}'
        f"{_table(_refusals(described))}</section></html>"
    )


def _section(described: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<section id="{html(operation["operationId"])}"><h2>'
        f'<span class="method {method}">{method.upper()}</span>'
        f"<code>{html(path)}</code></h2><p>{html(operation['summary'])}.</p>"
    ]
    if "security" in operation:
        parts.append("<p>Needs a key: <code>Authorization: Bearer KEY</code></p>")
    if operation.get("parameters"):
        parts.append("<h3>Parameters</h3>")
        parts.append(_table((one["name"], one["description"]) for one in operation["parameters"]))
    if "requestBody" in operation:
        parts.append("<h3>Request</h3>" + _shape(described, operation["requestBody"]))
    answer = operation["responses"]["200"]
    parts.append("<h3>Response</h3>" + (_shape(described, answer) or f"<p>{html(answer['description'])}</p>"))
    return "".join(parts) + "</section>"


def _shape(described: dict[str, Any], body: dict[str, Any]) -> str:
    """Return examples and the fields of a JSON body; nothing for another body."""
    reference = body["content"].get("application/json", {}).get("schema", {}).get("$ref")
    if reference is None:
        return ""
    schema = described["components"]["schemas"][reference.rpartition("/")[2]]
    fields = ((name, one.get("description", "")) for name, one in schema["properties"].items())
    return "".join(map(_pre, schema.get("examples", ()))) + _table(fields)


def _refusals(described: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each error status of some endpoint, and its reason."""
    found = dict[str, str]()
    for methods in described["paths"].values():
        for operation in methods.values():
            found |= {status: one["description"] for status, one in operation["responses"].items()}
    yield from sorted((status, text) for status, text in found.items() if status >= "400")


def _pre(record: object) -> str:
    return f"<pre>{html(json.dumps(record))}</pre>"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = (f"<tr><td><code>{html(name)}</code></td><td>{html(text)}</td></tr>" for name, text in rows)
    return f"<table>{''.join(cells)}</table>"
