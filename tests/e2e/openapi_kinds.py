#!/usr/bin/python3
"""The kinds of job in docs/openapi.yaml: their parameters and steps, as the daemon lists them at /v1/kinds.

Run as a program (make openapi), it writes them into the document; existing descriptions stay. test_contract.py checks
that nothing would change.
"""
import os
import re
import textwrap

import yaml

from harness import ROOT, Daemon

PATH = os.path.join(ROOT, "docs", "openapi.yaml")


def schemas_of(kind):
    """The schema of each of a kind's parameters."""
    told = {}
    for param in kind["parameters"]:
        number = {"int": "integer", "real": "number"}.get(param["type"])
        schema = {"type": "string"}
        if number:
            schema = {"type": number, "minimum": param["min"], "maximum": param["max"]}
        elif param["type"] == "text":
            schema["maxLength"] = param["max_bytes"]
        if "choices" in param:
            choices = {"type": "string", "enum": param["choices"]}
            schema = {"anyOf": [choices, schema]} if number else choices
        if param["type"] == "set":
            each = "(" + "|".join(param["choices"]) + ")"
            schema = {"type": "string", "pattern": f"^{each}(,{each})*$"}
        told[param["name"]] = {**schema, "default": param["default"]}
    return told


def steps_of(kinds):
    """The names of all steps, without repetition."""
    return list(dict.fromkeys(step["name"] for kind in kinds for step in kind["steps"]))


def schema_name(kind):
    return "Parameters" + kind["name"].capitalize()


def entry(name, value, indent):
    """`name: value` of a map in the document, in lines of at most 120 columns."""
    flow = yaml.dump(value, default_flow_style=True, sort_keys=False, width=float("inf")).strip()
    whole = f"{name}: {flow}".replace(": ", ":\u00a0")  # a key and its value stay on one line
    lines = textwrap.wrap(whole, 120, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2),
                          break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ") + "\n"


def written(document, kinds):
    """The document, with its schemas replaced by those of `kinds`."""
    old = {name: description for name, description in
           re.findall(r"^    (Parameters\w+):\n      type: object\n((?:      description:.*\n(?:        .*\n)*)?)",
                      document, re.M)}
    first, last = document.index("    Parameters:\n"), document.index("    Step:\n")
    text = "    Parameters:\n      description: Parameters of a job, by its kind\n      anyOf:\n"
    text += "".join(f"        - {{$ref: '#/components/schemas/{schema_name(kind)}'}}\n" for kind in kinds)
    for kind in kinds:
        name = schema_name(kind)
        text += f"    {name}:\n      type: object\n"
        text += old.get(name) or f"      description: Parameters of kind {kind['name']}\n"
        text += "      additionalProperties: false\n      properties:\n"
        text += "".join(entry(param, schema, 8) for param, schema in schemas_of(kind).items())
    document = document[:first] + text + document[last:]
    return re.sub(r"(    Step:\n(?:.*\n)*?        name:\n(?:.*\n)*?)          enum: \[[^\]]*\]\n",
                  lambda match: match.group(1) + entry("enum", steps_of(kinds), 10), document, count=1)


def main():
    with Daemon() as daemon:
        kinds = daemon.get("/v1/kinds").expect(200).json()["kinds"]
    with open(PATH) as file:
        document = file.read()
    with open(PATH, "w") as file:
        file.write(written(document, kinds))


if __name__ == "__main__":
    main()
