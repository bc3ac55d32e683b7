"""`format`: the supported formats as regular expressions; every match is valid.

Some are narrower than their specification where that costs little and no validator disagrees: no leap seconds, no
quoted local parts in e-mail addresses, ASCII only in `iri` and the `idn-` formats, plain text as `regex` and
`uri-template`. A narrower language must not be subtracted from another, so a format never counts as violated under
`not`. In drafts since 2019-09 `format` is an annotation there, too. Unknown formats are annotations.
"""

from __future__ import annotations

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.regex import compile_regex
from diffinity.limits import charged_cache

_LONG_MONTH = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
# Gregorian; the year 0000 is left out.
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][48]|[13579][26]|[2468]0)00)"
_DATE = rf"(?:[0-9]{{4}}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:[Zz]|[+-]{_CLOCK})"
_NUMBER = r"(?:0|[1-9][0-9]{0,5})"
_DAY_TIME = rf"T(?:{_NUMBER}H(?:{_NUMBER}M(?:{_NUMBER}S)?)?|{_NUMBER}M(?:{_NUMBER}S)?|{_NUMBER}S)"
_DAYS = rf"(?:{_NUMBER}Y(?:{_NUMBER}M(?:{_NUMBER}D)?)?|{_NUMBER}M(?:{_NUMBER}D)?|{_NUMBER}D)"
_DURATION = rf"P(?:{_DAYS}(?:{_DAY_TIME})?|{_DAY_TIME}|{_NUMBER}W)"

# No two hyphens in a row (those mark punycode). A label has at most 61 characters (the standard allows 63), a name
# at most 61 + 3·62 (the standard allows 253).
_LABEL = r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_DOMAIN_LABEL = r"[A-Za-z](?:-?[A-Za-z0-9]){0,30}"
_EMAIL = rf"{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{0,2}}@{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL}){{1,3}}"

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = (
    "(?:"
    + "|".join(
        [
            rf"(?:{_H16}:){{6}}{_LS32}",
            rf"::(?:{_H16}:){{5}}{_LS32}",
            *(rf"(?:{_H16}(?::{_H16}){{0,{n}}})?::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)),
            rf"(?:{_H16}(?::{_H16}){{0,5}})?::{_H16}",
            rf"(?:{_H16}(?::{_H16}){{0,6}})?::",
        ]
    )
    + ")"
)
_UUID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"

_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_USER = r"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
_REG_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_AUTHORITY = rf"{_USER}(?:{_REG_NAME}|\[{_IPV6}\])(?::[0-9]{{0,4}})?"
_PATH = rf"(?:/{_PCHAR}*)*"
_HIERARCHY = rf"(?://{_AUTHORITY}{_PATH}|/(?:{_PCHAR}+{_PATH})?|{_PCHAR}+{_PATH})"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_HIERARCHY})?{_TAIL}"
_FIRST = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+"
_RELATIVE = rf"(?://{_AUTHORITY}{_PATH}|/(?:{_PCHAR}+{_PATH})?|{_FIRST}{_PATH})?{_TAIL}"
_URI_REFERENCE = rf"(?:{_URI}|{_RELATIVE})"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_REGEX = r"\^?(?:(?:[A-Za-z0-9 _@:;,=-]|\\[dwsDWS.*+?]|\[\^?[A-Za-z0-9_]+\]|\.)[*+?]?)*\$?"

_GRAMMARS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ip-address": _IPV4,
    "ipv6": _IPV6,
    "uuid": _UUID,
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri-reference": _URI_REFERENCE,
    "uri-template": r"[A-Za-z0-9._~/:?&=+-]*",
    "json-pointer": rf"(?s:{_POINTER})",
    "relative-json-pointer": rf"(?s:(?:0|[1-9][0-9]{{0,5}})(?:#|{_POINTER}))",
    "regex": _REGEX,
}


@charged_cache(maxsize=32)
def format_language(name: str) -> ByteDFA | None:
    """The strings of a format, as UTF-8; None for a format that is an annotation only.

    >>> leap = format_language("date")
    >>> leap.accepts(b"2024-02-29"), leap.accepts(b"2023-02-29"), format_language("color")
    (True, False, None)
    """
    grammar = _GRAMMARS.get(name)
    return None if grammar is None else compile_regex(f"(?:{grammar})")
