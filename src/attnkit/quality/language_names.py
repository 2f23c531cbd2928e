"""Names of languages, and what language a side as a whole seems to be.

A script that one language is written in names it; languages that share a script are distinguished by their frequent
function words. Single lines have too few of either: they are compared with the sides of the corpus (`judgement.py`,
`foreign_lines.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from attnkit.errors import UsageError
from attnkit.quality.languages import SCRIPTS, count_scripts

MIN_WORDS = 100  #: words of a side below which its language is not judged
MIN_SHARE = 0.08  #: of a side's words that are function words of its language
MIN_DISTINCT = 5  #: function words of a language that occur: in code, a few letters of it do
MIN_LEAD = 1.25  #: factor by which the first language has more of them than the second, or
MIN_ONLY = 10  #: of those that are not shared by both
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
    "da": "og i at det er en til på der af de med for den som ikke har et jeg vi kan sig fra eller mig hvad",
    "nb": "og i det er som på en til å av de med for den at har ikke et jeg vi kan seg fra eller meg hva",
    "fi": "ja on ei että se oli hän mutta kun niin myös ovat tai ole joka kuin mitä voi sen hänen jos ne",
    "et": "ja on ei et see ta oli kui mis aga ka ning või seda oma siis nii ma",
    "pl": "i w nie na się z do że to jest jak po za o od przez dla co ale czy są tak już jego by lub aby",
    "cs": "a se v na je že to s z do i o jako ale za k po pro by jsem jsou si ve nebo tak jak být který",
    "sk": "a sa v na je že to s z do o i ako ale za k po pre by sú si vo som alebo tak byť ktorý ak pri už",
    "hr": "i u je se na da su za ne od kao što s ali sam bi će to iz o ili koji koja kako biti",
    "lv": "un ir ar no ka uz par to kas pēc bet lai vai tas kā arī nav pie līdz bija jo",
    "lt": "ir yra į kad iš su tai kaip bet ar jo dėl už po apie nuo buvo tik jei jis",
    "sl": "in je v na se da so za ne ki z s pa kot bi ali tudi po od iz še to ni sem bo lahko",
    "hu": "a az és nem hogy is egy de van ez meg csak mint volt már vagy ha még azt el",
    "ro": "și de în la cu nu o pe care din un mai este se pentru sunt că ce a fost",
    "tr": "ve bir bu da de için çok ile ne var o gibi daha olarak ama kadar olan sonra mi değil en her ya ki",
    "vi": "và của là có không một được cho những trong các này người đã với để khi đó tôi như bạn sẽ ra thể",
    "id": "yang dan di untuk dengan ini itu dari dalam tidak pada akan ada adalah saya orang juga oleh ke",
    "ru": "и в не на что он как это с но по из за то так же все от было она или для вы если до его я у",
    "uk": "і в не на що він як це з але та за до так й від було вона у про або для є які щоб його ви",
    "bg": "и в не на че той как това с но по от за са се да ще е си като",
    "sr": "и у је се на да су за не од као што с али сам би ће то из о",
    "ar": "في من على أن إلى ما هذا التي كان لا هذه مع عن هو هي",
    "fa": "و در به از که این را با است برای آن یک می",
}
FUNCTION_WORDS = {code: frozenset(words.split()) for code, words in _WORDS.items()}
_BY_SCRIPT = {
    "Greek": "el", "Hebrew": "he", "Devanagari": "hi", "Bengali": "bn", "Tamil": "ta", "Thai": "th", "Georgian": "ka",
    "Armenian": "hy", "Hangul": "ko", "Ethiopic": "am",
}  # fmt: skip
SCRIPT_OF = {"ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "sr": "Cyrillic", "ar": "Arabic", "fa": "Arabic"}
NAMES = {
    "am": "Amharic", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian", "nl": "Dutch",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""English names of the languages that are recognized, by ISO 639-1 code."""
