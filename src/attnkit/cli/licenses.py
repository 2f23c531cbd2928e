"""``attnkit licenses``: licences of the installed dependencies."""

from json import dumps

from attnkit.cli.options import Json
from attnkit.progress import console


def command(json: Json = False) -> None:
    """List the installed dependencies with version and licence.

    Dependencies of dependencies and of installed extras are included. The licences are those that the packages state in
    their metadata; attnkit itself is under Apache-2.0.

    \b
    Examples:
      attnkit licenses
      attnkit licenses --json > licenses.json
    """
    from attnkit.library.lessons import licenses

    found = licenses()
    if json:
        console.result(dumps([one.to_dict() for one in found], indent=1))
        return
    rows = [("package", "version", "required by", "licence")]
    rows += [(one.package, one.version, one.required_by, one.license) for one in found]
    console.result(console.printable(console.table(rows, indent="")))
