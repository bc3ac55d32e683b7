"""Error messages in the terms of the command line: flags instead of Python's arguments."""

from __future__ import annotations

import re

from diffinity.errors import DiffinityError

SCHEMA_OPTIONS = (
    "lenient",
    "open",
    "whitespace",
    "max_depth",
    "any_depth",
    "max_string",
    "max_space",
    "max_branches",
)
FLAG_NAMES = {"num_inference_steps": "steps", "guidance_scale": "scale"}  # where the flag differs
PLAIN = (
    "length",
    "guidance",
    "decode",
    "method",
    "prefix",
    "prompt",
    "particles",
    "temperature",
    "order",
    "framing",
)
LONG = (*FLAG_NAMES, "best_of", "score_temp", "block_length", "cfg_scale", "retry_invalid", "batch_size")

# Advice that applies only to Python; the command line removes it.
ONLY_IN_PYTHON = (
    re.compile(r", or (?:load|use) with verify=False|, or use verify=False"),
    re.compile(r", or name one with tokenizer=…"),
    re.compile(r" \(give mask_id=…\)"),
    re.compile(r"give eos_id=…, or "),
    re.compile(r"; use backend='torch'"),
    re.compile(r" or messages="),
)
_VALUE = r"""(?:"([^"]*)"|'([^']*)'|(True|False|[\w.]+|…))?"""
_ARGUMENT = re.compile(rf"`?\b({'|'.join((*PLAIN, *LONG))})={_VALUE}`?")
_SCHEMA_ARGUMENT = re.compile(rf"`?\b({'|'.join(SCHEMA_OPTIONS)})={_VALUE}`?")
_SET = re.compile(rf"set `({'|'.join(SCHEMA_OPTIONS)})`")
_LONG = re.compile(rf"(?<![\w-])({'|'.join(LONG)})(?![\w=])")
_SUBJECT = re.compile(rf"(?<![\w-])({'|'.join(PLAIN)})(?= must | is an option | needs )")
_LIMIT = re.compile(r"`with diffinity\.limits\.use_limits\((\w+)=\.\.\.\):`")


def in_flags(error: DiffinityError) -> str:
    """An error's message with flags of the command line instead of Python's arguments.

    >>> from diffinity.errors import ConstraintTooLarge, InvalidArgument
    >>> in_flags(InvalidArgument("guidance_scale must be a finite number, at least 0, but is -1.0"))
    '--scale must be a finite number, at least 0, but is -1.0'
    >>> in_flags(ConstraintTooLarge("dfa_states", 10, 11, "this pattern")).partition(". ")[2]
    'Simplify the constraint, or raise the limit: --limit dfa_states=N'
    """
    first, *rest = str(error).split("\n")  # the other lines quote the user's source
    for pattern in ONLY_IN_PYTHON:
        first = pattern.sub("", first)
    first = _LIMIT.sub(r"--limit \1=N", first)
    first = _SET.sub(r"set --schema-option \1=N", first)
    first = _SCHEMA_ARGUMENT.sub(lambda m: f"--schema-option {m[1]}={_spelled(m).lower()}", first)
    first = _ARGUMENT.sub(lambda m: f"{_flag(m[1])} {_spelled(m)}".rstrip(), first)
    first = _LONG.sub(lambda m: _flag(m[1]), first)
    first = _SUBJECT.sub(lambda m: _flag(m[1]), first)
    return "\n".join([first, *rest])


def _flag(name: str) -> str:
    return "--" + FLAG_NAMES.get(name, name).replace("_", "-")


def _spelled(argument: re.Match[str]) -> str:
    return next((value for value in argument.groups()[1:] if value is not None), "")