_OTHER_NAMES = {
    "eo": "Esperanto", "eu": "Basque", "ga": "Irish", "no": "Norwegian", "sq": "Albanian", "ur": "Urdu",
}  # fmt: skip
# ISO 639-1, with codes that it had before, such as iw.
_CODES = frozenset({
    "aa", "ab", "ae", "af", "ak", "am", "an", "ar", "as", "av", "ay", "az", "ba", "be", "bg", "bh", "bi", "bm", "bn",
    "bo", "br", "bs", "ca", "ce", "ch", "co", "cr", "cs", "cu", "cv", "cy", "da", "de", "dv", "dz", "ee", "el", "en",
    "eo", "es", "et", "eu", "fa", "ff", "fi", "fj", "fo", "fr", "fy", "ga", "gd", "gl", "gn", "gu", "gv", "ha", "he",
    "hi", "ho", "hr", "ht", "hu", "hy", "hz", "ia", "id", "ie", "ig", "ii", "ik", "in", "io", "is", "it", "iu", "iw",
    "ja", "ji", "jv", "ka", "kg", "ki", "kj", "kk", "kl", "km", "kn", "ko", "kr", "ks", "ku", "kv", "kw", "ky", "la",
    "lb", "lg", "li", "ln", "lo", "lt", "lu", "lv", "mg", "mh", "mi", "mk", "ml", "mn", "mo", "mr", "ms", "mt", "my",
    "na", "nb", "nd", "ne", "ng", "nl", "nn", "no", "nr", "nv", "ny", "oc", "oj", "om", "or", "os", "pa", "pi", "pl",
    "ps", "pt", "qu", "rm", "rn", "ro", "ru", "rw", "sa", "sc", "sd", "se", "sg", "sh", "si", "sk", "sl", "sm", "sn",
    "so", "sq", "sr", "ss", "st", "su", "sv", "sw", "ta", "te", "tg", "th", "ti", "tk", "tl", "tn", "to", "tr", "ts",
    "tt", "tw", "ty", "ug", "uk", "ur", "uz", "ve", "vi", "vo", "wa", "wo", "xh", "yi", "yo", "za", "zh", "zu",
})  # fmt: skip
# Suffixes of three letters that say what a file is, not its language.
_SUFFIXES = frozenset({
    "txt", "src", "tgt", "trg", "ref", "hyp", "out", "sys", "tok", "bpe", "spm", "raw", "low", "new", "old",
    "dev", "log", "doc", "dat", "tmp", "csv", "tsv", "npy", "npz", "xml", "tmx",
})  # fmt: skip
_MAX_CHARACTERS = 2000  # of a line; the rest is left out
_WORD = re.compile(r"[^\W\d_]+")


def name_of(code: str) -> str:
    """Return the English name of a language code; an unknown code is its own name.

    >>> name_of("de"), name_of("de-AT"), name_of("xx")
    ('German', 'German', 'xx')
    """
    return NAMES.get(_base(code)) or _OTHER_NAMES.get(_base(code), code)


def check_language(code: str | None, where: str) -> None:
    """Raise ``UsageError`` for an unknown language code.

    A two-letter code must be in ISO 639-1; any three letters and private codes, such as ``x-mine``, are accepted.

    >>> [check_language(code, "--src-lang") for code in ("pt-BR", "zh-Hans", "deu", "x-mine", None)]
    [None, None, None, None, None]
    """
    if code is None or re.fullmatch(r"(?i)x(-[a-z0-9]{1,8})+", code):
        return
    base = code.lower()[:2]
    if re.fullmatch(r"(?i)[a-z]{2,3}([-_][a-z0-9]{1,8})*", code) and (base in _CODES or code[2:3].isalpha()):
        return
    names = {name.lower(): short for short, name in {**_OTHER_NAMES, **NAMES}.items()}
    close = [names[name] for name in get_close_matches(code.lower(), names, 1)]
    close = close or get_close_matches(base, sorted(NAMES), 1) if code else []
    help = f"did you mean {close[0]}?" if close else "use a code of ISO 639, such as en or pt-BR, or your own: x-NAME"
    raise UsageError(f"unknown language code {code!r}", where=where, help=help)


def is_language_code(suffix: str) -> bool:
    """Return whether a suffix of a file is a language code, as ``txt`` is not.

    >>> [suffix for suffix in ("de", "pt-BR", "zh_Hans", "deu", "txt", "src", "xx", "") if is_language_code(suffix)]
    ['de', 'pt-BR', 'zh_Hans', 'deu']
    """
    base, *rest = re.split("[-_]", suffix.lower())
    return (base in _CODES or bool(re.fullmatch("[a-z]{3}", base) and base not in _SUFFIXES)) and all(
        re.fullmatch("[a-z0-9]{2,4}", part) for part in rest
    )


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
        for code, known in FUNCTION_WORDS.items()
        if SCRIPT_OF.get(code, "Latin") == script
    )
    if len(shares) < 2:
        return None
    (second, other), (first, code) = shares[-2:]
    own, others = FUNCTION_WORDS[code], FUNCTION_WORDS[other]
    n_own, n_other = (sum(word in known for word in words) for known in (own - others, others - own))
    # Danish and Norwegian share nearly all, but hardly use the words of the other that they do not share.
    is_clear = first >= MIN_SHARE and (first >= MIN_LEAD * second or n_own >= MIN_ONLY * n_other)
    return code if is_clear and len(own.intersection(words)) >= MIN_DISTINCT else None


def is_other(expected: str, seen: str | None) -> bool:
    """Return whether a side that should be in one language is clearly in another.

    Of a language that is not recognized, nothing is known: a relative of it would be taken for it.
    """
    base = _base(expected)
    return seen is not None and base in NAMES and base != seen and {base, seen} != {"hr", "sr"}  # in Latin letters


def _base(code: str) -> str:
    return {"no": "nb", "iw": "he"}.get(base := re.split(r"[-_]", code.lower())[0], base)
