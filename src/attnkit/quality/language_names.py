"""Names of languages, and what language a side as a whole seems to be.

A script that one language is written in names it; languages that share a script are distinguished by their frequent
function words. Single lines have too few of either: they are compared with the sides of the corpus (`judgement.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attnkit.quality.languages import SCRIPTS, count_scripts

MIN_WORDS = 100  #: words of a side below which its language is not judged
MIN_SHARE = 0.08  #: of a side's words that are function words of its language
MIN_DISTINCT = 5  #: function words of a language that occur: in code, a few letters of it do
MIN_LEAD = 1.25  #: factor by which the first language has more of them than the second
_SAMPLE = 2000  # lines
_MIN_KANA = 0.05  # share of kana among the characters of Japanese

# Written from grammars' lists of articles, pronouns, prepositions and conjunctions.
_WORDS = {
    "en": "the of and to in is that it for was on with as are he she his they this have an at by from",
    "de": "der die und das den von zu mit sich des auf für ist im dem nicht ein eine als auch einem einer einen",
    "fr": "le la les et des en du une est que dans qui pour pas au sur par il plus ne un avec ce",
    "es": "el de la que y los en se del las un por con una su para es al lo como más no",
    "it": "di che il la è non per un sono una del con si da le dei nel della gli anche in i",
    "pt": "que não uma os para com em do da as dos mais ao são se por um na no é de o",
    "ca": "el la de i que els en les per un una amb del és no al com més dels aquest",
    "nl": "de het een van en in is dat op te zijn met voor niet aan er om ook als bij",
    "sv": "och att det som en på är av för med till den har inte om ett han var jag i",
    "da": "og at det er en til på som af med for den der ikke de har et jeg vi i",
    "nb": "og det er som på en til av med for den har ikke at de et jeg vi han i",
    "fi": "ja on ei että se oli hän mutta kun niin myös ovat tai ole joka kuin mitä voi sen hänen",
    "et": "ja on ei et see ta oli kui mis aga ka ning või seda oma siis nii ma",
    "pl": "i w nie na się z do że to jest jak po za od przez dla co ale czy są",
    "cs": "a se v na je že to s z do jsem jako ale za po pro by jsou si ve",
    "sk": "a sa v na je že to s z do som ako ale za po pre by sú si vo",
    "hr": "i u je se na da su za ne od kao što s ali sam bi će to iz o",
    "hu": "a az és nem hogy is egy de van ez meg csak mint volt már vagy ha még azt el",
    "ro": "și de în la cu nu o pe care din un mai este se pentru sunt că ce a fost",
    "tr": "ve bir bu da de için çok ile ne var o gibi daha olarak ama kadar olan sonra mi değil",
    "vi": "và của là có không một được cho những trong các này người đã với để khi đó tôi như",
    "id": "yang dan di untuk dengan ini itu dari dalam tidak pada akan ada adalah saya orang juga oleh ke karena",
    "ru": "и в не на что он как это с но по из за то так же все от было она",
    "uk": "і в не на що він як це з але та за до так й від було вона у про",
    "bg": "и в не на че той как това с но по от за са се да ще е си като",
    "sr": "и у је се на да су за не од као што с али сам би ће то из о",
    "ar": "في من على أن إلى ما هذا التي كان لا هذه مع عن هو هي",
    "fa": "و در به از که این را با است برای آن یک می",
}
_FUNCTION_WORDS = {code: frozenset(words.split()) for code, words in _WORDS.items()}
_BY_SCRIPT = {
    "Greek": "el", "Hebrew": "he", "Devanagari": "hi", "Bengali": "bn", "Tamil": "ta", "Thai": "th", "Georgian": "ka",
    "Armenian": "hy", "Hangul": "ko", "Ethiopic": "am",
}  # fmt: skip
_SCRIPT_OF = {"ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "sr": "Cyrillic", "ar": "Arabic", "fa": "Arabic"}
NAMES = {
    "am": "Amharic", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "ko": "Korean",
    "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""English names of the languages that are recognized, by ISO 639-1 code."""
_OTHER_NAMES = {
    "eo": "Esperanto", "eu": "Basque", "ga": "Irish", "lt": "Lithuanian", "lv": "Latvian", "no": "Norwegian",
    "sl": "Slovenian", "sq": "Albanian", "ur": "Urdu",
}  # fmt: skip
_MAX_CHARACTERS = 2000  # of a line; the rest is left out
_WORD = re.compile(r"[^\W\d_]+")


def name_of(code: str) -> str:
    """Return the English name of a language code; an unknown code is its own name.

    >>> name_of("de"), name_of("de-AT"), name_of("xx")
    ('German', 'German', 'xx')
    """
    return NAMES.get(_base(code)) or _OTHER_NAMES.get(_base(code), code)


def find_language(lines: Sequence[str]) -> str | None:
    """Return the code of the language that lines seem to be in; None if unclear."""
    sample = lines[:: max(1, len(lines) // _SAMPLE)]
    totals = count_scripts(sample).sum(0)
    if totals.sum() < MIN_WORDS:
        return None
    script = SCRIPTS[int(totals.argmax())]
    if script in _BY_SCRIPT:
        return _BY_SCRIPT[script]
    text = "\n".join([line[:_MAX_CHARACTERS] for line in sample]).lower()
    if script == "Han or kana":
        return "ja" if sum("\u3040" <= c <= "\u30ff" for c in text) > _MIN_KANA * len(text) else "zh"
    words = _WORD.findall(text)
    if len(words) < MIN_WORDS:
        return None
    shares = sorted(
        (sum(word in known for word in words) / len(words), code)
        for code, known in _FUNCTION_WORDS.items()
        if _SCRIPT_OF.get(code, "Latin") == script
    )
    if len(shares) < 2:
        return None
    (second, _), (first, code) = shares[-2:]
    is_clear = first >= max(MIN_SHARE, MIN_LEAD * second)
    return code if is_clear and len(_FUNCTION_WORDS[code].intersection(words)) >= MIN_DISTINCT else None


def is_other(expected: str, seen: str | None) -> bool:
    """Return whether a side that should be in one language is clearly in another.

    Of a language that is not recognized, nothing is known: a relative of it would be taken for it.
    """
    return seen is not None and _base(expected) in NAMES and _base(expected) != seen


def _base(code: str) -> str:
    return {"no": "nb", "iw": "he"}.get(base := re.split(r"[-_]", code.lower())[0], base)
